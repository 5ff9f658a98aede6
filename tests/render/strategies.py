"""Random layers, with paths of any depth and names of any length."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from graphmem.report import BREAKDOWN, Layer, Report
from graphmem.schedule import TOP_LEVEL
from tests.render.samples import inference_report

_COMPONENTS = st.sampled_from(("0", "1", "17", "net", "a_very_long_component_of_a_path" * 2))
_PATHS = st.lists(_COMPONENTS, min_size=1, max_size=6).map(".".join)
_SIZES = st.integers(0, 2**48)
_PEAKS = st.none() | _SIZES


@st.composite
def layer_lists(draw: st.DrawFn) -> list[Layer]:
    """Layers with unique paths, ``(top level)`` among them or not."""
    paths = draw(st.lists(_PATHS | st.just(TOP_LEVEL), unique=True, min_size=1, max_size=30))
    return [draw(st.builds(Layer, st.just(path), **_FIELDS)) for path in paths]


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Reports whose layers and breakdown add up to the peak."""
    layers = draw(layer_lists())
    total = sum(layer.live_at_peak_bytes for layer in layers)
    base = inference_report()
    return replace(
        base,
        peak=replace(base.peak, allocated_bytes=total, module=layers[-1].module),
        layers=tuple(layers),
        breakdown={**dict.fromkeys(BREAKDOWN, 0), draw(st.sampled_from(BREAKDOWN)): total},
        holders=tuple(replace(h, module=layers[0].module) for h in base.holders),
    )


_FIELDS = {
    "type": st.sampled_from(("Linear", "AModuleWithAVeryLongNameOfItsTypeIndeed", "")),
    "calls": st.integers(0, 10**6),
    "parameters": _SIZES,
    "parameter_bytes": _SIZES,
    "output_bytes": _SIZES,
    "saved_bytes": _SIZES,
    "gradient_bytes": _SIZES,
    "optimizer_bytes": _SIZES,
    "forward_peak_bytes": _PEAKS,
    "backward_peak_bytes": _PEAKS,
    "live_at_peak_bytes": _SIZES,
}

"""Reports made by hand to be compared: rows of modules, and all else derived from these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphmem.report import BREAKDOWN, Fit, Fits, InputInfo, Layer, Peak, Report, Step, Subject

MIB = 1024**2
TOP = "(top level)"


def row(
    module: str, kind: str = "Linear", parameters: int = 0, live: int | None = None, saved: int = 0
) -> Layer:
    """A module with fp32 parameters, which hold all of its bytes if nothing else is said."""
    nbytes = 4 * parameters
    return Layer(
        module=module,
        type=kind,
        calls=1,
        parameters=parameters,
        parameter_bytes=nbytes,
        output_bytes=64,
        saved_bytes=saved,
        gradient_bytes=0,
        optimizer_bytes=0,
        forward_peak_bytes=None,
        backward_peak_bytes=None,
        live_at_peak_bytes=nbytes + saved if live is None else live,
    )


def rows(*texts: str) -> tuple[Layer, ...]:
    """Modules as ``path Type parameters``, below a top level."""
    parts = (text.split() for text in texts)
    return (row(TOP, "Net"), *(row(path, kind, int(count)) for path, kind, count in parts))


def stack(name: str, count: int, width: int = 100) -> list[str]:
    """``count`` blocks of two layers each, in a ModuleList, for ``rows``."""
    return [
        f"{name} ModuleList 0",
        *(
            text
            for i in range(count)
            for text in (
                f"{name}.{i} Block 0",
                f"{name}.{i}.up Linear {width}",
                f"{name}.{i}.down Linear {2 * width}",
            )
        ),
    ]


def report(layers: Iterable[Layer]) -> Report:
    """A report whose peak is all that its layers hold: parameters, and what is saved."""
    own = tuple(layers)
    total = sum(layer.live_at_peak_bytes for layer in own)
    saved = sum(layer.saved_bytes for layer in own)
    breakdown = {**dict.fromkeys(BREAKDOWN, 0), "parameters": total - saved}
    breakdown["saved_for_backward"] = saved
    parameters = sum(layer.parameters for layer in own)
    return Report(
        subject=Subject("file", "net.py:net", parameters, parameters, (input_of(8),)),
        created_from={"mode": "training", "optimizer": "adamw"},
        peak=Peak(
            requested_bytes=total,
            allocated_bytes=total,
            reserved_bytes=total + MIB,
            device_bytes=None,
            step=2,
            phase="forward",
            op="aten.mm",
            op_index=3,
            module=own[-1].module,
            source="net.py:3",
        ),
        steps=(Step(1, total, total + MIB, {"forward": total}),),
        breakdown=breakdown,
        layers=own,
        holders=(),
        unknown=(),
        idle_bytes=0,
        last_use_peak_bytes=total,
        graphmem="0.1.0",
        torch="2.13.0",
    )


def input_of(batch: int) -> InputInfo:
    """The one input."""
    return InputInfo("x", (batch, 16), "float32")


def on(device: str, of: Report, headroom: int) -> Report:
    """The report with its answer for a GPU."""
    given = {"name": device, "arch": "sm_90", "capacity_bytes": 100 * MIB}
    fits = Fits({device: Fit(device, headroom >= 0, headroom, None)})
    options = {**of.created_from, "device": device}
    return replace(of, device=given, fits=fits, created_from=options)

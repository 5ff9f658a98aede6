"""What a report says of an ONNX model and of each of its nodes, as notes in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from graphmem.as_text import format_bytes
from graphmem.report import Layer, Report
from graphmem.report.history import Tensor

_SIZES = (
    ("parameter_bytes", "parameters"),
    ("output_bytes", "outputs"),
    ("saved_bytes", "saved for backward"),
    ("gradient_bytes", "gradient"),
    ("optimizer_bytes", "optimizer"),
    ("forward_peak_bytes", "all memory in use, forward"),
    ("backward_peak_bytes", "all memory in use, backward"),
    ("live_at_peak_bytes", "its share of the peak"),
)


class Notes:
    """The notes of a report; keys begin with ``graphmem``, sizes are in bytes and in words."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._layers = {layer.module: layer for layer in report.layers}
        self._tensors: dict[str, list[Tensor]] = defaultdict(list)
        for tensor in report.history.tensors:
            if tensor.name:
                self._tensors[tensor.name].append(tensor)

    def of_model(self) -> dict[str, str]:
        """The peak: how much, when, and most of what."""
        peak = self._report.peak
        parts = sorted(self._report.breakdown.items(), key=lambda item: -item[1])
        notes = {
            "graphmem version": self._report.graphmem,
            "graphmem peak allocated": _size(peak.allocated_bytes),
            "graphmem peak node": f"{peak.op} {peak.module}",
        }
        if peak.reserved_bytes is not None:
            notes["graphmem peak reserved"] = _size(peak.reserved_bytes)
        for name, nbytes in parts:
            if nbytes:
                notes[f"graphmem at the peak: {name.replace('_', ' ')}"] = _size(nbytes)
        return notes

    def of_node(self, path: str, outputs: Sequence[str]) -> dict[str, str]:
        """The sizes of a node; where the runtime has made another of it, of its outputs."""
        layer = self._layers.get(path)
        notes = {} if layer is None else dict(_of_layer(layer))
        for output in outputs:
            for tensor in self._tensors.get(output, [])[:1]:
                notes[f"graphmem output {output}"] = _size(tensor.bytes)
        if notes:
            return notes
        return {"graphmem": "no memory of its own: it does not run as a node of this name"}


def _of_layer(layer: Layer) -> Iterator[tuple[str, str]]:
    for field, words in _SIZES:
        nbytes = getattr(layer, field)
        if nbytes:
            yield f"graphmem {words}", _size(nbytes)


def _size(nbytes: int) -> str:
    words = format_bytes(nbytes)
    return words if nbytes < 1024 else f"{nbytes} B ({words})"

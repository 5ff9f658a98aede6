"""A report in the formats of other tools: PyTorch's memory viewer, Perfetto, spreadsheets."""

from graphmem.exports.layers import as_csv
from graphmem.exports.perfetto import as_trace
from graphmem.exports.snapshot import as_snapshot, pickled

__all__ = ["as_csv", "as_snapshot", "as_trace", "pickled"]

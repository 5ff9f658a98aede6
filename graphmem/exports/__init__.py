"""A report for other tools: PyTorch's memory viewer, Perfetto, Netron, spreadsheets."""

from graphmem.exports.layers import as_csv
from graphmem.exports.notes import Notes
from graphmem.exports.perfetto import as_trace
from graphmem.exports.snapshot import as_snapshot, pickled

__all__ = ["Notes", "as_csv", "as_snapshot", "as_trace", "pickled"]

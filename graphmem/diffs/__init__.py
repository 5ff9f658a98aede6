"""Two reports compared: what grew, where, who holds it, and what is not like with like.

``compare`` takes finished reports and gives a ``Diff``, whose JSON is of schema
``graphmem.diff/1`` (``diff.schema.json`` in this package).
"""

from graphmem.diffs.api import diff, read_file
from graphmem.diffs.compare import compare
from graphmem.diffs.groups import grouped, overview
from graphmem.diffs.items import (
    COLUMNS,
    Change,
    Difference,
    FitChange,
    Group,
    HolderGroup,
    LayerChange,
    Moment,
    PeakMoment,
    Rename,
    Side,
    Status,
    StepChange,
    Unknowns,
)
from graphmem.diffs.matching import match
from graphmem.diffs.summary import percent
from graphmem.diffs.whole import SCHEMA, Diff, json_schema

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "Change",
    "Diff",
    "Difference",
    "FitChange",
    "Group",
    "HolderGroup",
    "LayerChange",
    "Moment",
    "PeakMoment",
    "Rename",
    "Side",
    "Status",
    "StepChange",
    "Unknowns",
    "compare",
    "diff",
    "grouped",
    "json_schema",
    "match",
    "overview",
    "percent",
    "read_file",
]

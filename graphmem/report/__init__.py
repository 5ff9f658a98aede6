"""The report: finished numbers about one analysis, and its JSON form.

All sizes are integers of bytes. ``Report.to_dict`` gives the JSON of schema
``graphmem.report/1``, which ``report.schema.json`` in this package describes, and
``read_report`` reads it; renderers take a finished ``Report`` and compute nothing.
"""

from graphmem.report.fits import Fit, Fits, OutOfMemory
from graphmem.report.items import (
    BREAKDOWN,
    Arena,
    ArenaRun,
    Compiled,
    CopyItem,
    GrowthItem,
    Holder,
    HostItem,
    InputInfo,
    Kernel,
    Layer,
    Peak,
    Range,
    RecomputationItem,
    Step,
    Subject,
    TimelinePoint,
    UnknownItem,
)
from graphmem.report.reading import read_report
from graphmem.report.whole import SCHEMA, Report, json_schema

__all__ = [
    "BREAKDOWN",
    "SCHEMA",
    "Arena",
    "ArenaRun",
    "Compiled",
    "CopyItem",
    "Fit",
    "Fits",
    "GrowthItem",
    "Holder",
    "HostItem",
    "InputInfo",
    "Kernel",
    "Layer",
    "OutOfMemory",
    "Peak",
    "Range",
    "RecomputationItem",
    "Report",
    "Step",
    "Subject",
    "TimelinePoint",
    "UnknownItem",
    "json_schema",
    "read_report",
]

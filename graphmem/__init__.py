"""graphmem: the true peak of GPU memory of a PyTorch or ONNX model, before anything runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphmem.errors import (
    GraphmemError,
    InputError,
    InvariantError,
    ModelLoadError,
    TraceError,
    UnsupportedOpError,
    UsageError,
    ValueNeededError,
)

if TYPE_CHECKING:
    from graphmem.analysis import analyze, graph, record
    from graphmem.diffs import Diff, diff
    from graphmem.largest import MaxBatch, max_batch
    from graphmem.plans import Plan, plan
    from graphmem.report import Report
    from graphmem.sources.inputs import InputSpec, spec
    from graphmem.sources.onnx.subject import from_onnx
    from graphmem.sources.onnx.user_rules import onnx_rule
    from graphmem.sweeps import Case, cases, sweep
    from graphmem.targets.user_rules import register_rule
    from graphmem.testing import assert_fits
    from graphmem.textbook import estimate

__version__ = "0.1.0"

__all__ = [
    "Case",
    "Diff",
    "GraphmemError",
    "InputError",
    "InputSpec",
    "InvariantError",
    "MaxBatch",
    "ModelLoadError",
    "Plan",
    "Report",
    "TraceError",
    "UnsupportedOpError",
    "UsageError",
    "ValueNeededError",
    "__version__",
    "analyze",
    "assert_fits",
    "cases",
    "diff",
    "estimate",
    "from_onnx",
    "graph",
    "max_batch",
    "onnx_rule",
    "plan",
    "record",
    "register_rule",
    "spec",
    "sweep",
]

# What needs torch, or time, is imported when it is first asked for.
_LAZY = {
    "Diff": "graphmem.diffs",
    "diff": "graphmem.diffs",
    "Report": "graphmem.report",
    "analyze": "graphmem.analysis",
    "graph": "graphmem.analysis",
    "record": "graphmem.analysis",
    "MaxBatch": "graphmem.largest",
    "max_batch": "graphmem.largest",
    "Plan": "graphmem.plans",
    "plan": "graphmem.plans",
    "InputSpec": "graphmem.sources.inputs",
    "from_onnx": "graphmem.sources.onnx.subject",
    "onnx_rule": "graphmem.sources.onnx.user_rules",
    "register_rule": "graphmem.targets.user_rules",
    "spec": "graphmem.sources.inputs",
    "Case": "graphmem.sweeps",
    "cases": "graphmem.sweeps",
    "assert_fits": "graphmem.testing",
    "estimate": "graphmem.textbook",
    "sweep": "graphmem.sweeps",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'graphmem' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

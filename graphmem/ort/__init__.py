"""ONNX Runtime's plan: in which order nodes run, which buffers they share, and what that takes.

Plain data and functions: what an .onnx file says, and which shapes its values have, is found
by ``graphmem.sources.onnx.runtime``.
"""

from graphmem.ort.graph import Call, Execution, Graph, Node, Value
from graphmem.ort.pattern import Pattern, PatternTrace
from graphmem.ort.planner import Kind, Placing, Plan, make_plan
from graphmem.ort.runs import Moment, Run, RunSettings, Setup, simulate

__all__ = [
    "Call",
    "Execution",
    "Graph",
    "Kind",
    "Moment",
    "Node",
    "Pattern",
    "PatternTrace",
    "Placing",
    "Plan",
    "Run",
    "RunSettings",
    "Setup",
    "Value",
    "make_plan",
    "simulate",
]

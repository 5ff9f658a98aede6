"""Small models from ONNX's text format, run and analyzed."""

from __future__ import annotations

from typing import Any

import torch
from onnx import parser

from graphmem import Report, analyze
from graphmem.sources.onnx import rules as _rules  # registers them
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from tests.sources.onnx import backend

assert _rules


def module(text: str, *, opset: int = 17, weights: bool = True) -> torch.fx.GraphModule:
    """The graph ``g (...) => (...) {...}`` as a module."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    return build_module(as_model(proto, "graph.onnx"), weights=weights)


def compute(text: str, *inputs: Any, opset: int = 17) -> Any:
    """What the graph gives for real inputs."""
    return module(text, opset=opset)(*inputs)


def analysis(text: str, *inputs: Any, mode: str = "inference", **options: Any) -> Report:
    """The report of the graph, whose large weights have no values."""
    return analyze(module(text, weights=False), inputs, mode=mode, **options)


def notes(report: Report) -> dict[str, str]:
    """What the rules did not know, and what was assumed."""
    return {
        item.what: item.assumed for item in report.unknown if (item.where or "").startswith("node ")
    }


def sizes(report: Report) -> dict[str, int]:
    """The bytes that each module gives, by its name; "(top level)" is the graph."""
    return {layer.module: layer.output_bytes for layer in report.layers}


def node_tests(*operators: str) -> list[str]:
    """The names of the node tests whose model has nodes of these operators and constants alone."""
    own = {*operators, "Constant"}
    return [
        name
        for name, case in backend.cases().items()
        if (kinds := {node.op_type for node in case.model.graph.node}) <= own
        and kinds != {"Constant"}
    ]

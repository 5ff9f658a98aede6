"""Undo what ONNX Runtime does to half precision for its CPU provider, which has it not.

Before it optimizes further it puts casts to float around nodes of half precision, with names of
their own; the CUDA provider gets none. Without them the values between are in half precision
again: what the file says of their types is left out.

Source: ``InsertCastTransformer`` in onnxruntime/core/optimizer/insert_cast_transformer.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

INSERTED = "InsertedPrecisionFreeCast_"


def without_inserted_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without those casts; the same object, changed."""
    for graph in _graphs(model.graph):
        _undo(graph)
    return model


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _undo(graph: onnx.GraphProto) -> None:
    casts = [node for node in graph.node if node.name.startswith(INSERTED)]
    if not casts:
        return
    renamed = dict(_renamed(casts))
    kept = [node for node in graph.node if not node.name.startswith(INSERTED)]
    for node in kept:
        node.input[:] = [_last(name, renamed) for name in node.input]
        node.output[:] = [_last(name, renamed) for name in node.output]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)


def _renamed(casts: list[onnx.NodeProto]) -> Iterator[tuple[str, str]]:
    """The names in float, each with the one in half precision that takes its place."""
    for cast in casts:
        to_float = any(a.name == "to" and a.i == onnx.TensorProto.FLOAT for a in cast.attribute)
        given, made = cast.input[0], cast.output[0]
        yield (made, given) if to_float else (given, made)


def _last(name: str, renamed: dict[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name

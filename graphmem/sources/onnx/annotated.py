"""A copy of an .onnx file with notes, which Netron and others show beside each node.

The notes are ``metadata_props`` of the model and of its nodes (onnx.proto, IR version 10; older
readers pass over those of nodes). Nothing else is changed: weights in other files stay there, so
the copy runs only beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from graphmem.sources.onnx.names import module_path
from graphmem.sources.onnx.read import as_model, load_proto

Notes = Mapping[str, str]


def annotated(path: str, of_model: Notes, of_node: Callable[[str, Sequence[str]], Notes]) -> bytes:
    """The copy, as the bytes of a file.

    Args:
        of_node: the notes on a node, by its path as a module and the names of its outputs.

    Raises:
        ModelLoadError: in one line, if the file holds no model.
    """
    proto = load_proto(path)
    paths = {
        output: module_path(node.name)
        for node in as_model(load_proto(path), path).graph.nodes
        for output in node.outputs
        if output
    }
    _write(proto, of_model)
    for node in proto.graph.node:
        outputs = [output for output in node.output if output]
        own = next((paths[output] for output in outputs if output in paths), node.name)
        _write(node, of_node(own, outputs))
    return proto.SerializeToString()


def _write(holder: onnx.ModelProto | onnx.NodeProto, notes: Notes) -> None:
    """Put notes in, in the place of older ones of the same names."""
    kept = [(prop.key, prop.value) for prop in holder.metadata_props if prop.key not in notes]
    del holder.metadata_props[:]
    for key, value in (*kept, *notes.items()):
        holder.metadata_props.add(key=key, value=value)

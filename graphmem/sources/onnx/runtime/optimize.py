"""The graph as ONNX Runtime runs it: optimized by ONNX Runtime itself, in its own order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from graphmem.errors import ModelLoadError
from graphmem.ort.order import Ordered, execution_order
from graphmem.sources.onnx.runtime.cuda.casts import without_inserted_casts
from graphmem.sources.onnx.runtime.refusals import reason
from graphmem.sources.onnx.runtime.stand_in import missing_values, stand_in


def is_installed() -> bool:
    """Whether ONNX Runtime is there to optimize the graph."""
    try:
        import onnxruntime
    except ImportError:
        return False
    return bool(onnxruntime.__version__)


def version() -> str:
    """ONNX Runtime's version."""
    import onnxruntime

    return str(onnxruntime.__version__)


FOR_CPU_ALONE = (
    *("GemmActivationFusion", "MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion"),
    *("ConvActivationFusion", "QDQSelectorActionTransformer", "MatMulNBitsFusion"),
    *("QDQS8ToU8Transformer", "MatMulActivationFusion", "NhwcTransformer"),
)
"""What ONNX Runtime does at its level "extended" for nodes of the CPU provider alone.

Source: ``GenerateTransformers`` in onnxruntime/core/optimizer/graph_transformer_utils.cc, and
graphs that ONNX Runtime 1.31.1 writes with its CUDA provider on a stand-in for CUDA's runtime.
"""


def optimized(path: str, original: onnx.ModelProto, *, for_cuda: bool = False) -> onnx.ModelProto:
    """The model as ONNX Runtime optimizes it, at its default level.

    For its CPU provider convolutions have the blocked layout of this machine's processor, as
    they will have where the model runs on one like it. For its CUDA provider the CPU provider
    makes the graph too, without what is for itself alone. Nodes are in the order of the file
    that it writes. Weights that lie in other files, and that it does not change, lie there
    still.

    Args:
        path: the file.
        original: what it holds.
        for_cuda: for the CUDA provider.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        lacks = missing_values(path, original)
        source = stand_in(path, original, Path(folder)) if lacks else path
        _optimize(path, source, target, for_cuda=for_cuda)
        # What lies in other files is found from the model's own folder, not from this one.
        made = _without_lost_inputs(onnx.load(target, load_external_data=False), original)
        return without_inserted_casts(made) if for_cuda else made


def _optimize(path: str, source: str, target: Path, *, for_cuda: bool) -> None:
    """Let ONNX Runtime optimize the model in ``source``; errors speak of ``path``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(target)
    # The graph is written before weights are packed, which would only take time and memory.
    options.add_session_config_entry("session.disable_prepacking", "1")
    if for_cuda:
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.graph_optimization_level = level
    left_out = list(FOR_CPU_ALONE) if for_cuda else []
    try:
        onnxruntime.InferenceSession(
            source, options, ["CPUExecutionProvider"], disabled_optimizers=left_out
        )
    except Exception as error:
        raise ModelLoadError(
            f"{path}: ONNX Runtime can't load it: {reason(error)}; "
            "--no-ort-optimize plans the file as it is"
        ) from error


def _without_lost_inputs(model: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """The model without inputs that were initializers before they were folded away.

    Files of IR version 3 list initializers among the inputs.
    """
    known = {weight.name for weight in original.graph.initializer}
    kept = {weight.name for weight in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name in kept or v.name not in known]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def in_order(graph: onnx.GraphProto, original: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes in the order in which ONNX Runtime runs them.

    It orders them by their dependencies and their indices in its own graph.
    """
    return [graph.node[at] for at in execution_order(_ordered(graph, indices(graph, original)))]


def indices(graph: onnx.GraphProto, original: onnx.GraphProto) -> list[int]:
    """The index of each node in ONNX Runtime's own graph.

    Nodes of the file are counted as they stand there (constants are none). Nodes that an
    optimization makes come after them, as they are made: while it goes through the nodes before
    in the order in which they would run. Those that bring a blocked layout back are made last,
    in an order that changes from one process to the next (``NchwcTransformerImpl::Finalize``
    goes through a hash table of pointers): here they come in the order of what they turn.
    """
    counted = [node for node in original.node if node.op_type != "Constant"]
    same = {_result(node): at for at, node in enumerate(counted)}
    named = {node.name: at for at, node in enumerate(counted) if node.name}
    makers = {name: at for at, node in enumerate(counted) for name in node.output}
    kept = [_kept(node, counted, same, named) for node in graph.node]
    earlier = [
        _earlier(node, named, makers) if at is None else at for node, at in _each(graph, kept)
    ]
    rank = {at: place for place, at in enumerate(execution_order(_ordered(graph, earlier)))}
    later = len(graph.node)
    return [
        len(counted) + rank[position] + (later if node.op_type == "ReorderOutput" else 0)
        if at is None
        else at
        for position, (node, at) in enumerate(_each(graph, kept))
    ]


def _kept(
    node: onnx.NodeProto,
    counted: Sequence[onnx.NodeProto],
    same: Mapping[tuple[str, ...], int],
    named: Mapping[str, int],
) -> int | None:
    """The index of a node that is still the file's; None for one that was made.

    Its outputs may be others by now: a Conv takes those of the BatchNormalization behind it.
    """
    at = same.get(_result(node), named.get(node.name))
    if at is None or (counted[at].domain, counted[at].op_type) != (node.domain, node.op_type):
        return None
    return at


def _each(
    graph: onnx.GraphProto, indices: list[int | None]
) -> Iterator[tuple[onnx.NodeProto, int | None]]:
    return zip(graph.node, indices, strict=True)


def _earlier(node: onnx.NodeProto, named: Mapping[str, int], makers: Mapping[str, int]) -> int:
    """The index of the node that one was made of: by its name, or by the value that it turns.

    After all where it is not known.
    """
    name = node.name.removesuffix("_nchwc")
    for key in (name, name.removeprefix("fused ")):
        if key in named:
            return named[key]
    values = (*node.output, *node.input)
    return next((makers[value] for value in values if value in makers), len(named))


def _result(node: onnx.NodeProto) -> tuple[str, ...]:
    return (node.domain, node.op_type, *node.output)


def _ordered(graph: onnx.GraphProto, indices: Sequence[int]) -> list[Ordered]:
    return [
        Ordered(index, reads(node), tuple(filter(None, node.output)))
        for node, index in zip(graph.node, indices, strict=True)
    ]


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """What a node reads: its inputs, and what its bodies capture."""
    return (*filter(None, node.input), *captured(node))


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """The names that a node's bodies read of the graphs around them, each once."""
    names: dict[str, None] = {}
    for body in bodies(node):
        own = {v.name for v in body.input} | {w.name for w in body.initializer}
        own |= {name for inner in body.node for name in inner.output}
        for inner in body.node:
            names.update(dict.fromkeys(n for n in reads(inner) if n not in own))
        names.update(dict.fromkeys(v.name for v in body.output if v.name not in own))
    return tuple(names)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    return [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]

"""Where the CUDA provider's kernels have their inputs and outputs, and which share a buffer.

``HOST_INPUTS`` are read on the host, ``HOST_OUTPUTS`` left there. ``ALIASES`` are always one
buffer, ``IN_PLACE`` may be; pairs are (input, output). ``TAKES_NOTHING`` are operators whose
kernels were seen to allocate nothing for themselves.

Source: ``.InputMemoryType``, ``.OutputMemoryType``, ``.Alias`` and ``.MayInplace`` of the
kernels, as ``tools/ort_cuda/probe.py`` measures them with ONNX Runtime 1.31.1's own provider on
a stand-in for CUDA's runtime, in the operators' node tests; those marked [S] were read in
onnxruntime/core/providers/cuda and contrib_ops/cuda.
"""

from __future__ import annotations

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.kernels import Pairs

_Key = tuple[str, str]
_FIRST: Pairs = ((0, 0),)
_MICROSOFT = "com.microsoft"

HOST_INPUTS: dict[_Key, frozenset[int]] = {
    **{
        ("", op): frozenset(places)
        for op, places in {
            "ConstantOfShape": (0,),
            "Expand": (1,),
            "If": (0,),
            "Loop": (0, 1),
            "NonMaxSuppression": (2, 3, 4),
            "OneHot": (1,),  # [S] the depth: tensor/onehot.cc
            "Pad": (1, 2, 3),  # [S] tensor/pad.cc
            "Range": (0, 1, 2),  # [S] generator/range.cc
            "ReduceL1": (1,),
            "ReduceL2": (1,),
            "ReduceLogSum": (1,),  # [S] reduction/reduction_ops.cc, as the others
            "ReduceLogSumExp": (1,),
            "ReduceMax": (1,),
            "ReduceMean": (1,),
            "ReduceMin": (1,),
            "ReduceProd": (1,),
            "ReduceSum": (1,),
            "ReduceSumSquare": (1,),
            "Reshape": (1,),
            "Resize": (1, 2, 3),
            "Slice": (1, 2, 3, 4),
            "Split": (1,),
            "Squeeze": (1,),
            "Tile": (1,),
            "TopK": (1,),
            "Trilu": (1,),
            "Unsqueeze": (1,),
            "Upsample": (1,),
        }.items()
    }
}
HOST_OUTPUTS: dict[_Key, frozenset[int]] = {
    # [S] tensor/shape_op.cc, size.cc
    ("", "Shape"): frozenset({0}),
    ("", "Size"): frozenset({0}),
    ("", "MemcpyToHost"): frozenset({0}),
}

ALIASES: dict[_Key, Pairs] = {
    ("", op): _FIRST for op in ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
}

IN_PLACE: dict[_Key, Pairs] = {
    **{
        ("", op): _FIRST
        for op in (
            *("Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "ScatterND"),
            *("Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Tanh", "TensorScatter"),
            *("ThresholdedRelu", "Trilu"),
        )
    },
    # [S] contrib_ops/cuda/activation/activations.cc
    **{(_MICROSOFT, op): _FIRST for op in ("Gelu", "QuickGelu")},
}

TAKES_NOTHING: frozenset[_Key] = frozenset(
    {
        *ALIASES,
        *IN_PLACE,
        *HOST_OUTPUTS,
        *(
            ("", op)
            for op in (
                *("Abs", "Add", "And", "AveragePool", "BatchNormalization", "Ceil", "Clip"),
                *("Concat", "ConstantOfShape", "Cos", "Div", "Dropout", "Equal", "Erf", "Exp"),
                *("Expand", "Floor", "Gather", "GatherElements", "Gemm", "GlobalAveragePool"),
                *("GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample", "IsInf", "IsNaN"),
                *("LRN", "LayerNormalization", "Less", "LessOrEqual", "Log", "LpNormalization"),
                *("Max", "MemcpyFromHost", "Min", "Mul", "Neg", "Not", "Or", "PRelu", "Pow"),
                *("RMSNormalization", "Reciprocal", "RoiAlign", "RotaryEmbedding", "Round"),
                *("Scatter", "ScatterElements", "Sign", "Sin", "Slice", "Sqrt", "Sub", "Sum"),
                *("Tile", "Transpose", "Upsample", "Where", "Xor", "If"),
            )
        ),
    }
)


def host_inputs(node: Node) -> frozenset[int]:
    """The inputs of a node on the CUDA provider that its kernel reads on the host."""
    return HOST_INPUTS.get((node.domain, node.op), frozenset())


def host_outputs(node: Node) -> frozenset[int]:
    """The outputs of a node on the CUDA provider that its kernel leaves on the host."""
    return HOST_OUTPUTS.get((node.domain, node.op), frozenset())

"""Which inputs a kernel of ONNX Runtime's CPU provider shares its outputs' buffers with.

The pairs are (input, output). ``ALIASES`` are always one buffer, ``IN_PLACE`` may be. What is
not listed shares nothing: binary and most unary arithmetic among it.

Source: ``.Alias`` and ``.MayInplace`` of the ``KernelDefBuilder`` of each kernel, in
onnxruntime/core/providers/cpu and contrib_ops/cpu; those of ONNX's own domain as
``tools/ort_kernels.py`` measures them with ONNX Runtime 1.31.1.
"""

from __future__ import annotations

Pairs = tuple[tuple[int, int], ...]

_FIRST: Pairs = ((0, 0),)
_SUM: Pairs = ((3, 0),)
_MICROSOFT = "com.microsoft"
_BLOCKED = "com.microsoft.nchwc"

ALIASES: dict[tuple[str, str], Pairs] = {
    **{
        ("", op): _FIRST
        for op in (
            *("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"),
            *("Optional", "OptionalGetElement"),
        )
    },
    # The running mean and variance, updated where they lie: core/providers/cpu/nn/batch_norm.cc
    ("", "BatchNormalization"): ((3, 1), (4, 2)),
}

IN_PLACE: dict[tuple[str, str], Pairs] = {
    **{
        ("", op): _FIRST
        for op in (
            *("BitCast", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu"),
            *("Scatter", "ScatterElements", "Selu", "Shrink", "Sigmoid", "Softmax"),
            *("Softplus", "Softsign", "Tanh", "TensorScatter", "ThresholdedRelu"),
        )
    },
    # core/providers/cpu/activation and contrib_ops/cpu/activations.cc
    **{(_MICROSOFT, op): _FIRST for op in ("ParametricSoftplus", "ScaledTanh")},
    # The sum that is added to a convolution: contrib_ops/cpu/fused_conv.cc, nchwc_ops.cc
    (_MICROSOFT, "FusedConv"): _SUM,
    (_BLOCKED, "Conv"): _SUM,
}


def aliases(domain: str, op: str) -> Pairs:
    """The outputs that are always their input's buffer."""
    return ALIASES.get((domain, op), ())


def in_place(domain: str, op: str) -> Pairs:
    """The outputs that may take their input's buffer."""
    return IN_PLACE.get((domain, op), ())

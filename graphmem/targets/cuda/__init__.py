"""What CUDA's kernels do differently: one file a family of operators.

Where it depends on the GPU, a rule is given one (``Call.gpu``) or asks the context.
"""

from graphmem.targets.cuda import (
    attention,
    attention_scratch,
    batch_norm,
    cublas,
    cudnn,
    dropout,
    norms,
    reductions,
    softmax,
)

__all__ = [
    "attention",
    "attention_scratch",
    "batch_norm",
    "cublas",
    "cudnn",
    "dropout",
    "norms",
    "reductions",
    "softmax",
]

"""What CUDA's kernels do differently: one file a family of operators.

Where it depends on the GPU, a rule is given one (``Call.gpu``) or asks the context.
"""

from graphmem.targets.cuda import (
    attention,
    attention_scratch,
    batch_norm,
    cub,
    cublas,
    cudnn,
    dropout,
    embedding,
    fft,
    foreach,
    indexing,
    interpolation,
    linear_algebra,
    losses,
    norms,
    reductions,
    rnn,
    rnn_sizes,
    sampling,
    softmax,
    sorting,
)

__all__ = [
    "attention",
    "attention_scratch",
    "batch_norm",
    "cub",
    "cublas",
    "cudnn",
    "dropout",
    "embedding",
    "fft",
    "foreach",
    "indexing",
    "interpolation",
    "linear_algebra",
    "losses",
    "norms",
    "reductions",
    "rnn",
    "rnn_sizes",
    "sampling",
    "softmax",
    "sorting",
]

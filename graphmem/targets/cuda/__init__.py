"""What CUDA's kernels do differently: one file a family of operators.

Where it depends on the GPU's architecture, SM 8.0 (A100) is assumed.
"""

from graphmem.targets.cuda import attention, cublas, dropout

__all__ = ["attention", "cublas", "dropout"]

"""Fourier transforms: cuFFT's workspace, which only a GPU tells.

Source: aten/src/ATen/native/cuda/SpectralOps.cpp, ``_exec_fft``.
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch, Unknown
from graphmem.targets import context
from graphmem.targets.cuda.calls import copy_bytes, nbytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch


@scratch("aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r", target=Target.CUDA)
def transform(call: Call) -> Scratch:
    """A contiguous copy of the input, and a workspace from the caching allocator.

    Inputs: self (complex, or real for ``_fft_r2c``), dim, normalization.
    """
    source: Layout = call.args[0]
    workspace = max(nbytes(source), nbytes(call.result))
    context.current().note(
        Unknown("the workspace of cuFFT", "torch.fft", "as large as the transform", workspace)
    )
    return ((copy_bytes(source), workspace),)

"""Reductions: buffers of partial results, and a copy where the input is converted first.

The operators below end in ``gpu_reduce_kernel`` (see ``reduction_kernel``). The dtype of the
input and what a partial result is are those of the kernels' instances in torch 2.14's
libtorch_cuda.so. Source: aten/src/ATen/native/cuda/Reduce*Kernel.cu, ATen/native/
ReduceOpsUtils.h (``make_reduction``) and ReduceOps.cpp.
"""

from __future__ import annotations

from typing import Any

import torch

from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import argument, copy_bytes, like, nbytes
from graphmem.targets.cuda.reduction_kernel import Kernel, reduce_buffers
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, beside, scratch

_HALVES = (torch.float16, torch.bfloat16)
_VALUE_AND_INDEX = Kernel(16, in_output=False)
"""``thrust::pair<scalar_t, int64_t>``."""


@scratch("aten::sum", "aten::mean", target=Target.CUDA)
def total(call: Call) -> Scratch:
    """Partial sums in fp32 for half inputs; other inputs are converted to the result's dtype.

    Inputs: self, dim (all of them if None or empty), keepdim.
    """
    source: Layout = call.args[0]
    return sum_buffers(source, _dims(source, argument(call, 1, "dim")), call.result.dtype, call.gpu)


def sum_buffers(source: Layout, dims: range | list[int], result: torch.dtype, gpu: Gpu) -> Scratch:
    """What ``sum`` or ``mean`` of a tensor over dimensions takes, to a result of a dtype."""
    read = source.dtype if source.dtype in _HALVES and result is torch.float32 else result
    both_half = read in _HALVES and result is read
    kernel = Kernel(_accumulated(read), 8 if read.itemsize == 2 else 4, not both_half)
    return converted_reduction(source, read, dims, (result,), kernel, gpu)


@scratch("aten::prod", "aten::nansum", target=Target.CUDA)
def product(call: Call) -> Scratch:
    """As ``sum``, four values at a time. Inputs: self, dim, keepdim."""
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 1, "dim"))
    return norm_buffers(source, dims, call.result.dtype, call.gpu)


@scratch("aten::linalg_vector_norm", "aten::norm", target=Target.CUDA)
def norm(call: Call) -> Scratch:
    """Partial sums in fp32 for half inputs. Inputs: self, ord, dim, keepdim."""
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 2, "dim"))
    return norm_buffers(source, dims, call.result.dtype, call.gpu)


def norm_buffers(source: Layout, dims: range | list[int], result: torch.dtype, gpu: Gpu) -> Scratch:
    """What a norm over dimensions takes, to a result of a dtype."""
    kept = source.dtype in _HALVES and result is torch.float32
    read = source.dtype if kept or source.dtype.is_complex else result
    kernel = Kernel(_accumulated(result), 4, not (read in _HALVES and result is read))
    return converted_reduction(source, read, dims, (result,), kernel, gpu)


@scratch("aten::amax", "aten::amin", "aten::max", "aten::min", target=Target.CUDA)
def extreme(call: Call) -> Scratch:
    """Partial values, with their indices where those are asked for.

    Inputs: self, dim, keepdim; ``max`` and ``min`` with a dim give values and indices.
    Source: ReduceMaxValuesKernel.cu, ``max_values_kernel_cuda`` and ``max_launch_kernel``.
    """
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 1, "dim"))
    if not isinstance(call.result, Layout):
        results = (source.dtype, torch.int64)
        return reduce_buffers(source, dims, results, _VALUE_AND_INDEX, call.gpu)
    kernel = Kernel(source.dtype.itemsize)
    return reduce_buffers(source, dims, (source.dtype,), kernel, call.gpu)


@scratch("aten::aminmax", "aten::_aminmax", target=Target.CUDA)
def extremes(call: Call) -> Scratch:
    """Partial minima and maxima, in pairs. Inputs: self, dim, keepdim.

    Source: ReduceAMinMaxKernel.cu, ``MinMaxOps``.
    """
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 1, "dim"))
    kernel = Kernel(2 * source.dtype.itemsize, in_output=False)
    return reduce_buffers(source, dims, (source.dtype, source.dtype), kernel, call.gpu)


@scratch("aten::argmax", "aten::argmin", target=Target.CUDA)
def index_of_extreme(call: Call) -> Scratch:
    """Partial values and indices; without a dim a tensor that has gaps is copied first.

    Inputs: self, dim, keepdim. Source: aten/src/ATen/native/ReduceOps.cpp,
    ``argmax_argmin_impl``, and ReduceArgMaxKernel.cu.
    """
    source: Layout = call.args[0]
    dim = argument(call, 1, "dim")
    copied = copy_bytes(source) if dim is None and len(source.size) > 1 else 0
    if copied:
        source = like(source._replace(stride=(0,) * len(source.size)), source.dtype)
    found = reduce_buffers(source, _dims(source, dim), (torch.int64,), _VALUE_AND_INDEX, call.gpu)
    return beside((copied,), found)


@scratch("aten::var", "aten::std", "aten::var_mean", "aten::std_mean", target=Target.CUDA)
def moments(call: Call) -> Scratch:
    """Partial means, squares and counts: ``WelfordData``, two values at a time.

    Inputs: self, dim, correction, keepdim. Source: ReduceMomentKernel.cu,
    ``std_var_kernel_impl``, and SharedReduceOps.h: two numbers, an int32 and a number.
    """
    source: Layout = call.args[0]
    count = 1 if isinstance(call.result, Layout) else 2
    welford = 32 if source.dtype is torch.float64 else 16
    return reduce_buffers(
        source,
        _dims(source, argument(call, 1, "dim")),
        (source.dtype,) * count,
        Kernel(welford, 2, in_output=False),
        call.gpu,
    )


@scratch("aten::any", "aten::all", target=Target.CUDA)
def truth(call: Call) -> Scratch:
    """Partial booleans; the input is read as it is. Inputs: self, dim, keepdim.

    Source: ReduceLogicKernel.cu; ReduceOps.cpp, ``get_allany_iter``.
    """
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 1, "dim"))
    return reduce_buffers(source, dims, (call.result.dtype,), Kernel(1), call.gpu)


@scratch("aten::logsumexp", target=Target.CUDA)
def logsumexp(call: Call) -> Scratch:
    """The maxima, and exponentials as large as the input, which are then summed.

    Inputs: self, dim, keepdim. Source: aten/src/ATen/native/ReduceOps.cpp,
    ``logsumexp_out_impl``.
    """
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 1, "dim"))
    maxima = nbytes(call.result)
    exponentials = like(source, call.result.dtype)
    largest = reduce_buffers(source, dims, (source.dtype,), Kernel(source.dtype.itemsize), call.gpu)
    summed = sum_buffers(exponentials, dims, call.result.dtype, call.gpu)
    return (
        *beside((maxima,), largest),
        *((maxima, nbytes(exponentials), *stage) for stage in summed or ((),)),
    )


@scratch("aten::count_nonzero", target=Target.CUDA)
def count_nonzero(call: Call) -> Scratch:
    """Booleans, and their copy as int64 that is summed. Inputs: self, dim.

    Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp, ``count_nonzero_cuda``.
    """
    source: Layout = call.args[0]
    dims = _dims(source, argument(call, 1, "dim"))
    nonzero = like(source, torch.bool)
    return beside((nonzero.numel,), sum_buffers(nonzero, dims, torch.int64, call.gpu))


# -- parts


def converted_reduction(
    source: Layout,
    read: torch.dtype,
    dims: range | list[int],
    results: tuple[torch.dtype, ...],
    kernel: Kernel,
    gpu: Gpu,
) -> Scratch:
    """A reduction of a tensor, converted to ``read`` in a copy of its own if it must be."""
    if source.dtype is read:
        return reduce_buffers(source, dims, results, kernel, gpu)
    copied = like(source, read)
    return beside((copied.nbytes,), reduce_buffers(copied, dims, results, kernel, gpu))


def _dims(source: Layout, dim: Any) -> range | list[int]:
    """The reduced dimensions, not negative: all if none is named."""
    rank = len(source.size)
    if dim is None or dim == [] or dim == () or isinstance(dim, bool) or not rank:
        return range(rank)
    return [d % rank for d in (dim if isinstance(dim, list | tuple) else [dim])]


def _accumulated(dtype: torch.dtype) -> int:
    """``at::opmath_type``: fp32 for half types, in bytes."""
    return 4 if dtype in _HALVES else dtype.itemsize

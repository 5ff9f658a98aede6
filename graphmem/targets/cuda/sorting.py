"""Sorting, selecting and scanning: buffers of indices, and cub's storage.

Source: aten/src/ATen/native/cuda/Sort.cpp (``sort_cuda_kernel``), SortStable.cu
(``launch_stable_sort_kernel``), ATen/native/cuda/SortUtils.cuh (``should_use_small_sort``),
TensorTopK.cpp (``topk_out_cuda``), TensorTopK.cu (``mbtopk::launch``,
``should_use_multiblock``), Sorting.cpp (``median_impl``), ATen/native/cuda/ScanUtils.cuh
(``scan_dim``), and aten/src/ATen/native/ReduceOps.cpp (``cumsum_out``).
"""

from __future__ import annotations

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda import cub
from graphmem.targets.cuda.calls import argument, copy_bytes, like, nbytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_INDEX = 8
_SMALL = 4096  # elements that are sorted in place
_HUGE = 1_000_000  # elements of one row that fill the GPU
_FEW_ROWS = 128
_INT32_MAX = 2**31 - 1


@scratch("aten::sort", target=Target.CUDA)
def sort(call: Call) -> Scratch:
    """Rows of up to 4,096 are sorted in place; longer ones by cub.

    Inputs: self, dim, descending (``stable``, and then all of them, by name).
    """
    return sort_buffers(call.args[0], argument(call, 1, "dim", -1), call.gpu)


def sort_buffers(source: Layout, dim: int, gpu: Gpu) -> Scratch:
    """What sorting a tensor along a dimension takes beside values and indices."""
    if not source.size or not source.numel:
        return ()
    dim %= len(source.size)
    length = source.size[dim]
    if length <= _SMALL:
        return ((length * _INDEX,),)  # the indices of one row
    rows = min(source.numel, _INT32_MAX) // length
    moved = _moved(source, dim)
    stages = _sorted_rows(rows, length, source.dtype.itemsize, gpu)
    return tuple((*moved, *stage) for stage in stages)


def _moved(source: Layout, dim: int) -> tuple[int, ...]:
    """Copies with the sorted dimension innermost: of the input, and of both results."""
    dense = like(source, source.dtype).stride == source.stride
    if dense and source.stride[dim] == 1:
        return ()
    copied = nbytes(source)
    if like(source, source.dtype).stride[dim] == 1:
        return (copied,)
    return copied, copied, source.numel * _INDEX


def _sorted_rows(rows: int, length: int, item: int, gpu: Gpu) -> Scratch:
    """``launch_stable_sort_kernel``: one by one, all together and then by row, or in segments."""
    n = rows * length
    if rows == 1 or length >= _HUGE:
        return ((length * _INDEX, cub.radix_sort(length, item, _INDEX, 8 * item, gpu)),)
    pairs = n * _INDEX
    if rows < _FEW_ROWS:
        bits = max(1, (rows - 1).bit_length())
        by_value = cub.radix_sort(n, item, _INDEX, 8 * item, gpu)
        by_row = cub.radix_sort(n, _INDEX, 0, bits, gpu)
        return ((pairs, pairs, n * item, by_value), (pairs, pairs, by_row))
    return ((pairs, cub.segmented_sort(n, item, _INDEX)),)


@scratch("aten::argsort", target=Target.CUDA)
def argsort(call: Call) -> Scratch:
    """A sort whose values are dropped. Inputs: self, dim, descending."""
    source: Layout = call.args[0]
    found = sort_buffers(source, argument(call, 1, "dim", -1), call.gpu)
    return tuple((nbytes(source), *stage) for stage in found)


# -- the largest ones

_THREADS = 256  # of mbtopk::BLOCK_THREADS, and the digits of a radix of 8 bits
_REGISTERS = 40  # that a thread of its counting kernel takes
_MULTIBLOCK = (
    (20, 20000),
    (40, 10000),
    (80, 8000),
    (199, 5000),
    (799, 3000),
    (4000, 800),
    (2**32 - 1, 400),
)
"""Up to so many rows, rows of so many elements are shared by several blocks."""


@scratch("aten::topk", target=Target.CUDA)
def topk(call: Call) -> Scratch:
    """Short rows need nothing; long ones are counted by digits, in blocks.

    Inputs: self, k, dim, largest, sorted.
    """
    source: Layout = call.args[0]
    k, dim = call.args[1], argument(call, 2, "dim", -1)
    if not source.size or not source.numel or not k:
        return ()
    length = source.size[dim]
    rows = source.numel // length
    copied = copy_bytes(source)
    least = next(limit for most, limit in _MULTIBLOCK if rows <= most)
    stages = _counted(rows, length, source.dtype.itemsize, call.gpu) if length >= least else ((),)
    found = tuple((copied, *stage) for stage in stages)
    if argument(call, 4, "sorted", True) and k > _SMALL:
        found += _sorted_again(call.result[0], dim, call.gpu)
    return found


def _counted(rows: int, length: int, item: int, gpu: Gpu) -> Scratch:
    """``mbtopk::launch``: the k-th value, counts of digits, and their sums."""
    radix = 8 if item == 8 else 4
    blocks = rows * -(-length // (_items_per_thread(rows * length, gpu) * _THREADS))
    held = (
        rows * item,  # kthValues
        2 * rows * 4,  # ks_to_find
        2 * rows * radix,  # desired
        blocks * _THREADS * 2,  # counts
        rows * _THREADS * 4,  # digit_cum_sum
        blocks * 4,  # withinKCounts
        blocks * 4,  # kthCounts
    )
    return ((*held, cub.scan_by_key(blocks)),)


def _items_per_thread(n: int, gpu: Gpu) -> int:
    """``get_items_per_thread``: from 4 to 64, so that all threads have something."""
    limits = attributes(gpu)
    blocks = min(limits["maxRegistersPerSM"] // (_REGISTERS * _THREADS), limits["maxCtasPerSM"])
    wanted = -(-n // (gpu.multiprocessors * blocks * _THREADS))
    return int(max(4, min(wanted, 64)))


def _sorted_again(values: Layout, dim: int, gpu: Gpu) -> Scratch:
    """Many of them are sorted apart, and gathered."""
    apart = nbytes(values), values.numel * _INDEX
    stages = sort_buffers(values, dim, gpu)
    return (*((*apart, *stage) for stage in stages), (*apart, values.numel * _INDEX))


@scratch("aten::median", "aten::nanmedian", "aten::kthvalue", target=Target.CUDA)
def median(call: Call) -> Scratch:
    """Of a whole tensor, by sorting it; along a dimension, on a contiguous copy.

    Inputs: self, dim (``kthvalue``: k, dim), keepdim.
    """
    source: Layout = call.args[0]
    if not isinstance(call.result, Layout):
        return ((copy_bytes(source),),)
    flat = source._replace(size=(source.numel,), stride=(1,))
    results = nbytes(source), source.numel * _INDEX
    copied = copy_bytes(source)
    return tuple((copied, *results, *stage) for stage in sort_buffers(flat, 0, call.gpu))


# -- scans


@scratch(
    "aten::cumsum",
    "aten::cumsum_",
    "aten::cumprod",
    "aten::cumprod_",
    "aten::_logcumsumexp",
    "aten::logcumsumexp",
    target=Target.CUDA,
)
def scan(call: Call) -> Scratch:
    """A vector is scanned by cub; several are without scratch, but for converted copies.

    Inputs: self, dim.
    """
    source, result = call.args[0], call.result
    converted = 0 if source.dtype is result.dtype else nbytes(result)
    copied = copy_bytes(like(source, result.dtype) if converted else source)
    vector = bool(source.size) and source.numel == source.size[call.args[1]]
    storage = cub.scan(source.numel, result.dtype.itemsize) if vector and source.numel else 0
    return ((converted, copied, storage),)


@scratch("aten::cummax", "aten::cummin", target=Target.CUDA)
def scan_with_indices(call: Call) -> Scratch:
    """A contiguous copy. Inputs: self, dim."""
    return ((copy_bytes(call.args[0]),),)

"""The buffers of ``gpu_reduce_kernel``, which most reductions run.

1. A *TensorIterator* puts the reduced dimensions first, orders the others by stride, and
   merges neighbours that lie one after another.
2. Where offsets do not fit into 32 bits it is halved until they do; one part runs after
   another.
3. A part is split over blocks of threads if its outputs are too few for the GPU and each
   thread would read 256 values or more. Then every block leaves its partial result in a
   buffer, and a counter tells the last one. The buffer is also multiplied by the block's
   width and the vector's size where those run over outputs, so it can be larger than the
   input.

Source: ATen/native/cuda/Reduce.cuh (``setReduceConfig``, ``ReduceConfig``,
``gpu_reduce_kernel``, ``AccumulationBuffer``) in the headers of torch 2.13 and 2.14, and
aten/src/ATen/TensorIterator.cpp (``reorder_dimensions``, ``coalesce_dimensions``,
``with_32bit_indexing``, ``split``). Checked against the snapshots of shared/truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import row_strides
from graphmem.targets.layout import Layout

_MAX_THREADS = 512
_MAX_THREADS_COMPLEX_DOUBLE = 256
_WARP = 32
_MIN_VALUES = 16
_MAX_VALUES = 256
_INT32_MAX = 2**31 - 1
_COUNTER_BYTES = 4


class Kernel(NamedTuple):
    """An instance of ``gpu_reduce_kernel``.

    ``accumulator`` is the size of a partial result in bytes, ``vector`` the elements that a
    thread reads at once, ``in_output`` says that partial results may stand in the output.
    """

    accumulator: int
    vector: int = 4
    in_output: bool = True


@dataclass(frozen=True, slots=True)
class _Iteration:
    """A TensorIterator: innermost dimension first, strides in elements.

    ``outputs`` are strides of the results, 0 where reduced; ``itemsizes`` those of the
    results and, last, of the source. ``start`` is the source's first element.
    """

    shape: tuple[int, ...]
    source: tuple[int, ...]
    outputs: tuple[int, ...]
    itemsizes: tuple[int, ...]
    start: int

    @property
    def reduced_dims(self) -> int:
        return self.outputs.count(0)

    @property
    def num_outputs(self) -> int:
        pairs = zip(self.shape, self.outputs, strict=True)
        return math.prod(size for size, stride in pairs if stride)

    @property
    def num_inputs(self) -> int:
        return math.prod(self.shape) // self.num_outputs


def reduce_buffers(
    source: Layout,
    dims: Iterable[int],
    results: tuple[torch.dtype, ...],
    kernel: Kernel,
    gpu: Gpu,
) -> Scratch:
    """What a reduction of ``source`` over ``dims`` allocates beside its results, in bytes.

    Args:
        source: the tensor that the kernel reads, of any shape.
        dims: the reduced dimensions, not negative; all of them for a total.
        results: the dtype of each result.
    """
    reduced = frozenset(dims)
    per_output = math.prod(source.size[dim] for dim in reduced)
    if not source.numel or per_output < _MAX_VALUES:
        return ()
    whole = _iteration(source, reduced, results)
    held = _accumulation_buffer(whole, results[0], kernel)
    threads = _MAX_THREADS_COMPLEX_DOUBLE if source.dtype is torch.complex128 else _MAX_THREADS
    parts = (_blocks(part, kernel, threads, gpu) for part in _parts(whole))
    return tuple((held, *part) for part in parts)


# -- TensorIterator


def _iteration(
    source: Layout, reduced: frozenset[int], results: tuple[torch.dtype, ...]
) -> _Iteration:
    kept = [dim for dim, size in enumerate(source.size) if size != 1]
    shape = [source.size[dim] for dim in kept]
    strides = [source.stride[dim] for dim in kept]
    of_result = iter(row_strides([source.size[d] for d in kept if d not in reduced]))
    outputs = [0 if dim in reduced else next(of_result) for dim in kept]
    order = _ordered(shape, strides, outputs)
    itemsizes = (*(dtype.itemsize for dtype in results), source.dtype.itemsize)
    return _merged(
        _Iteration(
            tuple(shape[dim] for dim in order),
            tuple(strides[dim] for dim in order),
            tuple(outputs[dim] for dim in order),
            itemsizes,
            source.offset,
        )
    )


def _ordered(shape: list[int], source: list[int], outputs: list[int]) -> list[int]:
    """``reorder_dimensions``: an insertion sort where some pairs have no order."""
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        later = i
        for earlier in range(i - 1, -1, -1):
            comparison = _compared(order[earlier], order[later], shape, source, outputs)
            if comparison < 0:
                break
            if comparison > 0:
                order[earlier], order[later] = order[later], order[earlier]
                later = earlier
    return order


def _compared(a: int, b: int, shape: list[int], source: list[int], outputs: list[int]) -> int:
    """1 if dimension ``a`` comes after ``b``, -1 if before, 0 if that is open."""
    if (outputs[a] == 0) != (outputs[b] == 0):
        return 1 if outputs[b] == 0 else -1
    for strides in (outputs, source):
        if not strides[a] or not strides[b]:
            continue
        if strides[a] != strides[b]:
            return 1 if strides[a] > strides[b] else -1
        if shape[a] > shape[b]:
            return 1
    return 0


def _merged(it: _Iteration) -> _Iteration:
    """``coalesce_dimensions``."""
    merged: list[tuple[int, int, int]] = []
    for size, source, output in zip(it.shape, it.source, it.outputs, strict=True):
        if merged:
            before, s, o = merged[-1]
            if before * s == source and before * o == output:
                merged[-1] = (before * size, s, o)
                continue
        merged.append((size, source, output))
    shape, sources, outputs = zip(*merged, strict=True)
    return replace(it, shape=shape, source=sources, outputs=outputs)


def _parts(whole: _Iteration) -> Iterator[_Iteration]:
    """``with_32bit_indexing``: halves of halves, each with offsets of 32 bits."""
    waiting = [whole]
    while waiting:
        part = waiting.pop()
        if _fits_32_bits(part):
            yield part
        else:
            waiting.extend(_halves(part))


def _fits_32_bits(it: _Iteration) -> bool:
    if math.prod(it.shape) > _INT32_MAX:
        return False
    return all(
        1 + sum((n - 1) * s * itemsize for n, s in zip(it.shape, strides, strict=True))
        <= _INT32_MAX
        for strides, itemsize in _operands(it)
    )


def _operands(it: _Iteration) -> list[tuple[tuple[int, ...], int]]:
    results = [(it.outputs, itemsize) for itemsize in it.itemsizes[:-1]]
    return [*results, (it.source, it.itemsizes[-1])]


def _halves(it: _Iteration) -> tuple[_Iteration, _Iteration]:
    """The second and the first half, cut where an operand reaches furthest."""
    extents = [
        max((size - 1) * strides[dim] * itemsize for strides, itemsize in _operands(it))
        for dim, size in enumerate(it.shape)
    ]
    dim = max(reversed(range(len(extents))), key=extents.__getitem__)
    first = it.shape[dim] // 2
    second = it.shape[dim] - first
    return (
        replace(it, shape=_at(it.shape, dim, second), start=it.start + first * it.source[dim]),
        replace(it, shape=_at(it.shape, dim, first)),
    )


def _at(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _accumulation_buffer(whole: _Iteration, result: torch.dtype, kernel: Kernel) -> int:
    """Partial results between parts, where the output can't hold them."""
    if kernel.in_output or _fits_32_bits(whole) or result.itemsize >= kernel.accumulator:
        return 0
    reach = max(size * stride for size, stride in zip(whole.shape, whole.outputs, strict=True))
    return max(reach, 1) * kernel.accumulator


# -- the launch


def _blocks(it: _Iteration, kernel: Kernel, max_threads: int, gpu: Gpu) -> tuple[int, ...]:
    """The buffer of partial results and the counters; nothing if no output is split."""
    along_rows = _reduces_fastest(it)
    output_vector, width_limit, height_limit = _limits(it, kernel, along_rows)
    width, height = _block(width_limit, height_limit, max_threads // output_vector)
    step_input, step_output = (width, 1) if along_rows else (1, width)
    if _ceil(it.num_inputs, step_input) < min(height * 16, _MAX_VALUES):
        return ()  # each warp has outputs of its own
    values = _ceil(it.num_inputs, step_input * height)
    grid = _ceil(it.num_outputs // output_vector, step_output)
    per_multiprocessor: int = attributes(gpu)["maxThreadsPerSM"] // (width * height)
    wanted = gpu.multiprocessors * per_multiprocessor
    if values < _MAX_VALUES or grid > wanted:
        return ()
    blocks = min(_ceil(wanted, grid), _ceil(values, _MIN_VALUES))
    blocks = max(blocks, _ceil(values, _MAX_VALUES))
    if blocks == 1:
        return ()
    wide = 1 if along_rows else width * output_vector
    return kernel.accumulator * it.num_outputs * blocks * wide, _COUNTER_BYTES * grid


def _reduces_fastest(it: _Iteration) -> bool:
    """Whether the dimension with the smallest stride is a reduced one."""
    first_kept = it.reduced_dims
    return first_kept == len(it.shape) or it.source[0] < it.source[first_kept]


def _limits(it: _Iteration, kernel: Kernel, along_rows: bool) -> tuple[int, int, int]:
    """The vector over outputs, and what block width and height may reach."""
    if along_rows:
        width = it.num_inputs
        if it.source[0] == 1 and width >= 128 and it.reduced_dims == 1:
            width //= kernel.vector
        return 1, width, it.num_outputs
    vector = _output_vector(it) if it.source[it.reduced_dims] == 1 else 1
    return vector, it.num_outputs // vector, it.num_inputs


def _output_vector(it: _Iteration) -> int:
    """``get_output_vec_size``: 4, 2 or 1, as alignment allows."""
    first_kept = it.reduced_dims
    strides = [stride for dim, stride in enumerate(it.source) if dim != first_kept]
    common = math.gcd(4, it.start, it.shape[first_kept], *strides)
    return common


def _block(width_limit: int, height_limit: int, threads: int) -> tuple[int, int]:
    """``set_block_dimension``: width and height of a block."""
    widest = _last_power(width_limit) if width_limit < threads else threads
    highest = _last_power(height_limit) if height_limit < threads else threads
    height = min(highest, threads // min(widest, _WARP))
    return min(widest, threads // height), height


def _last_power(n: int) -> int:
    """The largest power of two that is not above ``n``, and at least 1."""
    return 1 << max(n.bit_length() - 1, 0)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)

"""The temporary storage of cub's algorithms, as torch's wheels are built with them.

cub's parts are rounded to 256 bytes, and 255 more are asked for, to align the first. How
many elements a block of threads handles at once (a tile) is a tuning policy by architecture;
the sizes below are those that cub 3.0.1 (CUDA 13.0, whose version libtorch_cuda.so of torch
2.14 names) gives to a program that asks with no storage, for each architecture that the
wheels are compiled for: 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0.

Source: cub/device/dispatch/dispatch_radix_sort.cuh (``InvokeOnesweep``, ``InvokePasses``),
cub/detail/temporary_storage.cuh, cub/agent/single_pass_scan_operators.cuh (``ScanTileState``)
and cub/device/dispatch/tuning/*.cuh of NVIDIA/cccl 3.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes
from graphmem.schedule import Unknown
from graphmem.targets import context

_T = TypeVar("_T")

_ALIGNMENT = 256
_WARP = 32
_RADIX_BITS = 8
_RADIX_DIGITS = 1 << _RADIX_BITS
_PORTION = (1 << 28) - 1  # elements at most whose counts have 32 bits, in whole tiles

_SMALL_SORT = {8: 2304, 4: 4864}
"""The larger of key and value in bytes -> the most elements of one tile of a small sort."""

_SORT_TILES = {
    75: {(8, 8): 2816, (4, 4): 11776, (4, 8): 2816, (8, 0): 2816, (4, 0): 5888},
    80: {(8, 8): 3840, (4, 4): 6528, (4, 8): 3072, (8, 0): 3840, (4, 0): 8064},
    90: {(8, 8): 4608, (4, 4): 6528, (4, 8): 5376, (8, 0): 5760, (4, 0): 6912, (2, 8): 5632},
}
"""From an architecture on: (bytes of a key, of a value) -> elements of a tile."""

_SELECT_TILES = {75: 640, 80: 2304, 86: 640, 90: 4224, 100: 3520}
_UNIQUE_BY_KEY_TILES = {75: 320, 80: 1792, 86: 320, 90: 4480, 100: 3840}
_UNIQUE_TILES = {75: 640, 80: 1920, 86: 640, 90: 4224}
_SCAN_TILES = {8: (896, 16), 4: (1920, 8), 2: (3840, 4)}
"""Bytes of an element -> elements of a tile, and bytes of a tile's state."""

_REDUCE_SMALL = {1: 4096, 8: 2048}
_REDUCE_THREADS = 256
_SUBSCRIPTION = 5  # blocks that a reduction starts for each that fits at once


def radix_sort(n: int, key: int, value: int, bits: int, gpu: Gpu) -> int:
    """``DeviceRadixSort`` of ``n`` keys that leaves its input as it is.

    Args:
        key: the bytes of a key, one of 1, 2, 4, 8.
        value: those of a value that goes along, 0 if none does.
        bits: how many bits of the keys are looked at.
    """
    if n <= _SMALL_SORT[8 if max(key, value) == 8 else 4]:
        return 1
    tile = _of_architecture(_SORT_TILES, gpu).get((key, value))
    if tile is None:
        return _upsweep_sort(n, key, value, gpu)
    portion = _PORTION // tile * tile
    passes, portions = -(-bits // _RADIX_BITS), -(-n // portion)
    blocks = -(-min(n, portion) // tile)
    copies = n if passes > 1 else 0
    return _storage(
        portions * passes * _RADIX_DIGITS * 8,
        blocks * _RADIX_DIGITS * 4,
        copies * key,
        copies * value,
        portions * passes * 4,
    )


def _upsweep_sort(n: int, key: int, value: int, gpu: Gpu) -> int:
    """The older algorithm, for keys of one or two bytes: its histograms are bounded.

    They are as many as blocks of 256 threads fit, times 5, each of 128 digits of 8 bytes.
    """
    blocks = _resident_blocks(gpu, _REDUCE_THREADS) * _SUBSCRIPTION
    histograms = blocks * 128 * 8
    context.current().note(
        Unknown(
            "how many blocks of cub's radix sort fit on the GPU, for keys of 1 or 2 bytes",
            "sort",
            "as many as have threads",
            histograms,
        )
    )
    return _storage(histograms, n * key, n * value)


def segmented_sort(n: int, key: int, value: int) -> int:
    """``DeviceSegmentedRadixSort``: a second buffer for keys and one for values."""
    return _storage(n * key, n * value)


def scan(n: int, itemsize: int) -> int:
    """``DeviceScan`` over ``n`` elements, of sums that have ``itemsize`` bytes."""
    tile, state = _SCAN_TILES[max(itemsize, 2)] if itemsize <= 8 else (896, 2 * itemsize)
    return _tile_states(n, tile, state)


def scan_by_key(n: int) -> int:
    """``DeviceScan::InclusiveSumByKey`` of 32-bit sums and keys; above a tile an upper bound."""
    tiles = -(-n // 1280)
    return _storage((tiles + _WARP) * 8, 1, tiles * 4)


def select_flagged(n: int, gpu: Gpu) -> int:
    """``DeviceSelect::Flagged`` of counted indices."""
    return _tile_states(n, _of_architecture(_SELECT_TILES, gpu), 8)


def unique_by_key(n: int, gpu: Gpu) -> int:
    """``DeviceSelect::UniqueByKey`` of 64-bit keys."""
    return _tile_states(n, _of_architecture(_UNIQUE_BY_KEY_TILES, gpu), 16)


def unique(n: int, gpu: Gpu) -> int:
    """``DeviceSelect::Unique`` of 64-bit keys."""
    return _tile_states(n, _of_architecture(_UNIQUE_TILES, gpu), 8)


def run_length_encode(n: int) -> int:
    """``DeviceRunLengthEncode::Encode``: tiles of 384 elements."""
    return _tile_states(n, 384, 8)


def reduce(n: int, itemsize: int, gpu: Gpu) -> int:
    """``DeviceReduce::Sum`` into an int32 of up to 4,096 one-byte flags at once, or more.

    Above that each block leaves a sum. Seen: 17,663 bytes on an A100.
    """
    if n <= _REDUCE_SMALL[8 if itemsize > 1 else 1]:
        return 1
    return _storage(4 * _resident_blocks(gpu, _REDUCE_THREADS) * _SUBSCRIPTION)


# -- parts


def _tile_states(n: int, tile: int, state: int) -> int:
    """The states of all tiles and of a warp before them, which are aligned twice."""
    return _storage((-(-n // tile) + _WARP) * state, 1)


def _storage(*parts: int) -> int:
    """``AliasTemporaries``."""
    return sum(-(-part // _ALIGNMENT) * _ALIGNMENT for part in parts) + _ALIGNMENT - 1


def _resident_blocks(gpu: Gpu, threads: int) -> int:
    per_multiprocessor: int = attributes(gpu)["maxThreadsPerSM"] // threads
    return gpu.multiprocessors * per_multiprocessor


def _of_architecture(table: Mapping[int, _T], gpu: Gpu) -> _T:
    """The entry of the newest architecture that is not newer than the GPU's."""
    known = [sm for sm in table if sm <= gpu.sm] or [min(table)]
    return table[max(known)]

"""From the bytes of a request to those of its block, and of a new segment for it."""

from __future__ import annotations

from graphmem.allocator.settings import (
    INTERVALS,
    MIN_BLOCK_BYTES,
    MIN_LARGE_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    AllocatorSettings,
)


def round_up(nbytes: int, unit: int) -> int:
    """The next multiple of ``unit`` that is not smaller."""
    return -(-nbytes // unit) * unit


def round_request(nbytes: int, settings: AllocatorSettings) -> int:
    """The bytes that a request is served with, before any slack.

    Source: ``round_size`` in c10/cuda/CUDACachingAllocator.cpp.
    """
    if nbytes < MIN_BLOCK_BYTES:
        return MIN_BLOCK_BYTES
    divisions = settings.roundup_power2_divisions[_interval(nbytes)]
    if divisions > 1 and nbytes > MIN_BLOCK_BYTES * divisions:
        return next_division(nbytes, divisions)
    return round_up(nbytes, MIN_BLOCK_BYTES)


def _interval(nbytes: int) -> int:
    """The interval that a size is in: 0 up to 2 MiB, then one for each power of two.

    Source: ``AcceleratorAllocatorConfig::roundup_power2_divisions`` in
    c10/core/AllocatorConfig.cpp.
    """
    return min(max(nbytes.bit_length() - SMALL_BYTES.bit_length(), 0), INTERVALS - 1)


def next_division(nbytes: int, divisions: int) -> int:
    """The next boundary when each power-of-two interval is cut into equal parts.

    1,200 in 4 parts: 1,024 | 1,280 | 1,536 | 1,792, so 1,280.
    Source: ``roundup_power2_next_division`` in c10/cuda/CUDACachingAllocator.cpp.
    """
    floor = 1 << (nbytes.bit_length() - 1)
    part = floor // divisions
    return round_up(nbytes, part) if part else floor * 2


def is_small(size: int) -> bool:
    """Whether a rounded request goes to the small pool.

    Source: ``get_pool`` in c10/cuda/CUDACachingAllocator.cpp.
    """
    return size <= SMALL_BYTES


def segment_bytes(size: int, settings: AllocatorSettings) -> int:
    """The segment that is taken from the driver for a rounded request.

    Source: ``get_allocation_size`` in c10/cuda/CUDACachingAllocator.cpp.
    """
    if is_small(size):
        return SMALL_SEGMENT_BYTES
    if size < MIN_LARGE_BYTES:
        return settings.large_segment_bytes
    return round_up(size, ROUND_LARGE_BYTES)


def page_bytes(small: bool, settings: AllocatorSettings) -> int:
    """The pages that an expandable segment grows by.

    Source: ``find_expandable_block`` in c10/cuda/CUDACachingAllocator.cpp.
    """
    return SMALL_SEGMENT_BYTES if small else settings.large_segment_bytes

"""The settings of CUDACachingAllocator, and the constants beside them.

Source: c10/core/AllocatorConfig.h and .cpp, c10/cuda/CUDAAllocatorConfig.h (torch 2.13
and 2.14, which agree). ``conf.py`` reads them from PyTorch's own syntax.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024

MIN_BLOCK_BYTES = 512
"""``kMinBlockSize``: what every request is rounded up to a multiple of."""

SMALL_BYTES = MIB
"""``kSmallSize``: the largest rounded request that the small pool serves."""

SMALL_SEGMENT_BYTES = 2 * MIB
"""``kSmallBuffer``: a segment of the small pool."""

MIN_LARGE_BYTES = 10 * MIB
"""``kMinLargeAlloc``: from here on a request gets a segment of its own size."""

ROUND_LARGE_BYTES = 2 * MIB
"""``kRoundLarge``: what such a segment is rounded up to a multiple of."""

INTERVALS = 16
"""``kRoundUpPowerOfTwoIntervals``: from 1 MiB to 64 GiB, one for each power of two."""


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """What PYTORCH_ALLOC_CONF sets, in bytes; the defaults are PyTorch's.

    ``max_split_bytes`` None: blocks of any size are split. ``max_non_split_rounding_bytes``
    None: as large as a large segment. ``roundup_power2_divisions``: one number for each
    interval, 0 and 1 meaning none. ``garbage_collection_threshold`` 0 means never;
    it works only with a ``memory_fraction`` (``per_process_memory_fraction``, or
    ``torch.cuda.set_per_process_memory_fraction``), None meaning that none was set.
    """

    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int | None = None
    large_segment_bytes: int = 20 * MIB
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    memory_fraction: float | None = None

    @property
    def non_split_rounding_bytes(self) -> int:
        """How much larger than an oversize request the block for it may be."""
        if self.max_non_split_rounding_bytes is None:
            return self.large_segment_bytes
        return self.max_non_split_rounding_bytes

    def is_oversize(self, nbytes: int) -> bool:
        """Whether blocks of this size are never split (``>= max_split_size``)."""
        return self.max_split_bytes is not None and nbytes >= self.max_split_bytes

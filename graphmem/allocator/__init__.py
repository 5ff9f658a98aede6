"""The allocators: from requested bytes to blocks, segments and reserved bytes.

``CachingAllocator`` is a model of PyTorch's CUDACachingAllocator, ``parse_alloc_conf`` reads
its settings from PyTorch's own syntax, ``replay`` runs events through it. ``block_bytes`` is
the rounding alone, of each target.
"""

from graphmem.allocator.blocks import Block
from graphmem.allocator.caching import CachingAllocator, OutOfMemoryError
from graphmem.allocator.conf import parse_alloc_conf
from graphmem.allocator.events import (
    EmptyCache,
    Event,
    Free,
    Malloc,
    RecordStream,
    Synchronize,
    replay,
)
from graphmem.allocator.placement import Placement, Shortage, place
from graphmem.allocator.rounding import BLOCK_BYTES, block_bytes
from graphmem.allocator.segments import Piece, Segment, State
from graphmem.allocator.settings import AllocatorSettings
from graphmem.allocator.stats import Stat, Stats
from graphmem.allocator.watch import Watch

__all__ = [
    "BLOCK_BYTES",
    "AllocatorSettings",
    "Block",
    "CachingAllocator",
    "EmptyCache",
    "Event",
    "Free",
    "Malloc",
    "OutOfMemoryError",
    "Piece",
    "Placement",
    "RecordStream",
    "Segment",
    "Shortage",
    "Stat",
    "State",
    "Stats",
    "Synchronize",
    "Watch",
    "block_bytes",
    "parse_alloc_conf",
    "place",
    "replay",
]

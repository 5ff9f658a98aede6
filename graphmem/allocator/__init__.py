"""The allocators: from requested bytes to blocks.

Today this room holds the block rounding of each target; the full model of
CUDACachingAllocator (segments, splitting, reserved bytes) takes its place here.
"""

from graphmem.allocator.rounding import BLOCK_BYTES, block_bytes

__all__ = ["BLOCK_BYTES", "block_bytes"]

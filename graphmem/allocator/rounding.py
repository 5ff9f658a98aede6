"""How many bytes a request occupies."""

from __future__ import annotations

from graphmem.options import Target

BLOCK_BYTES = {Target.CUDA: 512, Target.CPU: 1, Target.ONNXRUNTIME: 256}
"""What a request is rounded up to a multiple of.

CUDA: ``kMinBlockSize`` in c10/core/AllocatorConfig.h (torch 2.13), applied by
``round_size`` in c10/cuda/CUDACachingAllocator.cpp. CPU: c10/core/CPUAllocator.cpp
reports the bytes as they were asked for. ONNXRUNTIME: ``kMinAllocationSize`` in
onnxruntime/core/framework/bfc_arena.h (``allocator.bfc`` is the arena itself).
"""


def block_bytes(nbytes: int, target: Target) -> int:
    """The bytes of the block that a request of ``nbytes`` bytes gets; 0 for an empty one.

    The slack of large blocks that the CUDA allocator does not split is not in it: it
    depends on the free blocks of the moment.
    """
    unit = BLOCK_BYTES[target]
    return -(-nbytes // unit) * unit

"""The memory pattern: one block for all activations, from the second run on.

The first run with given input shapes is traced: each allocation is laid into the smallest gap
that holds it, the lowest of several, else behind all that are alive. What lies between the last
of them and the most that was needed so far is a gap like those between them. What this needs at
most is taken as one block by later runs with the same input shapes, for as long as the run
lasts. Sizes are rounded up to 256 bytes, as the arena's are.

Source: ``MemPatternPlanner::TraceAllocation`` in
onnxruntime/core/framework/mem_pattern_planner.h; ``kAllocAlignment`` in
include/onnxruntime/core/framework/allocator.h.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field

ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which values have their place in the block, with their rounded sizes, and its size."""

    sizes: Mapping[str, int]
    nbytes: int


@dataclass(slots=True)
class PatternTrace:
    """The trace of one run."""

    _alive: list[tuple[int, int, str]] = field(default_factory=list)  # offset, end, value
    _sizes: dict[str, int] = field(default_factory=dict)
    _offsets: dict[str, int] = field(default_factory=dict)
    _nbytes: int = 0

    def allocate(self, name: str, nbytes: int) -> None:
        """A value takes so many bytes."""
        size = aligned(nbytes)
        self._sizes[name] = size
        if size == 0:
            return
        offset = self._place(size)
        bisect.insort(self._alive, (offset, offset + size, name))
        self._offsets[name] = offset
        self._nbytes = max(self._nbytes, offset + size)

    def free(self, name: str) -> None:
        """A value's bytes are free again; nothing happens if it has none here."""
        offset = self._offsets.pop(name, None)
        if offset is not None:
            del self._alive[bisect.bisect_left(self._alive, (offset, 0, ""))]

    def _place(self, size: int) -> int:
        starts = [0, *(end for _, end, _ in self._alive)]
        ends = [*(offset for offset, _, _ in self._alive), self._nbytes]
        gaps = ((end - start, start) for start, end in zip(starts, ends, strict=True))
        return min((gap for gap in gaps if gap[0] >= size), default=(0, starts[-1]))[1]

    def pattern(self) -> Pattern:
        """What the run needs."""
        return Pattern(dict(self._sizes), self._nbytes)


def aligned(nbytes: int) -> int:
    """The size that is laid out for a value."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT

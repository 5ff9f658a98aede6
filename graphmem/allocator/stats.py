"""The allocator's counters, each with its peak: what torch.cuda.memory_stats tells.

Source: ``Stat`` and ``DeviceStats`` in c10/core/CachingDeviceAllocator.h; only the sums
over both pools are kept.
"""

from __future__ import annotations


class Stat:
    """A number of bytes or things, and the most it has been."""

    __slots__ = ("current", "peak")

    def __init__(self) -> None:
        self.current = 0
        self.peak = 0

    def add(self, amount: int) -> None:
        """Change the number (``increase_stat`` and ``decrease_stat``)."""
        self.current += amount
        if self.current > self.peak:
            self.peak = self.current

    def __repr__(self) -> str:
        return f"Stat(current={self.current}, peak={self.peak})"


class Stats:
    """All counters. What they count, in bytes unless it says otherwise.

    - ``requested``: what was asked for, unrounded, of the active blocks;
    - ``allocated``: the blocks handed out (``torch.cuda.memory_allocated``);
    - ``active``: these, and the freed ones that wait for another stream's event;
    - ``reserved``: the segments (``torch.cuda.memory_reserved``);
    - ``inactive_split``: free pieces of split segments, without expandable ones;
    - ``segments``, ``retries``, ``out_of_memory``: how many.
    """

    __slots__ = (
        "active",
        "allocated",
        "inactive_split",
        "out_of_memory",
        "requested",
        "reserved",
        "retries",
        "segments",
    )

    def __init__(self) -> None:
        self.requested = Stat()
        self.allocated = Stat()
        self.active = Stat()
        self.reserved = Stat()
        self.inactive_split = Stat()
        self.segments = Stat()
        self.retries = 0
        self.out_of_memory = 0

    def reset_peaks(self) -> None:
        """Every peak is the current number (``torch.cuda.reset_peak_memory_stats``)."""
        for name in self.__slots__:
            stat = getattr(self, name)
            if isinstance(stat, Stat):
                stat.peak = stat.current

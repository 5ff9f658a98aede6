"""A snapshot as plain data: what happened on each device, and what stood there at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique

from graphmem.allocator import AllocatorSettings, Segment


@unique
class Action(StrEnum):
    """What a trace entry records; the words are PyTorch's.

    Source: ``TraceEntry::Action`` in c10/cuda/CUDACachingAllocator.h. Entries of other
    kinds (``snapshot``, ``user_defined``) say nothing about memory and are left out.
    """

    ALLOC = "alloc"
    FREE_REQUESTED = "free_requested"
    FREE_COMPLETED = "free_completed"
    SEGMENT_ALLOC = "segment_alloc"
    SEGMENT_FREE = "segment_free"
    SEGMENT_MAP = "segment_map"
    SEGMENT_UNMAP = "segment_unmap"
    OOM = "oom"


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a stack; its texts hold nothing that a terminal would not print."""

    file: str
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One event. ``size``: requested bytes of a block, bytes of a segment.

    ``address`` of an out-of-memory event is what the device had free.
    """

    action: Action
    address: int
    size: int
    stream: int
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """One device: its events in order, and its segments after the last of them.

    ``private_segments``: how many there are of CUDA graphs' and other private pools; they
    and their events are left out, since they never mix with the ordinary pools.
    ``stacks``: where the blocks in use at the end were asked for, by address; they tell it of
    blocks that are older than the trace.
    """

    device: int
    entries: tuple[Entry, ...]
    segments: tuple[Segment, ...]
    private_segments: int = 0
    stacks: Mapping[int, tuple[Frame, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole file. ``settings`` are the allocator's; PyTorch's defaults where not recorded."""

    devices: tuple[DeviceTrace, ...]
    settings: AllocatorSettings

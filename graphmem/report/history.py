"""The run behind a report: every operation, every tensor, and where each lay in memory.

This is what pictures and other tools' formats are made of. It is too long for the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique


@dataclass(frozen=True, slots=True)
class Moment:
    """One operation, and the bytes of blocks and segments while it runs.

    ``scratch_bytes`` are those of blocks that the kernel allocates for itself, a part of
    ``allocated_bytes``. ``reserved_bytes`` is None where the allocator is not modelled.
    """

    index: int
    step: int
    phase: str
    op: str
    module: str
    source: str | None
    allocated_bytes: int
    reserved_bytes: int | None
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A storage on the device.

    ``bytes`` are those of its block, ``requested_bytes`` what was asked for, shape and dtype
    those of the first tensor on it. It lives from the operation ``born`` (-1: before the
    first) to ``freed`` (None: to the end); ``last_use`` is the last that reads or writes it.
    ``op`` made it (None: the user gave it), ``name`` is that of a parameter or buffer.
    """

    bytes: int
    requested_bytes: int
    category: str
    shape: tuple[int, ...]
    dtype: str
    op: str | None
    module: str
    source: str | None
    name: str | None
    born: int
    last_use: int
    freed: int | None
    stream: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a segment at the peak; ``tensor`` is its place in ``History.tensors``.

    Where ``tensor`` is None, it is a kernel's scratch if ``is_free`` is false.
    """

    address: int
    bytes: int
    requested_bytes: int
    is_free: bool
    tensor: int | None


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory from the driver, or a mapped run of an expandable segment, filled by its pieces."""

    address: int
    bytes: int
    stream: int
    is_small: bool
    is_expandable: bool
    pieces: tuple[Piece, ...]


@unique
class Action(StrEnum):
    """What happened to memory; the words are those of PyTorch's snapshots."""

    ALLOC = "alloc"
    FREE = "free_completed"
    SEGMENT_ALLOC = "segment_alloc"
    SEGMENT_FREE = "segment_free"
    SEGMENT_MAP = "segment_map"
    SEGMENT_UNMAP = "segment_unmap"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to memory, during (of a tensor's end: after) an operation.

    ``bytes`` are those of the block or segment, ``requested_bytes`` those that were asked
    for. ``tensor`` is its place in ``History.tensors``; None of scratch and of segments.
    """

    action: Action
    address: int
    bytes: int
    requested_bytes: int
    stream: int
    operation: int
    tensor: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Addresses: the segments at the fullest moment of the peak's operation, and all events.

    ``last`` are the segments after the last operation.
    """

    segments: tuple[Segment, ...]
    last: tuple[Segment, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class History:
    """A run, operation by operation.

    ``categories`` has, for each category of a breakdown, its bytes while each operation runs;
    they add up to the moment's ``allocated_bytes``. ``memory`` is None where the allocator is
    not modelled.
    """

    moments: tuple[Moment, ...]
    tensors: tuple[Tensor, ...]
    peak_index: int
    categories: Mapping[str, tuple[int, ...]]
    memory: Memory | None

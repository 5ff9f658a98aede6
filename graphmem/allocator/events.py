"""What a program does to the allocator, as a list of events, and running them through it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from graphmem.allocator.blocks import Block
from graphmem.allocator.caching import CachingAllocator
from graphmem.errors import InvariantError


@dataclass(frozen=True, slots=True)
class Malloc:
    """A request; ``key`` names it from then on."""

    key: Hashable
    nbytes: int
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Free:
    """The end of a request."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class RecordStream:
    """``Tensor.record_stream``: another stream works on it."""

    key: Hashable
    stream: int


@dataclass(frozen=True, slots=True)
class Synchronize:
    """All streams have done their work, and the allocator has seen it."""


@dataclass(frozen=True, slots=True)
class EmptyCache:
    """``torch.cuda.empty_cache()``."""


Event: TypeAlias = Malloc | Free | RecordStream | Synchronize | EmptyCache


def replay(allocator: CachingAllocator, events: Iterable[Event]) -> dict[Hashable, Block]:
    """Run events through an allocator; the blocks that are live afterwards, by key.

    A request of no bytes takes no block, as in PyTorch.

    Raises:
        OutOfMemoryError: at the request that does not fit; the allocator shows the state.
        InvariantError: for a key that is used twice or not at all.
    """
    live: dict[Hashable, Block | None] = {}
    for event in events:
        match event:
            case Malloc(key, nbytes, stream):
                if key in live:
                    raise InvariantError(f"request {key!r} is made twice")
                live[key] = allocator.malloc(nbytes, stream) if nbytes else None
            case Free(key):
                block = _known(live, key)
                if block is not None:
                    allocator.free(block)
                del live[key]
            case RecordStream(key, stream):
                block = _known(live, key)
                if block is not None:
                    allocator.record_stream(block, stream)
            case Synchronize():
                allocator.synchronize()
            case EmptyCache():
                allocator.empty_cache()
    return {key: block for key, block in live.items() if block is not None}


def _known(live: dict[Hashable, Block | None], key: Hashable) -> Block | None:
    if key not in live:
        raise InvariantError(f"request {key!r} is used before it is made or after its end")
    return live[key]

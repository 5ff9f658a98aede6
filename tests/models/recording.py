"""Allocations and deaths of a run on meta tensors, and those of a CUDA snapshot."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SNAPSHOTS = Path(__file__).resolve().parents[3] / "shared" / "truth" / "snapshots"

Event = tuple[str, int]
"""``alloc`` or ``free``, and the bytes that were asked for."""


@contextmanager
def recorded() -> Iterator[list[Event]]:
    """The events of what runs in the block, in order."""
    events: list[Event] = []
    with _Recorder(events):
        yield events


class _Recorder(TorchDispatchMode):
    def __init__(self, events: list[Event]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events = events
        self.alive: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        known = {_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and _key(leaf) not in known | self.alive:
                self._born(leaf.untyped_storage())
        return result

    def _born(self, storage: torch.UntypedStorage) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        self.alive.add(key)
        self.events.append(("alloc", nbytes))

        def died() -> None:
            self.alive.discard(key)
            self.events.append(("free", nbytes))

        weakref.finalize(storage, died)


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}: a snapshot holds plain containers")


def snapshot(name: str) -> list[tuple[Event, str]]:
    """The events of a measured run, each with the innermost Python file that it was made in."""
    with (SNAPSHOTS / f"{name}.pickle").open("rb") as file:
        content = _PlainUnpickler(file).load()
    trace = next(events for events in content["device_traces"] if events)
    names = {"alloc": "alloc", "free_requested": "free"}
    return [
        ((names[event["action"]], event["size"]), _python_file(event["frames"]))
        for event in trace
        if event["action"] in names
    ]


def _python_file(frames: list[dict[str, Any]]) -> str:
    files = (frame["filename"] for frame in frames)
    return next((file for file in files if file.endswith(".py")), "")

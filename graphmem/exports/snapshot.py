"""The predicted run as a snapshot of ``torch.cuda.memory._dump_snapshot``.

It opens in pytorch.org/memory_viz and in ``python -m torch.cuda._memory_viz``. The process is a
fresh one that does nothing before the run; a time is the number of the operation, a stack has
the operator, the module with its source line and, for what was there from the start, the name.

Source of the keys: ``memorySnapshot`` in torch/csrc/cuda/Module.cpp (torch 2.14).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from graphmem.allocator import parse_alloc_conf
from graphmem.errors import UsageError
from graphmem.report import Report
from graphmem.report.history import Action, Event, History, Memory, Piece, Segment, Tensor

_PROTOCOL = 4
"""As torch's own files."""


def pickled(report: Report) -> bytes:
    """The snapshot as the bytes of a file.

    Raises:
        UsageError: as ``as_snapshot``.
    """
    return pickle.dumps(as_snapshot(report), protocol=_PROTOCOL)


def as_snapshot(report: Report) -> dict[str, Any]:
    """The snapshot as plain containers, as ``torch.cuda.memory._snapshot`` gives it.

    Raises:
        UsageError: of a run whose allocator is not PyTorch's on CUDA, or a report from a file.
    """
    history = report.history
    memory = history.memory
    if memory is None:
        raise UsageError("a snapshot is of PyTorch's allocator on a GPU: use target cuda")
    conf = report.created_from.get("alloc_conf") or ""
    return _Snapshot(history, memory).content(conf)


class _Snapshot:
    def __init__(self, history: History, memory: Memory) -> None:
        self._history = history
        self._memory = memory
        # Equal stacks are one list: a pickle writes it once.
        self._stacks: dict[tuple[int, int | None], list[dict[str, Any]]] = {}

    def content(self, conf: str) -> dict[str, Any]:
        return {
            "segments": [self._segment(segment) for segment in self._memory.last],
            "device_traces": [list(self._entries())],
            "allocator_settings": _settings(conf),
            "external_annotations": [],
        }

    def _entries(self) -> Iterator[dict[str, Any]]:
        for event in self._memory.events:
            if event.action is Action.FREE:
                yield self._entry("free_requested", event, event.requested_bytes)
            is_block = event.action in (Action.ALLOC, Action.FREE)
            yield self._entry(
                str(event.action), event, event.requested_bytes if is_block else event.bytes
            )

    def _entry(self, action: str, event: Event, size: int) -> dict[str, Any]:
        return {
            "action": action,
            "addr": event.address,
            "size": size,
            "stream": event.stream,
            "time_us": event.operation + 1,
            "frames": self._stack(event.operation, event.tensor),
            "compile_context": "N/A",
            "user_metadata": "",
        }

    def _segment(self, segment: Segment) -> dict[str, Any]:
        blocks = [self._block(piece) for piece in segment.pieces]
        active = sum(piece.bytes for piece in segment.pieces if not piece.is_free)
        return {
            "device": 0,
            "address": segment.address,
            "total_size": segment.bytes,
            "allocated_size": active,
            "active_size": active,
            "requested_size": sum(piece.requested_bytes for piece in segment.pieces),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": segment.is_expandable,
            "frames": [],
            "blocks": blocks,
        }

    def _block(self, piece: Piece) -> dict[str, Any]:
        tensor = None if piece.tensor is None else self._history.tensors[piece.tensor]
        return {
            "address": piece.address,
            "size": piece.bytes,
            "requested_size": piece.requested_bytes,
            "state": "inactive" if piece.is_free else "active_allocated",
            "frames": [] if tensor is None else self._stack(tensor.born, piece.tensor),
        }

    def _stack(self, operation: int, tensor: int | None) -> list[dict[str, Any]]:
        key = operation, tensor if operation < 0 else None
        if key not in self._stacks:
            own = None if tensor is None else self._history.tensors[tensor]
            self._stacks[key] = list(self._frames(operation, own))
        return self._stacks[key]

    def _frames(self, operation: int, tensor: Tensor | None) -> Iterator[dict[str, Any]]:
        """The innermost first, as PyTorch has them."""
        if operation < 0:
            if tensor is not None:
                yield _frame(tensor.category, tensor.source)
                yield _frame(tensor.name or tensor.module, None)
            return
        moment = self._history.moments[operation]
        yield _frame(moment.op, None)
        yield _frame(moment.module, moment.source)
        yield _frame(f"step {moment.step}, {moment.phase}", None)


def _frame(name: str, source: str | None) -> dict[str, Any]:
    file, _, line = (source or "").rpartition(":")
    if not line.isdecimal():
        return {"name": name, "filename": source or "", "line": 0}
    return {"name": name, "filename": file, "line": int(line)}


def _settings(conf: str) -> dict[str, Any]:
    """The allocator's settings. Source: ``allocator_settings`` in Module.cpp: -1 is no limit."""
    parsed = parse_alloc_conf(conf)
    divisions = parsed.roundup_power2_divisions
    return {
        "PYTORCH_CUDA_ALLOC_CONF": conf,
        "max_split_size": -1 if parsed.max_split_bytes is None else parsed.max_split_bytes,
        "garbage_collection_threshold": parsed.garbage_collection_threshold,
        "expandable_segments": parsed.expandable_segments,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "roundup_power2_divisions": {str(1 << i): n for i, n in enumerate(divisions)},
    }

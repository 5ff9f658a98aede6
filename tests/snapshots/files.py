"""Snapshot files as PyTorch writes them, of traces that were made by hand or by the model."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmem.allocator import Segment, State
from graphmem.snapshots import Action, DeviceTrace, Entry, Frame


def written(path: Path, trace: DeviceTrace) -> Path:
    """A file with one device."""
    path.write_bytes(pickle.dumps(content(trace)))
    return path


def content(trace: DeviceTrace) -> dict[str, Any]:
    """What the file holds."""
    return {
        "segments": [_segment(trace, segment) for segment in trace.segments],
        "device_traces": [[_event(entry) for entry in trace.entries]],
    }


def _segment(trace: DeviceTrace, segment: Segment) -> dict[str, Any]:
    return {
        "device": trace.device,
        "address": segment.address,
        "total_size": segment.size,
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment.expandable,
        "frames": [],
        "blocks": [
            {
                "address": piece.address,
                "size": piece.size,
                "requested_size": piece.requested,
                "state": str(piece.state),
                "frames": _frames(trace.stacks, piece.address, piece.state),
            }
            for piece in segment.pieces
        ],
    }


def _frames(
    stacks: Mapping[int, tuple[Frame, ...]], address: int, state: State
) -> list[dict[str, Any]]:
    return _stack(stacks.get(address, ())) if state is not State.FREE else []


def _event(entry: Entry) -> dict[str, Any]:
    place = "device_free" if entry.action is Action.OOM else "addr"
    return {
        "action": str(entry.action),
        place: entry.address,
        "size": entry.size,
        "stream": entry.stream,
        "frames": _stack(entry.frames),
    }


def _stack(frames: tuple[Frame, ...]) -> list[dict[str, Any]]:
    return [{"filename": f.file, "line": f.line, "name": f.name} for f in frames]

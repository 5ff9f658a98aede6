"""graphmem snapshot."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmem.commands.output import add_output, kind_of, write
from graphmem.errors import ExitCode, ModelLoadError

if TYPE_CHECKING:
    from graphmem.allocator import AllocatorSettings
    from graphmem.snapshots import DeviceReplay, DeviceTrace, Holder, Moment, Room, Snapshot

KINDS = {".txt": "table", ".json": "json"}


MOST_HOLDERS = 100
"""How many of the largest blocks the JSON lists."""


class SnapshotCommand:
    """A recorded CUDA memory snapshot: its peaks, who holds them, and its replay."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument(
            "file", metavar="FILE.pickle", help="of torch.cuda.memory._dump_snapshot"
        )
        parser.add_argument(
            "--alloc-conf",
            metavar="SETTINGS",
            help="also replay under other settings, in PyTorch's syntax",
        )
        group = add_output(parser, KINDS)
        group.add_argument(
            "--holders", type=int, default=10, metavar="N", help="largest holders to list (10)"
        )

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Load, replay and print."""
        from graphmem.allocator import parse_alloc_conf
        from graphmem.render.snapshot import rendered

        kind = kind_of(arguments.format, arguments.output, KINDS)
        other = None if arguments.alloc_conf is None else parse_alloc_conf(arguments.alloc_conf)
        snapshot = loaded(arguments.file)
        with naming(arguments.file):
            devices = [_device(snapshot, t, other) for t in snapshot.devices if t.entries]
        text = rendered({"devices": devices}, arguments.file, kind, arguments.holders)
        write(text, arguments.output)
        return ExitCode.OK


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Says which file it is that contradicts itself."""
    try:
        yield
    except ModelLoadError as error:
        raise ModelLoadError(f"{file}: the recorded events can't be followed: {error}") from error


def loaded(file: str) -> Snapshot:
    """A snapshot with events.

    Raises:
        UsageError: if the file can't be read, or is too large.
        ModelLoadError: if it is no snapshot, or nothing was recorded.
    """
    from graphmem.snapshots import load

    snapshot = load(Path(file))
    if not any(trace.entries for trace in snapshot.devices):
        raise ModelLoadError(
            f"{file}: no events were recorded; call "
            "torch.cuda.memory._record_memory_history() before the code of interest"
        )
    return snapshot


def _device(
    snapshot: Snapshot, trace: DeviceTrace, other: AllocatorSettings | None
) -> dict[str, Any]:
    from graphmem.snapshots import has_segments, peak_moment, replay_device

    if not has_segments(trace):
        return _not_replayed(trace, peak_moment(trace, snapshot.settings))
    replay = replay_device(trace, snapshot.settings)
    values = _replayed(replay)
    if other is not None:
        values["under_other_settings"] = _under(snapshot, trace, other)
    return values | _at_peak(peak_moment(trace, snapshot.settings, replay.peak_event))


def _not_replayed(trace: DeviceTrace, moment: Moment) -> dict[str, Any]:
    """A file without segments tells of blocks alone."""
    return {
        "device": trace.device,
        "events": len(trace.entries),
        "recorded": {"allocated_bytes": moment.allocated, "reserved_bytes": None},
        "replayed": None,
        "mismatches": [],
    } | _at_peak(moment)


def _replayed(replay: DeviceReplay) -> dict[str, Any]:
    return {
        "device": replay.device,
        "events": replay.events,
        "recorded": {
            "allocated_bytes": replay.recorded_allocated_bytes,
            "reserved_bytes": replay.recorded_reserved_bytes,
        },
        "replayed": {
            "allocated_bytes": replay.replayed_allocated_bytes,
            "reserved_bytes": replay.replayed_reserved_bytes,
        },
        "mismatches": [
            {"event": m.event, "kind": str(m.kind), "size": m.size, "difference": m.difference}
            for m in replay.mismatches
        ],
    }


def _under(snapshot: Snapshot, trace: DeviceTrace, other: AllocatorSettings) -> dict[str, int]:
    from graphmem.snapshots import what_if

    stats = what_if(trace, snapshot.settings, other).stats
    return {
        "allocated_bytes": stats.allocated.peak,
        "reserved_bytes": stats.reserved.peak,
    }


# -- the peak


def _at_peak(moment: Moment) -> dict[str, Any]:
    """Who holds the bytes, and how fragmented the segments are; they add up."""
    parts = moment.fragmentation
    return {
        "peak": {"event": moment.event, "allocated_bytes": moment.allocated},
        "holders": [_holder(holder) for holder in moment.holders[:MOST_HOLDERS]],
        "call_sites": [
            {"bytes": s.nbytes, "blocks": s.blocks, "older": s.older} | asdict(s.site)
            for s in moment.call_sites
        ],
        "fragmentation": None
        if parts is None
        else {
            "small": _room(parts.small),
            "large": _room(parts.large),
            "total": _room(parts.total),
        },
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "bytes": holder.nbytes,
        "requested_bytes": holder.requested,
        **asdict(holder.site),
        "born": holder.born,
        "freed": holder.freed,
    }


def _room(room: Room) -> dict[str, int]:
    return {
        "reserved_bytes": room.reserved,
        "allocated_bytes": room.allocated,
        "requested_bytes": room.requested,
        "slack_bytes": room.slack,
        "pending_bytes": room.pending,
        "free_in_split_segments_bytes": room.free_in_split,
        "free_segments_bytes": room.free_segments,
        "largest_free_block_bytes": room.largest_free,
    }

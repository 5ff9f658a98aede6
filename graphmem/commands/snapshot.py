"""graphmem snapshot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmem.commands.arguments import add_output, kind_of, write
from graphmem.errors import ExitCode, ModelLoadError

if TYPE_CHECKING:
    from graphmem.allocator import AllocatorSettings
    from graphmem.snapshots import DeviceReplay, DeviceTrace, Snapshot

KINDS = {".txt": "table", ".json": "json"}


class SnapshotCommand:
    """A recorded CUDA memory snapshot: its peaks, and its replay through the allocator."""

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
        add_output(parser, KINDS)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Load, replay and print."""
        from graphmem.allocator import parse_alloc_conf
        from graphmem.render.snapshot import rendered
        from graphmem.snapshots import load

        kind = kind_of(arguments.format, arguments.output, KINDS)
        other = None if arguments.alloc_conf is None else parse_alloc_conf(arguments.alloc_conf)
        snapshot = load(Path(arguments.file))
        devices = [_device(snapshot, trace, other) for trace in snapshot.devices if trace.entries]
        if not devices:
            raise ModelLoadError(
                f"{arguments.file}: no events were recorded; call "
                "torch.cuda.memory._record_memory_history() before the code of interest"
            )
        write(rendered({"devices": devices}, arguments.file, kind), arguments.output)
        return ExitCode.OK


def _device(
    snapshot: Snapshot, trace: DeviceTrace, other: AllocatorSettings | None
) -> dict[str, Any]:
    from graphmem.snapshots import replay_device

    values = _replayed(replay_device(trace, snapshot.settings))
    if other is not None:
        values["under_other_settings"] = _under(snapshot, trace, other)
    return values


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

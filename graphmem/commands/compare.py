"""``graphmem analyze --compare``: a prediction beside a recorded snapshot."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from graphmem.errors import UsageError

if TYPE_CHECKING:
    from graphmem.report import Report
    from graphmem.schedule import Schedule
    from graphmem.snapshots import Snapshot


def add_compare(group: argparse._ArgumentGroup) -> None:
    """``--compare``."""
    group.add_argument(
        "--compare",
        metavar="FILE.pickle",
        help="put the prediction beside a snapshot of torch.cuda.memory._dump_snapshot",
    )


def snapshot_of(arguments: argparse.Namespace) -> Snapshot | None:
    """The snapshot to compare with, None if none was asked for.

    Raises:
        UsageError: if it can't be read, or the prediction is not of a CUDA device.
        ModelLoadError: if it is no snapshot, or nothing was recorded.
    """
    from graphmem.commands.snapshot import loaded

    if arguments.compare is None:
        return None
    if arguments.target != "cuda":
        raise UsageError(
            f"--compare: a snapshot is of a CUDA device, and the prediction of "
            f"--target {arguments.target}; use --target cuda"
        )
    return loaded(arguments.compare)


def comparison_of(
    schedule: Schedule, report: Report, snapshot: Snapshot, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The comparison as JSON values.

    Raises:
        ModelLoadError: if the snapshot has no allocations, or contradicts itself.
    """
    from graphmem.allocator import parse_alloc_conf
    from graphmem.commands.snapshot import naming
    from graphmem.measure.recorded import compare

    settings = parse_alloc_conf(arguments.alloc_conf or "")
    with naming(arguments.compare):
        found = compare(schedule, report, settings, snapshot)
    return {"file": arguments.compare} | found.to_dict()

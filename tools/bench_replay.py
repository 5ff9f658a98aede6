"""Times the replay of snapshots beside reading the same files with pickle and torch's own tool.

For each file, in one process, the processor time of the best of several rounds:

- ``replay``: the allocator's model over all events, from the state before the first to the
  comparison of the last (``graphmem.snapshots.replay_device``);
- ``load``: reading and checking the file (``graphmem.snapshots.load``);
- ``pickle``: Python's own unpickler over the same bytes, nothing else;
- ``torch``: ``torch.cuda._memory_viz.trace`` over the same file as unpickled, torch's own
  walk over the events of a snapshot.

The ratios do not depend on the machine as the events per second do; the bar is 100,000
events a second on a quiet machine.

    python tools/bench_replay.py                    a made-up trace of 200,000 events
    python tools/bench_replay.py FILE.pickle ...    recorded ones
"""

from __future__ import annotations

import argparse
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tabulate import tabulate
from torch.cuda import _memory_viz

from graphmem.allocator import Block, CachingAllocator, State
from graphmem.allocator.driver import SimpleDriver
from graphmem.snapshots import Snapshot, load, replay_device

EVENTS = 200_000
ROUNDS = 3
BAR = 100_000

T_ = TypeVar("T_")


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one file. ``torch`` None: torch's tool can't read it."""

    name: str
    events: int
    mismatches: int
    replay: float
    load: float
    pickle: float
    torch: float | None


# -- what is timed


def measured(path: Path) -> Measured:
    """All four over one file."""
    data = path.read_bytes()
    snapshot, load_seconds = best(lambda: load(path))
    content, pickle_seconds = best(lambda: pickle.loads(data))
    mismatches, replay_seconds = best(lambda: replayed(snapshot))
    return Measured(
        path.stem,
        sum(len(trace.entries) for trace in snapshot.devices),
        mismatches,
        replay_seconds,
        load_seconds,
        pickle_seconds,
        torch_seconds(content),
    )


def best(run: Callable[[], T_]) -> tuple[T_, float]:
    """The result of the last round, and the seconds of the quickest."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        result = run()
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def replayed(snapshot: Snapshot) -> int:
    """Replays every device; how many differences there are."""
    replays = (replay_device(t, snapshot.settings) for t in snapshot.devices if t.entries)
    return sum(len(replay.mismatches) for replay in replays)


def torch_seconds(content: Any) -> float | None:
    """The seconds of torch's own walk; None where it fails on a file."""
    try:
        return best(lambda: _memory_viz.trace(content))[1]
    except (KeyError, IndexError, TypeError):
        return None


# -- a made-up trace


class _Recorded(SimpleDriver):
    """A driver that writes down what it is asked for."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        super().__init__(None)
        self._events = events

    def allocate(self, nbytes: int) -> int | None:
        address = super().allocate(nbytes)
        self._events.append(_event("segment_alloc", address or 0, nbytes))
        return address


def _event(action: str, address: int, nbytes: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": nbytes, "stream": 0, "frames": []}


def made_up(count: int) -> dict[str, Any]:
    """A snapshot of tensors of all sizes that come and go, some hundred alive at a time."""
    rng, events, live = random.Random(0), list[dict[str, Any]](), list[Block]()
    allocator = CachingAllocator(driver=_Recorded(events))
    while len(events) < count:
        if len(live) < 100 or (len(live) < 400 and rng.random() < 0.5):
            block = allocator.malloc(rng.choice((4, 512, 2048, 65536)) * rng.randint(1, 4096))
            live.append(block)
            events.append(_event("alloc", block.address, block.requested))
        else:
            block = live.pop(rng.randrange(len(live)))
            events.append(_event("free_requested", block.address, block.requested))
            events.append(_event("free_completed", block.address, block.requested))
            allocator.free(block)
    return {"segments": _segments(allocator), "device_traces": [events]}


def _segments(allocator: CachingAllocator) -> list[dict[str, Any]]:
    return [
        {
            "device": 0,
            "address": segment.address,
            "total_size": segment.size,
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "blocks": [
                {
                    "address": piece.address,
                    "size": piece.size,
                    "requested_size": piece.requested,
                    "state": str(piece.state) if piece.state is not State.FREE else "inactive",
                }
                for piece in segment.pieces
            ],
        }
        for segment in allocator.segments()
    ]


# -- output


def shown(rows: Sequence[Measured]) -> str:
    """A table: events a second, and the replay's time as a multiple of the others'."""
    cells = [
        (
            row.name,
            f"{row.events:,}",
            row.mismatches,
            f"{row.events / row.replay:,.0f}",
            f"{row.replay / row.load:.2f}",
            f"{row.replay / row.pickle:.2f}",
            "-" if row.torch is None else f"{row.replay / row.torch:.2f}",
        )
        for row in rows
    ]
    headers = ("file", "events", "wrong", "events/s", "/ load", "/ pickle", "/ torch")
    align = ("left", *["right"] * 6)
    table = tabulate(cells, headers=headers, colalign=align, disable_numparse=True)
    total = sum(row.events for row in rows) / sum(row.replay for row in rows)
    return f"{table}\n\n{total:,.0f} events a second in all; the bar is {BAR:,}."


def main() -> None:
    """Time the files that are named, or a made-up one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.pickle")
    files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        if not files:
            files = [Path(folder, "made-up.pickle")]
            files[0].write_bytes(pickle.dumps(made_up(EVENTS)))
        print(shown([measured(path) for path in files]))


if __name__ == "__main__":
    main()

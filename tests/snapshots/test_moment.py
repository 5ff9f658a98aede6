"""Who holds memory at the peak, and what of the reserved bytes is free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.allocator import AllocatorSettings, Block
from graphmem.snapshots import (
    Action,
    DeviceTrace,
    Entry,
    Frame,
    Room,
    load,
    peak_moment,
    replay_device,
)
from graphmem.snapshots.start import starting_segments
from tests.snapshots.files import written
from tests.snapshots.recorder import Recorder

MIB = 1 << 20
DEFAULT = AllocatorSettings()
HERE = (Frame("train.py", 12, "main"),)


def _named(trace: DeviceTrace, stack: tuple[Frame, ...] = HERE) -> DeviceTrace:
    """The trace with a stack at each allocation."""
    entries = (
        replace(entry, frames=stack) if entry.action is Action.ALLOC else entry
        for entry in trace.entries
    )
    return replace(trace, entries=tuple(entries))


# -- holders


def test_holders_are_the_blocks_in_use_at_the_peak() -> None:
    recorder = Recorder(DEFAULT)
    kept = recorder.malloc(3 * MIB)  # events 0 (a segment) and 1
    passing = recorder.malloc(4 * MIB)  # event 2, the peak: 7 MiB
    recorder.free(passing)
    recorder.malloc(2 * MIB)
    recorder.free(kept)
    moment = peak_moment(_named(recorder.trace()), DEFAULT)

    assert (moment.event, moment.allocated) == (2, 7 * MIB)
    assert [(h.nbytes, h.born, h.freed) for h in moment.holders] == [
        (4 * MIB, 2, 3),
        (3 * MIB, 1, 6),
    ]
    (site,) = moment.call_sites
    assert (site.nbytes, site.blocks, site.older) == (7 * MIB, 2, False)
    assert site.site.source == "train.py:12"


def test_of_blocks_that_are_older_than_the_trace_the_final_state_may_tell(tmp_path: Path) -> None:
    recorder = Recorder(DEFAULT)
    known, unknown, freed = (recorder.malloc(3 * MIB) for _ in range(3))
    since = len(recorder.entries)
    recorder.malloc(MIB)
    recorder.free(freed)
    stacks = {block.address: HERE for block in (known, freed)}  # freed: not in use at the end
    trace = replace(recorder.trace(since), stacks=stacks)
    (device,) = load(written(tmp_path / "a.pickle", trace)).devices
    moment = peak_moment(device, DEFAULT)

    told = [h for h in moment.holders if h.site.source == "train.py:12"]
    assert [(h.born, h.freed) for h in told] == [(None, None)]
    older = [h for h in moment.holders if h.born is None]
    assert len(older) == 3
    assert [(s.nbytes, s.blocks) for s in moment.call_sites if s.older] == [(6 * MIB, 2)]
    assert unknown.size == 3 * MIB


def test_the_start_may_be_the_peak() -> None:
    recorder = Recorder(DEFAULT)
    block = recorder.malloc(3 * MIB)
    since = len(recorder.entries)
    recorder.free(block)
    moment = peak_moment(recorder.trace(since), DEFAULT)
    assert (moment.event, moment.allocated, len(moment.holders)) == (None, 3 * MIB, 1)


def test_an_address_that_is_used_again_is_another_block() -> None:
    recorder = Recorder(DEFAULT)
    recorder.free(recorder.malloc(3 * MIB))
    recorder.malloc(3 * MIB)
    recorder.malloc(MIB)
    trace = recorder.trace()
    assert trace.entries[1].address == trace.entries[4].address
    (large, _) = peak_moment(trace, DEFAULT).holders
    assert (large.born, large.freed) == (4, None)


# -- fragmentation


def test_reserved_bytes_are_told_apart() -> None:
    recorder = Recorder(DEFAULT)
    # 20 MiB of one segment: 6 in use, 5 free between, 5 in use, 4 free.
    first, hole, last = (recorder.malloc(n * MIB) for n in (6, 5, 5))
    whole = recorder.malloc(40 * MIB)
    recorder.free(hole)
    recorder.free(whole)
    small = recorder.malloc(100)  # 512 B of 2 MiB
    recorder.malloc(64 * MIB)  # the peak
    parts = peak_moment(recorder.trace(), DEFAULT).fragmentation
    assert parts is not None
    assert first.size + last.size == 11 * MIB
    assert parts.large == Room(
        reserved=(20 + 40 + 64) * MIB,
        allocated=(11 + 64) * MIB,
        requested=(11 + 64) * MIB,
        pending=0,
        free_in_split=9 * MIB,
        free_segments=40 * MIB,
        largest_free=40 * MIB,
    )
    assert parts.small.slack == small.size - 100 == 412
    assert parts.small.free_in_split == 2 * MIB - 512
    assert parts.total.reserved == 126 * MIB


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30 * MIB), st.integers(0, 99)), min_size=1))
def test_parts_and_holders_add_up_in_any_trace(steps: list[tuple[bool, int, int]]) -> None:
    recorder = Recorder(DEFAULT)
    live: list[Block] = [recorder.malloc(512)]
    for takes, nbytes, pick in steps:
        if takes or not live:
            live.append(recorder.malloc(nbytes))
        else:
            recorder.free(live.pop(pick % len(live)))
    trace = recorder.trace()
    moment, replay = peak_moment(trace, DEFAULT), replay_device(trace, DEFAULT)

    assert moment.allocated == replay.replayed_allocated_bytes
    assert moment.event == replay.peak_event
    assert sum(holder.nbytes for holder in moment.holders) == moment.allocated
    assert sum(site.nbytes for site in moment.call_sites) == moment.allocated
    assert moment.fragmentation is not None
    for room in (moment.fragmentation.small, moment.fragmentation.large):
        free = room.free_in_split + room.free_segments
        assert room.reserved == room.allocated + room.pending + free
    assert moment.fragmentation.total.allocated == moment.allocated
    # The same state from the start of a trace of the events after it.
    later = trace.entries[0 if moment.event is None else moment.event + 1 :]
    rest = DeviceTrace(0, later, trace.segments)
    assert sum(s.size for s in starting_segments(rest, DEFAULT)) == (
        moment.fragmentation.total.reserved
    )


# -- files without segments


def test_without_segments_the_requests_are_told() -> None:
    def entry(action: Action, address: int, nbytes: int) -> Entry:
        return Entry(action, address, nbytes, 0, HERE)

    trace = DeviceTrace(
        0,
        (
            entry(Action.ALLOC, 1, 1000),  # 1024
            entry(Action.FREE_REQUESTED, 2, 600),  # 1024, older than the trace
            entry(Action.ALLOC, 3, 100),  # 512
            entry(Action.FREE_REQUESTED, 1, 1000),
            entry(Action.FREE_REQUESTED, 4, 2048),  # older too
            entry(Action.ALLOC, 1, 512),
        ),
        (),
    )
    moment = peak_moment(trace, DEFAULT)
    assert (moment.event, moment.allocated) == (0, 1024 + 1024 + 2048)
    assert moment.fragmentation is None
    assert [(h.nbytes, h.requested, h.born, h.freed) for h in moment.holders] == [
        (2048, 2048, None, 4),
        (1024, 600, None, 1),
        (1024, 1000, 0, 3),
    ]


# -- traces of real GPUs


def test_the_holders_of_a_real_trace(truth: Path) -> None:
    snapshot = load(truth / "snapshots" / "toy-attention-cold-start.pickle")
    moment = peak_moment(snapshot.devices[0], snapshot.settings)
    assert moment.allocated == 3_249_144_832
    first = moment.call_sites[0]
    assert (first.nbytes, first.blocks) == (1 << 30, 2)
    assert (first.site.op, first.site.node) == ("aten.div_Tensor", "DivBackward0")
    sources = {site.site.source for site in moment.call_sites}
    assert "trace_peak_memory.py:7" in sources
    assert not any("einops" in source or "torch/" in source for source in sources if source)
    workspaces = [h.nbytes for h in moment.holders if h.site.kernel == "getNewWorkspace"]
    assert workspaces == [8_519_680, 8_519_680]  # one of each thread


@pytest.mark.parametrize(
    ("name", "allocated", "reserved"),
    [
        ("resnet18-b8-train-fp32-sgdm", 303_644_672, None),
        ("lm423m-ctx128-inference-fp32", 1_738_928_128, 1_763_704_832),
    ],
)
def test_the_peak_of_a_real_trace(
    truth: Path, name: str, allocated: int, reserved: int | None
) -> None:
    snapshot = load(truth / "snapshots" / f"{name}.pickle")
    moment = peak_moment(snapshot.devices[0], snapshot.settings)
    assert moment.allocated == allocated
    parts = moment.fragmentation
    assert (None if parts is None else parts.total.reserved) == reserved

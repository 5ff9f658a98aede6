"""Recorded traces through the allocator's model: our own, and those of real GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.allocator import AllocatorSettings, Block, OutOfMemoryError, parse_alloc_conf
from graphmem.errors import ModelLoadError
from graphmem.snapshots import Action, DeviceTrace, Entry, Kind, load, replay_device, what_if
from graphmem.snapshots.start import starting_segments
from tests.snapshots.recorder import Recorder

MIB = 1 << 20
DEFAULT = AllocatorSettings()

# Files of truth/snapshots with the peaks that torch reported, or that follow from the trace.
RESERVED = {
    "gnn-expandable-segments-oom": 8_541_700_096,
    "linear-grad-hopper": 4_439_670_784,
    "llama-ten-streams": 22_519_218_176,
    "lm-768x12-ctx256-fwd-bwd": 14_180_941_824,
    "lm2700m-ctx128-forward-fp32": 19_667_091_456,
    "lm2700m-ctx128-fullstep-fp32": 61_111_009_280,
    "lm2b-xl-ctx128-forward-fp32": 14_120_124_416,
    "lm2b-xl-ctx256-forward-bf16-autocast": 20_896_022_528,
    "lm423m-ctx128-inference-fp32": 1_763_704_832,
    "lm423m-ctx128-train-fp32": 7_235_174_400,
    "lm423m-ctx512-inference-bf16-autocast": 1_981_808_640,
    "lm423m-ctx512-train-bf16-autocast": 12_660_506_624,
    "nca-inference-a": 24_410_849_280,
    "nca-inference-c-segment-free": 22_194_159_616,
    "nca2d-conv-workspaces": 21_994_930_176,
    "nca3d-batchnorm-forward": 20_860_370_944,
    "opt125m-forward-only-cold-start": 1_897_922_560,
    "tinyllama-int8-lora-train": 6_471_811_072,
    "toy-attention-cold-start": 3_781_165_056,
}
COLD = ["linear-grad-hopper", "opt125m-forward-only-cold-start", "toy-attention-cold-start"]


# -- traces of real GPUs


@pytest.mark.parametrize("name", RESERVED)
def test_a_real_trace_is_reproduced_decision_by_decision(truth: Path, name: str) -> None:
    snapshot = load(truth / "snapshots" / f"{name}.pickle")
    replays = [replay_device(d, snapshot.settings) for d in snapshot.devices if d.entries]
    for replay in replays:
        assert replay.mismatches == ()
        assert replay.replayed_reserved_bytes == replay.recorded_reserved_bytes
    assert replays[0].recorded_reserved_bytes == RESERVED[name]


@pytest.mark.parametrize(
    ("name", "recorded", "replayed"),
    [
        ("lm423m-ctx128-inference-fp32", 1_738_928_128, 1_738_928_128),
        # 13,271,040 bytes of slack at the peak; the trace alone shows 8,355,840 of them.
        ("lm423m-ctx128-train-fp32", 7_021_691_392, 7_013_335_552 + 13_271_040),
        ("opt125m-forward-only-cold-start", 1_786_608_128, 1_783_665_152 + 7_229_440),
        ("llama-ten-streams", 20_802_387_456, 20_802_387_456),
    ],
)
def test_allocated_peaks_of_real_traces(
    truth: Path, name: str, recorded: int, replayed: int
) -> None:
    snapshot = load(truth / "snapshots" / f"{name}.pickle")
    replay = replay_device(snapshot.devices[0], snapshot.settings)
    assert replay.recorded_allocated_bytes == recorded
    assert replay.replayed_allocated_bytes == replayed


@pytest.mark.parametrize("name", COLD)
def test_from_an_empty_process_no_recorded_address_is_needed(truth: Path, name: str) -> None:
    snapshot = load(truth / "snapshots" / f"{name}.pickle")
    (device,) = snapshot.devices
    allocator = what_if(device, snapshot.settings, snapshot.settings)
    assert allocator.stats.reserved.peak == RESERVED[name]
    assert allocator.stats.allocated.peak == (
        replay_device(device, snapshot.settings).replayed_allocated_bytes
    )


def test_wrong_settings_do_not_reproduce_a_real_trace(truth: Path) -> None:
    snapshot = load(truth / "snapshots" / "opt125m-forward-only-cold-start.pickle")
    settings = replace(snapshot.settings, large_segment_bytes=24 * MIB)
    replay = replay_device(snapshot.devices[0], settings)
    assert replay.count(Kind.DECISION) > 0


def test_a_trace_without_segments_can_not_be_compared(truth: Path) -> None:
    snapshot = load(truth / "snapshots" / "resnet18-b8-train-fp32-sgdm.pickle")
    with pytest.raises(ModelLoadError, match="no segments to compare with"):
        replay_device(snapshot.devices[0], snapshot.settings)


# -- traces of the model itself

# Sizes without slack: 3 MiB leaves more than 1 MiB in every segment, or nothing.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from("mmmfffe"),
        st.sampled_from([500, 70_000, 3 * MIB, 4 * MIB, 24 * MIB, 60 * MIB]),
        st.integers(0, 1 << 20),
    ),
    min_size=2,
    max_size=60,
)


@given(
    st.sampled_from(["", "expandable_segments:True"]),
    st.sampled_from([None, 150 * MIB]),
    _STEPS,
    st.floats(0, 1),
)
def test_a_trace_that_starts_anywhere_is_reproduced(
    conf: str, capacity: int | None, steps: list[tuple[str, int, int]], share: float
) -> None:
    settings = parse_alloc_conf(conf)
    recorder = Recorder(settings, capacity)
    live: list[Block] = []
    before, since = recorder.allocator.segments(), 0
    for number, step in enumerate(steps):
        if number == int(share * (len(steps) - 1)):
            before, since = recorder.allocator.segments(), len(recorder.entries)
        if not _act(recorder, live, *step):
            break  # out of memory: pages that were mapped before it ran out stay mapped
    trace = recorder.trace(since)
    start = starting_segments(trace, settings)
    assert start == before
    # Where an expandable segment began, below its lowest mapped page, a trace does not tell.
    if all(entry.action is not Action.SEGMENT_UNMAP for entry in recorder.entries[:since]):
        assert replay_device(trace, settings).mismatches == ()


def _act(recorder: Recorder, live: list[Block], action: str, nbytes: int, pick: int) -> bool:
    if action == "m":
        try:
            live.append(recorder.malloc(nbytes))
        except OutOfMemoryError:
            return False
    elif action == "e":
        recorder.allocator.empty_cache()
    elif live:
        recorder.free(live.pop(pick % len(live)))
    return True


def test_slack_at_the_start_is_known_by_the_gap() -> None:
    recorder = Recorder(DEFAULT)
    block = recorder.malloc(40_960_000)  # 41,943,040 with slack
    before, since = recorder.allocator.segments(), len(recorder.entries)
    recorder.free(block)
    assert starting_segments(recorder.trace(since), DEFAULT) == before


def test_slack_at_the_start_is_known_by_the_next_allocation_behind_it() -> None:
    recorder = Recorder(DEFAULT)
    first, second, third = (
        recorder.malloc(6 * MIB),
        recorder.malloc(6 * MIB),
        recorder.malloc(2 * MIB),
    )
    recorder.free(first)
    slack = recorder.malloc(5 * MIB + 512)  # in 6 MiB: the rest is below 1 MiB
    assert slack.size == 6 * MIB
    recorder.free(second)  # and now 6 MiB behind it are free
    before, since = recorder.allocator.segments(), len(recorder.entries)
    behind = recorder.malloc(6 * MIB)
    for block in (slack, behind, third):
        recorder.free(block)
    assert starting_segments(recorder.trace(since), DEFAULT) == before


def test_every_kind_of_mismatch_is_told() -> None:
    recorder = Recorder(DEFAULT)
    recorder.malloc(3 * MIB)
    trace = recorder.trace()
    taken, alloc = trace.entries
    moved = replace(alloc, address=alloc.address + 4 * MIB)
    replay = replay_device(replace(trace, entries=(taken, moved), segments=trace.segments), DEFAULT)
    assert [mismatch.kind for mismatch in replay.mismatches] == [Kind.ADDRESS]
    again = replace(alloc, address=alloc.address + 3 * MIB)
    other = Entry(Action.SEGMENT_ALLOC, 1 << 40, 20 * MIB, 0)
    segments = (*trace.segments, replace(trace.segments[0], address=1 << 40, pieces=()))
    more = DeviceTrace(0, (taken, alloc, other, again), segments)
    kinds = {mismatch.kind for mismatch in replay_device(more, DEFAULT).mismatches}
    assert kinds == {Kind.DECISION, Kind.FINAL_STATE}
    failed = Entry(Action.OOM, 0, 3 * MIB, 0)
    replay = replay_device(replace(trace, entries=(taken, alloc, failed)), DEFAULT)
    assert Kind.OUT_OF_MEMORY in {mismatch.kind for mismatch in replay.mismatches}


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_a_request_beyond_every_gpu_runs_out_of_memory(conf: str) -> None:
    settings = parse_alloc_conf(conf)
    recorder = Recorder(settings)
    recorder.malloc(3 * MIB)
    trace = recorder.trace()
    failed = Entry(Action.OOM, 0, 1 << 42, 0)  # 4 TiB
    replay = replay_device(replace(trace, entries=(*trace.entries, failed)), settings)
    assert replay.mismatches == ()


def test_a_trace_that_contradicts_itself_is_refused() -> None:
    trace = Recorder(DEFAULT)
    trace.malloc(3 * MIB)
    entries = trace.trace().entries
    with pytest.raises(ModelLoadError, match="is taken, but not there afterwards"):
        replay_device(DeviceTrace(0, entries, ()), DEFAULT)
    done = Entry(Action.FREE_COMPLETED, entries[1].address, 3 * MIB, 0)
    with pytest.raises(ModelLoadError, match=r"event 2: free_completed at .* where <allocated"):
        replay_device(replace(trace.trace(), entries=(*entries, done)), DEFAULT)
    free = Entry(Action.FREE_REQUESTED, 12345, 512, 0)
    with pytest.raises(ModelLoadError, match="where nothing lives"):
        replay_device(replace(trace.trace(), entries=(*entries, free)), DEFAULT)


def test_what_if_runs_the_same_requests_under_other_settings() -> None:
    recorder = Recorder(DEFAULT)
    for _ in range(3):
        recorder.malloc(15 * MIB)  # three segments of 16 MiB
    other = parse_alloc_conf("expandable_segments:True")
    assert what_if(recorder.trace(), DEFAULT, DEFAULT).stats.reserved.peak == 48 * MIB
    assert what_if(recorder.trace(), DEFAULT, other).stats.reserved.peak == 60 * MIB
    since = len(recorder.entries)
    recorder.malloc(15 * MIB)
    assert what_if(recorder.trace(since), DEFAULT, other).stats.allocated.peak == 60 * MIB
    with pytest.raises(OutOfMemoryError):
        what_if(recorder.trace(), DEFAULT, other, capacity=50 * MIB)

"""Snapshot files: what is read of them, and what is refused in one line."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from graphmem.allocator import AllocatorSettings, Piece, State
from graphmem.errors import ModelLoadError, UsageError
from graphmem.snapshots import Action, Entry, Frame, load

MIB = 1 << 20
FRAMES = [{"filename": "a.py", "line": 3, "name": "f"}]
LONG_LINE = {"filename": "a.py", "line": 10**5000, "name": "f"}


def _segment(**changed: Any) -> dict[str, Any]:
    return {
        "device": 0,
        "address": 2 * MIB,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {"address": 2 * MIB, "size": 512, "requested_size": 100, "state": "active_allocated"},
            {"address": 2 * MIB + 512, "size": 2 * MIB - 512, "state": "inactive"},
        ],
    } | changed


def _event(action: str, addr: int, size: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": FRAMES} | more


def _content(**changed: Any) -> dict[str, Any]:
    events = [_event("segment_alloc", 2 * MIB, 2 * MIB), _event("alloc", 2 * MIB, 100)]
    return {"segments": [_segment()], "device_traces": [events]} | changed


def _file(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content))
    return path


def test_a_snapshot_is_read(tmp_path: Path) -> None:
    snapshot = load(_file(tmp_path, _content()))
    (device,) = snapshot.devices
    frames = (Frame("a.py", 3, "f"),)
    assert device.entries == (
        Entry(Action.SEGMENT_ALLOC, 2 * MIB, 2 * MIB, 0, frames),
        Entry(Action.ALLOC, 2 * MIB, 100, 0, frames),
    )
    (segment,) = device.segments
    assert segment.small
    assert segment.pieces == (
        Piece(2 * MIB, 512, State.ALLOCATED, 100),
        Piece(2 * MIB + 512, 2 * MIB - 512, State.FREE),
    )
    assert snapshot.settings == AllocatorSettings()


def test_other_events_and_private_pools_are_left_out(tmp_path: Path) -> None:
    private = _segment(address=8 * MIB, segment_pool_id=(0, 1), blocks=_whole(8 * MIB))
    events = [
        _event("user_defined", 0, 0),
        _event("alloc", 8 * MIB, 512),
        {"action": "oom", "device_free": 5, "size": 512, "stream": 0},
    ]
    content = _content(segments=[_segment(), private], device_traces=[events])
    (device,) = load(_file(tmp_path, content)).devices
    assert device.entries == (Entry(Action.OOM, 5, 512, 0),)
    assert (len(device.segments), device.private_segments) == (1, 1)


def _whole(address: int) -> list[dict[str, Any]]:
    return [{"address": address, "size": 2 * MIB, "state": "active_awaiting_free"}]


def test_what_a_terminal_would_obey_is_left_out_of_names(tmp_path: Path) -> None:
    frames = [{"filename": "\x1b[2Ja\n.py", "line": -1, "name": "\ud800"}]
    events = [_event("alloc", 2 * MIB, 100, frames=frames)]
    (device,) = load(_file(tmp_path, _content(device_traces=[events]))).devices
    assert device.entries[0].frames == (Frame("?[2Ja?.py", -1, "?"),)


def test_the_stacks_of_blocks_in_use_are_read(tmp_path: Path) -> None:
    segment = _segment()
    for block in segment["blocks"]:
        block["frames"] = FRAMES
    (device,) = load(_file(tmp_path, _content(segments=[segment]))).devices
    assert device.stacks == {2 * MIB: (Frame("a.py", 3, "f"),)}  # not the free one's


def test_a_device_without_events_is_there(tmp_path: Path) -> None:
    content = _content(segments=[_segment(device=2)], device_traces=[])
    assert [len(d.segments) for d in load(_file(tmp_path, content)).devices] == [0, 0, 1]


def test_the_recorded_settings_are_read(tmp_path: Path) -> None:
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:32",
        "max_split_size": 64 * MIB,
        "garbage_collection_threshold": 0.5,
        "expandable_segments": True,
        "roundup_power2_divisions": {str(1 << i): 4 for i in range(16)},
    }
    settings = load(_file(tmp_path, _content(allocator_settings=recorded))).settings
    assert settings == AllocatorSettings(
        max_split_bytes=64 * MIB,
        large_segment_bytes=32 * MIB,
        roundup_power2_divisions=(4,) * 16,
        garbage_collection_threshold=0.5,
        expandable_segments=True,
    )


def test_settings_of_a_later_torch_are_left_aside(tmp_path: Path) -> None:
    recorded = {"PYTORCH_CUDA_ALLOC_CONF": "invented_later:1", "max_split_size": -1}
    loaded = load(_file(tmp_path, _content(allocator_settings=recorded)))
    assert loaded.settings == AllocatorSettings()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a dictionary with 'segments', not a list"),
        ({}, "'segments' is NoneType, or missing"),
        (_content(segments=[1]), "expected a dictionary with 'blocks'"),
        (_content(segments=[_segment(device=1 << 40)]), "a segment of device 1099511627776"),
        (_content(segments=[_segment(address=-1)]), "no address"),
        (_content(segments=[_segment(address="x")]), "'address' is str"),
        (_content(segments=[_segment(stream=True)]), "'stream' is bool"),
        (_content(segments=[_segment(total_size=1)]), "do not fill it"),
        (_content(segments=[_segment(blocks=[{"size": 0, "state": "inactive"}])]), "is not one"),
        (_content(segments=[_segment(blocks=[{"size": 1, "state": "lost"}])]), "is not one"),
        (_content(device_traces=[{}]), "a device's trace is a dict"),
        (_content(device_traces=[[]] * 5000), "5000 devices"),
        (_content(device_traces=[[_event("alloc", 1 << 70, 1)]]), "'addr' is"),
        (_content(device_traces=[[_event("alloc", 10**5000, 1)]]), "a number of many digits"),
        (
            _content(device_traces=[[_event("alloc", 1, 1 << 41)]]),
            "an event alloc of 2199023255552",
        ),
        (_content(device_traces=[[_event("alloc", 1, 0)]]), "an event alloc of 0 bytes"),
        (_content(device_traces=[[_event("alloc", 1, 1, frames=[LONG_LINE])]]), "'line' is no"),
        (_content(segments=[_segment(), _segment()]), "the segments at 0x200000 overlap"),
        (_content(allocator_settings={"garbage_collection_threshold": 10**400}), "is no share"),
        (_content(allocator_settings={"garbage_collection_threshold": float("nan")}), "no share"),
        (_content(device_traces=[[{"action": "alloc", "size": 1}]]), "'addr' is NoneType"),
        (_content(device_traces=[[_event("alloc", 1, 1, frames=[7])]]), "'filename'"),
        (_content(allocator_settings=3), "expected a dictionary"),
    ],
)
def test_what_is_no_snapshot_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        load(_file(tmp_path, content))
    assert message in str(caught.value)
    assert "snapshot.pickle: can't be read as a memory snapshot" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # 1 GiB, sparse
    with pytest.raises(UsageError, match="1073741824 bytes, and no more than 536870912 are read"):
        load(path)


def test_a_missing_file_a_folder_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "missing.pickle")
    with pytest.raises(UsageError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "empty.pickle").touch()
    with pytest.raises(ModelLoadError, match="the file is empty"):
        load(tmp_path / "empty.pickle")


def test_one_list_named_many_times_is_refused(tmp_path: Path) -> None:
    trace = [_event("alloc", 1, 1)] * 1000
    content = _content(device_traces=[trace] * 1000)  # 1,000,000 events in some 6 kB
    with pytest.raises(ModelLoadError, match="1000002 events and blocks in"):
        load(_file(tmp_path, content))


def test_a_class_in_a_snapshot_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, _content(extra=Path("x")))
    with pytest.raises(ModelLoadError, match="makes more than plain containers"):
        load(path)

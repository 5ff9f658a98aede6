"""Tests of graphmem.render.snapshot and graphmem.render.sites."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphmem.errors import UsageError
from graphmem.render.sites import where
from graphmem.render.snapshot import rendered
from tests.render.golden_files import check_golden

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def site(**known: str | None) -> dict[str, Any]:
    """Where a block was asked for; what is not named is not known."""
    return dict.fromkeys(("op", "kernel", "node", "source", "function")) | known


SOFTMAX = site(op="aten.exp", source="/home/me/project/models/attention.py:7", function="softmax")
SCRATCH = site(op="aten.sum_dim_IntList", kernel="gpu_reduce_kernel", node="SumBackward1")
NOTHING = site()


def room(allocated: int, slack: int, split: int, whole: int, largest: int) -> dict[str, int]:
    """The bytes of a pool."""
    return {
        "reserved_bytes": allocated + split + whole,
        "allocated_bytes": allocated,
        "requested_bytes": allocated - slack,
        "slack_bytes": slack,
        "pending_bytes": 0,
        "free_in_split_segments_bytes": split,
        "free_segments_bytes": whole,
        "largest_free_block_bytes": largest,
    }


def device(number: int = 0, **changed: Any) -> dict[str, Any]:
    """One device: 3 GiB at the peak, two blocks of softmax and one that is older."""
    holders = [
        {"bytes": 2 * GIB, "requested_bytes": 2 * GIB, **NOTHING, "born": None, "freed": None},
        {"bytes": 1000 * MIB, "requested_bytes": 999 * MIB, **SOFTMAX, "born": 16, "freed": 1072},
        {"bytes": 24 * MIB, "requested_bytes": 24 * MIB, **SCRATCH, "born": 40, "freed": None},
    ]
    sites = [
        {"bytes": 2 * GIB, "blocks": 1, "older": True, **NOTHING},
        {"bytes": 1000 * MIB, "blocks": 1, "older": False, **SOFTMAX},
        {"bytes": 24 * MIB, "blocks": 1, "older": False, **SCRATCH},
    ]
    small, large = room(0, 0, 0, 2 * MIB, 2 * MIB), room(3 * GIB, MIB, 8 * MIB, 0, 5 * MIB)
    total = {key: small[key] + large[key] for key in small} | {"largest_free_block_bytes": 5 * MIB}
    return {
        "device": number,
        "events": 2001,
        "recorded": {"allocated_bytes": 3 * GIB, "reserved_bytes": 3 * GIB + 10 * MIB},
        "replayed": {"allocated_bytes": 3 * GIB, "reserved_bytes": 3 * GIB + 10 * MIB},
        "mismatches": [],
        "peak": {"event": 41, "allocated_bytes": 3 * GIB},
        "holders": holders,
        "call_sites": sites,
        "fragmentation": {"small": small, "large": large, "total": total},
    } | changed


MISMATCH = {"event": 3, "kind": "address", "size": 512, "difference": "0x1 recorded, 0x2 replayed"}
WITHOUT_SEGMENTS = device(
    recorded={"allocated_bytes": 3 * GIB, "reserved_bytes": None},
    replayed=None,
    fragmentation=None,
    peak={"event": None, "allocated_bytes": 3 * GIB},
)


def test_a_replayed_device() -> None:
    check_golden("snapshot.txt", rendered({"devices": [device()]}, "memory.pickle", "table"))


def test_a_device_that_could_not_be_replayed() -> None:
    text = rendered({"devices": [WITHOUT_SEGMENTS]}, "memory.pickle", "table", 2)
    check_golden("snapshot_without_segments.txt", text)


def test_several_devices_that_differ_under_other_settings() -> None:
    other = {"allocated_bytes": 3 * GIB, "reserved_bytes": 3 * GIB + 20 * MIB}
    devices = [
        device(mismatches=[MISMATCH] * 12, under_other_settings=other),
        device(1, holders=[], call_sites=[]),
    ]
    check_golden("snapshots.txt", rendered({"devices": devices}, "memory.pickle", "table", 0))


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_no_line_is_wider_than_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    devices = [device(), WITHOUT_SEGMENTS]
    text = rendered({"devices": devices}, "memory.pickle", "table")
    peaks = 67  # both numbers whole
    assert max(map(len, text.splitlines())) <= max(int(columns), peaks)


def test_json_is_the_result_itself() -> None:
    result = {"devices": [device(), WITHOUT_SEGMENTS]}
    assert json.loads(rendered(result, "memory.pickle", "json")) == result


def test_a_negative_number_of_holders_is_refused() -> None:
    with pytest.raises(UsageError, match="holders: -1 is not 0 or more"):
        rendered({"devices": []}, "memory.pickle", "table", -1)


# -- a site in one line


@pytest.mark.parametrize(
    ("place", "width", "text"),
    [
        (SOFTMAX, 80, "aten.exp at /home/me/project/models/attention.py:7 (softmax)"),
        (SOFTMAX, 50, "aten.exp at …/models/attention.py:7 (softmax)"),
        (SOFTMAX, 40, "aten.exp at attention.py:7 (softmax)"),
        (SOFTMAX, 30, "aten.exp at attention.py:7"),
        (SCRATCH, 80, "aten.sum_dim_IntList, gpu_reduce_kernel in SumBackward1"),
        (SCRATCH, 20, "aten.sum_…mBackward1"),
        (site(op="aten._to_copy"), 80, "aten._to_copy"),
        (site(node="AccumulateGrad"), 80, "AccumulateGrad"),
        (site(source="a.py:3", function="<module>"), 80, "a.py:3"),
        (NOTHING, 80, "no source line recorded"),
    ],
)
def test_a_site_is_shortened_from_the_folders_on(
    place: dict[str, Any], width: int, text: str
) -> None:
    assert where(place, width) == text
    assert len(text) <= width


def test_what_nothing_tells_of_may_be_older() -> None:
    assert where(NOTHING, 80, older=True) == "older than the recording"
    assert where(SOFTMAX, 80, older=True) == where(SOFTMAX, 80)

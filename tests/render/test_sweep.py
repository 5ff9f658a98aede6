"""The table and the heat map of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from graphmem.render import sweep

GIB = 2**30


def _row(batch: int | None, taken: int | None, spare: int | None = None, **other: Any) -> Any:
    """A case whose run takes ``taken`` GiB of a GPU that has ``spare`` GiB more; None: failed."""
    answer = {
        "allocated_bytes": (taken or 0) * GIB,
        "reserved_bytes": (taken or 0) * GIB,
        "phase": "backward",
        "module": "encoder.layers.3.mlp",
        "fits": None if spare is None else spare >= 0,
        "headroom_bytes": None if spare is None else spare * GIB,
    }
    axes = {"subject": "m.py:f", "precision": None, "device": None, "seq": None, "batch": batch}
    failed = taken is None
    return {
        **axes,
        **other,
        "answer": None if failed else answer,
        "error": "the model failed" if failed else None,
    }


def _map(rows: list[Mapping[str, Any]], width: int = 80) -> list[str]:
    return sweep.as_text(rows, width).split("\n\n")[1].splitlines()


def test_a_shade_is_the_share_of_the_gpus_memory() -> None:
    # of 16 GiB: 1/16, 4/16, 9/16, 15/16; then 2 GiB too many, and one that failed
    taken = [(1, 15), (4, 12), (9, 7), (15, 1), (18, -2)]
    rows = [_row(n, *sizes, device="T4") for n, sizes in enumerate(taken, 1)]
    shown = _map([*rows, _row(6, None, device="T4")])
    assert shown == ["batch  1                6", "       ░░░▒▒▒▓▓▓███✗✗✗!!!"]


def test_without_a_gpu_it_is_the_share_of_the_largest_peak() -> None:
    shown = _map([_row(1, 2), _row(2, 4), _row(4, 8)])  # 2/8, 4/8, 8/8
    assert shown == ["batch  1       4", "       ▒▒▒▓▓▓███"]


def test_the_other_axes_have_a_line_each() -> None:
    rows = [
        _row(batch, batch, 16 - batch, device=device, precision=precision)
        for precision in ("fp32", "bf16")
        for device in ("L4", "T4")
        for batch in (1, 2, 4)
    ]
    lines = _map(rows)
    assert [line[:7].strip() for line in lines[1:]] == ["fp32 L4", "fp32 T4", "bf16 L4", "bf16 T4"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("count", [2, 64, 200])
def test_no_line_is_wider_than_the_terminal(count: int, width: int) -> None:
    rows = [_row(batch, batch, 300 - batch, device="L4") for batch in range(1, count + 1)]
    shown = _map(rows, width)
    assert max(map(len, shown)) <= width
    signs = "".join(line[7:] for line in shown[1::2])
    assert len(signs) in (count, 3 * count)


def test_a_long_table_shows_its_ends() -> None:
    table = sweep.as_text([_row(n, n) for n in range(1, 101)]).split("\n\n")[0].splitlines()
    assert len(table) < 45
    assert table[1].split()[0] == "1"
    assert table[-1].split()[0] == "100"


def test_an_error_is_told_once() -> None:
    text = sweep.as_text([_row(1, 1), _row(2, None), _row(3, None)])
    assert text.endswith("\n\nbatch 2 and 1 more: the model failed\n")
    assert "failed" in text.splitlines()[2]


def test_one_case_has_a_table_alone() -> None:
    assert sweep.as_text([_row(None, 3)]).splitlines() == [
        "batch  allocated  reserved  peak in",
        "    -   3.00 GiB  3.00 GiB  backward, encoder.layers.3.mlp",
    ]

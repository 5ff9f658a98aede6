"""Tests of graphmem.render.diff and diff_markdown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem.as_text import format_bytes
from graphmem.diffs import Diff, compare
from graphmem.render.diff import as_text
from graphmem.render.diff_markdown import MOST_BYTES, as_markdown
from graphmem.report import Holder, Report, UnknownItem
from tests.diffs.reports import on, report, row, rows, stack
from tests.render.golden_files import check_golden
from tests.render.samples import inference_report, training_report
from tests.render.strategies import reports
from tests.render.test_markdown import tables

GIB = 1024**3


def changed_report() -> Report:
    """``training_report`` without eight blocks, of another class and name, on a smaller GPU."""
    base = training_report(blocks=24)
    layers = tuple(
        replace(
            layer,
            module=layer.module.replace("model.layers", "model.blocks"),
            type=layer.type.replace("RMSNorm", "LayerNorm"),
        )
        for layer in base.layers
    )
    holder = replace(base.holders[0], op="aten.cat", module="lm_head", bytes=3 * GIB)
    return replace(
        on("L4", base, -3 * GIB),
        layers=layers,
        holders=(holder, *base.holders[1:]),
        peak=replace(base.peak, phase="optimizer", op="aten._foreach_sqrt", module="(top level)"),
        unknown=(base.unknown[0], UnknownItem("a <size>", "aten.nonzero of lm_head", "all", GIB)),
        torch="2.14.1",
    )


SAMPLES = {
    "blocks": compare(training_report(), changed_report(), ("base.json", "head.json")),
    "same": compare(inference_report(), inference_report()),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_text_is_the_golden_one(name: str, width: int) -> None:
    check_golden(f"diff_{name}_{width}.txt", as_text(SAMPLES[name], width=width))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_markdown_is_the_golden_one(name: str) -> None:
    check_golden(f"diff_{name}.md", as_markdown(SAMPLES[name]))


@settings(max_examples=30, deadline=None)
@given(reports(), reports(), st.integers(60, 200))
def test_no_line_is_wider_than_the_screen(base: Report, head: Report, width: int) -> None:
    for line in as_text(compare(base, head), width=width).split("\n"):
        assert len(line) <= width


@settings(max_examples=30, deadline=None)
@given(reports(), reports())
def test_every_row_of_markdown_has_the_cells_of_its_header(base: Report, head: Report) -> None:
    for table in tables(as_markdown(compare(base, head))):
        assert {len(cells) for cells in table} == {len(table[0])}


def bytes_of(cell: str) -> float:
    """The bytes of a cell, which is rounded to a hundredth of its unit."""
    if cell in ("-", ""):
        return 0
    number, unit = cell.split(" ")
    powers = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}
    return float(number) * 1024.0 ** powers[unit]


@pytest.mark.parametrize("diff", SAMPLES.values(), ids=list(SAMPLES))
def test_the_rows_of_layers_add_up_to_the_change(diff: Diff) -> None:
    found = [table for table in tables(as_markdown(diff)) if table[0][0] == "layers, at the peak"]
    if not diff.groups:
        assert found == []
        return
    (table,) = found
    *shown, total = table[2:]
    for column in (2, 3, 4):
        added = sum(bytes_of(cells[column]) for cells in shown)
        assert added == pytest.approx(bytes_of(total[column]), abs=len(shown) * 0.01 * GIB)
    assert total[4] == format_bytes(diff.allocated.change, signed=True)


def test_what_did_not_change_is_folded_into_one_row() -> None:
    base = report(rows(*stack("layers", 12), "head Linear 50"))
    head = report(rows(*stack("layers", 12), "head Linear 51"))
    text = as_text(compare(base, head), width=80)
    assert re.search(r"^38 modules unchanged +14.06 KiB +14.06 KiB +-$", text, re.MULTILINE)
    assert "layers" not in text.split("layers, at the peak")[1]


def test_new_and_gone_layers_are_marked() -> None:
    diff = compare(
        report(rows("a Linear 1", "old Conv2d 9")), report(rows("a Linear 1", "fc Linear 7"))
    )
    narrow, wide, markdown = as_text(diff, width=80), as_text(diff, width=120), as_markdown(diff)
    assert "New       fc (Linear, 28 B)" in narrow
    assert "Gone      old (Conv2d, 36 B)" in narrow
    assert re.search(r"^old \(gone\) +36 B +- +-36 B$", narrow, re.MULTILINE)
    assert re.search(r"^old +gone Conv2d", wide, re.MULTILINE)
    assert "| `fc` | new Linear | - | 28 B | +28 B |" in markdown


def test_names_are_shortened_before_numbers_are() -> None:
    path = ".".join(["a_rather_long_name_of_a_module"] * 6)
    diff = compare(report((row(path, parameters=1),)), report((row(path, parameters=9),)))
    (line,) = [
        line
        for line in as_text(diff, width=80).split("\n")
        if line.endswith("+32 B") and "…" in line
    ]
    assert len(line) <= 80


# -- markdown fits a comment


def long_report(count: int, name: str, size: int) -> Report:
    """A flat model of many layers, no two alike, with everything long that can be."""
    layers = tuple(row(f"{name}{i}x", f"{name}{i}", size + i) for i in range(count))
    base = report(layers)
    holders = tuple(
        Holder(
            size, (1,) * 64, name, "outputs", f"{size}{name}{i}", f"{name}{i}x", name, 1, 2, 2, 0
        )
        for i in range(100)
    )
    unknown = tuple(UnknownItem(f"{size}{name}{i}", name, name, 1) for i in range(300))
    options = {f"{name}{i}": f"{size}{name}" for i in range(100)}
    return replace(base, holders=holders, unknown=unknown, created_from=options)


@pytest.mark.parametrize(("letter", "length"), [("a", 1), ("|", 500), ("`", 500), ("層", 500)])
def test_a_comment_has_at_most_60_kb_whatever_the_model(letter: str, length: int) -> None:
    base, head = (long_report(500, letter * length, size) for size in (10, 20))
    text = as_markdown(compare(base, head))
    assert len(text.encode()) <= MOST_BYTES == 60_000
    assert text.count("<details>") == text.count("</details>") == 4
    assert "more, in the JSON diff." in text


def test_details_are_folded_with_an_empty_line_before_their_tables() -> None:
    text = as_markdown(SAMPLES["blocks"])
    assert text.count("<details>") == text.count("</details>") >= 3
    assert "</summary>\n\n|" in text
    assert not re.search(r"</summary>\n[^\n]", text)


def test_words_of_others_are_escaped_and_names_are_code() -> None:
    text = as_markdown(SAMPLES["blocks"])
    assert "a \\<size\\>" in text
    assert "`model.blocks.0-23" in text

"""Tests of graphmem.render.markdown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.as_text import format_bytes
from graphmem.render import as_markdown
from graphmem.render.markdown import code, plain
from graphmem.render.rows import layer_rows
from graphmem.report import Report, UnknownItem
from tests.render.golden_files import check_golden
from tests.render.samples import inference_report, training_report
from tests.render.strategies import reports

SAMPLES = {"training": training_report(), "inference": inference_report()}


def tables(text: str) -> list[list[list[str]]]:
    """The cells of all tables, header first, as GitHub splits them."""
    result: list[list[list[str]]] = []
    before = ""
    for line in text.split("\n"):
        if line.startswith("|"):
            if not before.startswith("|"):
                result.append([])
            result[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        before = line
    return result


@pytest.mark.parametrize("name", SAMPLES)
def test_the_markdown_is_the_golden_one(name: str) -> None:
    check_golden(f"{name}.md", as_markdown(SAMPLES[name]))


@pytest.mark.parametrize("depth", [None, 1, 3, 5])
@pytest.mark.parametrize("report", SAMPLES.values(), ids=list(SAMPLES))
def test_every_table_ends_in_the_total_of_the_peak(report: Report, depth: int | None) -> None:
    total = f"**{format_bytes(report.peak.allocated_bytes)}**"
    parts, layers, holders = tables(as_markdown(report, depth=depth))
    assert [parts[-1][1], layers[-1][-1], holders[-1][0]] == [total] * 3
    assert len(layers) == len(layer_rows(report, depth).rows) + 3  # header, rule and total


@given(reports(), st.none() | st.integers(1, 6))
def test_every_row_has_the_cells_of_its_header(report: Report, depth: int | None) -> None:
    for table in tables(as_markdown(report, depth=depth)):
        assert {len(row) for row in table} == {len(table[0])}


def test_pipes_in_names_do_not_end_a_cell() -> None:
    report = inference_report()
    holder = replace(report.holders[0], source="a|b.py:1", module="x|y")
    text = as_markdown(replace(report, holders=(holder,)))
    row = tables(text)[2][2]
    assert row[-2:] == ["`x\\|y`", "`a\\|b.py:1`"]


@pytest.mark.parametrize(("depth", "folded"), [(1, False), (5, True)])
def test_a_long_table_of_layers_is_folded_away(depth: int, folded: bool) -> None:
    text = as_markdown(training_report(blocks=2), depth=depth)
    assert ("<details>" in text) is folded
    assert text.count("<details>") == text.count("</details>")
    if folded:
        # GitHub reads a table inside of <details> only after an empty line.
        assert "</summary>\n\n|" in text
        assert "|\n\n</details>" in text


def test_the_headline_comes_first_with_names_as_code() -> None:
    assert as_markdown(inference_report()).split("\n")[0] == (
        "**Peak 31.23 MiB allocated**, in forward, at `aten.convolution` of `conv1` "
        "(`torchvision/models/resnet.py:268`)"
    )


def test_words_of_others_are_escaped() -> None:
    item = UnknownItem("sizes of <lambda>", "a `b`", "__x__ * 2", None)
    text = as_markdown(replace(inference_report(), unknown=(item,)))
    assert "- sizes of \\<lambda\\> at `a 'b'`: assumed \\_\\_x\\_\\_ \\* 2\n" in text


def test_line_breaks_in_names_do_not_end_a_row() -> None:
    assert code("a\nb") == "`a b`"
    assert plain("a\n# b") == "a \\# b"


def test_no_holders_are_listed_if_none_are_asked_for() -> None:
    assert "Largest holders" not in as_markdown(training_report(), holders=0)

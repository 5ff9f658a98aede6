"""Tests of graphmem.render.table: golden texts, widths, and rows that re-add to the total."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.as_text import format_bytes
from graphmem.render import as_text
from graphmem.render.bars import bar
from graphmem.render.columns import COLUMNS, layer_cells
from graphmem.render.rows import layer_rows
from graphmem.report import InputInfo, Report, UnknownItem
from tests.render.golden_files import check_golden
from tests.render.parts import step
from tests.render.samples import inference_report, training_report
from tests.render.strategies import reports

SAMPLES = {"training": training_report(), "inference": inference_report()}
UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "PiB": 1024**5}


def table(text: str, header: str) -> list[list[str]]:
    """The cells of the table whose header is like this, total last, cut where its rule says."""
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if re.match(header, line))
    last = next(i for i in range(first, len(lines)) if "total" in lines[i].split())
    columns = [match.span() for match in re.finditer("─+", lines[first + 1])]
    rows = [line for line in lines[first + 2 : last + 1] if not line.startswith("─")]
    return [[line[start:end].strip() for start, end in columns] for line in rows]


def fact(text: str, label: str) -> str:
    """The text that stands behind a label."""
    return next(line[10:] for line in text.split("\n") if line.startswith(label))


def nearly_add_up(cells: list[str]) -> bool:
    """Whether sizes add up to the last of them, as far as their decimals tell."""
    sizes, error = [], Fraction(0)
    for cell in cells:
        number, unit = cell.split(" ") if cell != "-" else ("0", "B")
        sizes.append(Fraction(number) * UNITS[unit])
        error += 0 if unit == "B" else Fraction(UNITS[unit], 200)
    return abs(sum(sizes[:-1]) - sizes[-1]) <= error


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_text_is_the_golden_one(name: str, width: int) -> None:
    check_golden(f"{name}_{width}.txt", as_text(SAMPLES[name], width=width))


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_of_every_module_is_the_golden_one(width: int) -> None:
    text = as_text(training_report(blocks=2), width=width, depth=9, holders=3)
    check_golden(f"every_module_{width}.txt", text)


@pytest.mark.parametrize("depth", [None, 1, 3, 5])
@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("report", SAMPLES.values(), ids=list(SAMPLES))
def test_the_printed_rows_add_up_to_the_printed_total(
    report: Report, width: int, depth: int | None
) -> None:
    text, total = as_text(report, width=width, depth=depth), report.peak.allocated_bytes
    layers = [row[-1] for row in table(text, "module ")]
    parts = [row[1] for row in table(text, "live at the peak ")]
    holders = [row[0] for row in table(text, " *bytes  what") if row[0]]
    assert len(layers) == len(layer_rows(report, depth).rows) + 1
    for cells in (layers, parts, holders):
        assert cells[-1] == format_bytes(total)
        assert nearly_add_up(cells)


def test_a_missing_row_would_be_noticed() -> None:
    assert nearly_add_up(["1.00 GiB", "-", "512.00 MiB", "1.50 GiB"])
    assert not nearly_add_up(["1.00 GiB", "-", "1.50 GiB"])


@given(reports(), st.integers(40, 200), st.none() | st.integers(1, 6))
def test_no_line_is_wider_than_asked_for(report: Report, width: int, depth: int | None) -> None:
    assert max(map(len, as_text(report, width=width, depth=depth).split("\n"))) <= width


@pytest.mark.parametrize("width", range(40, 200))
def test_no_line_of_a_training_is_wider_than_asked_for(width: int) -> None:
    text = as_text(training_report(blocks=2), width=width, depth=9)
    assert max(map(len, text.split("\n"))) <= width


@given(reports(), st.integers(40, 200))
def test_a_narrow_table_keeps_module_and_live_bytes(report: Report, width: int) -> None:
    layers = layer_rows(report, None)
    headers = [column.header for column in layer_cells(layers, width).columns]
    assert headers == [column.header for column in COLUMNS if column.header in headers]
    assert {"module", "live at peak"} <= set(headers)


def test_a_wider_table_has_more_columns() -> None:
    layers = layer_rows(training_report(), None)
    seen = [[c.header for c in layer_cells(layers, width).columns] for width in (80, 120, 200)]
    assert seen[0] == ["module", "type", "params", "saved", "live at peak"]
    assert set(seen[0]) < set(seen[1]) < set(seen[2])
    assert seen[2] == [column.header for column in COLUMNS]


def test_only_what_adds_up_has_a_total() -> None:
    cells = layer_cells(layer_rows(training_report(), None))
    totals = {c.header: text for c, text in zip(cells.columns, cells.total, strict=True)}
    assert {header for header, text in totals.items() if not text} == {
        "type",
        "calls",
        "output",
        "fwd peak",
        "bwd peak",
    }


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    report = training_report()
    assert str(report) == as_text(report) == as_text(report, width=90) != as_text(report, width=91)


def test_the_headline_tells_peak_time_and_place() -> None:
    report = training_report()
    size = format_bytes(report.peak.allocated_bytes)
    assert as_text(report, width=500).split("\n")[0] == (
        f"Peak {size} allocated, in step 2, backward, at aten.mm of model.layers.31.mlp.down_proj "
        "(transformers/models/llama/modeling_llama.py:175)"
    )
    quiet = replace(report.peak, op="", module="", source=None, phase="")
    single = replace(report, peak=quiet, steps=report.steps[:1])
    assert as_text(single, width=500).split("\n")[0] == f"Peak {size} allocated"


def test_what_is_null_is_not_spoken_of() -> None:
    text = as_text(inference_report(), width=120)
    for word in ("reserved", "nvidia-smi", "Device", "Fits", "Step", "Idle", "Not known", "None"):
        assert word not in text


def test_the_run_is_told_from_the_options() -> None:
    report = training_report()
    options = {**report.created_from, "precision": None, "accumulate": 1, "checkpoint": None}
    plain = as_text(replace(report, created_from=options), width=120)
    assert fact(plain, "Run") == "training, adamw, cuda, 2 steps"
    assert fact(as_text(inference_report(), width=120), "Run") == "inference, cpu"
    assert "Run" not in as_text(replace(report, created_from={}), width=120)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("clip_grad_norm", 1.0, ", clip grad norm 1.0"),
        ("accumulate", 8, ", accumulate 8"),
        ("offload", "activations,optimizer", ", offload activations,optimizer"),
        ("pin_memory", True, ", pin memory"),
        ("checkpoint", "layers.*", ", checkpoint layers.*"),
        ("checkpoint_save", "aten.mm", ", checkpoint save aten.mm"),
        ("optimizer_in_backward", True, ", optimizer in backward"),
        ("chunked_loss", 8, ", chunked loss 8"),
        ("set_to_none", False, ", gradients filled with zeros"),
        ("set_to_none", True, ""),
        ("offload", None, ""),
        ("zero", 0, ", zero 0"),
        ("zero", None, ""),
        ("ranks", 8, ", one of 8 ranks"),
        ("ranks", None, ""),
        ("fsdp_units", "layers.*", ", fsdp units layers.*"),
        ("fsdp_units", "", ""),
        ("fsdp_reshard", False, ", fsdp reshard False"),
    ],
)
def test_options_are_told_where_they_are_no_defaults(key: str, value: object, text: str) -> None:
    report = replace(inference_report(), created_from={"mode": "inference", key: value})
    assert fact(as_text(report, width=120), "Run") == f"inference{text}"


def test_trainable_parameters_are_told_where_they_differ() -> None:
    report = training_report()
    assert fact(as_text(report, width=120), "Model").endswith("8.03B parameters (7.50B trainable)")
    subject = replace(report.subject, trainable_parameters=report.subject.parameters)
    text = as_text(replace(report, subject=subject), width=120)
    assert fact(text, "Model").endswith("8.03B parameters")


def test_many_inputs_are_cut_short() -> None:
    report = inference_report()
    inputs = tuple(InputInfo(f"x{i}", (i,), "int64") for i in range(9))
    text = as_text(replace(report, subject=replace(report.subject, inputs=inputs)), width=160)
    assert fact(text, "Inputs").endswith("x5 i64[5], and 3 more")


def test_phases_of_a_single_step_are_told_where_there_are_several() -> None:
    report = inference_report()
    once = replace(report, steps=(step(1, 2048, forward=50, backward=100),))
    assert fact(as_text(once, width=120), "Step") == (
        "2.00 KiB (forward 1.00 KiB, backward 2.00 KiB)"
    )


def test_idle_holders_are_marked() -> None:
    text = as_text(training_report(), width=120).split("Largest holders")[1]
    assert [line.split("  ")[1] for line in text.split("\n") if "(idle)" in line] == [
        "outputs (idle)"
    ]


def test_an_assumption_is_told_with_its_place_and_bytes() -> None:
    item = UnknownItem("the workspace", "aten.mm of net.0", "the largest", 2048)
    text = as_text(replace(inference_report(), unknown=(item,)), width=120)
    assert "\n- the workspace at aten.mm of net.0: assumed the largest (2.00 KiB)\n" in text


def test_numbers_keep_their_units_at_the_end_of_a_line() -> None:
    for width in range(40, 140):
        for line in as_text(training_report(), width=width).split("\n"):
            assert not line.lstrip().startswith(("GiB", "MiB", "KiB"))


@pytest.mark.parametrize(
    ("part", "text"), [(0, ""), (1, "▏"), (50, "██"), (53, "██"), (54, "██▏"), (100, "████")]
)
def test_bars_are_exact_to_an_eighth_of_a_character(part: int, text: str) -> None:
    assert bar(part, 100, 4) == text  # 100 / 4 / 8 = 3.125 an eighth


def test_a_report_of_nothing_is_rendered() -> None:
    report = inference_report()
    empty = replace(
        report,
        peak=replace(report.peak, allocated_bytes=0),
        breakdown=dict.fromkeys(report.breakdown, 0),
        layers=(),
        holders=(),
    )
    text = as_text(empty, width=80)
    assert table(text, "module ")[-1] == ["total", "0 B"]
    assert "Largest" not in text


def test_rendering_imports_no_torch() -> None:
    code = "import sys, graphmem.render; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

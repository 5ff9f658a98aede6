"""The truth report: rows, errors, bars and tables; and a sample of each kind of prediction."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest

from tools import truth_report
from tools.truth import attention, decoders, liger, others, outcome, peft, printing, snapshots
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import TRUTH, Row, read

needs_truth = pytest.mark.skipif(not TRUTH.is_dir(), reason="no measurements here")
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


def row(**changed: str) -> Row:
    values = dict.fromkeys((field.name for field in dataclasses.fields(Row)[1:]), "")
    return Row(2, **{**values, "value": "1.5", "unit": "MiB", **changed})


def of(predicted: float | None, measured: float = 100.0, **values: object) -> Outcome:
    return Outcome("family", "name", "metric", measured, predicted, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "measured", "resolution"),
    [
        ("1.5", "MiB", 1_572_864, 0.05 * 2**20),
        ("3", "bytes", 3, 0.5),
        ("0.020", "GB (1e9)", 20_000_000, 500_000),
        (">78", "GiB", 78 * 2**30, 2**29),
    ],
)
def test_a_value_has_a_unit_and_a_last_digit(
    value: str, unit: str, measured: float, resolution: float
) -> None:
    of_file = row(value=value, unit=unit)
    assert of_file.measured == measured
    assert of_file.resolution == pytest.approx(resolution)
    assert of_file.is_lower_bound == value.startswith(">")


def test_peers_stand_in_the_notes() -> None:
    notes = "4 iterations; DNNMem=6872367104 LLMem=None xMem=10278141952; err there 0.019"
    assert row(notes=notes).peers == {"DNNMem": 6872367104, "xMem": 10278141952}


def test_an_error_is_predicted_over_measured() -> None:
    assert of(99.0).error == pytest.approx(-0.01)
    assert of(None).error is None
    assert of(100.4).is_exact
    assert not of(100.6).is_exact
    assert of(100.6, resolution=1.0).is_exact


def test_above_a_lower_bound_everything_is_right() -> None:
    assert of(250.0, is_lower_bound=True).error == 0
    assert of(250.0, is_lower_bound=True).is_exact
    assert of(90.0, is_lower_bound=True).error == pytest.approx(-0.1)


def test_statistics_of_errors() -> None:
    errors = [-0.01, 0.02, 0.03]
    assert outcome.worst(errors) == 0.03
    assert outcome.median(errors) == 0.02
    assert outcome.off_centre([-0.01, 0.01, 0.02]) == 0.01


def test_an_outcome_survives_json() -> None:
    full = of(99.0, group="conv", peers={"xMem": 90.0}, resolution=2.0)
    assert Outcome.from_dict(json.loads(json.dumps(full.to_dict()))) == full


def test_a_summary_has_a_line_for_each_bar_its_peers_and_the_rest() -> None:
    bars = (Bar("all of it", outcome.worst, 0.02, "a"),)
    rows = [
        of(101.0, group="a", peers={"xMem": 90.0}),
        of(None, group="a", skipped="why"),
        of(90.0, group="b"),
    ]
    lines = printing.summary({"some": (bars, rows)}, "markdown").splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells == [
        ["some: all of it", "2", "1", "0", "1.000 %", "1.000 %", "worst 2.000 %", "yes"],
        ["xMem's own", "2", "1", "", "10.000 %", "10.000 %", "", ""],
        ["some: the rest", "1", "1", "0", "10.000 %", "10.000 %", "", ""],
    ]


def test_skipped_rows_are_counted_with_their_reason() -> None:
    lines = printing.skipped([of(None, skipped="why"), of(None, skipped="why"), of(1.0)], "table")
    assert lines.splitlines()[-1].split() == ["family", "2", "why"]


def test_the_readme_is_filled_between_its_markers() -> None:
    text = "before\n<!-- truth -->\nold\n<!-- /truth -->\nafter\n"
    filled = truth_report.TABLE.sub(lambda found: f"{found[1]}new\n{found[2]}", text)
    assert filled == "before\n<!-- truth -->\nnew\n<!-- /truth -->\nafter\n"


def test_earlier_results_are_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    earlier = dataclasses.replace(of(101.0), family="liger")
    (tmp_path / "a.json").write_text(truth_report.as_json([earlier]), "utf-8")
    assert truth_report.main(["--read", str(tmp_path / "a.json"), "--format", "json"]) == 0
    [values] = json.loads(capsys.readouterr().out)["rows"]
    assert Outcome.from_dict(values) == earlier


@needs_truth
def test_a_family_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def apart(name: str) -> list[Outcome]:
        if name == "xmem":
            raise RuntimeError("xmem: no torchvision")
        return [of(101.0)]

    monkeypatch.setattr(truth_report, "predict_apart", apart)
    assert truth_report.main(["--only", "liger", "xmem"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "xmem: no torchvision\n"
    assert "liger" in printed.out


@needs_truth
def test_every_row_of_the_file_is_of_exactly_one_family() -> None:
    modules = [truth_report.family(name) for name in truth_report.FAMILIES]
    for of_file in read():
        assert sum(module.takes(of_file) for module in modules) == 1, of_file


@needs_truth
def test_rows_that_none_predicts_say_why() -> None:
    rows = [r for r in read() if others.takes(r)]
    assert all(o.skipped for o in others.outcomes(rows))


@needs_truth
def test_every_run_of_peft_has_its_settings() -> None:
    names = {peft._name(r) for r in read() if peft.takes(r)}
    assert names == set(peft.RUNS)


@needs_truth
def test_every_snapshot_is_predicted_or_says_why() -> None:
    files = {path.stem for path in snapshots.FOLDER.glob("*.pickle")}
    assert files == {known.file for known in snapshots.FILES} | set(snapshots.UNKNOWN)


@needs_truth
def test_attention_alone_is_exact_to_the_printed_digit() -> None:
    rows = [r for r in read() if attention.takes(r) and "S=1024,d=16" in r.shape]
    found = {
        (o.name.split()[0], o.metric): o
        for o in attention.outcomes(rows)
        if not o.skipped and "loop" not in o.metric
    }
    assert len(found) == 5
    for key, predicted in found.items():
        assert predicted.error == pytest.approx(0, abs=0.006 if "GAO" in key[0] else 0.001)


@needs_truth
@needs_transformers
def test_single_operators_are_exact() -> None:
    names = ("op:rope", "op:rms_norm", "op:cross_entropy", "op:layer_norm", "op:swiglu")
    rows = [r for r in read() if r.model in names and "T=8192" not in r.shape]
    for predicted in liger.outcomes(rows):
        assert predicted.error == pytest.approx(0, abs=1e-6), predicted


@needs_truth
def test_a_small_snapshot_is_predicted() -> None:
    known = next(k for k in snapshots.FILES if k.file == "linear-grad-hopper")
    measured = snapshots.measured_peaks(known.file)
    traced = known.run()
    # torch 2.4's cuBLASLt took a workspace of 1 MiB of its own
    assert traced.peak() == measured["allocated"] - 2**20
    assert traced.reserved(-1) == measured["reserved"]


def test_segments_of_a_checkpointed_decoder_give_the_same_logits() -> None:
    import torch

    from models.decoder import tiny

    model, _ = tiny()
    ids = torch.randint(50, (1, 16))
    for segment in (1, 2):
        torch.testing.assert_close(decoders.forward(model, ids, segment), model(ids))
    torch.testing.assert_close(decoders.forward(model, ids, None), model(ids))


def test_where_the_measurements_are_absent_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(truth_report, "TRUTH", TRUTH / "nowhere")
    assert truth_report.main([]) == 2
    assert "no measurements here" in capsys.readouterr().err


def test_the_length_where_a_growing_value_crosses() -> None:
    assert peft._crossing(lambda n: 10 * n + 7, 5_003.0) == 500
    assert peft._crossing(lambda n: n * n, 640.0**2) == 640

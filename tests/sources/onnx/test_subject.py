"""``graphmem analyze model.onnx`` and ``graphmem.from_onnx``, from file to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, numpy_helper

import graphmem
from graphmem.cli import main
from graphmem.errors import InputError, ModelLoadError, UnsupportedOpError, UsageError
from graphmem.sources.onnx.user_rules import load_rules
from tests.sources.onnx.graphs import graph, model, node, value, write
from tests.sources.subjects import load, refused


def linear(tmp_path: Path) -> str:
    """x [n, 64] times a weight [64, 256] (64 KiB), and relu."""
    weight = numpy_helper.from_array(np.ones((64, 256), np.float32), "w")
    return write(
        tmp_path,
        model(
            [
                node("MatMul", "x w", "a", name="/fc/MatMul"),
                node("Relu", "a", "y", name="/act/Relu"),
            ],
            (value("x", ("n", 64)),),
            (value("y", ("n", 256)),),
            [weight],
        ),
    )


def mystery(tmp_path: Path, **more: Any) -> str:
    """An operator of the user's own, between two of ONNX."""
    nodes = [
        node("Neg", "x", "a"),
        node("Mystery", "a", "b", name="m", domain="com.acme"),
        node("Relu", "b", "y"),
    ]
    return write(tmp_path, model(nodes, (value("x", ("n", 256)),), (value("y", None),), **more))


def reported(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """The JSON report of a command line."""
    assert main(["analyze", *argv, "--format", "json", "--target", "cpu"]) == 0
    return json.loads(capsys.readouterr().out)


def line_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The error of a command line that can't be used."""
    assert main(["analyze", *argv]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


# -- the command line


def test_an_onnx_file_is_analyzed_for_inference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = reported(capsys, linear(tmp_path), "--dim", "n=8")
    assert report["created_from"]["mode"] == "inference"
    assert report["subject"]["kind"] == "onnx"
    assert report["subject"]["inputs"] == [{"name": "x", "shape": [8, 64], "dtype": "float32"}]
    # parameters 64 KiB, x 8*64*4, a and y 8*256*4 each; in step 2 the last y is held too
    assert report["steps"][0]["allocated_bytes"] == 64 * 1024 + 2048 + 2 * 8192
    assert {row["module"] for row in report["layers"]} >= {"fc.MatMul", "act.Relu"}


def test_training_is_what_the_module_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = linear(tmp_path)
    report = reported(capsys, path, "--batch", "8", "--mode", "training")
    direct = graphmem.analyze(
        graphmem.from_onnx(path), torch.zeros(8, 64), mode="training", target="cpu"
    )
    assert report["breakdown"] == direct.to_dict()["breakdown"]
    assert report["breakdown"]["optimizer_states"] >= 2 * 64 * 1024


def test_other_subjects_train_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef build():\n    return torch.nn.Linear(4, 4)\n")
    report = reported(capsys, f"{factory}:build", "--input", "2x4")
    assert report["created_from"]["mode"] == "training"


@pytest.mark.parametrize(
    "option", [["--dim", "n=2"], ["--default-dim", "2"], ["--rules", "my_ops.py"]]
)
def test_options_of_onnx_are_refused_elsewhere(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef build():\n    return torch.nn.Linear(4, 4)\n")
    assert f"{option[0]} {option[1]} is for .onnx models" in line_of(
        capsys, f"{factory}:build", *option
    )


def test_what_is_missing_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = linear(tmp_path)
    assert f"graphmem analyze {path} --dim n=64" in line_of(capsys, path)


def test_a_task_is_not_for_onnx(tmp_path: Path) -> None:
    refused(InputError, "--task causal-lm is for hf: models", linear(tmp_path), task="causal-lm")


def test_weights_stay_on_meta_until_their_values_are_needed(tmp_path: Path) -> None:
    subject = load(linear(tmp_path), batch=2)
    assert [p.device.type for p in subject.model.parameters()] == ["meta"]
    assert subject.rebuild_really is not None
    again = subject.rebuild_really()
    assert again.real
    assert [float(p.detach().sum()) for p in again.model.parameters()] == [64 * 256]


def test_a_loop_runs_as_often_as_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = (value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), "a")
    body = graph(
        [node("Add", "a a", "b"), node("Identity", "c", "d"), node("Neg", "b", "s")],
        ends,
        (value("d", (), TensorProto.BOOL), "b", "s"),
    )
    count = value("k", (), TensorProto.INT64)
    proto = model([node("Loop", "k go x", "y z", body=body)], ("x", count), ("y", "z"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "go"))
    report = reported(capsys, write(tmp_path, proto), "--dim", "n=1024", "--trip-count", "5")
    assert report["created_from"]["trip_count"] == 5
    assert [(u["what"], u["assumed"]) for u in report["unknown"]] == [
        ("how often the loop runs", "it runs 5 times")
    ]
    assert report["holders"][0]["shape"] == [5, 1024]  # z
    known = reported(capsys, write(tmp_path, proto), "--dim", "n=1024", "--input", "k==3")
    assert (known["unknown"], known["holders"][0]["shape"]) == ([], [3, 1024])


# -- operators without a rule


def test_an_unknown_operator_is_assumed_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = reported(capsys, mystery(tmp_path), "--dim", "n=8")
    (unknown,) = report["unknown"]
    assert unknown["what"] == "an operator without a rule"
    assert unknown["where"] == "node m (com.acme.Mystery)"
    assert "as large as its largest input" in unknown["assumed"]
    (row,) = [row for row in report["layers"] if row["module"] == "m"]
    assert (row["type"], row["output_bytes"]) == ("com.acme.Mystery", 8 * 256 * 4)


def test_the_files_own_shapes_go_before_the_assumption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = [value("b", ("n", "2*n"), TensorProto.FLOAT16)]
    report = reported(capsys, mystery(tmp_path, value_info=stated), "--dim", "n=8")
    (unknown,) = report["unknown"]
    assert "the file's shapes" in unknown["assumed"]
    (row,) = [row for row in report["layers"] if row["module"] == "m"]
    assert row["output_bytes"] == 8 * 16 * 2


def test_gradients_pass_an_assumed_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = numpy_helper.from_array(np.ones((4, 8), np.float32), "w")
    nodes = [node("MatMul", "x w", "a"), node("Mystery", "a", "y", domain="com.acme")]
    proto = model(nodes, (value("x", ("n", 4)),), (value("y", None),), [weight])
    report = reported(capsys, write(tmp_path, proto), "--batch", "2", "--mode", "training")
    (row,) = [row for row in report["layers"] if row["type"] == "MatMul"]
    assert row["gradient_bytes"] == 4 * 8 * 4


def test_strict_refuses_what_would_be_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mystery(tmp_path)
    assert "'m' (com.acme.Mystery): the operator has no rule" in line_of(
        capsys, path, "--dim", "n=8", "--target", "cpu", "--strict"
    )


RULES = """
from graphmem import onnx_rule
import torch

@onnx_rule("Mystery", domain="com.acme")
def mystery(call, x):
    return torch.cat([x, x], dim=call.integer("axis", -1))
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of rules; they are forgotten afterwards."""
    monkeypatch.setattr("graphmem.sources.onnx.user_rules._RULES", {})
    path = tmp_path / "my_ops.py"
    path.write_text(RULES, encoding="utf-8")
    return path


def test_a_file_of_rules_says_what_an_operator_is(
    tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = reported(capsys, mystery(tmp_path), "--dim", "n=8", "--rules", str(rules), "--strict")
    assert report["unknown"] == []
    (row,) = [row for row in report["layers"] if row["module"] == "m"]
    assert row["output_bytes"] == 8 * 512 * 4
    assert graphmem.from_onnx(mystery(tmp_path))(torch.ones(2, 256)).shape == (2, 512)


def test_a_rule_replaces_graphmems_own_from_an_opset_on(tmp_path: Path, rules: Path) -> None:
    graphmem.onnx_rule("Relu", since=17)(lambda call, x: x + 1)
    graphmem.onnx_rule("Relu", since=18)(lambda call, x: x + 2)
    path = write(tmp_path, model([node("Relu", "x", "y")]))
    assert graphmem.from_onnx(path)(torch.zeros(1)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("x = 1\n", UsageError, "registers no rule"),
        ("import nothing_such\n", ModelLoadError, "nothing_such"),
        (
            "from graphmem import onnx_rule\n@onnx_rule()\ndef f(c): ...\n",
            ModelLoadError,
            "name the",
        ),
        ("def f(:\n", ModelLoadError, "line 1"),
    ],
)
def test_a_bad_file_of_rules(rules: Path, text: str, kind: type[Exception], message: str) -> None:
    rules.write_text(text, encoding="utf-8")
    with pytest.raises(kind, match=message):
        load_rules(str(rules))


def test_rules_are_a_python_file_that_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name a Python file"):
        load_rules("rules.txt")
    with pytest.raises(ModelLoadError, match="no such file"):
        load_rules(str(tmp_path / "no.py"))


# -- Python


def test_from_onnx_computes_and_trains(tmp_path: Path) -> None:
    module = graphmem.from_onnx(Path(linear(tmp_path)))
    assert isinstance(module, torch.fx.GraphModule)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module(x=torch.ones(1, 64)).sum().backward()
    optimizer.step()
    assert module(torch.ones(1, 64)).abs().sum() == 0  # 1 - 1


def test_from_onnx_without_weights_is_enough_for_an_analysis(tmp_path: Path) -> None:
    path = linear(tmp_path)
    reports = [
        graphmem.analyze(graphmem.from_onnx(path, weights=w), torch.zeros(2, 64), target="cpu")
        for w in (True, False)
    ]
    assert reports[0].breakdown == reports[1].breakdown


def test_an_operator_without_a_rule_fails_where_it_runs(tmp_path: Path) -> None:
    module = graphmem.from_onnx(mystery(tmp_path))
    with pytest.raises(UnsupportedOpError, match=r"or with graphmem\.onnx_rule in Python"):
        module(torch.ones(2, 256))


def test_strings_sequences_and_optionals_are_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx.helper as helper

    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, ("n",))
    listed = helper.make_value_info("s", helper.make_sequence_type_proto(floats))
    nodes = [node("ConcatFromSequence", "s", "c", axis=0), node("Add", "c x", "y")]
    path = write(tmp_path, model(nodes, ("x", listed)))
    report = reported(capsys, path, "--dim", "n=5", "--input", "s=2", "--input", "s=3")
    assert report["holders"][0]["shape"] == [5]

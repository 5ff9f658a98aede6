"""The formats of ``graphmem analyze``, and where they go."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from graphmem.cli import main
from graphmem.commands.formats import FORMATS
from graphmem.errors import ExitCode

SUBJECT = "tests/sweeps/factories.py:plain"


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"onnx"}))
def test_the_suffix_decides_and_the_name_says_the_same(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / f"out{FORMATS[name].suffix}"
    assert main(["analyze", SUBJECT, "-o", str(path)]) == ExitCode.OK
    assert capfdbinary.readouterr().out == b""
    assert main(["analyze", SUBJECT, "--format", name]) == ExitCode.OK
    assert capfdbinary.readouterr().out == path.read_bytes()


def test_json_and_a_trace_in_json_are_told_apart_by_the_whole_suffix(tmp_path: Path) -> None:
    main(["analyze", SUBJECT, "-o", str(tmp_path / "a.trace.json")])
    main(["analyze", SUBJECT, "-o", str(tmp_path / "a.json")])
    assert "traceEvents" in json.loads((tmp_path / "a.trace.json").read_text())
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "graphmem.report/1"


@pytest.mark.parametrize("suffix", [".txt", ".html", ".svg", ".pickle"])
def test_a_result_that_cannot_be_written_is_printed(
    suffix: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "no" / f"out{suffix}"
    assert main(["analyze", SUBJECT, "-o", str(path)]) == ExitCode.UNUSABLE
    printed = capfdbinary.readouterr()
    assert printed.err.decode() == (
        f"graphmem: -o {path}: No such file or directory; the result was printed instead\n"
    )
    good = tmp_path / f"out{suffix}"
    assert main(["analyze", SUBJECT, "-o", str(good)]) == ExitCode.OK
    if suffix == ".pickle":
        assert pickle.loads(printed.out) == pickle.loads(good.read_bytes())
    else:
        assert printed.out == good.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "htm"], "did you mean 'html'?"),
        (["-o", "x.htm"], "did you mean '.html'?"),
        (["--format", "html", "--timeline"], "--timeline is part of the JSON report"),
        (["--format", "svg", "--compare", "x.pickle"], "--compare: svg has no place for it"),
        (["--format", "snapshot", "--target", "cpu"], "use target cuda"),
        (["--format", "onnx"], "the SUBJECT is none"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["analyze", SUBJECT, *arguments]) == ExitCode.UNUSABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution that ONNX Runtime fuses with what follows, and an unnamed node."""
    path = tmp_path / "model.onnx"
    graph = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[batch, 3, 8, 8] x) => (float[batch, 10] y)
        <float[4, 3, 3, 3] w1, float[4, 10] w2>
        {
            [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            [relu] r = Relu(c)
            [pool] p = GlobalAveragePool(r)
            f = Flatten(p)
            [fc] y = MatMul(f, w2)
        }
        """
    )
    for name, shape in (("w1", (4, 3, 3, 3)), ("w2", (4, 10))):
        array = np.zeros(shape, np.float32)
        graph.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    graph.graph.node[0].name = "/layer1/conv/Conv"
    onnx.save(graph, path)
    return path


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_copy_of_an_onnx_model_has_notes_and_is_the_same_but_for_them(
    mode: str, model: Path, tmp_path: Path
) -> None:
    before, copy = model.read_bytes(), tmp_path / "noted.onnx"
    run = ["analyze", str(model), "--dim", "batch=4", "--mode", mode]
    assert main([*run, "-o", str(copy)]) == ExitCode.OK
    assert main([*run, "-o", str(tmp_path / "a.json")]) == ExitCode.OK
    peak = json.loads((tmp_path / "a.json").read_text())["peak"]["allocated_bytes"]
    assert model.read_bytes() == before
    noted = onnx.load(copy)
    notes = {prop.key: prop.value for prop in noted.metadata_props}
    assert notes["graphmem peak allocated"].startswith(f"{peak} B" if peak >= 1024 else f"{peak} ")
    nodes = {
        node.output[0]: {p.key: p.value for p in node.metadata_props} for node in noted.graph.node
    }
    assert nodes["y"]["graphmem parameters"] == "160 B"  # 4*10*4 B
    assert all(nodes.values())
    if mode == "training":
        assert nodes["f"]["graphmem outputs"] == "64 B"  # 4*4*4 B
    del noted.metadata_props[:]
    for node in noted.graph.node:
        del node.metadata_props[:]
    assert noted.SerializeToString() == onnx.load(model).SerializeToString()

"""The sweep over .onnx files: what it runs and prints, and how it tells a crash from a line."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import onnx
import pytest
from onnx import TensorProto, helper

from tests.cpu import as_measured
from tools import onnx_sweep
from tools.onnx_sweep import Answer, Swept
from tools.ort_sweep import model_files, worst_difference

pytestmark = as_measured


def saved(path: Path) -> Path:
    """``y = x * w`` with a weight of 3 elements, and x of [n, 3]."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def test_files_come_from_folders_wheels_and_the_light_models(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    file = saved(folder / "own.onnx")
    with ZipFile(folder / "some.whl", "w") as wheel:
        wheel.write(file, "package/inside.onnx")
        wheel.writestr("package/code.py", "")
    names = [found.name for found in model_files([folder], scratch)]
    assert {"own.onnx", "inside.onnx", "light_vgg19.onnx"} <= set(names)
    assert names == sorted(names)
    assert len([name for name in names if name.startswith("light_")]) == 9


def test_a_file_is_swept(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    swept = onnx_sweep.sweep(saved(tmp_path / "mul.onnx"), "64")
    row = onnx_sweep.table([swept]).splitlines()[2]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["mul", "1", "3"]
    assert all(int(cell.replace(",", "")) > 64 * 3 * 4 for cell in cells[3:6])
    assert cells[6] == "0.000%"


def test_a_clear_line_is_no_crash(tmp_path: Path) -> None:
    answer = onnx_sweep.ask(["analyze", str(saved(tmp_path / "mul.onnx"))])
    assert answer.report is None
    assert not answer.crashed
    assert answer.line.startswith("graphmem: ")
    assert "--dim n=" in answer.line


def test_a_traceback_is_a_crash() -> None:
    def fails(argv: list[str]) -> int:
        raise KeyError(argv[0])

    answer = onnx_sweep.ask(["analyze"], fails)
    assert answer.crashed
    assert answer.line.startswith("crash: KeyError: 'analyze' (")
    file = Swept("bad", 7, dict.fromkeys(onnx_sweep._COMMANDS, answer))
    text = onnx_sweep.table([file])
    assert text.splitlines()[2].count("crash") == 4
    assert f"bad, verify: {answer.line}" in text


def test_no_output_is_a_crash() -> None:
    assert onnx_sweep.ask([], lambda argv: 0) == Answer(None, "crash: no output")


def test_the_worst_difference_is_of_both_runs() -> None:
    def run(requested: int, in_use: int) -> dict[str, int]:
        return {"requested_peak_bytes": requested, "in_use_peak_bytes": in_use, "arena_bytes": 0}

    found = {
        "measured": {"first_run": run(100, 200), "later_runs": run(100, 400)},
        "difference": {"first_run": run(1, 0), "later_runs": run(0, -20)},
    }
    assert worst_difference(found) == 0.05

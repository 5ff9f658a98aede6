"""Sessions that pack no weights (``session.disable_prepacking``)."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from graphmem.cli import main
from graphmem.ort import RunSettings
from graphmem.serving.settings import ServeSettings
from tests.cpu import as_measured
from tests.serving.kernels import Kernel, figures, floats

pytestmark = as_measured

pytest.importorskip("onnxruntime", reason="the truth is ONNX Runtime's profile")

_KERNELS = {
    "MatMul": Kernel("MatMul", {"x": floats(5, 64)}, {"w": floats(64, 50)}),
    "MatMul of little": Kernel("MatMul", {"x": floats(5, 4)}, {"w": floats(4, 4)}),
    "Gemm": Kernel("Gemm", {"x": floats(5, 64)}, {"w": floats(64, 50)}),
    "Conv": Kernel("Conv", {"x": floats(2, 8, 9, 9)}, {"w": floats(6, 8, 3, 3)}),
    "ConvTranspose": Kernel("ConvTranspose", {"x": floats(2, 8, 9, 9)}, {"w": floats(8, 6, 3, 3)}),
}


@pytest.mark.parametrize(("packs", "pattern"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("name", _KERNELS)
def test_weights_with_and_without_packed_copies(
    name: str, packs: bool, pattern: bool, tmp_path: Path
) -> None:
    made = _KERNELS[name]
    kernel = Kernel(**{**vars(made), "reads": ["x", "w"]})
    settings = ServeSettings(optimize=False, packs=packs, run=RunSettings(mem_pattern=pattern))

    predicted, measured = figures(kernel, tmp_path, settings)

    assert predicted == measured


def test_the_option_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "made.onnx")
    kernel = Kernel("MatMul", {"x": floats(5, 64)}, {"w": floats(64, 50)}, ["x", "w"])
    onnx.save(kernel.model(), path)
    resting = []
    for option in ([], ["--no-prepacking"]):
        command = ["analyze", path, "--target", "onnxruntime", "--format", "json", *option]
        assert main([*command, "--no-ort-optimize"]) == 0
        resting.append(json.loads(capsys.readouterr().out)["arena"]["resting_bytes"])

    assert resting == [16384, 12800]  # 64 rows of 50 columns, 4 bytes: padded to 64, and as it is

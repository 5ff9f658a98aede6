"""Exports of small networks: ONNX Runtime's arena exactly, and what torch takes in training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu import as_measured
from tools.exported_networks import NETWORKS, Network
from tools.onnx_exports import SERVED, Export, exported, main, trained, verified

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters' own


def written(how: Export, path: Path, *, free: bool) -> Network:
    """The small network, which now lies in a file too."""
    if how.missing:
        pytest.skip(f"{how.missing} is not installed")
    network = NETWORKS[how.network](True)
    network.model.train(not free)
    exported(network, how, path, free=free)
    return network


@as_measured
@pytest.mark.parametrize("how", SERVED, ids=lambda how: how.name)
def test_every_kernel_of_an_export_with_free_sizes(how: Export, tmp_path: Path) -> None:
    network = written(how, tmp_path / "model.onnx", free=True)
    for sizes in network.sizes:
        found = verified(network, tmp_path / "model.onnx", sizes)
        assert found.measured == found.predicted
        off = [pair for pair in found.nodes if pair.predicted != pair.measured]
        # Nobody has measured the buffers of ONNX's own Attention; the peaks lie elsewhere.
        assert not off or how.opset >= 23


@pytest.mark.parametrize(
    ("how", "most"),
    [
        (Export("resnet50", 17), 0.001),
        (Export("bert", 17), 0.001),
        (Export("vit-eager", 20), 0.001),
        (Export("vit", 23, dynamo=True), 0.001),
    ],
    ids=lambda value: value.name if isinstance(value, Export) else None,
)
def test_what_an_export_keeps_trains_in_the_same_memory(
    how: Export, most: float, tmp_path: Path
) -> None:
    network = written(how, tmp_path / "model.onnx", free=False)
    own, theirs = trained(network, tmp_path / "model.onnx", "cpu")
    assert theirs == pytest.approx(own, rel=most)


def test_what_an_export_spells_out_takes_more(tmp_path: Path) -> None:
    # Each layer keeps the probabilities [4, 3, 197, 197] for backward, where fused attention keeps
    # their log-sum-exp [4, 3, 197].
    network = written(Export("vit", 20), tmp_path / "model.onnx", free=False)
    own, theirs = trained(network, tmp_path / "model.onnx", "cpu")
    assert theirs > own + 2 * 4 * 3 * 197 * (197 - 1) * 4


def test_what_is_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.onnx_exports.find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["onnx_exports", "--only", "resnet50"])
    assert main() == 0
    assert "torchvision is not installed" in capsys.readouterr().out

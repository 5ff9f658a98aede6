"""Exports of common networks: ONNX Runtime's arena beside its profile, training beside torch's.

    python -m tools.onnx_exports [--small] [--only PART]

Serving: each network is exported with free sizes, and ``graphmem verify`` is asked at two of
them. Training: the peak of the module beside that of its export, as CUDA and as the CPU would
run it. ResNet-50 needs torchvision, ViT timm, and the exporter ``dynamo`` onnxscript; what is
not installed is left out, and said. With ``--small`` the networks have two layers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

import graphmem
from graphmem.measure.ort import ServingVerification, verify_serving
from graphmem.options import Mode, Options
from graphmem.serving.session import serve
from graphmem.serving.settings import ServeSettings
from graphmem.sources.inputs import InputRequest
from tools.exported_networks import NEEDED, NETWORKS, Network


@dataclass(frozen=True)
class Export:
    """A network, and how it is exported: by TorchScript's exporter or ``dynamo``, the opset."""

    network: str
    opset: int
    dynamo: bool = False

    @property
    def name(self) -> str:
        """For the tables."""
        return f"{self.network}, {'dynamo' if self.dynamo else 'TorchScript'} {self.opset}"

    @property
    def missing(self) -> str:
        """A package that it needs and that is not installed, or ""."""
        needed = (NEEDED.get(self.network, "transformers"), *(("onnxscript",) * self.dynamo))
        return next((package for package in needed if find_spec(package) is None), "")


SERVED = (
    *(Export("resnet50", 17), Export("resnet50", 18, dynamo=True)),
    *(Export("gpt2", 17), Export("gpt2-eager", 17), Export("gpt2-past", 17)),
    *(Export("gpt2", 18, dynamo=True), Export("gpt2-past", 18, dynamo=True)),
    Export("gpt2", 23, dynamo=True),
)
TRAINED = (
    *(Export("resnet50", 17), Export("bert", 17), Export("gpt2", 17)),
    *(Export("vit-eager", 20), Export("vit", 23, dynamo=True)),
    # Before opset 23 the exporter spells attention out, before 20 Gelu too.
    *(Export("vit", 20), Export("vit-eager", 17)),
)


def exported(network: Network, how: Export, path: Path, *, free: bool) -> None:
    """Write the network to a file, with its free sizes or with those of its inputs."""
    options: dict[str, Any] = {
        "opset_version": how.opset,
        "input_names": [*network.inputs],
        "output_names": [*network.outputs],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how.dynamo:
            axes: list[Any] = [
                dict.fromkeys(f, torch.export.Dim.AUTO) for f in network.free.values()
            ]
            past = [*axes[:2], tuple(axes[2:])] if len(axes) > 2 else axes
            options |= {"dynamic_shapes": tuple(past)} if free else {}
            options |= {"dynamo": True, "verbose": False}
        else:
            options |= {"dynamic_axes": network.free} if free else {}
            options |= {"dynamo": False, "do_constant_folding": False}
            options |= {"training": torch.onnx.TrainingMode.PRESERVE}
        torch.onnx.export(network.model, tuple(network.inputs.values()), str(path), **options)


def _free_axes(network: Network) -> tuple[Any, ...]:
    """What ``dynamo`` takes: the axes of each argument, those after the second in one tuple."""
    axes = [dict.fromkeys(free, torch.export.Dim.AUTO) for free in network.free.values()]
    return (*axes[:2], tuple(axes[2:])) if len(axes) > 2 else tuple(axes)


def verified(network: Network, path: Path, sizes: Mapping[str, int]) -> ServingVerification:
    """The arena of ONNX Runtime's CPU provider, predicted and measured."""
    shapes = network.shapes(sizes).items()
    given = tuple(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes)
    settings = ServeSettings()
    found = serve(str(path), InputRequest(inputs=given), Options(mode=Mode.INFERENCE), settings)
    return verify_serving(found, settings)


def trained(network: Network, path: Path, target: str) -> tuple[int, int]:
    """The peaks of a training step of the module and of its export."""
    inputs = tuple(network.inputs.values())
    through = graphmem.from_onnx(path, weights=False)
    own, theirs = (
        graphmem.analyze(model, inputs, mode="training", target=target).peak.allocated_bytes
        for model in (network.model, through)
    )
    return own, theirs


def _served_rows(how: Export, small: bool, path: Path) -> Iterator[tuple[str, ...]]:
    network = NETWORKS[how.network](small)
    network.model.eval()
    exported(network, how, path, free=True)
    for sizes in network.sizes:
        found = verified(network, path, sizes)
        for run, mine, real in zip(
            ("first", "later"), found.predicted[:2], found.measured[:2], strict=True
        ):
            figures = (
                *(mine.requested_peak_bytes, real.requested_peak_bytes),
                *(mine.in_use_peak_bytes, real.in_use_peak_bytes),
            )
            size = " ".join(f"{name}={size}" for name, size in sizes.items())
            yield (how.name, size, run, *(f"{figure:,}" for figure in figures))


def _trained_rows(how: Export, small: bool, path: Path) -> Iterator[tuple[str, ...]]:
    network = NETWORKS[how.network](small)
    network.model.train()
    exported(network, how, path, free=False)
    for target in ("cuda", "cpu"):
        own, theirs = trained(network, path, target)
        yield how.name, target, f"{own:,}", f"{theirs:,}", f"{theirs / own - 1:+.2%}"


_TABLES = (
    (SERVED, _served_rows, ("served", "sizes", "run", "requested", "measured", "in use", "")),
    (TRAINED, _trained_rows, ("trained", "target", "module", "export", "difference")),
)


def main() -> int:
    """Print both tables, and what is left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="", help="part of the names of the exports to take")
    arguments = parser.parse_args()
    for exports, rows_of, headers in _TABLES:
        rows: list[tuple[str, ...]] = []
        for how in (one for one in exports if arguments.only in one.name):
            if how.missing:
                rows.append((how.name, f"{how.missing} is not installed"))
                continue
            with tempfile.TemporaryDirectory() as folder:
                rows += rows_of(how, arguments.small, Path(folder) / "model.onnx")
        print(tabulate(rows, headers, disable_numparse=True), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

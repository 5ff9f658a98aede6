"""The families of models, each with its library, its names and how a case is made of one."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from graphmem import analyze
from graphmem.options import Mode
from tools.sweeping import diffusion, graph_networks, segmentation, transformers_models, yolo
from tools.sweeping.case import Case, NamedCase


@dataclass(frozen=True, slots=True)
class Family:
    """Models of one library.

    ``package`` is what pip installs, ``modules`` what is imported once, before any case.
    ``bar`` is the least share of cases that has to be analyzed.
    """

    name: str
    package: str
    modules: tuple[str, ...]
    names: Callable[[], list[str]]
    case: Callable[[str], Case]
    bar: float

    @property
    def installed(self) -> bool:
        """Whether its library is here."""
        return importlib.util.find_spec(self.modules[0].split(".")[0]) is not None

    @property
    def version(self) -> str:
        """The library with its version."""
        return f"{self.package} {importlib.metadata.version(self.package)}"

    def warm(self) -> None:
        """Import what its cases need, so that they don't each do.

        An analysis imports more when it first runs, and asks cuDNN; a backward would start
        the engine's threads, which a fork does not have, so this one is an inference.
        """
        for module in self.modules:
            importlib.import_module(module)
        analyze(nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU()), "1x3x8x8", mode="inference")


def _timm_names() -> list[str]:
    import timm

    return sorted(timm.list_models())


def _torchvision_names() -> list[str]:
    from torchvision import models

    return sorted(models.list_models())


_SIDE = 800
"""Of the images of torchvision's detectors: what they find is no larger."""

_MASKS = {"roi_heads.py:418": _SIDE, "roi_heads.py:419": _SIDE, "roi_heads.py:436": 0}
_ASSUMED: dict[str, dict[Mode, dict[str, int]]] = {
    "keypointrcnn_resnet50_fpn": {
        Mode.INFERENCE: {"roi_heads.py:285": _SIDE, "roi_heads.py:286": _SIDE}
    },
    "maskrcnn_resnet50_fpn": {Mode.INFERENCE: _MASKS},
    "maskrcnn_resnet50_fpn_v2": {Mode.INFERENCE: _MASKS},
    "fcos_resnet50_fpn": {Mode.TRAINING: {"fcos.py:86": 1}},
}
"""What is said of lines that ask for the size or the number of what a model found.

The places that ``roi_heads.py:436`` and ``fcos.py:86`` ask for decide no size.
"""


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "timm", "timm", ("timm",), _timm_names, lambda name: NamedCase(f"timm:{name}"), 0.995
        ),
        Family(
            "torchvision",
            "torchvision",
            ("torchvision", "torchvision.models"),
            _torchvision_names,
            lambda name: NamedCase(f"torchvision:{name}", _ASSUMED.get(name, {})),
            1.0,
        ),
        Family(
            "transformers",
            "transformers",
            ("transformers", "transformers.models.auto.modeling_auto", "transformers.generation"),
            transformers_models.names,
            transformers_models.TransformersCase,
            0.95,
        ),
        Family(
            "segmentation",
            "segmentation-models-pytorch",
            ("segmentation_models_pytorch",),
            segmentation.names,
            segmentation.case,
            0.9,
        ),
        Family("diffusion", "diffusers", ("diffusers",), diffusion.names, diffusion.case, 0.9),
        Family("yolo", "ultralytics", ("ultralytics.nn.tasks",), yolo.names, yolo.case, 0.9),
        Family(
            "graphs",
            "torch-geometric",
            ("torch_geometric.nn",),
            graph_networks.names,
            graph_networks.case,
            0.9,
        ),
    )
}


SAMPLE = {"timm": 47, "torchvision": 10, "transformers": 3}
"""How many models of each family are drawn of a sample of 60: those of transformers are run for
real before, and cost most."""


def drawn(seed: int) -> dict[str, list[str]]:
    """A random sample of 60 models, or fewer where not all of their libraries are installed."""
    draw = random.Random(seed)
    return {
        name: draw.sample(FAMILIES[name].names(), count)
        for name, count in SAMPLE.items()
        if FAMILIES[name].installed
    }


def mode_drawn(seed: int, name: str) -> tuple[Mode]:
    """The one mode in which a model of a sample is analyzed."""
    return (random.Random(f"{seed} {name}").choice(tuple(Mode)),)

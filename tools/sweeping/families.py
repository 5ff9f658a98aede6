"""The families of models, each with its library, its names and how a case is made of one."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from graphmem import analyze
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
        return importlib.util.find_spec(self.modules[0]) is not None

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
            lambda name: NamedCase(f"torchvision:{name}"),
            1.0,
        ),
    )
}

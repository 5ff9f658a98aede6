"""diffusers: UNets, diffusion transformers and autoencoders."""

from __future__ import annotations

from graphmem.options import Mode
from graphmem.sources.building import Built
from tools.sweeping.case import BuiltCase
from tools.sweeping.diffusion_autoencoders import AUTOENCODERS
from tools.sweeping.diffusion_inputs import Subject
from tools.sweeping.diffusion_transformers import TRANSFORMERS
from tools.sweeping.diffusion_unets import UNETS

SUBJECTS: dict[str, Subject] = {**UNETS, **TRANSFORMERS, **AUTOENCODERS}


def names() -> list[str]:
    """The classes, some of them in several forms."""
    return list(SUBJECTS)


def case(name: str) -> BuiltCase:
    """One of them."""

    def build(mode: Mode) -> Built:
        return SUBJECTS[name].built(name)

    return BuiltCase(name, build)

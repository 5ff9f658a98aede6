"""What the command line's SUBJECT names, built: a model and its inputs."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from graphmem.errors import InputError, ModelLoadError
from graphmem.options import nearest
from graphmem.sources import exported, factory, huggingface, timm_models, torchvision_models
from graphmem.sources.building import Recipe, built
from graphmem.sources.importing import functions_of
from graphmem.sources.inputs import InputRequest
from graphmem.sources.overrides import resolve

_SCHEMES: dict[str, Callable[[str, InputRequest], Recipe]] = {
    "timm": timm_models.recipe,
    "torchvision": torchvision_models.recipe,
    "hf": huggingface.recipe,
}
_FORMS = "timm:NAME, torchvision:NAME, hf:CONFIG.json, MODEL.onnx, FILE.pt2 or FILE.py:FACTORY"
_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")


@dataclass(frozen=True)
class LoadedSubject:
    """A built model and the arguments of its forward.

    ``args`` and ``kwargs`` are pytrees whose tensors are real CPU tensors, or meta ones
    of a factory, or ``InputSpec`` where no values are known. ``real`` says that the model
    was built with values on the CPU; otherwise its parameters are on the meta device,
    and ``rebuild_really`` builds the same subject for real, for code that needs a value.
    """

    kind: str
    name: str
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    real: bool
    rebuild_really: Callable[[], LoadedSubject] | None = None

    def with_values(self) -> LoadedSubject | None:
        """The same, built with values; None if it is, or if this machine lacks the memory."""
        if self.rebuild_really is None:
            return None
        tensors = (*self.model.parameters(), *self.model.buffers())
        needed = sum(t.numel() * t.element_size() for t in tensors)
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return self.rebuild_really() if needed < free else None


def load_subject(text: str, request: InputRequest) -> LoadedSubject:
    """Build the model that ``text`` names and the inputs that ``request`` asks for.

    Raises:
        ModelLoadError: the subject can't be found, imported or built.
        InputError: an input is missing, or can't be read.
    """
    return loaded(text, recipe_of(text, request), request, really=False)


def recipe_of(text: str, request: InputRequest) -> Recipe:
    """How to build the subject that ``text`` names.

    Raises:
        ModelLoadError: the text names nothing that can be built.
        InputError: ``request`` has an option that this kind of subject has no use for.
    """
    scheme, _, rest = text.partition(":")
    if scheme in _SCHEMES and rest:
        _check_onnx_options(text, request)
        return _SCHEMES[scheme](rest, request)
    suffix = Path(text).suffix.lower()
    if suffix == ".onnx":
        return _onnx(text, request)
    _check_onnx_options(text, request)
    if suffix == ".pt2":
        return exported.recipe(text, request)
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise ModelLoadError(f"{text or repr(text)}: {_no_subject(text)}")
    if not where.endswith(".py") and (hint := nearest(where, _SCHEMES)) and not _importable(where):
        raise ModelLoadError(f"{text}: {where!r} is neither a scheme nor a module{hint}")
    return factory.recipe(where, name, request)


def _onnx(path: str, request: InputRequest) -> Recipe:
    from graphmem.sources.onnx import subject  # onnx and its rules take 0.2 s to import

    return subject.recipe(path, request)


def _check_onnx_options(text: str, request: InputRequest) -> None:
    """Refuse the options of ONNX models for another subject."""
    for option, value in (
        ("--dim", request.dims[0] if request.dims else None),
        ("--default-dim", request.default_dim),
        ("--rules", request.rules),
    ):
        if value is not None:
            raise InputError(f"{text}: {option} {value} is for .onnx models; leave it out")


def loaded(text: str, recipe: Recipe, request: InputRequest, really: bool) -> LoadedSubject:
    """The subject that a recipe builds; ``really``: with values, on the CPU.

    Raises:
        ModelLoadError: it can't be built.
        InputError: an input is missing, or can't be read.
    """
    (model, made), real = built(recipe, really)
    rebatch = bool(request.inputs) or not recipe.batched
    inputs = made if recipe.complete else resolve(text, model, made, request, rebatch)
    again = None if real else functools.partial(loaded, text, recipe, request, really=True)
    return LoadedSubject(recipe.kind, text, model, inputs.args, inputs.kwargs, real, again)


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name.split(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _no_subject(text: str) -> str:
    """What is wrong with a text that names no subject, and what to write instead."""
    suffix = Path(text.rstrip(":")).suffix.lower()
    if suffix == ".py":
        names = functions_of(Path(text.rstrip(":"))) or ["FACTORY"]
        return f"name the factory after a colon, as {text.rstrip(':')}:{names[-1]}"
    if suffix == ".json" or (text and Path(text).is_dir()):
        return f"write hf:{text} for a configuration of transformers"
    if suffix in _WEIGHTS:
        return "weights alone are no model; name the factory that builds it, FILE.py:FACTORY"
    if text.rstrip(":") in _SCHEMES:
        return f"name the model after the colon, as {text.rstrip(':')}:NAME"
    return f"is no subject; write {_FORMS}"

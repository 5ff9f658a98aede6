"""Building a model without its weights, and for real where that fails.

A model is first built on the meta device, so that no memory is needed for its weights.
Some constructors look at values and fail there; those are built once more, on the CPU.

Tensors that are made while no module is being built are a factory's own, such as its
inputs: they stay real unless they are larger than ``REAL_LIMIT_BYTES``, because small
integer tensors (ids, masks, lengths) decide branches.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from graphmem.errors import GraphmemError, ModelLoadError, one_line
from graphmem.sources.inputs import ModelInputs
from graphmem.sources.without_gpu import WithoutGPU

REAL_LIMIT_BYTES = 64 * 2**20

Built = tuple[nn.Module, ModelInputs]


def plain(error: BaseException) -> str:
    """An error's type and the first line of its message."""
    text = one_line(error)
    return text if text == type(error).__name__ else f"{type(error).__name__}: {text}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one subject is built: what each kind of subject is turned into.

    ``build`` may be called more than once. ``explain`` says in one line why it failed.
    ``on_meta`` is False where there are weights to load. ``batched`` says that the inputs
    are made with the batch size that was asked for, ``complete`` that they are made of all
    that was asked for. ``build_really`` builds it with values, where ``build`` can't.
    """

    kind: str
    name: str
    build: Callable[[], Built]
    explain: Callable[[BaseException], str] = plain
    on_meta: bool = True
    batched: bool = True
    complete: bool = False
    build_really: Callable[[], Built] | None = None


def built(recipe: Recipe, really: bool) -> tuple[Built, bool]:
    """The model and inputs, and whether they were built for real.

    Raises:
        ModelLoadError: the model can't be built.
    """
    with quiet():
        if recipe.on_meta and not really:
            try:
                with ModulesOnMeta(), WithoutGPU():
                    return recipe.build(), False
            except GraphmemError:
                raise  # building it again would not mend this
            except (Exception, SystemExit):
                pass
        return _built_really(recipe), True


def _built_really(recipe: Recipe) -> Built:
    try:
        with torch.device("cpu"), WithoutGPU():
            return (recipe.build_really or recipe.build)()
    except GraphmemError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelLoadError(f"{recipe.name}: {recipe.explain(error)}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the user's prints off stdout, which is for data, and drop warnings."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield


class ModulesOnMeta(TorchFunctionMode):
    """Makes the tensors of modules on the meta device, and small other ones for real."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        with torch.device("meta"):
            result = func(*args, **kwargs)
        is_new = isinstance(result, Tensor) and result.is_meta
        if not is_new or _has_meta((args, kwargs)) or result.nbytes > REAL_LIMIT_BYTES:
            return result
        return result if _in_module(sys._getframe(1)) else func(*args, **kwargs)


def _has_meta(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.is_meta
    if isinstance(value, dict):
        return _has_meta(tuple(value.values()))
    return isinstance(value, (tuple, list)) and any(_has_meta(v) for v in value)


def _in_module(frame: FrameType | None) -> bool:
    """Whether a method of an nn.Module is among the calling frames."""
    while frame is not None:
        code = frame.f_code
        is_method = code.co_argcount and code.co_varnames[0] == "self"
        if is_method and isinstance(frame.f_locals.get("self"), nn.Module):
            return True
        frame = frame.f_back
    return False

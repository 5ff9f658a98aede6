"""Activation checkpointing of chosen modules: what ``checkpoint(block, x)`` in their place does.

While the context is active, a call of a chosen module goes through
``torch.utils.checkpoint.checkpoint``, hooks and all, as it does where a model's code says
``checkpoint(block, x, use_reentrant=...)`` in the place of ``block(x)``. The class of all
modules is changed for that time, no module is. In a trace and in a real run it is the same.

1. Not reentrant: positional and keyword arguments are handed on.
2. Reentrant: ``torch.utils.checkpoint`` takes no keyword arguments; they are bound beforehand, as
   transformers does (``GradientCheckpointingLayer.__call__``).
3. Selective: the results of some operators are kept, by
   ``create_selective_checkpoint_contexts``.
4. A model of transformers does without its cache of keys and values, as under its own
   checkpointing (``merge_with_config_defaults``): a recomputation would add to it once more.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils import checkpoint as torch_checkpoint

from graphmem import techniques
from graphmem.errors import UsageError
from graphmem.options import Options, nearest
from graphmem.trace.matching import find_modules
from graphmem.trace.replaced import replaced

_WITHOUT_GRADIENTS = "None of the inputs have requires_grad=True"
_HONOURS_HOOKS = "respect_saved_tensors_hooks"  # from torch 2.14 on; False is what 2.13 does


def checkpointed_modules(model: nn.Module, options: Options) -> dict[str, nn.Module]:
    """The modules that are checkpointed, by path.

    Raises:
        UsageError: for a pattern that matches nothing.
    """
    patterns = techniques.parts(options.checkpoint)
    if not patterns:
        return {}
    return find_modules(model, patterns, "checkpoint", options.checkpoint_every)


@contextmanager
def checkpointed(
    modules: Mapping[str, nn.Module],
    options: Options,
    without_gradient: Callable[[str], None] = lambda path: None,
) -> Iterator[None]:
    """Run every call of some modules as a checkpoint.

    Args:
        without_gradient: is told of a module that a reentrant checkpoint leaves without one.
    """
    if not modules:
        yield
        return
    chosen = {id(module): path for path, module in modules.items()}
    run = _checkpoint(options)
    original = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if id(module) not in chosen or not torch.is_grad_enabled():
            return original(module, *args, **kwargs)
        if options.checkpoint_reentrant and _gets_no_gradient(args):
            without_gradient(chosen[id(module)])
        return run(functools.partial(original, module), args, kwargs)

    with replaced(nn.Module, "__call__", call):
        yield


@contextmanager
def without_cache(model: nn.Module) -> Iterator[bool]:
    """Models of transformers keep no keys and values inside; whether there are such."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    caching = {id(c): c for c in configs if getattr(c, "use_cache", False) is True}
    for config in caching.values():
        config.use_cache = False
    try:
        yield bool(caching)
    finally:
        for config in caching.values():
            config.use_cache = True


Run = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def _checkpoint(options: Options) -> Run:
    """``checkpoint`` as the options have it."""
    if options.checkpoint_reentrant:
        return _reentrant
    chosen: dict[str, Any] = {"use_reentrant": False}
    if _HONOURS_HOOKS in inspect.signature(torch_checkpoint.checkpoint).parameters:
        chosen[_HONOURS_HOOKS] = False
    kept = find_operators(techniques.parts(options.checkpoint_save))
    if kept:
        contexts = torch_checkpoint.create_selective_checkpoint_contexts
        chosen["context_fn"] = functools.partial(contexts, kept)

    def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return torch_checkpoint.checkpoint(function, *args, **chosen, **kwargs)

    return run


def _reentrant(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A reentrant checkpoint; torch's warning of inputs without gradients is told otherwise."""
    bound = functools.partial(function, **kwargs)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _WITHOUT_GRADIENTS, UserWarning)
        return torch_checkpoint.checkpoint(bound, *args, use_reentrant=True)


def _gets_no_gradient(args: Iterable[Any]) -> bool:
    """Whether a reentrant checkpoint of these arguments gives its parameters none."""
    return not any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)


def find_operators(names: Iterable[str]) -> list[OpOverload]:
    """The operators of names such as ``aten.mm`` (all its overloads) or ``aten.mm.default``.

    Raises:
        UsageError: for a name that is none, with the nearest.
    """
    return [operator for name in names for operator in _overloads(name)]


def _overloads(name: str) -> list[OpOverload]:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None) if found is not None else None
    if isinstance(found, OpOverload):
        return [found]
    if isinstance(found, OpOverloadPacket):
        return [getattr(found, overload) for overload in found.overloads()]
    known = {each.split(".")[0].replace("::", ".") for each in _all_names()}
    raise UsageError(f"checkpoint save: no operator {name!r}{nearest(name, sorted(known))}")


def _all_names() -> list[str]:
    names: list[str] = torch._C._dispatch_get_all_op_names()
    return names

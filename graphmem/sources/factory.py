"""``package.module:factory`` and ``path/to/file.py:factory``: the user's own code.

A factory is called without arguments, or with ``batch`` and ``seq`` where it has such
parameters and the command line gives them. It returns an nn.Module, or a module and its
inputs: a tensor, a tuple of positional arguments, a dict of keyword arguments, or specs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from graphmem.errors import InputError, ModelLoadError
from graphmem.options import nearest
from graphmem.sources.building import Built, Recipe
from graphmem.sources.importing import folder_of, imported, located, on_path
from graphmem.sources.inputs import InputRequest, as_inputs


def recipe(where: str, name: str, asked: InputRequest) -> Recipe:
    """How to call the factory ``name`` of the file or module ``where``.

    Raises:
        ModelLoadError: the file, the module or the factory can't be found or imported.
        InputError: ``asked`` has an option that the factory has no use for.
    """
    text = f"{where}:{name}"
    factory = _attribute(where, name)
    if isinstance(factory, nn.Module):
        module = factory
        return Recipe("factory", text, lambda: _checked(text, module), batched=False)
    options = _options(text, factory, asked)
    return Recipe(
        "factory",
        text,
        lambda: _call(text, where, factory, options),
        lambda error: located(error, where),
        batched="batch" in options,
    )


def _attribute(where: str, name: str) -> Any:
    """The factory: ``name`` may have dots, such as ``Model.tiny``."""
    found: Any = imported(where)
    for part in name.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(found) if not n.startswith("_")]
            raise ModelLoadError(f"{where}: it has no {part!r}{nearest(part, names)}")
        found = getattr(found, part)
    if not callable(found):
        raise ModelLoadError(
            f"{where}:{name} is a {type(found).__name__}; "
            "name a function that returns an nn.Module, or a module and its inputs"
        )
    return found


def _options(text: str, factory: Callable[..., Any], asked: InputRequest) -> dict[str, Any]:
    """The arguments to call the factory with."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # a callable written in C
        parameters = inspect.signature(lambda: None).parameters
    given = {"batch": asked.batch, "seq": asked.seq, "task": asked.task}
    options = {k: v for k, v in given.items() if v is not None and k in parameters}
    for option in ("seq", "task"):
        if given[option] is not None and option not in options:
            raise InputError(
                f"{text}: --{option} needs a factory with a parameter {option!r}; "
                "leave it out, or give the shapes with --input"
            )
    needed = [n for n, p in parameters.items() if _is_required(p) and n not in options]
    if needed:
        raise ModelLoadError(
            f"{text} needs {', '.join(map(repr, needed))}; "
            "write a factory that is called without arguments and returns the model"
        )
    return options


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _call(text: str, where: str, factory: Callable[..., Any], options: dict[str, Any]) -> Built:
    with on_path(folder_of(where)):  # for imports inside of the factory
        return _checked(text, factory(**options))


def _checked(text: str, returned: Any) -> Built:
    """The module and inputs in what a factory returned."""
    if isinstance(returned, nn.Module):
        return returned, as_inputs(None)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], nn.Module):
        return returned[0], as_inputs(returned[1])
    what = type(returned).__name__
    if isinstance(returned, tuple):
        what = f"tuple of {', '.join(type(part).__name__ for part in returned)}"
    raise ModelLoadError(f"{text} returned a {what}; return an nn.Module or (module, inputs)")

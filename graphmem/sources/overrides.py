"""What ``--input`` and ``--batch`` change of the inputs that a subject comes with.

1. ``--input`` with a name replaces or adds that argument; without one it is the next
   positional argument, and replaces what was made for that position or for its name.
2. ``--batch N`` replaces dimension 0 of every input whose dimension 0 is the batch: of
   the same length as that of the first input that is not a scalar. Real tensors repeat
   their rows or lose some. Tensors inside lists are left alone: a list of images is
   lengthened by whoever makes it, and its elements have no batch dimension.
3. An argument of forward that has no default and that nobody gave is asked for by name.
4. Inputs with known values become real tensors; the others stay ``InputSpec``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.errors import InputError
from graphmem.options import nearest
from graphmem.sources.inputs import InputRequest, InputSpec, ModelInputs, spec


def resolve(
    subject: str, model: nn.Module, made: ModelInputs, asked: InputRequest, rebatch: bool = True
) -> ModelInputs:
    """The inputs that a model is run with.

    ``subject`` is its text, for the messages. ``rebatch`` is False where the made inputs
    have the batch size already.

    Raises:
        InputError: an input is missing, unknown to forward, or has no batch dimension.
    """
    parameters = forward_parameters(model)
    given = with_given(made, asked, parameters)
    if asked.batch is not None and rebatch:
        given = with_batch(subject, given, asked.batch)
    _check(subject, model, given)
    return _mapped(given, lambda leaf: _known(leaf))


def given_specs(asked: InputRequest) -> tuple[InputSpec, ...]:
    """The inputs of ``--input``, read; their dtype is the request's where they say none."""
    return tuple(spec(text, asked.dtype or torch.float32) for text in asked.inputs)


def forward_parameters(model: nn.Module) -> tuple[str, ...]:
    """The names of the arguments that forward takes by position, in order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(model.forward)
    return tuple(name for name, p in signature.parameters.items() if p.kind in kinds)


def with_given(made: ModelInputs, asked: InputRequest, names: tuple[str, ...]) -> ModelInputs:
    """The made inputs, with those of ``--input`` in their place or added."""
    args, kwargs, position = list(made.args), dict(made.kwargs), 0
    for given in given_specs(asked):
        if given.name is None:
            name = names[position] if position < len(names) else None
            index, position = position, position + 1
        else:
            name = given.name
            index = names.index(name) if name in names else len(args)
        if index < len(args):
            args[index] = given
        elif given.name is not None or name in kwargs:
            kwargs[str(name)] = given
        else:
            args.append(given)
    return ModelInputs(tuple(args), kwargs)


def with_batch(subject: str, inputs: ModelInputs, batch: int) -> ModelInputs:
    """The inputs, with ``batch`` as the length of their batch dimension.

    Raises:
        InputError: no input has a dimension 0.
    """
    shapes = [leaf.shape for leaf in _leaves((inputs.args, inputs.kwargs)) if len(leaf.shape)]
    if not shapes:
        raise InputError(f"--batch {batch}: no input of {subject} has a batch dimension")
    old = shapes[0][0]
    return _mapped(inputs, lambda leaf: _rebatched(leaf, old, batch))


def _rebatched(leaf: Tensor | InputSpec, old: int, batch: int) -> Tensor | InputSpec:
    if not len(leaf.shape) or leaf.shape[0] != old or old == batch:
        return leaf
    if isinstance(leaf, InputSpec):
        shape = (batch, *leaf.shape[1:])
        return InputSpec(shape, leaf.dtype, leaf.fill, leaf.name, leaf.high)
    if leaf.is_meta or not old:
        return leaf.new_empty((batch, *leaf.shape[1:]))
    return leaf[torch.arange(batch, device=leaf.device) % old]


def _known(leaf: Tensor | InputSpec) -> Tensor | InputSpec:
    return leaf.materialize() if isinstance(leaf, InputSpec) and leaf.fill is not None else leaf


def _mapped(
    inputs: ModelInputs, change: Callable[[Tensor | InputSpec], Tensor | InputSpec]
) -> ModelInputs:
    """The inputs with each tensor and spec changed, save those inside lists."""

    def walk(value: Any) -> Any:
        if isinstance(value, (Tensor, InputSpec)):
            return change(value)
        if type(value) is tuple:
            return tuple(walk(v) for v in value)
        return {k: walk(v) for k, v in value.items()} if type(value) is dict else value

    return ModelInputs(walk(inputs.args), walk(inputs.kwargs))


def _leaves(value: Any) -> Iterator[Tensor | InputSpec]:
    """The tensors and specs in tuples and mappings, in order."""
    if isinstance(value, (Tensor, InputSpec)):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _leaves(v)
    elif isinstance(value, Mapping):
        yield from _leaves(tuple(value.values()))


def _check(subject: str, model: nn.Module, inputs: ModelInputs) -> None:
    """Check that forward takes these arguments and needs no other."""
    signature = inspect.signature(model.forward)
    parameters = signature.parameters.values()
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in inputs.kwargs:
        if not any_keyword and name not in signature.parameters:
            close = nearest(name, signature.parameters) or f"; it takes {_quoted(signature)}"
            raise InputError(f"{subject}: forward has no argument {name!r}{close}")
    missing = _missing(signature, inputs)
    if missing:
        example = " ".join(f"--input {name}={_example(name)}" for name in missing)
        raise InputError(
            f"{subject}: forward needs {_listed(missing)}; give the shapes, as in: "
            f"graphmem analyze {subject} {example}"
        )
    try:
        signature.bind(*inputs.args, **inputs.kwargs)
    except TypeError as error:
        raise InputError(f"{subject}: forward can't take these inputs: {error}") from error


def _missing(signature: inspect.Signature, inputs: ModelInputs) -> list[str]:
    missing = []
    for index, p in enumerate(signature.parameters.values()):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.default is not p.empty:
            continue
        by_position = p.kind is not p.KEYWORD_ONLY and index < len(inputs.args)
        if not by_position and p.name not in inputs.kwargs:
            missing.append(p.name)
    return missing


def _example(name: str) -> str:
    """A shape that an argument of this name might have, for an error message."""
    if any(part in name for part in ("ids", "token", "label", "target", "index")):
        return "8x128:int64"
    if any(part in name for part in ("image", "pixel", "img")):
        return "8x3x224x224"
    return "8x128"


def _listed(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _quoted(signature: inspect.Signature) -> str:
    return _listed(list(signature.parameters)) if signature.parameters else "none"

"""The calls of modules while a model runs once on hollow tensors: what each gave, and inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from graphmem.options import Mode, Options, Target
from graphmem.trace.dynamo import imported_if_asked
from graphmem.trace.gpu import without_names
from graphmem.trace.inputs import Call, named, replace, stand_in
from graphmem.trace.run import explained, parameter_names
from graphmem.trace.session import Session


@dataclass(slots=True)
class ModuleCall:
    """One call: what ``describe`` made of its result, and the calls inside of it, in order."""

    module: nn.Module
    result: Any = None
    inner: list[ModuleCall] = field(default_factory=list)


def observe(model: nn.Module, call: Call, describe: Callable[[Any], Any]) -> ModuleCall:
    """Run a model once, as for inference.

    Args:
        describe: is given each module's result while its tensors live.

    Raises:
        TraceError: and others of ``graphmem.errors``, in one line, if the model fails.
    """
    options = Options(mode=Mode.INFERENCE, target=Target.CPU)

    def run(context: Any) -> ModuleCall:
        args, kwargs = replace(call, lambda leaf: stand_in(leaf, None))
        session = Session(target=options.target)
        model.eval()
        with explained(), session.active(), context, torch.no_grad():
            session.module(model)
            for name, tensor in named((args, kwargs), parameter_names(model)):
                session.input(tensor, name)
            with _watched(model, describe) as root:
                model(*args, **kwargs)
        return root.inner[0]

    return imported_if_asked(lambda: without_names(run))


@contextmanager
def _watched(model: nn.Module, describe: Callable[[Any], Any]) -> Iterator[ModuleCall]:
    root = ModuleCall(model)
    stack = [root]

    def before(module: nn.Module, args: Any) -> None:
        stack.append(ModuleCall(module))
        stack[-2].inner.append(stack[-1])

    def after(module: nn.Module, args: Any, result: Any) -> None:
        stack.pop().result = describe(result)

    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))
    try:
        yield root
    finally:
        for handle in handles:
            handle.remove()

"""Foreign kernels: code that torch's dispatcher does not see, in the place of which a rule runs.

Functions for which the user registered a rule (``targets.user_rules``), and Triton's kernels:
a launch allocates nothing for the program, it reads and writes what it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from torch import Tensor

from graphmem.errors import UsageError
from graphmem.schedule import Unknown
from graphmem.targets.user_rules import UserRule, function_rules
from graphmem.trace.hollow import hollow_like, twin
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced
from graphmem.trace.shapes import map_tensors

_TUNED = Unknown("what Triton's autotuning allocates at a kernel's first launch", "", "nothing")


@contextmanager
def foreign_kernels(recorder: Recorder) -> Iterator[None]:
    """Rules run in the place of foreign kernels while the context is active.

    Raises:
        UsageError: a rule names a function that does not exist.
    """
    with ExitStack() as stack:
        for name, rule in function_rules().items():
            owner, attribute = _located(name)
            stack.enter_context(replaced(owner, attribute, _ruled(recorder, name, rule)))
        for owner, tuned in _launchers():
            stack.enter_context(replaced(owner, "run", _launched(recorder, tuned=tuned)))
        yield


def _located(name: str) -> tuple[Any, str]:
    """The object that holds a function, and its attribute there."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:-1]:
            owner = getattr(owner, part, None)
        if hasattr(owner, parts[-1]):
            return owner, parts[-1]
        break
    raise UsageError(f"register_rule: there is no function {name}")


def _ruled(recorder: Recorder, name: str, rule: UserRule) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        twins: dict[int, Tensor] = {}

        def on_meta(tensor: Tensor) -> Tensor:
            made = twin(tensor)
            twins[id(made)] = tensor
            return made

        with recorder.paused():
            meta_args = [map_tensors(a, on_meta) for a in args]
            meta_kwargs = {key: map_tensors(value, on_meta) for key, value in kwargs.items()}
            made = rule.results(*meta_args, **meta_kwargs)
            scratch = 0 if rule.scratch is None else int(rule.scratch(*meta_args, **meta_kwargs))
            result = map_tensors(made, lambda t: twins[id(t)] if id(t) in twins else hollow_like(t))
        recorder.books.foreign(name, (args, kwargs), result, scratch)
        return result

    return run


def _launchers() -> list[tuple[Any, bool]]:
    """Triton's classes that launch kernels, and whether they tune them first."""
    if "triton" not in sys.modules:
        return []
    jit, tuner = import_module("triton.runtime.jit"), import_module("triton.runtime.autotuner")
    return [(jit.JITFunction, False), (tuner.Autotuner, True)]


def _launched(recorder: Recorder, *, tuned: bool) -> Callable[..., None]:
    def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
        if tuned:
            recorder.ledger.note(_TUNED)
        name = getattr(kernel, "__name__", None) or kernel.base_fn.__name__
        recorder.books.foreign(f"triton.{name}", (args, kwargs), None, 0, writes=True)

    return run

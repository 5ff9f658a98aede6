"""Dynamo stays away from a trace in which nothing is compiled.

PyTorch's own Python imports it where there is nothing to compile: a function that Dynamo must
not look into (``torch._disable_dynamo``: checkpoints, ``Optimizer.zero_grad``) is wrapped by it
at its first call, and ``Optimizer.step`` breaks a graph that nobody captures. The import takes
longer than many an analysis, and brings sympy, inductor and, in CUDA builds, Triton.

1. Where Dynamo is imported already, it runs compiled functions as they were written.
2. Where it is not, ``_StandIn`` is in its place for the time of a trace, with what torch's own
   Python asks for where nothing is compiled; ``torch._dynamo.config`` is the real one.
3. Asked for anything else, or by anybody else (code that calls ``torch.compile``, flex
   attention), it raises ``DynamoAsked``; the trace is started again with Dynamo imported. An
   import in the middle of a trace would leave cycles (exceptions of optional imports, with the
   frames of the whole stack) which hold the user's tensors until Python's collector runs, and
   Dynamo would keep what a trace has in the place of torch's functions.

Source: torch/_compile.py, torch/optim/optimizer.py (``_use_grad_for_differentiable``),
torch/utils/checkpoint.py (2.13).
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import util
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import torch
from torch import nn

T = TypeVar("T")
_NAME = "torch._dynamo"
_CONFIG = "torch._dynamo.config"
_MARK = "__dynamo_disable"
"""Where ``torch._disable_dynamo`` keeps what Dynamo made of a function."""


class DynamoAsked(BaseException):
    """The code under trace asks for Dynamo. No Exception, so that no user code catches it."""


class _StandIn(ModuleType):
    """In Dynamo's place during a trace; who keeps it for longer has the real one's names."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self._names: dict[str, Any] = {
            "config": _config(),
            "disable": self._left_alone,
            "graph_break": lambda msg="": None,
        }
        self._marked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        if self._is_over:
            return getattr(importlib.import_module(_NAME), name)
        asking: str = sys._getframe(1).f_globals.get("__name__", "")
        if name in self._names and asking.startswith("torch."):
            return self._names[name]
        if name.startswith("__") and name != "__path__":  # who looks at all modules
            raise AttributeError(name)
        raise DynamoAsked

    def _left_alone(
        self,
        fn: Any = None,
        recursive: bool = True,
        *,
        reason: str | None = None,
        wrapping: bool = True,
    ) -> Any:
        """A function as it is, with no Dynamo to keep off."""
        if not isinstance(fn, FunctionType):
            raise DynamoAsked
        self._marked.add(fn)
        return fn

    def end(self) -> None:
        """From here on functions are kept off the real Dynamo."""
        self._is_over = True
        for fn in self._marked:
            vars(fn).pop(_MARK, None)


def _config() -> ModuleType:
    """``torch._dynamo.config``, which the package takes as it is when it is imported later."""
    if _CONFIG not in sys.modules:
        file = Path(torch.__file__).parent / "_dynamo" / "config.py"
        spec = util.spec_from_file_location(_CONFIG, file)
        if spec is None or spec.loader is None:
            raise DynamoAsked
        sys.modules[_CONFIG] = module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[_CONFIG]


def set_aside() -> AbstractContextManager[None]:
    """Nothing is compiled inside, and Dynamo is not imported for it."""
    if _NAME in sys.modules:
        stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
        return stance
    return _stood_in_for()


@contextmanager
def _stood_in_for() -> Iterator[None]:
    sys.modules[_NAME] = stand_in = _StandIn()
    try:
        yield
    finally:
        del sys.modules[_NAME]
        stand_in.end()


def imported_if_asked(run: Callable[[], T]) -> T:
    """Run a trace, and if its code asks for Dynamo once more with it."""
    try:
        return run()
    except DynamoAsked:
        import_now()
    return run()


def import_now() -> None:
    """Import Dynamo, outside of a trace."""
    importlib.import_module(_NAME)


def is_compiled(root: nn.Module) -> bool:
    """Whether a module, or one in it, was given to ``torch.compile``."""
    dynamo = sys.modules.get(_NAME)
    if dynamo is None or isinstance(dynamo, _StandIn):
        return False
    return any(isinstance(module, dynamo.OptimizedModule) for module in root.modules())

"""PyTorch's formulas of floating-point operations, without Triton.

``torch.utils.flop_counter`` imports Triton where it is installed, for kernels that are not
counted here; that takes more memory than the analysis of most models. So where nobody has
imported the module, its file is run as a module of our own while Triton looks absent. Then
there are no formulas of the user's either, which would be registered in the module itself.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import torch

Formula = Callable[..., Any]
_MODULE = "torch.utils.flop_counter"
_TRITON = "triton"


def formulas() -> Mapping[Any, Formula]:
    """The formula of each operator (``OpOverloadPacket``) that has one."""
    if _MODULE in sys.modules or _TRITON in sys.modules:
        registry: Mapping[Any, Formula] = importlib.import_module(_MODULE).flop_registry
        return registry
    return _own_formulas()


@cache
def _own_formulas() -> Mapping[Any, Formula]:
    name = f"{_MODULE}_without_triton"  # of torch.utils: it imports its neighbours
    file = Path(torch.__file__).parent / "utils" / "flop_counter.py"
    spec = util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"torch has no {file}", name=_MODULE)
    module = util.module_from_spec(spec)
    logging.getLogger(name).addFilter(lambda record: False)  # it warns of Triton's absence
    with _looking_absent(_TRITON):
        spec.loader.exec_module(module)
    registry: Mapping[Any, Formula] = module.flop_registry
    return registry


@contextmanager
def _looking_absent(name: str) -> Iterator[None]:
    """A package, not imported so far, can't be imported inside."""
    absent: Any = None  # what Python's import takes for a package that is not there
    sys.modules[name] = absent
    try:
        yield
    finally:
        del sys.modules[name]

"""PyTorch's formulas of floating-point operations, without Triton."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import importlib.util
import sys
from graphmem.trace.formulas import formulas

own = formulas()
print([name for name in ("triton", "torch.utils.flop_counter") if name in sys.modules])

from torch.utils import flop_counter

print(set(own) == set(flop_counter.flop_registry), formulas() is flop_counter.flop_registry)
print(flop_counter._JITFunction.__name__ == (
    "JITFunction" if importlib.util.find_spec("triton") else "NoneType"))
"""


def test_formulas_come_without_triton_and_from_torchs_own_module_once_somebody_imports_it() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True True", "True"]
    assert "triton" not in done.stderr

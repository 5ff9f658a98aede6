"""torchao: Adam and AdamW with states of 8 bits, 4 bits or fp8, in blocks.

For a parameter of N elements and blocks of B (256; of 4 bits 128), where N >= 4,096 and B
divides N, each of two states is

- codes: N bytes, of 4 bits N / 2;
- N / B scales of fp32;
- a table of 256 (of 4 bits 16) fp32 values of its own; fp8 has none.

Other parameters have states as large as themselves and of their dtype. The step counts and
the learning rate are scalars on the host.

What the compiled kernel of the step allocates is not known without a compiler for the GPU; it
is taken to be fused into nothing. (Run eagerly, it would be several fp32 copies of the largest
parameter.)

Source: torchao/optim/adam.py, ``_AdamBase._new_buffer`` and ``step``; torchao/optim/
subclass_8bit.py, subclass_4bit.py and subclass_fp8.py, ``zeros`` (torchao 0.18).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.schedule import Unknown
from graphmem.targets import context
from graphmem.trace.optim.base import OneByOne

_LEAST = 4096
_COMPILED = Unknown(
    "temporaries of the optimizer's compiled step",
    "torchao's single_param_adam",
    "none: all is fused into one kernel",
)


class LowBit(OneByOne):
    """torchao's Adam: ``bits`` 8 or 4, or 8 with ``fp8``."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        *,
        bits: int = 8,
        fp8: bool = False,
        block_size: int | None = None,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self._bits, self._fp8 = bits, fp8
        self._block = block_size or (128 if bits == 4 else 256)
        self._count = 3 if amsgrad else 2

    def new_states(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Two states, with amsgrad three."""
        return {"step": 0, **{f"state{i}": self._new(parameter) for i in range(self._count)}}

    def update(self, parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One compiled kernel."""
        context.current().note(_COMPILED)
        super().update(parameter, state, group)

    def _new(self, parameter: Tensor) -> Any:
        numel = parameter.numel()
        if numel < _LEAST or numel % self._block:
            return torch.zeros_like(parameter)
        dtype = torch.float8_e4m3fn if self._fp8 else torch.uint8
        codes = parameter.new_zeros(numel * self._bits // 8, dtype=dtype)
        scales = parameter.new_zeros(numel // self._block, dtype=torch.float32)
        if self._fp8:
            return codes, scales
        return codes, scales, parameter.new_zeros(2**self._bits, dtype=torch.float32)

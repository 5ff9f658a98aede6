"""bitsandbytes: states of 8 bits in blocks, of 32 bits, and paged ones.

For a parameter of N elements, with ``block_size`` B:

1. Of 8 bits where ``optim_bits`` is 8 and N >= ``min_8bit_size``: each state N bytes, and a
   table of ceil(N / B) fp32 maxima. Two tables of 256 fp32 values, for signed and unsigned
   states, are shared by all parameters.
2. Of 32 bits else: each state 4 N bytes, whatever the parameter's dtype.
3. Embeddings are of 32 bits where GlobalOptimManager's override is registered for them, as
   transformers' Trainer does; ``embeddings_32bit``.
4. Paged ones of 100,000 elements and more lie in CUDA's managed memory, which the allocator
   never sees; tables of maxima do not.
5. AdEMAMix has its first state twice.

The step is one kernel a parameter. A gradient or parameter that is not contiguous is replaced
by a contiguous copy.

Source: bitsandbytes/optim/optimizer.py, ``Optimizer1State.init_state``, ``Optimizer2State
.init_state``, ``update_step``, ``Optimizer8bit.get_state_buffer`` and ``get_config``;
bitsandbytes/optim/ademamix.py (bitsandbytes 0.50.2). B was 2,048 before 0.44 (pull request
1365). Override: transformers/trainer.py, ``create_optimizer`` (transformers 5.24).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.trace.optim.base import OneByOne
from graphmem.trace.optim.hints import Hints

PAGED_FROM = 100_000
"""Elements of a parameter from which its states are paged."""
_STATES = ("state1", "state2")
_LEVELS = 256


class Blockwise(OneByOne):
    """An optimizer of bitsandbytes with one or two states a parameter.

    Args:
        states: how many.
        twice: the first state is twice as large (AdEMAMix).
        is_paged: of PagedAdamW and its like.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        *,
        states: int = 2,
        optim_bits: int = 8,
        min_8bit_size: int = 4096,
        block_size: int = 256,
        embeddings_32bit: bool = False,
        is_paged: bool = False,
        twice: bool = False,
        hints: Hints | None = None,
    ) -> None:
        if optim_bits not in (8, 32):
            raise ValueError(f"optim_bits is 8 or 32, not {optim_bits}")
        super().__init__(params, lr)
        self.is_paged = is_paged
        self._states, self._twice, self._bits = states, twice, optim_bits
        self._least, self._block = min_8bit_size, block_size
        embeddings = hints.embeddings if hints is not None else frozenset()
        self._in_32_bits = embeddings if embeddings_32bit else frozenset()
        self._maps: dict[str, Tensor] = {}

    def new_states(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The states, and their tables of maxima."""
        small = parameter.numel() < self._least or id(parameter) in self._in_32_bits
        dtype = torch.float32 if small or self._bits == 32 else torch.uint8
        made: dict[str, Any] = {"step": 0}
        for number, name in enumerate(_STATES[: self._states], start=1):
            doubled = self._twice and number == 1
            shape = (2, *parameter.shape) if doubled else parameter.shape
            made[name] = (
                parameter.new_zeros(shape, dtype=dtype)
                if doubled
                else torch.zeros_like(parameter, dtype=dtype)
            )
            if dtype is torch.uint8:
                made[f"qmap{number}"] = self._map(name, parameter)
                blocks = -(-parameter.numel() // self._block)
                sizes = (2, blocks) if doubled else (blocks,)
                made[f"absmax{number}"] = parameter.new_zeros(sizes, dtype=torch.float32)
        return made

    def _map(self, name: str, parameter: Tensor) -> Tensor:
        """The values of a state's 256 levels, one table for all parameters."""
        if name not in self._maps:
            self._maps[name] = parameter.new_zeros(_LEVELS, dtype=torch.float32)
        return self._maps[name]

    def update(self, parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One kernel, on contiguous tensors."""
        assert parameter.grad is not None
        parameter.data = parameter.data.contiguous()
        parameter.grad = parameter.grad.contiguous()
        super().update(parameter, state, group)


def paged_states(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """The states that lie in managed memory, of this model and of bitsandbytes' own classes."""
    if not getattr(optimizer, "is_paged", False):
        return
    for parameter, state in optimizer.state.items():
        if parameter.numel() >= PAGED_FROM:
            yield from (state[name] for name in _STATES if name in state)

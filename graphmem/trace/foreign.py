"""Foreign tensors: the user's own, reached by a recorded step and not exchanged.

Small ones have known values, so an in-place operation on one is computed for real
(``counter += 1``). What it overwrites is kept and put back when the trace ends.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Overwritten:
    """The values of foreign tensors from before the trace wrote on them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    def keep(self, number: int, tensor: Tensor) -> None:
        """Keep the values of a tensor on storage ``number``, before the first write."""
        key = (number, tensor.shape, tensor.stride(), tensor.storage_offset())
        if key not in self._kept:
            self._kept[key] = (tensor.detach(), tensor.detach().clone())

    def put_back(self) -> None:
        """Write the values back, the earliest last."""
        with torch.no_grad():
            for tensor, values in reversed(self._kept.values()):
                tensor.copy_(values)
        self._kept.clear()

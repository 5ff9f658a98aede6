"""Parameters on one flat tensor, of which each rank owns an equal part."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphmem.errors import UsageError
from graphmem.trace.hollow import hollow_like

_ALIGNMENT = 2
"""Elements; a rank's part is a multiple. Source: DeepSpeed, ``nccl_start_alignment_factor``."""


class Flat:
    """Trainable parameters of one dtype, one after another, zeros at the end.

    Args:
        parameters: they become views of ``whole``.
        whole: as many elements as ``numel_of`` says.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], whole: Tensor, ranks: int, rank: int
    ) -> None:
        self.parameters, self.whole = tuple(parameters), whole
        self.ranks, self.rank = ranks, rank
        self._size = whole.numel() // ranks
        self.part = whole.narrow(0, rank * self._size, self._size)
        self._starts: dict[nn.Parameter, int] = {}
        start = 0
        for parameter in parameters:
            self._starts[parameter] = start
            place = whole.narrow(0, start, parameter.numel())
            parameter.data = place.view(parameter.shape)
            start += parameter.numel()

    def is_own(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter reaches into this rank's part."""
        return reaches(self._starts[parameter], parameter.numel(), self._size, self.rank)

    def parts_of(self, parameters: Sequence[nn.Parameter]) -> list[tuple[int, int]]:
        """Of gradients one after another: the ranks that own them, and how many elements each."""
        parts: list[tuple[int, int]] = []
        for parameter in parameters:
            start = self._starts[parameter]
            end = start + parameter.numel()
            while start < end:
                rank = start // self._size
                numel = min(end, (rank + 1) * self._size) - start
                before = parts.pop()[1] if parts and parts[-1][0] == rank else 0
                parts.append((rank, before + numel))
                start += numel
        return parts

    def own_slices(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """What of the own parameters' gradients lies in the own part, and zeros behind the last."""
        own = [parameter for parameter in self.parameters if self.is_own(parameter)]
        first = self.rank * self._size
        slices = []
        for parameter, gradient in zip(own, gradients, strict=True):
            start = max(first - self._starts[parameter], 0)
            end = min(first + self._size - self._starts[parameter], parameter.numel())
            slices.append(gradient.view(-1).narrow(0, start, end - start))
        missing = self._size - sum(part.numel() for part in slices)
        if missing:
            slices.append(torch.zeros(missing, dtype=self.whole.dtype, device=self.whole.device))
        return slices


def numel_of(parameters: Sequence[nn.Parameter], ranks: int) -> int:
    """The elements of the flat tensor, of which all ranks have as many."""
    unit = _ALIGNMENT * ranks
    return -(-sum(parameter.numel() for parameter in parameters) // unit) * unit


def reaches(start: int, numel: int, size: int, rank: int) -> bool:
    """Whether elements reach into a rank's part of ``size``."""
    return start < (rank + 1) * size and start + numel > rank * size


def fullest(parameters: Sequence[nn.Parameter], ranks: int) -> int:
    """The rank into whose part the largest parameters together reach."""
    size = numel_of(parameters, ranks) // ranks
    sums = [0] * ranks
    start = 0
    for parameter in parameters:
        for rank in range(start // size, min((start + parameter.numel() - 1) // size + 1, ranks)):
            sums[rank] += parameter.numel()
        start += parameter.numel()
    return sums.index(max(sums))


def trained_of(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained.

    Raises:
        UsageError: if they are of several dtypes, which take a flat tensor each.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if len(dtypes := {str(parameter.dtype) for parameter in parameters}) > 1:
        raise UsageError(
            f"zero 2: the trainable parameters are of {' and '.join(sorted(dtypes))}; "
            "convert them to one dtype with precision"
        )
    return parameters


def hollow_whole(parameters: Sequence[nn.Parameter], ranks: int) -> Tensor:
    """The flat tensor of stand-ins."""
    numel = numel_of(parameters, ranks)
    return hollow_like(torch.empty(numel, dtype=parameters[0].dtype, device="meta"))


@torch.no_grad()
def real_whole(parameters: Sequence[nn.Parameter], ranks: int) -> Tensor:
    """The flat tensor of parameters with values."""
    values = [parameter.detach().view(-1) for parameter in parameters]
    missing = numel_of(parameters, ranks) - sum(value.numel() for value in values)
    return torch.cat([*values, values[0].new_zeros(missing)])

"""Sizes that depend on data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.trace.difficult.cases import Difficult


def _ones(layer: nn.Linear) -> nn.Linear:
    """A layer that gives ones, so that a real run finds as many as there may be."""
    nn.init.zeros_(layer.weight)
    nn.init.ones_(layer.bias)
    return layer


class _OneLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = _ones(nn.Linear(64, 64))


class Nonzero(_OneLayer):
    """Gathers the rows whose first feature is positive."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        kept = torch.nonzero(y[:, 0] > 0).squeeze(-1)
        rows: Tensor = self.layer(y[kept])
        return rows


class BooleanIndex(_OneLayer):
    """Indexes by a mask, and writes back through it."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        keep = y.sum(-1) > 0
        out = torch.zeros_like(y)
        out[keep] = self.layer(y[keep])
        return out


class OneHot(nn.Module):
    """Classes that are not known, of a number that is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 64)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.layer(nn.functional.one_hot(ids, 10).float())
        return y


class KnownMask(_OneLayer):
    """What is kept is known, of rows that are not."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows: Tensor = self.layer(x)[mask]
        return rows


class Counted(_OneLayer):
    """Room for as many rows as a mask counts."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        keep = y[:, 0] > 0
        room = y.new_zeros(int(keep.sum()), 64)
        return torch.cat((room, y))


class MaskedSelect(_OneLayer):
    """A loss over what is selected."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return torch.masked_select(y, y > 0).square()


class Unique(nn.Module):
    """Embeds each distinct token once."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)

    def forward(self, ids: Tensor) -> Tensor:
        distinct, inverse = torch.unique(ids, return_inverse=True)
        rows: Tensor = self.table(distinct)[inverse]
        return rows


class Segments(nn.Module):
    """Scatters the rows of graphs of different sizes, as graph networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        graph = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        pooled = x.new_zeros(len(sizes), 64).index_add(0, graph, self.layer(x))
        return pooled[graph] + x


class Clusters(nn.Module):
    """Assigns each row to the nearest of 8 centres, and pools each cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        nearest = torch.cdist(y, y[:8]).argmin(-1)
        return torch.stack([y[nearest == number].sum(0) for number in range(8)])


class Detections(nn.Module):
    """Keeps the best boxes above a threshold, image by image."""

    def __init__(self) -> None:
        super().__init__()
        self.score = _ones(nn.Linear(64, 1))
        self.box = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for scores, boxes in zip(self.score(x).squeeze(-1), self.box(x), strict=True):
            best, index = scores.topk(16)
            kept = index[best > 0.1]
            found.append(boxes[kept] if len(kept) else boxes[:1])
        return found


_DISTANCES = frozenset({"aten::cat", "aten::ones_like", "aten::sum", "aten::mul", "aten::pow"})
_MASKED_SELECT = frozenset({"aten::_to_copy", "aten::sum", "aten::cumsum", "aten::masked_select"})


def _rows() -> Tensor:
    return torch.randn(128, 64)


DIFFICULT = (
    Difficult("nonzero", Nonzero, _rows),
    # On the CPU a kernel finds the positions of a mask first, or sums it up.
    Difficult("boolean indexing", BooleanIndex, _rows, kernels=frozenset({"aten::nonzero"})),
    Difficult("masked_select", MaskedSelect, _rows, kernels=_MASKED_SELECT),
    Difficult("a size that is counted", Counted, _rows),
    Difficult("classes as one-hot vectors", OneHot, lambda: "32x8:int64"),
    Difficult("unique", Unique, lambda: torch.arange(256).reshape(8, 32) % 40),
    Difficult("unique of unknown ids", Unique, lambda: "8x32:int64"),
    Difficult("repeat_interleave", Segments, lambda: (_rows(), torch.tensor([20, 50, 30, 28]))),
    Difficult(
        "a known mask of unknown rows",
        KnownMask,
        lambda: (_rows(), torch.arange(128) % 3 == 0),
        kernels=frozenset({"aten::nonzero"}),
    ),
    Difficult(
        "clusters",
        Clusters,
        lambda: torch.eye(8, 64).repeat(16, 1),  # 16 rows in each
        kernels=_DISTANCES,
    ),
    Difficult("detections", Detections, lambda: torch.randn(2, 50, 64)),
)

"""Sizes and draws that are known although what they come from is not wholly."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import graphmem

MASK = torch.tensor([True, False, True, True, False, False, False, False])
"""Three of eight."""


class Selects(nn.Module):
    """Of a linear layer's rows [8, 4], those that ``select`` takes with a mask [8]."""

    def __init__(self, select: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.select = select

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        result: Tensor = self.last(self.select(self.layer(x), mask))
        return result


@pytest.mark.parametrize(
    ("select", "rows"),
    [
        (lambda y, mask: y[mask], 3),
        (lambda y, mask: y[~mask], 5),
        (lambda y, mask: y[None][:, mask][0], 3),
        (lambda y, mask: y.masked_select(mask[:, None]).view(-1, 4), 3),
        (lambda y, mask: torch.stack((y, y))[torch.ones(2, dtype=torch.bool)][1][mask], 3),
    ],
)
def test_a_known_mask_takes_as_many_rows_of_unknown_values_as_it_has(
    select: Callable[[Tensor, Tensor], Tensor], rows: int
) -> None:
    report = graphmem.analyze(Selects(select), ("8x4", MASK), target="cpu")

    last = next(row for row in report.layers if row.module == "last")
    assert last.output_bytes == rows * 4 * 4
    assert report.unknown == ()


def test_what_an_unknown_mask_takes_is_still_named() -> None:
    report = graphmem.analyze(Selects(lambda y, mask: y[mask]), ("8x4", "8:bool"), target="cpu")

    last = next(row for row in report.layers if row.module == "last")
    assert last.output_bytes == 8 * 4 * 4
    assert [unknown.assumed for unknown in report.unknown] == ["8, as many as there may be"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.empty(1).uniform_(0.0, 3.0),  # as torchvision's detectors choose a size
        lambda: torch.empty(1).normal_().abs(),
        lambda: torch.empty(1, dtype=torch.int64).random_(3),
        lambda: torch.empty(1).fill_(2.0),
        lambda: torch.empty(3).copy_(torch.arange(3))[:1],
        lambda: torch.empty(2, 2).zero_()[0],
    ],
)
def test_what_is_written_over_the_whole_of_an_empty_tensor_is_known(
    draw: Callable[[], Tensor],
) -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            times = int(draw()[0].item())
            return self.layer(torch.cat([x] * (1 + times)))

    random.seed(0)
    report = graphmem.analyze(Chooses(), "8x4", target="cpu")

    layer = next(row for row in report.layers if row.module == "layer")
    assert layer.output_bytes in {8 * 4 * 4 * (1 + times) for times in range(4)}
    assert report.unknown == ()


def test_a_part_of_an_empty_tensor_that_is_written_leaves_the_rest_unknown() -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            places = torch.empty(3, dtype=torch.int64)
            places[:2].fill_(1)
            return self.layer(x[: int(places[2])])

    with pytest.raises(graphmem.ValueNeededError, match=r"test_known_sizes\.py:\d+"):
        graphmem.analyze(Chooses(), "8x4", target="cpu")


@pytest.mark.parametrize(
    "make",
    [
        lambda y: torch.full_like(y[:, 0], 3, dtype=torch.int64),  # as detectors label a class
        lambda y: torch.ones_like(y[:, 0], dtype=torch.int64) * 3,
        lambda y: y.new_full((8,), 3, dtype=torch.int64),
        lambda y: y.new_zeros((8,), dtype=torch.int64) + 3,
        lambda y: 3 - torch.zeros_like(y[:, 0] > 0).long(),
        lambda y: 2 + y.new_ones((8,), dtype=torch.bool).long(),
    ],
)
def test_what_is_only_shaped_like_unknown_values_is_known(
    make: Callable[[Tensor], Tensor],
) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return self.last(y[: int(make(y).unique())])

    report = graphmem.analyze(Counts(), "8x4", target="cpu")

    last = next(row for row in report.layers if row.module == "last")
    assert last.output_bytes == 3 * 4 * 4
    assert report.unknown == ()


@pytest.mark.parametrize(
    "keep",
    [
        lambda scores, labels: labels[torch.where(scores > 0)[0]],  # as Faster R-CNN does
        lambda scores, labels: labels[scores > 0],
        lambda scores, labels: labels.masked_select(scores > 0),
        lambda scores, labels: labels[(scores > 0).nonzero().squeeze(1)],
    ],
)
def test_where_all_is_taken_to_be_found_its_places_are_known(
    keep: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Eight scores, of four classes: a loop over the classes that are there runs four times."""

    class EachClass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            labels = torch.arange(4).repeat(2)
            return sum(self.last(y) for _ in torch.unique(keep(y[:, 0], labels)))

    report = graphmem.analyze(EachClass(), "8x4", target="cpu", mode="inference")

    last = next(row for row in report.layers if row.module == "last")
    assert last.calls == 4 * 2
    assert {unknown.assumed for unknown in report.unknown} == {"8, as many as there may be", "all"}


def test_places_among_more_scores_than_are_worth_computing_are_known_too() -> None:
    """As RetinaNet has: 8 million scores, of which it takes a thousand and looks up classes."""

    class Detects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            places = torch.where(y[0, :1].expand(5_000_000) > 0)[0]
            return sum(self.last(y) for _ in torch.unique(places[:1000] % 4))

    report = graphmem.analyze(Detects(), "8x4", target="cpu", mode="inference")

    last = next(row for row in report.layers if row.module == "last")
    assert last.calls == 4 * 2


class Offsets(nn.Module):
    """Takes as many rows as the last of some offsets says, which it writes part by part."""

    def __init__(self, first: Callable[[Tensor], Tensor | int]) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.first = first

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y = self.layer(x)
        offsets = torch.empty(len(lengths), dtype=torch.int64)
        offsets[0] = self.first(y)
        offsets[1:] = lengths.cumsum(0)[:-1]
        result: Tensor = self.last(y[: int(offsets[-1])])
        return result


def test_memory_that_is_filled_in_parts_is_known_if_all_parts_are() -> None:
    lengths = torch.tensor([2, 3, 1])

    report = graphmem.analyze(Offsets(lambda _: 0), (torch.randn(8, 4), lengths), target="cpu")

    assert report.unknown == ()
    last = next(row for row in report.layers if row.module == "last")
    assert last.output_bytes == 5 * 4 * 4  # 2 + 3 rows


@pytest.mark.parametrize(
    ("first", "lengths"),
    [(lambda y: y.sum().int(), torch.tensor([2, 3, 1])), (lambda _: 0, "3:int64")],
)
def test_memory_with_an_unknown_part_is_unknown(
    first: Callable[[Tensor], Tensor | int], lengths: Tensor | str
) -> None:
    with pytest.raises(graphmem.ValueNeededError, match=r"test_known_sizes\.py:\d+"):
        graphmem.analyze(Offsets(first), ("8x4", lengths), target="cpu")

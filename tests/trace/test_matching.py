"""Tests of graphmem.trace.matching: patterns of modules' paths."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from graphmem.errors import UsageError
from graphmem.trace.matching import find_modules


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(4))
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return x


def paths(*patterns: str, every: int = 1) -> list[str]:
    return list(find_modules(Net(), patterns, "checkpoint", every))


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("layers.*", ["layers.0", "layers.1", "layers.2", "layers.3"]),
        ("layers.[12]", ["layers.1", "layers.2"]),
        ("layers.?.0", [f"layers.{n}.0" for n in range(4)]),
        ("*", ["head"]),  # the list of layers is not called
        ("**.1", ["layers.0.1", "layers.1", "layers.1.1", "layers.2.1", "layers.3.1"]),
        ("(top level)", ["(top level)"]),
    ],
)
def test_a_star_stays_within_a_name_and_two_do_not(pattern: str, matching: list[str]) -> None:
    assert paths(pattern) == matching


def test_patterns_add_up_in_the_order_of_the_model() -> None:
    assert paths("head", "layers.0") == ["layers.0", "head"]


def test_every_second_is_counted_from_one() -> None:
    assert paths("layers.*", every=2) == ["layers.1", "layers.3"]
    assert paths("layers.*", every=3) == ["layers.2"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("layer.*", r"no module's path matches 'layer.\*'; the nearest are layers.\*"),
        ("heads", r"matches 'heads'; the nearest are head"),
        ("zzz", r"no module's path matches 'zzz'$"),
        ("layers", r"'layers' is a ModuleList, .* did you mean 'layers.\*'"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused_with_the_nearest(
    pattern: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        paths(pattern)


def test_fewer_modules_than_are_counted_are_refused() -> None:
    with pytest.raises(UsageError, match="every 5: 4 modules match"):
        paths("layers.*", every=5)

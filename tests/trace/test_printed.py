"""Values that nobody has are printed as dots, and checks of them hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import graphmem


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (lambda y: y.detach(), "tensor(...)"),
        (lambda y: y.detach() > 0, "tensor(...)"),
        (lambda y: repr(y.detach()[0]), "tensor(...)"),
        (lambda y: repr((y > 0).sum()), "tensor(...)"),
        (lambda y: y.detach().to_sparse(), "tensor(...)"),
        (lambda y: y.detach().int().max(), "..."),
        (lambda y: f"{y.mean():.2f}", "nan"),
        (lambda y: torch.arange(3) * 2, "tensor([0, 2, 4])"),
    ],
)
def test_what_is_printed_is_dots_where_nobody_has_values(
    what: Callable[[Tensor], Any], text: str
) -> None:
    texts = set()

    class Prints(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            texts.add(f"{what(y)}")
            return cast(Tensor, y)

    # torch prints with dispatch modes off: its kernels would read a hollow tensor's memory.
    graphmem.analyze(Prints(), torch.randn(4, 8), mode="inference")

    assert texts == {text}


class Checked(nn.Module):
    """Makes sure of its values, as torch has it for code that is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        torch._check_tensor_all(y >= 0, lambda: f"there is less than nothing in {y}")
        torch._check_tensor_all(y.sum() >= 0)
        return cast(Tensor, y)


def test_a_check_of_unknown_values_holds_and_is_noted() -> None:
    report = graphmem.analyze(Checked(), torch.randn(4, 8), target="cpu")

    assert {(u.what, u.assumed) for u in report.unknown} == {("a check of values", "it holds")}
    with pytest.raises(graphmem.ValueNeededError, match=r"test_printed\.py:\d+"):
        graphmem.analyze(Checked(), torch.randn(4, 8), strict=True)


def test_a_check_of_known_values_fails_as_it_does_for_real() -> None:
    class Positive(nn.Module):
        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            torch._check_tensor_all(ids > 0, lambda: "an id is 0")
            return x * 2

    with pytest.raises(graphmem.TraceError, match="an id is 0"):
        graphmem.analyze(Positive(), (torch.randn(4), torch.arange(4)), mode="inference")

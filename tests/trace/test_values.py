"""Known values decide branches; unknown ones are asked for, with the line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem


class Masked(nn.Module):
    """Takes the short way where nothing is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.layer(x)
        if mask.all():
            return y
        return y.masked_fill(~mask.unsqueeze(-1), 0.0)


def line_of(text: str) -> int:
    lines, start = inspect.getsourcelines(Masked)
    return start + next(i for i, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(("all_ones", "fills"), [(True, 0), (False, 2)])
def test_a_mask_with_values_decides_the_branch(all_ones: bool, fills: int) -> None:
    mask = torch.ones(32, dtype=torch.bool)
    mask[3] = all_ones

    report = graphmem.analyze(Masked(), (torch.randn(32, 64), mask), timeline=True)

    assert report.timeline is not None
    assert sum("masked_fill" in p.op for p in report.timeline if p.phase == "forward") == fills


def test_a_spec_with_a_value_decides_it_too() -> None:
    report = graphmem.analyze(Masked(), ("32x64", "32:bool=1"), target="cpu")

    assert report.unknown == ()


def masks_filled(**options: Any) -> int:
    report = graphmem.analyze(Masked(), ("32x64", "32:bool"), timeline=True, **options)
    assert report.timeline is not None
    return sum("masked_fill" in p.op for p in report.timeline if p.phase == "forward")


def test_an_unknown_branch_is_not_taken_and_its_line_is_told() -> None:
    report = graphmem.analyze(Masked(), ("32x64", "32:bool"), target="cpu")

    (unknown,) = report.unknown
    assert unknown.where == f"tests/trace/test_values.py:{line_of('if mask.all()')}"
    assert unknown.assumed == "the value is False"
    assert masks_filled() == 2  # one of each step


def test_what_the_user_says_of_a_line_decides_its_branch() -> None:
    line = f"test_values.py:{line_of('if mask.all()')}"

    assert masks_filled(assume={line: True}) == 0
    assert masks_filled(assume={line: False}) == 2


@pytest.mark.parametrize(
    ("assume", "says"),
    [
        ({"test_values.py:1": True}, "test_values.py:1: no value was asked for there"),
        ({"here": True}, "'here' is not a line such as model.py:12"),
        ({"x.py:1": "yes"}, "x.py:1: 'yes' is not a truth value or a number"),
    ],
)
def test_what_the_user_says_must_be_of_a_line_that_asks(assume: Any, says: str) -> None:
    with pytest.raises(graphmem.UsageError, match=says):
        graphmem.analyze(Masked(), ("32x64", "32:bool"), assume=assume)


def test_a_strict_analysis_names_the_line_of_a_branch_and_what_to_give() -> None:
    with pytest.raises(graphmem.ValueNeededError) as caught:
        graphmem.analyze(Masked(), ("32x64", "32:bool"), strict=True)

    message = str(caught.value)
    assert f"tests/trace/test_values.py:{line_of('if mask.all()')}" in message
    assert "example value" in message
    assert "\n" not in message


@pytest.mark.parametrize("way", ["tolist", "numpy", "int", "nonzero", "index"])
def test_every_way_to_a_value_is_refused_in_one_line(way: str) -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            if way == "tolist":
                y.tolist()
            elif way == "numpy":
                y.detach().numpy()
            elif way == "int":
                torch.zeros(int(y.sum()))
            elif way == "nonzero":
                torch.nonzero(y)
            else:
                y[y > 0].sum()
            return y

    with pytest.raises(graphmem.ValueNeededError, match=r"test_values\.py:\d+"):
        graphmem.analyze(Looks(), torch.randn(4, 4), strict=way != "int")


def test_shape_arithmetic_on_known_integers_is_computed() -> None:
    class Cuts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            longest = int(lengths.max())
            keep = torch.nonzero(lengths > 3).flatten()
            return self.layer(x[keep, :longest])

    lengths = torch.tensor([2, 5, 7, 3])
    report = graphmem.analyze(Cuts(), (torch.randn(4, 10, 16), lengths), timeline=True)

    layer = next(row for row in report.layers if row.module == "layer")
    assert layer.output_bytes == 2 * 7 * 16 * 4  # two of them are longer than 3, at most 7


class Strided(nn.Module):
    """Holds numbers beside its weights, as detectors do for their strides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.strides = torch.tensor([8.0, 16.0])
        self.of_weight = self.layer.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        rows = int(self.strides[1] / 4)
        scale = x.new_full((rows, 64), self.strides[0])  # type: ignore[arg-type]
        return self.layer(x)[:rows] * scale + self.of_weight


def test_numbers_that_a_module_holds_have_their_values() -> None:
    model = Strided()
    strides = model.strides
    report = graphmem.analyze(model, "32x64", mode="inference", target="cpu", timeline=True)
    assert report.unknown == ()
    assert report.timeline is not None
    points = [(point.op, point.allocated_bytes) for point in report.timeline]
    filled = next(i for i, (op, _) in enumerate(points) if op == "aten.new_full")
    assert points[filled][1] - points[filled - 1][1] == 4 * 64 * 4  # 16.0 / 4 = 4 rows, 4 B
    assert model.strides is strides
    assert strides.tolist() == [8.0, 16.0]


def test_a_logged_loss_is_no_branch() -> None:
    model = nn.Linear(8, 8)
    log = []

    def step() -> None:
        loss = model(torch.randn(4, 8)).mean()
        loss.backward()
        log.append(f"{loss.item():.3f} {loss.item() * 2 + 1}")

    report = graphmem.record(step)

    assert log == ["nan nan", "nan nan"]
    assert any("item" in unknown.what for unknown in report.unknown)


@pytest.mark.parametrize("is_good", [lambda x: x.item() < 10, lambda x: math.isfinite(x.item())])
def test_a_loss_that_is_checked_is_good(is_good: Callable[[Tensor], bool]) -> None:
    """The first is turned because the run fails on it; an unknown number is finite."""
    model = nn.Linear(8, 8)

    def step() -> None:
        loss = model(torch.randn(4, 8)).mean()
        if not is_good(loss):
            raise RuntimeError("diverged")
        loss.backward()

    report = graphmem.record(step)

    assert report.breakdown["gradients"] > 0
    assert any("item" in unknown.what for unknown in report.unknown)
    with pytest.raises(graphmem.TraceError, match="unreachable"):
        graphmem.record(_fails_both_ways)


def _fails_both_ways() -> None:
    if torch.relu(nn.Linear(8, 8)(torch.randn(4, 8))).mean() > 10:
        raise RuntimeError("large")
    raise RuntimeError("unreachable")


def test_a_comparison_of_a_logged_loss_is_named() -> None:
    model = nn.Linear(8, 8)
    best: list[float] = []

    def step() -> None:
        loss = model(torch.randn(4, 8)).mean()
        if loss.item() > 10:
            best.append(loss.item())

    report = graphmem.record(step)

    assert best == []
    assert any("comparison" in unknown.what for unknown in report.unknown)


def test_a_count_is_at_most_what_is_counted() -> None:
    class Counts(nn.Module):
        def __init__(self, changes: bool) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.changes = changes

        def forward(self, x: Tensor) -> Tensor:
            positive = (self.layer(x) > 0).sum(1)  # of 4 columns
            if self.changes:
                positive += 100
            return x.new_zeros(int(positive.max()), 4)

    report = graphmem.analyze(Counts(changes=False), "8x4", mode="inference", target="cpu")

    assert [unknown.assumed for unknown in report.unknown] == ["4, as large as it may be"]
    with pytest.raises(graphmem.ValueNeededError):  # what it is changed to is not followed
        graphmem.analyze(Counts(changes=True), "8x4", mode="inference", target="cpu")


def test_what_is_taken_of_known_numbers_is_at_most_their_largest() -> None:
    """As graph networks pool nodes: the graph of each that is left, wherever they are."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: Tensor, graphs: Tensor) -> Tensor:
            left = self.layer(x).squeeze(1).argsort()[:4]
            return x.new_zeros(int(graphs[left][:2].max()) + 1, 4)

    graphs = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    report = graphmem.analyze(Pooled(), (torch.randn(8, 4), graphs), mode="inference", target="cpu")
    assert [unknown.assumed for unknown in report.unknown] == ["2, as large as it may be"]

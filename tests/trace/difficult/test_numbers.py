"""What can't be held to a real run, by hand."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphmem
from graphmem.measure.cpu import verify
from tests.trace.difficult import (
    branches,
    caches,
    custom,
    layouts,
    loops,
    parallel,
    routing,
    sizes,
    wrapped,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, of its own old or unfinished parts

ROW = 64 * 4  # bytes of one token, or one row
LAYER = (64 * 64 + 64) * 4


def inference(model: nn.Module, inputs: Any, **options: Any) -> graphmem.Report:
    return graphmem.analyze(model, inputs, mode="inference", target="cpu", **options)


def line_in(module: Any, text: str) -> str:
    """The line of a module's file that a text is first on, as ``assume`` names it."""
    lines = inspect.getsource(module).splitlines()
    name = module.__name__.rsplit(".", 1)[-1]
    return f"{name}.py:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def rows_of_experts(model: nn.Module, how: str) -> list[int]:
    """The rows that each expert is given."""
    report = inference(model, "128x64", routing=how)
    found = {row.module: row.output_bytes for row in report.layers}
    return [found.get(f"experts.{number}", 0) // ROW for number in range(routing.EXPERTS)]


@pytest.mark.parametrize(
    "kind", [routing.ByMask, routing.ByComparison, routing.BySorting, routing.ByCounting]
)
def test_tokens_go_around_or_nearly_all_to_the_same_experts(kind: type[nn.Module]) -> None:
    # 128 tokens choose 2 of 4 experts.
    assert rows_of_experts(kind(), "balanced") == [64, 64, 64, 64]
    # The first 4 choices go around; the other 252 are the third and the fourth in turn.
    assert rows_of_experts(kind(), "worst") == [1, 1, 127, 127]


def test_what_routing_rests_on_is_said_once_and_refused_if_strict() -> None:
    report = inference(routing.ByMask(), "128x64")

    (unknown,) = report.unknown
    assert unknown.what == "which of unknown scores are the largest"
    assert unknown.where.endswith(line_in(routing, "weights, chosen = self.router(x)"))
    with pytest.raises(graphmem.ValueNeededError, match=r"routing\.py:\d+"):
        inference(routing.ByMask(), "128x64", strict=True)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_grouped_product_of_any_dtype(precision: str) -> None:
    size = 4 if precision == "fp32" else 2
    report = inference(routing.Grouped(), "128x64", precision=precision)
    made = [h for h in report.holders if h.op == "aten._grouped_mm"]
    assert [h.bytes for h in made] in ([128 * 2 * 64 * size], [])
    assert report.breakdown["parameters"] == (4 * 64 * 64 + 4 * 64) * size


@pytest.mark.parametrize(
    ("precision", "width", "nbytes"),
    [
        # Rows of 12 bytes are padded to 16, but for the last: 7 * 16 + 12
        ("fp32", 84, 7 * 16 + 12),
        ("bf16", 88, 7 * 16 + 6),
    ],
)
def test_rows_of_a_grouped_product_are_padded_to_16_bytes(
    precision: str, width: int, nbytes: int
) -> None:
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 3, width))

        def forward(self, x: Tensor) -> Tensor:
            ends = torch.tensor([4, 8], dtype=torch.int32)
            return F.grouped_mm(x, self.weight.mT, offs=ends)

    x = torch.randn(8, width)
    report = graphmem.analyze(Narrow(), x, mode="inference", precision=precision, target="cpu")

    made = [h.bytes for h in report.holders if h.op == "aten._grouped_mm"]
    assert set(made) == {nbytes}
    real = F.grouped_mm(x, torch.randn(2, 3, width).mT, offs=torch.tensor([4, 8]).int())
    assert precision != "fp32" or real.untyped_storage().nbytes() == nbytes


def test_a_loop_that_data_ends_runs_as_often_as_is_said() -> None:
    def saved(**options: Any) -> int:
        report = graphmem.analyze(branches.Halting(), "128x64", target="cpu", **options)
        return sum(row.saved_bytes for row in report.layers)

    once, thrice = saved(), saved(trip_count=3)
    # Each round keeps tanh's result [128, 64] and that of sigmoid [128, 1] for backward.
    assert thrice - once == 2 * (128 * 64 + 128) * 4
    assert saved(assume={line_in(branches, "while (total"): 3}) == thrice


def test_an_early_exit_goes_through_all_blocks_unless_it_is_said() -> None:
    def calls(**options: Any) -> int:
        report = inference(branches.EarlyExit(), "128x64", **options)
        return sum(row.calls for row in report.layers if row.module.startswith("blocks"))

    assert calls() == 2 * 4  # two steps of four blocks
    assert calls(assume={line_in(branches, "scores.max()"): True}) == 2


def test_a_size_is_its_bound_unless_it_is_said() -> None:
    def peak(**options: Any) -> int:
        return inference(sizes.MaskedSelect(), "128x64", **options).peak.requested_bytes

    line = line_in(sizes, "torch.masked_select")
    layers = LAYER + 2 * 128 * ROW  # with input and output
    # All: the selected, their squares and those of the step before. 1,000: the first and the
    # last, while there is a mask.
    assert peak() == layers + 3 * 8192 * 4
    assert peak(assume={line: 1000}) == layers + 2 * 1000 * 4 + 8192


def test_distinct_ids_are_as_many_as_there_are_ids_at_most() -> None:
    report = inference(sizes.Unique(), "8x32:int64")

    (unknown,) = report.unknown
    assert unknown.assumed == "256, as many as there may be"
    rows = next(row for row in report.layers if row.module == "table")
    assert rows.output_bytes == 256 * ROW


@pytest.mark.parametrize(("known", "entries"), [(True, 400), (False, 10_000)])
def test_a_product_of_sparse_matrices_has_an_entry_for_each_path(known: bool, entries: int) -> None:
    """Two entries in each of 100 rows: four ways of two steps, or all pairs if nobody knows."""
    rows, columns = 2 * torch.arange(101), torch.arange(200) % 100
    places: tuple[Any, ...] = (rows, columns) if known else ("101:int64", "200:int64")
    report = inference(layouts.TwoSteps(), (*places, "100x64"), timeline=True)
    assert report.timeline is not None
    held = [(point.op, point.allocated_bytes) for point in report.timeline]
    product = next(i for i, (op, _) in enumerate(held) if op == "aten.mm")
    # 101 offsets of 8 B, a column of 8 B and a value of 4 B for each entry
    assert held[product][1] - held[product - 1][1] == 101 * 8 + entries * (8 + 4)
    told = [one.assumed for one in report.unknown if "sparse matrices" in one.what]
    assert told == ([] if known else ["10000, as many as there may be"])


def test_a_sparse_matrix_is_its_indices_and_values() -> None:
    dense = LAYER + 100 * ROW * 5  # input, layer, zeros, result and that of the step before
    coo, csr = (layouts.GraphConvolution(csr=by_rows) for by_rows in (False, True))
    x = torch.randn(100, 64)

    assert inference(coo, x).peak.requested_bytes == dense + 2 * 100 * 8 + 100 * 4
    assert inference(csr, x).peak.requested_bytes == dense + (101 + 100) * 8 + 100 * 4


def test_nested_tensors_of_the_old_layout_are_refused_in_one_line() -> None:
    class Nested(nn.Module):
        def forward(self, rows: list[Tensor]) -> Tensor:
            return torch.nested.to_padded_tensor(torch.nested.as_nested_tensor(rows), 0.0)

    with pytest.raises(graphmem.UnsupportedOpError, match=r"layout=torch\.jagged"):
        inference(Nested(), ([torch.randn(3, 4), torch.randn(2, 4)],))


def test_packed_weights_are_counted() -> None:
    report = inference(wrapped.dynamic_quantized(), "32x64")

    # Two layers: a byte for each weight, four for each bias.
    assert report.breakdown["parameters"] == (64 * 128 + 128 * 4) + (128 * 64 + 64 * 4)


@pytest.mark.parametrize(
    "made", [wrapped.scripted, wrapped.traced, wrapped.skipped, wrapped.on_meta]
)
def test_another_way_to_the_same_layers_takes_the_same(made: Any) -> None:
    plain = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    report, expected = (graphmem.analyze(m, "32x64", target="cpu") for m in (made(), plain))

    assert report.peak.requested_bytes == expected.peak.requested_bytes
    assert report.breakdown == expected.breakdown


def test_lazy_layers_take_what_they_become() -> None:
    ready = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Linear(128, 64))

    report, expected = (graphmem.analyze(m, "32x64") for m in (wrapped.lazy(), ready))

    assert report.peak == expected.peak
    assert report.subject.parameters == expected.subject.parameters


def test_weight_norm_by_a_hook_keeps_length_and_direction() -> None:
    report = graphmem.analyze(wrapped.weight_norm_by_hook(), "32x64", target="cpu")

    first = 128 * 64 + 128 + 128  # directions, a length for each row, the bias
    assert report.subject.parameters == first + 128 * 64 + 64


def test_spectral_norm_by_a_hook_is_computed_in_each_forward() -> None:
    report = graphmem.analyze(wrapped.spectral_norm_by_hook(), "32x64", timeline=True)

    assert report.subject.parameters == 128 * 64 + 128 + 128 * 64 + 64
    assert report.timeline is not None
    weights = [p for p in report.timeline if p.op == "aten.div.Tensor" and p.phase == "forward"]
    assert len(weights) >= 2  # weight / sigma, in each of two steps


def test_ddp_holds_gradients_twice() -> None:
    report = graphmem.record(parallel.distributed(), target="cpu")

    model = (64 * 128 + 128 + 128 * 64 + 64) * 4
    # Weights, gradients and the bucket that they are sent in; in backward the input [32, 64],
    # the gradient before the relu [32, 128], the loss and its gradient.
    assert report.peak.requested_bytes == 3 * model + 32 * 64 * 4 + 32 * 128 * 4 + 2 * 4


def test_a_rule_gives_results_and_scratch() -> None:
    halves = inference(custom.WithoutFake(), "32x64")
    foreign = inference(custom.Foreign(), "32x64")

    # Input, layer, half of it, and that of the step before.
    assert halves.peak.requested_bytes == LAYER + 32 * ROW * 3
    # The same of whole results, and 4 B for each of 32 rows.
    assert foreign.peak.requested_bytes == LAYER + 32 * ROW * 4 + 4 * 32


@pytest.mark.parametrize("name", ["halves", "a::b::c", "no spaces.here", ""])
def test_a_rule_must_name_an_operator_or_a_function(name: str) -> None:
    with pytest.raises(graphmem.UsageError, match="neither an operator"):
        graphmem.register_rule(name)


def test_a_cache_that_grows_is_concatenated_and_one_that_stands_is_not() -> None:
    def holders(make: Any) -> set[tuple[int, ...]]:
        report = graphmem.record(make(), target="cpu", steps=1)
        return {h.shape for h in report.holders}

    # 2 sequences, 4 heads of 8: the prompt of 8 and 15 tokens, or room for 24.
    assert (2, 4, 23, 8) in holders(caches.growing)
    assert (2, 4, 24, 8) in holders(caches.static)


def test_batches_of_a_dataset_are_copied_and_the_dataset_stays_on_the_host() -> None:
    report = graphmem.record(loops.prefetched())

    held = [h for h in report.holders if h.shape == (32, 64)]
    assert not [h for h in report.holders if h.shape == (128, 64) and h.op != "aten.mm"][2:]
    assert len(held) >= 4  # inputs and targets of this batch and of the next


def test_a_real_run_goes_around_where_the_router_does() -> None:
    """The balanced choice is what ``tokens`` make the router choose for real."""
    model = routing.ByMask()
    _, chosen = model.route(routing.tokens())

    assert torch.bincount(chosen.flatten()).tolist() == [64] * 4
    result = verify(model, routing.tokens(), mode="inference")
    assert abs(result.difference_bytes) <= 64

"""What CUDA's gradients of embeddings and of indexing allocate beside their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import graphmem
from graphmem.snapshots import Action, Sites, load
from graphmem.targets.cuda import cub
from tests.targets.scratch_calls import A100, H100, ids, meta, peak, scratch_of

aten = torch.ops.aten
SNAPSHOTS = Path(__file__).resolve().parents[3] / "shared" / "truth" / "snapshots"


# -- embeddings


def embedding(
    tokens: int, rows: int, width: int, dtype: torch.dtype = torch.float32
) -> tuple[Any, ...]:
    return meta(tokens, width, dtype=dtype), ids(tokens), rows, -1, False


def test_few_indices_are_added_directly() -> None:
    for gpu in (A100, H100):
        call = embedding(3072, 50257, 768)
        assert scratch_of(aten.embedding_dense_backward.default, *call, gpu=gpu) == ()
    assert scratch_of(aten.embedding_dense_backward.default, *embedding(3073, 50257, 768))


def test_a_gradient_that_is_not_contiguous_is_copied() -> None:
    grad = meta(64, 100).t()
    found = scratch_of(aten.embedding_dense_backward.default, grad, ids(100), 10, -1, False)
    assert found == ((4 * 6400,),)


def test_many_indices_are_sorted_and_summed_in_parts() -> None:
    """16,384 tokens of 4,096 wide rows, 32,000 of them: 1,638 + 16,384 partial rows of fp32."""
    found = scratch_of(
        aten.embedding_dense_backward.default,
        *embedding(16384, 32000, 4096, torch.bfloat16),
    )
    tokens = 8 * 16384
    sort, unique, offsets, last = found
    assert sort == (tokens,) * 3 + (cub.radix_sort(16384, 8, 8, 64, A100),)
    assert unique == (tokens,) * 3 + (8, tokens, cub.unique_by_key(16384, A100))
    assert offsets == (tokens,) * 3 + (8, tokens, tokens, cub.scan(16384, 8))
    partials = 1638 + 16384
    assert last == (tokens,) * 3 + (8, tokens, tokens, 8, 8 * partials, 4 * 4096 * partials)
    assert last[-1] == 295272448  # 282 MiB


def test_few_rows_are_added_at_once_into_an_fp32_table() -> None:
    """512 positions of 768 wide rows: 512 blocks need more than 108 * 4 = 432; 128 do not."""
    grad, index = meta(16384, 768), ids(16384)
    backward = aten.embedding_dense_backward.default
    wide = scratch_of(backward, grad, index, 512, -1, False)
    assert wide[-1][-1] == 4 * 768 * (1638 + 512)
    # A block has 768 threads, so 128 rows are 128 blocks, and 1,638 + 128 > 4 * 128.
    few = scratch_of(backward, grad, index, 128, -1, False)
    assert few[-1][-1] == 8 * (1638 + 128)
    half = scratch_of(backward, grad.to(torch.bfloat16), index, 128, -1, False)
    assert half[-1][-2:] == (8 * (1638 + 128), 4 * 128 * 768)


def test_deterministic_algorithms_add_nothing_at_once() -> None:
    call = embedding(16384, 128, 768)
    torch.use_deterministic_algorithms(True)
    try:
        found = scratch_of(aten.embedding_dense_backward.default, *call)
    finally:
        torch.use_deterministic_algorithms(False)
    assert found[-1][-1] == 4 * 768 * (1638 + 128)


def test_bags_are_always_sorted() -> None:
    bags, n = 4, 100
    result = meta(1000, 16)
    args = (meta(bags, 16), ids(n), ids(n), ids(bags), ids(bags), 1000, False, 0, None)
    found = scratch_of(aten._embedding_bag_dense_backward.default, *args, result=result)
    assert found[0] == (800, 800, 800, 1)
    assert found[-1][-1] == 4 * 16 * (10 + 100)


def test_the_backward_of_a_module_of_bags_sorts() -> None:
    """No operator of it is left that nobody looked at."""

    class Bags(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(1000, 16, mode="sum")

        def forward(self, index: Tensor) -> Tensor:
            sums: Tensor = self.bag(index)
            return sums

    index = torch.zeros(64, 64, dtype=torch.int64)
    report = graphmem.analyze(Bags(), index, optimizer="sgd", device="A100-80GB")
    assert report.unknown == ()
    # Of 4,096 indices 409 partial rows of ten, 1,000 others: their sums and beginnings; three
    # tensors of all indices, two of all rows, two counters.
    partial = 409 + 1000
    assert report.peak.op == "aten._embedding_bag_backward"
    assert report.breakdown["workspaces"] == (
        4 * 16 * partial + 8 * partial + 3 * 8 * 4096 + 2 * 8 * 1000 + 2 * 8
    )


# -- accumulated indices


def test_accumulated_values_sort_linear_indices() -> None:
    """Seen for [4, 512] ids into [10000, 1024]: 16,384 B each, and 1 B of cub's."""
    table, values = meta(10000, 1024), meta(4, 512, 1024)
    found = scratch_of(aten._index_put_impl_.default, table, [ids(4, 512)], values, True, True)
    assert found == ((16384, 16384), (16384, 16384, 16384, 16384, 1))


def test_more_indices_take_cubs_copies_of_keys_and_values() -> None:
    # 10,000 rows have 14 bits: two passes.
    table, values = meta(10000, 1024), meta(8192, 1024)
    found = scratch_of(aten.index_put_.default, table, [ids(8192)], values, True)
    temporary = cub.radix_sort(8192, 8, 8, 14, A100)
    assert temporary == 2 * 2048 + 3 * 1024 + 2 * 65536 + 256 + 255
    assert found[-1] == (65536,) * 4 + (temporary,)


def test_without_accumulation_nothing_is_sorted() -> None:
    table, values = meta(10000, 1024), meta(8192, 1024)
    assert scratch_of(aten.index_put_.default, table, [ids(8192)], values) == ()


def test_two_indexed_dimensions_are_added_up() -> None:
    """A linear index, and the remainder and the product of the second, each 8 B a line."""
    values = meta(100)
    found = scratch_of(aten.index_put_.default, meta(50, 60), [ids(100), ids(100)], values, True)
    assert found[:2] == ((800, 800), (800, 800, 800))


def test_values_that_broadcast_are_copied() -> None:
    found = scratch_of(aten.index_put_.default, meta(50, 60), [ids(100)], meta(60), True)
    assert found[-1] == (800, 4 * 6000, 800, 800, 800, 1)


def test_a_mask_becomes_positions() -> None:
    """30 of 1,000 rows are selected: a count, cub's storage, then an int64 for each."""
    mask, chosen = meta(1000, dtype=torch.bool), meta(30, 64)
    found = scratch_of(aten.index.Tensor, meta(1000, 64), [mask], result=chosen)
    assert found == ((4, 1), (4, cub.select_flagged(1000, A100), 240), (240,))


def test_masked_select_broadcasts() -> None:
    mask, chosen = meta(10, 1, dtype=torch.bool), meta(200)
    found = scratch_of(aten.masked_select.default, meta(10, 100), mask, result=chosen)
    assert found[-1] == (200 * 2 * 8,)


def test_masked_scatter_counts_for_each_element() -> None:
    """Image tokens into [8, 1024, 512] embeddings: 8 B an element, and the expanded mask."""
    mask = meta(8, 1024, 1, dtype=torch.bool).expand(8, 1024, 512)
    embeddings = meta(8, 1024, 512, dtype=torch.bfloat16)
    images = meta(100, 512, dtype=torch.bfloat16)
    found = scratch_of(aten.masked_scatter.default, embeddings, mask, images)
    elements = 8 * 1024 * 512
    assert found[0] == (8 * elements, elements, cub.scan(elements, 8))
    assert peak(found) == 8 * elements + elements + cub.scan(elements, 8)


def test_int32_indices_are_converted() -> None:
    index = meta(7, dtype=torch.int32)
    assert scratch_of(aten.index.Tensor, meta(10, 3), [index]) == ((56,),)


def test_a_scattered_mean_counts() -> None:
    """Messages of 500 edges to 20 nodes: ones for each, counts, and where those are 0."""
    nodes, edges, where = meta(20, 8), meta(500, 8), ids(500, 8)
    reduce = aten.scatter_reduce.two
    assert scratch_of(reduce, nodes, 0, where, edges, "mean") == ((16000, 640, 160),)
    assert scratch_of(reduce, nodes, 0, where, edges, "sum") == ()


@pytest.mark.skipif(not SNAPSHOTS.exists(), reason="no ../shared/truth/snapshots")
def test_a_snapshot_has_the_same_blocks_in_the_same_order() -> None:
    """The gradient of indexing the decoder's table of 10,000 words with [4, 512] ids."""
    trace = load(SNAPSHOTS / "lm423m-ctx512-train-bf16-autocast.pickle").devices[0]
    sites = Sites()
    allocated = [entry for entry in trace.entries if entry.action is Action.ALLOC]
    kernels = [sites.of(entry.frames).kernel for entry in allocated]
    last = kernels.index("radix_sort_pairs_impl")
    seen = [entry.size for entry in allocated[last - 5 : last + 1]]

    table, values = meta(10000, 1024), meta(4, 512, 1024)
    first, second = scratch_of(
        aten._index_put_impl_.default, table, [ids(4, 512)], values, True, True
    )
    # The product of the first stage is the linear index of the second.
    assert seen == [*first, *second[1:]]

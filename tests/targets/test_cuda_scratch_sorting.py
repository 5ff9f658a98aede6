"""What CUDA's sorts, selections, scans and draws allocate beside their results."""

from __future__ import annotations

import torch

from graphmem import devices
from graphmem.targets.cuda import cub
from tests.targets.scratch_calls import A100, ids, meta, scratch_of

aten = torch.ops.aten
GNN_GPU = devices.find("A100-80GB")


def test_short_rows_are_sorted_in_place() -> None:
    assert scratch_of(aten.sort.default, meta(100, 4096)) == ((8 * 4096,),)


def test_one_long_row_is_sorted_with_its_indices() -> None:
    found = scratch_of(aten.sort.default, meta(100_000))
    assert found == ((800_000, cub.radix_sort(100_000, 4, 8, 32, A100)),)


def test_few_long_rows_are_sorted_by_value_and_then_by_row() -> None:
    """4 rows of 50,257: pairs of index and row, twice, and keys that are dropped."""
    n = 4 * 50257
    by_value = cub.radix_sort(n, 4, 8, 32, A100)
    by_row = cub.radix_sort(n, 8, 0, 2, A100)
    found = scratch_of(aten.sort.default, meta(4, 50257), -1, True)
    assert found == ((8 * n, 8 * n, 4 * n, by_value), (8 * n, 8 * n, by_row))


def test_many_long_rows_are_segments() -> None:
    n = 256 * 5000
    found = scratch_of(aten.sort.default, meta(256, 5000))
    assert found == ((8 * n, cub.segmented_sort(n, 4, 8)),)


def test_another_dimension_is_sorted_on_copies() -> None:
    """Of the input, and of values and indices, as those lie like the input."""
    n = 5000 * 256
    found = scratch_of(aten.sort.default, meta(5000, 256), 0)
    assert found == ((4 * n, 4 * n, 8 * n, 8 * n, cub.segmented_sort(n, 4, 8)),)


def test_the_largest_of_few_are_found_without_scratch() -> None:
    """A router of 64 experts for 8,192 tokens; 2,000 would be shared by blocks."""
    assert scratch_of(aten.topk.default, meta(8192, 64), 8) == ()
    assert scratch_of(aten.topk.default, meta(100, 4000), 8) == ()


def test_the_largest_of_long_rows_are_counted_in_blocks() -> None:
    """Seen on an A100, one row: 4, 8, 8, 16,384 for 32 blocks, 128, 128 and 1,279 B.

    Newer ones also have the sums of 256 digits. 6 blocks fit a multiprocessor by registers,
    so up to 165,888 elements threads have the least of them, 4: blocks of 1,024.
    """
    found = scratch_of(aten.topk.default, meta(32000), 5, gpu=GNN_GPU)
    assert found == ((4, 8, 8, 32 * 512, 1024, 128, 128, 1279),)


def test_scans_of_vectors_and_of_masks() -> None:
    assert scratch_of(aten.cumsum.default, meta(1000), 0) == ((cub.scan(1000, 4),),)
    assert scratch_of(aten.cumsum.default, meta(8, 1000), 1) == ()
    # A mask is converted to int64 first.
    assert scratch_of(aten.cumsum.default, meta(8, 1000, dtype=torch.bool), 1) == ((64000,),)


def test_the_median_of_all_sorts() -> None:
    assert scratch_of(aten.median.default, meta(100)) == ((400, 800, 800),)
    assert scratch_of(aten.median.dim, meta(10, 10).t(), 0) == ((400,),)


def test_draws() -> None:
    weights = meta(8, 50257)
    assert scratch_of(aten.multinomial.default, weights, 1) == ((4 * 8 * 50257,),)
    assert scratch_of(aten.multinomial.default, weights, 5, True) == ((4 * 8 * 50257,) * 3,)
    assert scratch_of(aten.multinomial.default, weights, 5) == ((4 * 8 * 50257, 4 * 40),)


def test_a_permutation_sorts_random_keys() -> None:
    """Of 10,000: 10,000 + 6e8 / (12 log (1/0.9)) = 474,571,080 need keys of 29 bits."""
    found = scratch_of(aten.randperm.default, 10_000, device="meta", dtype=torch.int64)
    storage = cub.radix_sort(10_000, 4, 8, 29, A100)
    assert found == ((80_000, 40_000, 40_000, storage),)


def test_a_count_of_what_is_not_zero() -> None:
    found = scratch_of(aten.nonzero.default, meta(100_000, dtype=torch.bool), result=ids(7, 1))
    assert found == ((4, 17663), (4, 1279))


def test_interpolation_copies_what_is_neither_row_major_nor_channels_last() -> None:
    image = meta(2, 3, 8, 8)
    upsample = aten.upsample_bilinear2d.default
    assert scratch_of(upsample, image, [16, 16], False) == ()
    last = image.to(memory_format=torch.channels_last)
    assert scratch_of(upsample, last, [16, 16], False) == ()
    turned = image.transpose(2, 3)
    assert scratch_of(upsample, turned, [16, 16], False) == ((4 * 384,),)

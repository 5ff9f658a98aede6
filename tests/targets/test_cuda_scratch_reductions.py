"""What CUDA's reductions allocate beside their results."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem.devices import Gpu
from graphmem.snapshots import Action, Sites, load
from tests.targets.scratch_calls import A100, H100, RTX4090, meta, scratch_of

aten = torch.ops.aten
TRUTH = Path(__file__).resolve().parents[3] / "shared" / "truth"


def columns(rows: int, size: int, **kwargs: Any) -> Tensor:
    """[rows, size], where the elements of a column lie one after another."""
    return meta(size, rows, **kwargs).t()


@pytest.mark.parametrize(
    ("tensor", "gpu", "buffer", "counters"),
    [
        # Bias gradients of an ALBERT: vectors of 4 outputs, blocks of 32 x 4 threads, so
        # 2048/4 = 512 values a thread and 4096/128 = 32 blocks. 512/16 = 32 of them share a
        # column: 4 B * 4096 * 32 * 128.
        (meta(2048, 4096), A100, 67108864, 4 * 32),
        # 16384/128 = 128 blocks; 108 multiprocessors * 2048/128 threads give room for
        # 1728/128 = 13.5, so 14 blocks share a column: 4 * 16384 * 14 * 128.
        (meta(2048, 16384), A100, 117440512, 4 * 128),
        # 1536 threads a multiprocessor: 128 * 12 / 128 = 12 share: 4 * 16384 * 12 * 128.
        (meta(2048, 16384), RTX4090, 100663296, 4 * 128),
        # Fewer than 256 values a thread: nothing is split.
        (meta(1020, 4096), A100, None, None),
    ],
)
def test_a_sum_over_rows_is_split_over_blocks(
    tensor: Tensor, gpu: Gpu, buffer: int | None, counters: int | None
) -> None:
    expected = () if buffer is None else ((buffer, counters),)
    assert scratch_of(aten.sum.dim_IntList, tensor, [0], gpu=gpu) == expected


def test_a_total_is_split_over_blocks() -> None:
    # 524288 / 4 / 512 threads is 256 vectors; blocks of 512 read 1024 values a thread, so
    # 1024/16 = 64 blocks, which leave 4 B each, for one output.
    assert scratch_of(aten.sum.default, meta(524288)) == ((4 * 64, 4),)
    # Room for 4 * 108 = 432 blocks, but 1 << 26 values / 512 threads / 256 are 512 blocks.
    assert scratch_of(aten.mean.default, meta(1 << 26)) == ((4 * 512, 4),)


def test_a_sum_over_the_last_dimension_is_not() -> None:
    """Each row has threads of its own, and rows enough fill the GPU."""
    assert scratch_of(aten.sum.dim_IntList, meta(4096, 1024), [1]) == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_partial_sums_of_half_types_are_fp32(dtype: torch.dtype) -> None:
    half = scratch_of(aten.sum.dim_IntList, meta(2048, 4096, dtype=dtype), [0])
    assert half == scratch_of(aten.sum.dim_IntList, meta(2048, 4096), [0])
    maxima = scratch_of(aten.amax.default, meta(2048, 4096, dtype=dtype), [0])
    assert maxima == ((2 * 4096 * 32 * 128, 4 * 32),)  # two bytes each


def test_maxima_with_their_indices_take_16_bytes_each() -> None:
    """Seen: 512 rows of 10,000 values, [4, 128, 10000] with its rows innermost."""
    # 512/4/32 = 4 blocks; 10000/4 = 2500 values a thread, 2500/16 = 157 blocks a column.
    logits = columns(512, 10000)
    assert scratch_of(aten.max.dim, logits, -1) == ((16 * 512 * 157 * 128, 4 * 4),)
    assert 16 * 512 * 157 * 128 == 164626432
    assert scratch_of(aten.argmax.default, logits, -1) == ((164626432, 16),)
    assert scratch_of(aten.amax.default, logits, [-1]) == ((41156608, 16),)


def test_moments_take_16_bytes_each_and_read_two_values_at_a_time() -> None:
    assert scratch_of(aten.var.correction, meta(2048, 4096), [0]) == (
        (16 * 4096 * 32 * 128, 4 * 32),
    )
    # 32768 values are 16384 vectors for 512 threads; 64 values a thread are too few.
    assert scratch_of(aten.var_mean.correction, meta(32768)) == ()


def test_an_input_of_another_dtype_is_copied() -> None:
    mask = meta(4, 100, dtype=torch.bool)
    assert scratch_of(aten.sum.dim_IntList, mask, [1]) == ((8 * 400,),)
    wide = meta(4, 100, dtype=torch.bfloat16)
    assert scratch_of(aten.sum.dim_IntList, wide, [1], dtype=torch.float32) == ()
    assert scratch_of(aten.sum.dim_IntList, wide, [1], dtype=torch.float64) == ((8 * 400,),)
    # (x != 0) and its copy as int64.
    assert scratch_of(aten.count_nonzero.dim_IntList, wide, [1]) == ((400, 8 * 400),)


def test_any_reads_the_input_as_it_is() -> None:
    assert scratch_of(aten.any.default, meta(4, 100)) == ()
    # Vectors of 4 over 1 << 20 values, blocks of 512 threads, 2048 values a thread: 128 blocks.
    assert scratch_of(aten.any.default, meta(1 << 20)) == ((128, 4),)


def test_logsumexp_keeps_maxima_and_exponentials() -> None:
    rows = meta(64, 1000)
    assert scratch_of(aten.logsumexp.default, rows, [1]) == ((4 * 64,), (4 * 64, 4 * 64000))


def test_a_tensor_beyond_32_bit_offsets_is_reduced_in_parts() -> None:
    """Two parts of 2 GiB each, one after another, with partial results in the output."""
    tall = meta(1 << 20, 1024)  # 4 GiB
    parts = scratch_of(aten.sum.dim_IntList, tall, [0])
    assert parts == scratch_of(aten.sum.dim_IntList, meta(1 << 19, 1024), [0]) * 2
    # 1 << 19 rows / 4 / 256 values are 512 blocks a column: 4 * 1024 * 512 * 128.
    assert parts[0] == (268435456, 4 * 8)


def test_half_types_carry_partial_results_between_parts() -> None:
    tall = meta(1 << 22, 1024, dtype=torch.bfloat16)  # 8 GiB
    for part in scratch_of(aten.sum.dim_IntList, tall, [0]):
        assert part[0] == 4 * 1024  # fp32 for each output


# -- what was measured


def _rows() -> list[dict[str, str]]:
    lines = (TRUTH / "workspaces.csv").read_text("utf-8").splitlines()
    return [row for row in csv.DictReader(lines) if row["kind"] == "reduce_scratch"]


INPUTS: dict[str, tuple[Tensor, Any, Gpu]] = {
    "33554432": (meta(4096, 1024), aten.sum.dim_IntList, H100),
    "16777216": (meta(2048, 1024), aten.sum.dim_IntList, H100),
    "8388608": (meta(1024, 1024), aten.sum.dim_IntList, H100),
    "164626432": (columns(512, 10000), aten.max.dim, H100),
    "41156608": (columns(512, 10000), aten.sum.dim_IntList, H100),
    "67108864": (meta(2048, 4096), aten.sum.dim_IntList, A100),
    "117440512": (meta(2048, 16384), aten.sum.dim_IntList, A100),
}
"""Bytes of a row -> the input that its notes tell. Of rows without one the shape is unknown."""


@pytest.mark.skipif(not (TRUTH / "workspaces.csv").exists(), reason="no ../shared/truth")
def test_the_buffers_that_others_saw() -> None:
    seen = {row["scratch_bytes"] for row in _rows()}
    assert set(INPUTS) <= seen
    for nbytes, (tensor, func, gpu) in INPUTS.items():
        dims = -1 if func is aten.max.dim else [0 if tensor.is_contiguous() else 1]
        assert scratch_of(func, tensor, dims, gpu=gpu)[0][0] == int(nbytes)


SNAPSHOT = TRUTH / "snapshots" / "lm2700m-ctx128-fullstep-fp32.pickle"


@pytest.mark.skipif(not SNAPSHOT.exists(), reason="no ../shared/truth/snapshots")
def test_the_buffers_of_a_snapshot_with_kernels() -> None:
    """Sums of [4, 128, 2560] with rows innermost, over the 2,560; and of 10,000 logits."""
    trace = load(SNAPSHOT).devices[0]
    sites = Sites()
    allocated = [e for e in trace.entries if e.action is Action.ALLOC]
    seen = {e.size for e in allocated if sites.of(e.frames).kernel == "gpu_reduce_kernel"}
    hidden, logits = columns(512, 2560), columns(512, 10000)
    predicted = [
        *scratch_of(aten.sum.dim_IntList, hidden, [1], gpu=H100),
        *scratch_of(aten.sum.dim_IntList, logits, [1], gpu=H100),
        *scratch_of(aten.max.dim, logits, -1, gpu=H100),
    ]
    assert seen == {nbytes for stage in predicted for nbytes in stage}

"""What fused attention allocates for itself on CUDA, with the arithmetic by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphmem import devices
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets import Call, layouts, rule_of, stages

aten = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention.default
EFFICIENT = aten._scaled_dot_product_efficient_attention.default


def scratch_of(func: Any, *args: Any, gpu: str = "A100-80GB") -> Scratch:
    rule = rule_of(func, Target.CUDA)
    assert rule is not None
    return stages(rule(Call(layouts(args), {}, None, devices.find(gpu))))


def tensor(
    batch: int, heads: int, rows: int, head: int, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    return torch.empty(batch, heads, rows, head, dtype=dtype, device="meta")


def backward(
    q: torch.Tensor, k: torch.Tensor, *, dropout: float = 0.0, gpu: str = "A100-80GB"
) -> Scratch:
    grad = torch.empty_like(q.transpose(1, 2)).contiguous().transpose(1, 2)
    func = aten._scaled_dot_product_efficient_attention_backward.default
    args = (grad, q, k, k, None, grad, None, None, None, dropout)
    return scratch_of(func, *args, gpu=gpu)


def test_flash_backward_takes_row_sums_and_a_float_accumulator() -> None:
    q, k = tensor(2, 8, 200, 80), tensor(2, 2, 200, 80)

    func = aten._scaled_dot_product_flash_attention_backward.default
    ((sums, accumulator, dk, dv),) = scratch_of(func, q, q, k, k)

    assert sums == 4 * 2 * 8 * 256  # 200 rows come to 256
    assert accumulator == 4 * 2 * 256 * 8 * 96  # a head dimension of 80 to 96
    assert dk == dv == 2 * 8 * 200 * 80 * 2  # the key's 2 heads stand for 8


def test_flash_backward_rounds_large_heads_to_64() -> None:
    q = tensor(1, 1, 128, 160)
    func = aten._scaled_dot_product_flash_attention_backward.default
    assert scratch_of(func, q, q, q, q) == ((4 * 128, 4 * 128 * 192),)


def test_flash_splits_the_keys_where_queries_are_few() -> None:
    q, k = tensor(1, 8, 64, 64), tensor(1, 8, 4096, 64)
    # 8 blocks of queries on 2 x 108 multiprocessors; 4096 keys are 16 blocks of 256. With 16
    # splits 128 of 216 places are busy; 85 % of that takes 110 places, or 14 splits - but
    # 14 splits leave 2 blocks to some, as 8 do, so 16 it is.
    vectors = 16 * 1 * 8 * 64
    assert scratch_of(FLASH, q, k, k, 0.0) == ((4 * vectors, 4 * vectors * 64),)
    assert scratch_of(FLASH, q, k, k, 0.1) == ()  # not with dropout


def test_flash_does_not_split_where_queries_fill_the_gpu() -> None:
    q = tensor(8, 12, 1024, 64)
    assert scratch_of(FLASH, q, q, q, 0.0) == ()


def test_flash_takes_one_query_of_grouped_heads_as_several() -> None:
    q, k = tensor(1, 32, 1, 128), tensor(1, 8, 1024, 128)
    # 8 heads of 4 queries: 8 blocks; 1024 keys are 8 blocks of 128: 8 splits.
    vectors = 8 * 8 * 4
    assert scratch_of(FLASH, q, k, k, 0.0) == ((4 * vectors, 4 * vectors * 128),)


@pytest.mark.parametrize(
    ("dtype", "head", "nbytes"),
    [
        (torch.bfloat16, 128, 0),
        (torch.bfloat16, 136, 4 * 2 * 8 * 64 * 136),
        (torch.float32, 136, 0),  # the output itself is fp32
    ],
)
def test_efficient_attention_accumulates_in_fp32(
    dtype: torch.dtype, head: int, nbytes: int
) -> None:
    q = tensor(2, 8, 64, head, dtype)
    assert scratch_of(EFFICIENT, q, q, q) == (((nbytes,),) if nbytes else ())


def test_efficient_backward_in_fp32_makes_the_product_first() -> None:
    q = tensor(8, 12, 1024, 64, torch.float32)

    sums = 4 * 8 * 12 * 1024
    # 16 tiles of 64 x 64 floats and 16 bytes for each head.
    workspace = 8 * 12 * 16 * (16 + 4 * 64 * 64)
    assert backward(q, q) == ((sums * 64, sums, sums), (sums, workspace))


def test_efficient_backward_takes_what_a_gpu_was_seen_to_take() -> None:
    q = tensor(1, 32, 1000, 64, torch.float32)
    # shared/truth, tinyllama-int8-lora-train: in this order for each of 22 layers.
    assert backward(q, q) == ((8_192_000, 128_000, 128_000), (128_000, 8_396_800))


def test_efficient_backward_in_half_precision_computes_the_sums_itself() -> None:
    q = tensor(2, 4, 100, 64, torch.float16)
    workspace = 2 * 4 * 2 * (16 + 4 * 64 * 64)  # 100 rows are 2 tiles
    assert backward(q, q) == ((4 * 2 * 4 * 100, workspace),)


@pytest.mark.parametrize(
    ("gpu", "elements"),
    [
        ("A100-80GB", 1 * 1 * (4 + 128 * 128)),  # one tile of 128 x 128, the rest in registers
        # tiles of 64 x 64: 2 of rows, 2 of the head; 2 blocks of keys, for dk and dv
        ("RTX 4090", 2 * 2 * (4 + 64 * 64) + 2 * 64 * (128 + 128)),
    ],
)
def test_the_gpu_decides_the_blocks(gpu: str, elements: int) -> None:
    q = tensor(1, 1, 128, 128)
    assert backward(q, q, gpu=gpu) == ((4 * 128, 4 * elements),)


def test_a_gradient_in_another_layout_is_copied() -> None:
    q = tensor(2, 4, 64, 64, torch.float16)
    func = aten._scaled_dot_product_efficient_attention_backward.default
    ((copied, *_),) = scratch_of(func, q, q, q, q, None, q, None, None, None, 0.0)
    assert copied == 2 * 4 * 64 * 64 * 2

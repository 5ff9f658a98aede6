"""What bitsandbytes' operators allocate on CUDA beside their results."""

from __future__ import annotations

import pytest
import torch

from tests.targets.scratch_calls import meta, scratch_of

N, K = 512, 256


def _product(rows: int, packed: bool = False) -> object:
    pytest.importorskip("bitsandbytes")
    x = meta(rows, K, dtype=torch.bfloat16)
    weight = meta(N * K // 2, 1, dtype=torch.uint8)
    blocks = N * K // 64
    tables = (meta(blocks, dtype=torch.uint8), meta(256), meta()) if packed else ()
    maxima = meta(blocks // 256 if packed else blocks)
    operator = torch.ops.bitsandbytes.gemm_4bit.default
    return scratch_of(operator, x, weight, [N, K], maxima, 64, "nf4", None, *tables)


def test_a_product_makes_the_weight() -> None:
    assert _product(2048) == ((2 * N * K,),)


def test_packed_maxima_are_made_twice_before() -> None:
    blocks = N * K // 64  # 2,048
    assert _product(2048, packed=True) == ((4 * blocks, 4 * blocks, 2 * N * K),)


def test_few_rows_take_another_kernel() -> None:
    assert _product(4) == ()

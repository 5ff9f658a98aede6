"""The tables of the kernels that copy between many tensors and one."""

from __future__ import annotations

import torch

from graphmem.options import Target
from graphmem.targets import Call, layouts, rule_of, stages
from tests.targets.scratch_calls import H100, meta, scratch_of

aten = torch.ops.aten


def test_gradients_are_copied_into_chunks_with_seven_tables() -> None:
    gradients = [meta(1000, 256), meta(256)]
    # Chunks of 125 x 256 and of 32 elements, 4 B: 128,000 B are 62.5 tiles of 2,048 B, 128 one.
    tables = 4 * 2 + 2 * 3 + (63 + 1)
    found = scratch_of(aten._chunk_cat.out, gradients, 0, 8, out=meta(8, 32032))
    assert found == ((tables * 8,),)


def test_float16_into_float32_goes_by_padded_copies() -> None:
    gradients = [meta(1000, 256, dtype=torch.float16), meta(4, 2, dtype=torch.float16)]
    # 1,000 rows are 16 * 62.5: 1,008 of 256 elements; 4 rows become 16 of 2.
    found = scratch_of(aten._chunk_cat.out, gradients, 0, 16, out=meta(16, 63 * 256 + 2))
    assert found == ((1008 * 256 * 2, 16 * 2 * 2),)


def test_the_cpu_pads_too() -> None:
    rule = rule_of(aten._chunk_cat.out, Target.CPU)
    assert rule is not None
    call = Call(layouts(([meta(10, 3), meta(8, 3)], 0, 4)), {"out": None}, None)
    assert stages(rule(call)) == ((12 * 3 * 4,),)  # 10 rows become 12; 8 are a multiple


def test_a_gathered_buffer_is_split_with_five_tables() -> None:
    # Of 8 ranks, 128,000 and 128 B each: 63 + 1 tiles of 2,048 B, 512 for all; an H100 has 132 *
    # 2048 / 128 * 2 = 4,224 blocks, so a thread copies once.
    found = scratch_of(
        aten.split_with_sizes_copy.out,
        *(meta(8, 32032), [32000, 32], 1),
        gpu=H100,
        result=(),
        out=[meta(8, 32000), meta(8, 32)],
    )
    assert found == (((3 * 2 + 3 + 64) * 8,),)


def test_a_large_buffer_is_split_by_threads_that_copy_several_times() -> None:
    # 100 MB a rank are 48,829 tiles, 390,632 for 8; 390,632 / 4,224 is 92.5: 93 times, of
    # which ceil(sqrt(93)) = 10, at most 8 chunks, take 12 times each: tiles of 24,576 B.
    found = scratch_of(
        aten.split_with_sizes_copy.out,
        *(meta(8, 25_000_000), [25_000_000], 1),
        gpu=H100,
        result=(),
        out=[meta(8, 25_000_000)],
    )
    assert found == (((3 + 2 + 4070) * 8,),)  # 100,000,000 / 24,576 = 4,069.01

"""Tests of graphmem.allocator.rounding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.allocator import BLOCK_BYTES, block_bytes
from graphmem.options import Target


@pytest.mark.parametrize(
    ("nbytes", "on_cuda"),
    [
        (0, 0),  # an empty tensor takes no block
        (1, 512),
        (511, 512),
        (512, 512),
        (513, 1024),  # 2 * 512
        (24, 512),  # 2*3*4 B = 24
        (1_048_576, 1_048_576),  # 2048 * 512
        (1_048_577, 1_049_088),  # 2049 * 512
        (2**53 + 1, 2**53 + 512),  # 2^53 is a multiple of 512, and 2^53 + 1 no float64
    ],
)
def test_cuda_gives_whole_blocks_and_the_cpu_what_was_asked_for(nbytes: int, on_cuda: int) -> None:
    assert block_bytes(nbytes, Target.CUDA) == on_cuda
    assert block_bytes(nbytes, Target.CPU) == nbytes


@given(st.integers(0, 2**60), st.sampled_from(Target))
def test_a_block_is_the_smallest_multiple_that_holds_the_request(
    nbytes: int, target: Target
) -> None:
    unit, block = BLOCK_BYTES[target], block_bytes(nbytes, target)
    assert block % unit == 0
    assert block - unit < nbytes <= block


def test_every_target_has_its_block() -> None:
    assert BLOCK_BYTES.keys() == set(Target)

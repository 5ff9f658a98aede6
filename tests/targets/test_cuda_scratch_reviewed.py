"""Which operators are known not to allocate, and how a report names the others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import graphmem
from graphmem.options import Target
from graphmem.targets import not_reviewed, rule_of
from graphmem.targets.cuda.reviewed import FREE, allocates_nothing
from tests.targets.scratch_calls import meta, scratch_of

aten = torch.ops.aten


@pytest.mark.parametrize(
    "func",
    [
        aten.mul.Tensor,  # pointwise
        aten.view.default,
        aten._unsafe_view.default,
        aten.zeros.default,
        aten.arange.start,
        aten.cat.default,
        aten.gather.default,
        aten._foreach_add_.Scalar,
        aten._fused_adamw_.default,
    ],
)
def test_operators_that_allocate_nothing(func: torch._ops.OpOverload) -> None:
    assert allocates_nothing(func)


@pytest.mark.parametrize(
    "func",
    [
        aten._foreach_norm.Scalar,
        aten._cdist_forward.default,
        torch.ops.prims.sum.default,
    ],
)
def test_operators_that_may(func: torch._ops.OpOverload) -> None:
    assert not allocates_nothing(func)


def test_what_is_free_exists_and_has_no_rule_as_well() -> None:
    for names in FREE.values():
        for name in names:
            packet = getattr(aten, name)
            func = getattr(packet, packet.overloads()[0])
            assert rule_of(func, Target.CUDA) is None, name


def test_only_what_was_not_looked_at_is_named() -> None:
    funcs = [aten.mm.default, aten.add.Tensor, aten._cdist_forward.default, aten.mode.default]
    (unknown,) = not_reviewed(funcs, Target.CUDA)
    assert unknown.where == "aten._cdist_forward, aten.mode"
    assert unknown.assumed == "nothing"
    assert not_reviewed(funcs, Target.CPU) == ()
    assert not_reviewed(funcs[:2], Target.CUDA) == ()


class Distances(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(30, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.weight, p=1.0).sum()


def test_a_report_names_them() -> None:
    report = graphmem.analyze(Distances(), graphmem.spec("50x4"), device="A100-80GB")
    (told,) = [u for u in report.unknown if u.what.startswith("what CUDA's kernels allocate")]
    assert told.where == "aten._cdist_backward, aten._cdist_forward"


# -- kernels that copy what lies otherwise


def test_pools_copy_what_is_neither_row_major_nor_channels_last() -> None:
    image = meta(2, 3, 8, 8)
    args = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    pool = aten.max_pool2d_with_indices.default
    assert scratch_of(pool, image, *args) == ()
    assert scratch_of(pool, image.to(memory_format=torch.channels_last), *args) == ()
    assert scratch_of(pool, image.transpose(2, 3), *args) == ((4 * 384,),)


def test_rolling_several_dimensions_makes_a_tensor_between() -> None:
    assert scratch_of(aten.roll.default, meta(2, 8, 8, 4), [1, 1], [1, 2]) == ((4 * 512,),)
    assert scratch_of(aten.roll.default, meta(2, 8, 8, 4), [1], [1]) == ()


def test_choosing_between_dtypes_converts_one() -> None:
    mask, half = meta(8, 8, dtype=torch.bool), meta(8, 8, dtype=torch.float16)
    assert scratch_of(aten.where.self, mask, half, meta(8, 8)) == ((4 * 64,),)
    assert scratch_of(aten.where.self, mask, half, half) == ()

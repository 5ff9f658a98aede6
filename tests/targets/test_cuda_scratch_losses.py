"""What CUDA's losses, norms of lists and matrix products allocate beside their results."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import graphmem
from graphmem.options import Target
from graphmem.targets import Call, layouts, result_rules
from tests.targets.scratch_calls import A100, ids, meta, scratch_of

aten = torch.ops.aten


def test_a_mean_squared_error_has_each_elements_error_first() -> None:
    # 4,096 * 16 values are 32 values a thread of 512: 65,536 / 4 / 512, no 256 of them.
    found = scratch_of(aten.mse_loss.default, meta(4096, 16), meta(4096, 16))
    assert found == ((4 * 65536,),)
    assert scratch_of(aten.mse_loss.default, meta(4096, 16), meta(4096, 16), 0) == ()


def test_a_large_loss_is_summed_in_blocks() -> None:
    size = 1 << 22
    # 8,192 values a thread of 512: room for 4 * 108 = 432 blocks, that leave 4 B each.
    found = scratch_of(aten.smooth_l1_loss.default, meta(size), meta(size))
    assert found == ((4 * size, 4 * 432, 4),)


def test_logits_with_gaps_are_copied() -> None:
    logits = meta(100, 64).t()  # [64, 100]
    found = scratch_of(aten._log_softmax.default, logits, 1, False)
    assert found == ((4 * 6400,),)
    assert scratch_of(aten._log_softmax.default, meta(64, 100), 1, False) == ()
    target = ids(64, 2)[:, 0]
    found = scratch_of(aten.nll_loss_forward.default, meta(64, 100), target, None, 1, -100)
    assert found == ((8 * 64,),)


def test_softmax_backward_multiplies_gradient_and_result_first() -> None:
    rows = meta(64, 100)
    call = (aten._softmax_backward_data.default, rows, rows, -1, torch.float32)
    assert scratch_of(*call) == ((4 * 6400,),)
    turned = meta(100, 64).t()
    assert scratch_of(call[0], rows, turned, -1, torch.float32) == ((4 * 6400, 4 * 6400),)


def test_binary_cross_entropy_with_logits_keeps_two_tensors() -> None:
    call = (meta(8, 8), meta(8, 8))
    assert scratch_of(aten.binary_cross_entropy_with_logits.default, *call) == ((256, 256),)
    alone = scratch_of(aten.binary_cross_entropy_with_logits.default, *call, None, None, 0)
    assert alone == ((256,),)


def test_a_binary_cross_entropy_keeps_the_memory_of_all_elements() -> None:
    rule = result_rules(Target.CUDA)[aten.binary_cross_entropy.default]
    found = rule(Call(layouts((meta(8, 8), meta(8, 8))), {}, None, A100))
    assert (found.size, found.nbytes) == ((), 256)


def test_log_sigmoid_saves_no_buffer() -> None:
    """Saved on the CPU: the input and a buffer of its size; on CUDA the input alone."""

    def step(x: Tensor) -> Tensor:
        return F.logsigmoid(x).sum()

    def saved(target: Target) -> int:
        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(1000))

            def forward(self) -> Tensor:
                return step(self.weight * 2)

        report = graphmem.analyze(Model(), (), target=target, loss=lambda out: out)
        return sum(layer.saved_bytes for layer in report.layers)

    # One tensor of 4,000 B, which take 4,096 of CUDA's allocator.
    assert (saved(Target.CPU), saved(Target.CUDA)) == (8000, 4096)


def test_ctc_backward_has_variables_of_its_own() -> None:
    alpha = meta(2, 50, 21)
    args = (meta(2), meta(50, 2, 30), ids(2, 10), [50, 50], [10, 10], meta(2), alpha, 0)
    found = scratch_of(aten._ctc_loss_backward.default, *args, result=meta(50, 2, 30))
    assert found == ((4 * 2 * 50 * 21, 16, 16, 16),)


def test_a_safe_softmax_keeps_what_is_hidden() -> None:
    scores = meta(2, 4, 16, 16)  # of fp32: itself, its mask, and its rows
    found = scratch_of(aten._safe_softmax.default, scores, -1)
    assert found == ((4 * 2048, 2048, 128),)


def test_distances_are_products_of_wider_points() -> None:
    found = scratch_of(aten._euclidean_dist.default, meta(30, 8), meta(50, 8))
    assert found == ((120, 120, 200, 200, 4 * 30 * 10, 4 * 50 * 10),)


# -- lists


def test_a_norm_of_a_list_has_a_number_for_each_chunk() -> None:
    """Of the largest tensor: 1,000,000 elements are 16 chunks of 65,536."""
    tensors = [meta(1000, 1000), meta(10), meta(3)]
    assert scratch_of(aten._foreach_norm.Scalar, tensors) == ((4 * 3 * 16,),)
    halves = [t.to(torch.bfloat16) for t in tensors]
    assert scratch_of(aten._foreach_norm.Scalar, halves) == ((4 * 3 * 16,),)
    doubles = [t.to(torch.float64) for t in tensors]
    assert scratch_of(aten._foreach_norm.Scalar, doubles) == ((8 * 3 * 16,),)


def test_a_list_of_several_dtypes_is_reduced_one_by_one() -> None:
    tensors = [meta(524288), meta(10, dtype=torch.float64)]
    found = scratch_of(aten._foreach_norm.Scalar, tensors, dtype=torch.float64)
    # fp32 is converted: 8 * 524,288 B, then 64 blocks leave 8 B each.
    assert found == ((8 * 524288, 8 * 64, 4),)


def test_maxima_of_a_list() -> None:
    tensors = [meta(70000, dtype=torch.bfloat16), meta(10, dtype=torch.bfloat16)]
    assert scratch_of(aten._foreach_max.default, tensors) == ((2 * 2 * 2,),)


# -- matrix products


def test_transposed_and_sliced_matrices_need_no_copy() -> None:
    square = meta(64, 64)
    assert scratch_of(aten.mm.default, square.t(), square) == ()
    assert scratch_of(aten.mm.default, square[:, :32], square[:32]) == ()
    assert scratch_of(aten.addmm.default, meta(64), square, square.t()) == ()


def test_matrices_with_gaps_in_rows_and_columns_are_copied() -> None:
    strided = meta(64, 64, 2)[..., 0]
    assert scratch_of(aten.mm.default, strided, meta(64, 8)) == ((4 * 4096,),)
    assert scratch_of(aten.mm.default, meta(64, 1).expand(64, 64), meta(64, 8)) == ((4 * 4096,),)


def test_batches_are_looked_at_matrix_by_matrix() -> None:
    heads = meta(8, 16, 4, 32).transpose(1, 2)  # [B, H, S, D], as attention makes it
    batch = heads.reshape(32, 16, 32)
    assert scratch_of(aten.bmm.default, batch, batch.transpose(1, 2)) == ()
    spread = meta(1, 16, 32).expand(32, 16, 32)
    assert scratch_of(aten.bmm.default, spread, batch.transpose(1, 2)) == ()
    gaps = meta(32, 16, 32, 2)[..., 0]
    assert scratch_of(aten.bmm.default, gaps, batch.transpose(1, 2)) == ((4 * 32 * 512,),)


def test_what_is_not_known_of_decompositions_and_transforms_is_said() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(16, 16))

        def forward(self) -> Tensor:
            spectrum = torch.fft.rfft(self.weight)
            return torch.linalg.svdvals(self.weight).sum() + spectrum.abs().sum()

    report = graphmem.analyze(Model(), (), mode="inference")
    told = {unknown.what for unknown in report.unknown}
    assert {"the workspace of cuFFT", "the workspaces of cuSOLVER and MAGMA"} <= told

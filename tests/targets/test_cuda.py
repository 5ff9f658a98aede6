"""What CUDA runs in another way than the CPU, traced without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import graphmem
from graphmem import devices
from graphmem.report import Report
from graphmem.targets import stages, turns
from graphmem.targets.cuda.attention_choice import Attention
from graphmem.targets.cuda.cublas import workspace_bytes
from graphmem.targets.cuda.versions import TORCH_VERSION
from graphmem.targets.scratch import InTurn

aten = torch.ops.aten


def qkv(
    *,
    dtype: torch.dtype = torch.bfloat16,
    heads: int = 8,
    kv_heads: int = 8,
    rows: int = 64,
    columns: int = 64,
    head: int = 64,
) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.empty(2, heads, rows, head, dtype=dtype, device="meta")
    key = torch.empty(2, kv_heads, columns, head, dtype=dtype, device="meta")
    return query, key, torch.empty_like(key)


MASK = torch.empty(2, 1, 64, 64, dtype=torch.bool, device="meta")


@pytest.mark.parametrize(
    ("tensors", "mask", "causal", "choice"),
    [
        (qkv(), None, False, "flash"),
        (qkv(), None, True, "flash"),
        (qkv(dtype=torch.float16, head=256), None, False, "flash"),
        (qkv(kv_heads=2), None, True, "flash"),  # grouped queries
        (qkv(head=20), None, False, "flash"),  # padded to 24
        (qkv(dtype=torch.float32), None, False, "efficient"),
        (qkv(), MASK, False, "efficient"),
        (qkv(head=264), None, False, "efficient"),  # more than flash's 256
        (qkv(columns=128), None, True, "efficient"),  # causal and not square
        (qkv(dtype=torch.float32, head=6), None, False, "math"),  # 6 is no multiple of 4
        (qkv(head=20), MASK, False, "math"),  # 20 is no multiple of 8
        (qkv(dtype=torch.float64), None, False, "math"),
        (qkv(heads=8, kv_heads=3), None, False, "math"),
        (tuple(t[0] for t in qkv()), None, False, "math"),  # 3-D
        (tuple(t.transpose(-1, -2) for t in qkv()), None, False, "math"),  # not dense
    ],
)
def test_the_first_kernel_whose_conditions_hold_is_chosen(
    tensors: Any, mask: Tensor | None, causal: bool, choice: str
) -> None:
    query, key, value = tensors
    assert Attention(query, key, value, mask, 0.0, causal, enable_gqa=True).choice()[0] == choice


def test_sdpa_kernel_is_obeyed() -> None:
    query, key, value = qkv()
    call = Attention(query, key, value, None, 0.0, False)

    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert call.choice() == ("efficient", "not flash: it is switched off")
    with sdpa_kernel([SDPBackend.MATH]):
        assert call.choice()[0] == "math"
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        assert call.choice()[0] == "cudnn"
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert call.choice()[0] == "math"


def test_where_no_kernel_is_left_it_is_an_error_as_in_torch() -> None:
    query, key, value = qkv(dtype=torch.float32)

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]), pytest.raises(RuntimeError, match="not flash"):
        Attention(query, key, value, None, 0.0, False).choice()


@pytest.mark.parametrize(
    ("gpu", "tensors", "dropout", "choice"),
    [
        ("T4", qkv(dtype=torch.float16), 0.0, "efficient"),  # flash begins at SM 8.0
        ("T4", qkv(dtype=torch.bfloat16), 0.0, "math"),
        ("T4", qkv(dtype=torch.float32, head=6), 0.0, "efficient"),  # no tensor cores: any size
        ("H200", qkv(), 0.0, "cudnn"),
        ("H200", qkv(), 0.1, "flash"),  # 0.1 is no multiple of 1/16
        ("H200", qkv(), 0.125, "cudnn"),
        ("H200", qkv(dtype=torch.float32), 0.0, "efficient"),
        ("H200", qkv(head=20), 0.0, "flash"),
        ("H200", qkv(columns=1), 0.0, "flash"),
        ("B200", qkv(), 0.0, "cudnn"),
        ("RTX 5090", qkv(), 0.0, "flash"),
        ("RTX 4090", qkv(head=200), 0.0, "efficient"),  # no backward
        ("RTX 4090", qkv(head=256), 0.0, "flash"),
        ("RTX 4090", qkv(head=256), 0.1, "efficient"),
        ("A100-80GB", qkv(head=200), 0.0, "flash"),
    ],
)
def test_the_gpu_decides(gpu: str, tensors: Any, dropout: float, choice: str) -> None:
    query, key, value = (t.detach().requires_grad_() for t in tensors)
    call = Attention(query, key, value, None, dropout, False, gpu=devices.find(gpu))
    assert call.choice()[0] == choice


def test_grouped_queries_have_to_be_asked_for() -> None:
    query, key, value = qkv(kv_heads=2)
    assert Attention(query, key, value, None, 0.0, False).choice()[0] == "math"
    # The memory-efficient kernels take groups from torch 2.14 on.
    masked = Attention(query, key, value, MASK, 0.0, False, enable_gqa=True)
    assert masked.choice()[0] == ("efficient" if TORCH_VERSION >= (2, 14) else "math")


def test_the_report_says_which_kernel_was_chosen_and_why() -> None:
    report = graphmem.analyze(SelfAttention(), X, optimizer="sgd", steps=1)

    (kernel,) = report.kernels
    assert (kernel.op, kernel.kernel, kernel.calls) == (
        "scaled_dot_product_attention",
        "efficient",
        1,
    )
    assert kernel.why == "not flash: it takes float16 and bfloat16, not float32"
    assert "efficient (1 call), not flash: it takes" in " ".join(str(report).split())
    assert report.to_dict()["kernels"][0]["why"] == kernel.why


def test_a_rule_gives_a_block_or_several_or_stages_of_several() -> None:
    assert stages(0) == stages((0, 0)) == stages(()) == ()
    assert stages(8) == stages((8,)) == ((8,),)
    assert stages((8, 0, 4)) == ((8, 4),)
    assert stages(((8, 4), (0,), (2,))) == ((8, 4), (2,))


def test_results_in_turn_have_scratch_each() -> None:
    gradients = ("of input", None, "of bias")

    made = turns(InTurn((((4, 0), (8,)), (), ())), gradients)
    assert made == [("of input", ((4,), (8,))), ("of bias", ())]
    assert turns(InTurn(((), ((2,),), ())), (None,) * 3) == [(None, ((2,),))]
    # All at once, and what defines nothing and takes nothing, are one operation.
    assert turns(8, gradients) == [(gradients, ((8,),))]
    assert turns(InTurn(((), ())), (None, None)) == [((None, None), ())]


@pytest.mark.parametrize(
    ("gpu", "kernel"), [("A100-80GB", "flash"), ("H200", "cudnn"), ("T4", "math")]
)
def test_a_named_gpu_runs_its_own_kernels(gpu: str, kernel: str) -> None:
    report = graphmem.analyze(SelfAttention(), X, precision="bf16", optimizer="sgd", device=gpu)

    assert [k.kernel for k in report.kernels] == [kernel]


@pytest.mark.parametrize(
    ("gpu", "nbytes"), [("A100-80GB", 8_519_680), ("H200", 33_554_432), ("RTX 4090", 8_519_680)]
)
def test_cublas_takes_a_workspace_by_architecture(gpu: str, nbytes: int) -> None:
    assert workspace_bytes(devices.find(gpu), {}) == nbytes
    config = {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    assert workspace_bytes(devices.find(gpu), config) == 16 * 1024 * 8


class SelfAttention(nn.Module):
    """One attention of 4 heads of 16, on [2, 128, 64]."""

    def __init__(self, dropout: float = 0.0, mask: Tensor | None = None) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.dropout = dropout
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, self.mask, dropout_p=dropout)


X = torch.randn(2, 128, 64)


def operators(report: Report) -> set[str]:
    return {point.op for point in report.timeline or ()}


@pytest.mark.parametrize(
    ("precision", "kernel"), [("bf16", "flash"), ("fp16", "flash"), ("fp32", "efficient")]
)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_step_runs_the_fused_kernels(precision: str, kernel: str, dropout: float) -> None:
    report = graphmem.analyze(
        SelfAttention(dropout), X, precision=precision, timeline=True, optimizer="sgd"
    )

    fused = f"aten._scaled_dot_product_{kernel}_attention"
    assert {fused, f"{fused}_backward"} <= operators(report)
    assert "aten._softmax" not in operators(report)


def test_a_fused_kernel_saves_its_inputs_its_output_and_one_number_a_row() -> None:
    report = graphmem.analyze(SelfAttention(), X, precision="bf16", optimizer="sgd", steps=1)

    (top,) = [layer for layer in report.layers if layer.module == "(top level)"]
    # Saved: q, k and v are views of the Linear's result [2, 128, 192], 2 B an element; the
    # output [2, 4, 128, 16], 2 B; a log-sum-exp [2, 4, 128] of 4 B; two 64-bit numbers of
    # the random generator in a block of 512 B, and one more block.
    qkv_bytes = 2 * 128 * 192 * 2
    output, rows = 2 * 4 * 128 * 16 * 2, 2 * 4 * 128 * 4
    assert top.saved_bytes == qkv_bytes + output + rows + 512 + 512


@pytest.mark.parametrize("grad", ["no_grad", "inference_mode"])
def test_an_inference_runs_them_too(grad: str) -> None:
    report = graphmem.analyze(
        SelfAttention(), X, mode="inference", grad=grad, precision="bf16", timeline=True
    )

    assert "aten._scaled_dot_product_flash_attention" in operators(report)


def test_a_boolean_mask_is_made_one_that_is_added() -> None:
    mask = torch.ones(128, 128, dtype=torch.bool).tril()

    report = graphmem.analyze(SelfAttention(mask=mask), X, timeline=True, optimizer="sgd")

    assert "aten._scaled_dot_product_efficient_attention" in operators(report)
    assert "aten.where.self" in operators(report)


def test_attention_that_is_called_from_cpp_is_reached() -> None:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)

    report = graphmem.analyze(nn.TransformerEncoder(layer, 2), X, timeline=True)

    assert "aten._scaled_dot_product_efficient_attention" in operators(report)
    assert "aten.native_dropout" in operators(report)
    assert not {"aten.bernoulli_.float", "aten._softmax"} & operators(report)


def test_the_mask_of_dropout_takes_one_byte_an_element() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1))

    on_cuda = graphmem.analyze(model, torch.randn(256, 64), optimizer="sgd", steps=1)
    on_cpu = graphmem.analyze(model, torch.randn(256, 64), optimizer="sgd", steps=1, target="cpu")

    def saved(report: Report) -> int:
        return next(layer.saved_bytes for layer in report.layers if layer.module == "1")

    assert saved(on_cuda) == 256 * 64  # a boolean mask
    assert saved(on_cpu) == 256 * 64 * 4  # the noise, in fp32


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_registered(fails: bool) -> None:
    class Fails(SelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ValueError

    before = [_kernel(name) for name in ("scaled_dot_product_attention", "dropout")]
    model = Fails() if fails else SelfAttention()
    if fails:
        with pytest.raises(graphmem.TraceError):
            graphmem.analyze(model, X)
    else:
        graphmem.analyze(model, X)

    assert [_kernel(name) for name in ("scaled_dot_product_attention", "dropout")] == before
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    expected = torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v
    assert torch.allclose(F.scaled_dot_product_attention(q, k, v), expected, atol=1e-5)


def _kernel(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutogradCPU")

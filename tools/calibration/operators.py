"""Operators alone: what their kernels take for themselves, and what they keep for backward.

One step makes the inputs, runs the operator and its backward, so that its peak shows the
scratch beside what a trace knows. What facts.md calls known gaps: two cuBLAS workspaces,
copies for channels_last, cuDNN's reserves of batch norm and RNNs, grouped queries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tools.calibration.case import Step, case, leaf, placed, tensors

N, D, V = 16_384, 1_024, 32_000
HALF = torch.bfloat16


def _alone(name: str, run: Callable[[], Any], group: str, measured_only: str = "") -> None:
    """A case of a function that makes its own inputs."""

    def make(device: str) -> Step:
        def step() -> Any:
            with tensors(device):
                return run()

        return step

    case(f"{group}: {name}", group=group, measured_only=measured_only)(make)


def _of(name: str, group: str, function: Callable[..., Tensor], *inputs: Callable[[], Any]) -> None:
    """A case of an operator, forward and backward."""

    def run() -> None:
        output = function(*(make() for make in inputs))
        output.sum().backward()

    _alone(name, run, group)


def _ids(*shape: int, high: int = V) -> Tensor:
    return torch.randint(high, shape)


def _rows(dtype: torch.dtype = torch.float32) -> Tensor:
    return leaf(N, D, dtype=dtype)


def _embed(count: int, weight: Tensor) -> Tensor:
    return functional.embedding(_ids(count), weight)


# -- products: a workspace for each thread

for _dtype in (torch.float32, HALF):
    _of(
        f"mm {_dtype}",
        "products",
        torch.mm,
        partial(leaf, 4_096, 4_096, dtype=_dtype),
        partial(leaf, 4_096, 4_096, dtype=_dtype),
    )
    _of(
        f"linear with bias {_dtype}",
        "products",
        functional.linear,
        partial(leaf, 4_096, 1_024, dtype=_dtype),
        partial(leaf, 2_048, 1_024, dtype=_dtype),
        partial(leaf, 2_048, dtype=_dtype),
    )
_of("bmm", "products", torch.bmm, partial(leaf, 64, 512, 512), partial(leaf, 64, 512, 512))
_of(
    "einsum of heads",
    "products",
    lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k),
    partial(leaf, 4, 512, 16, 64),
    partial(leaf, 4, 512, 16, 64),
)

# -- indices

for _count in (1_024, 3_072, 3_073, 16_384):
    for _dtype in (torch.float32, HALF):
        _of(
            f"embedding of {_count} {_dtype}",
            "indices",
            partial(_embed, _count),
            partial(leaf, V, D, dtype=_dtype),
        )
_of("index by a tensor", "indices", lambda w: w[_ids(N)], partial(leaf, V, D))
_of("index_select", "indices", lambda w: w.index_select(0, _ids(N)), partial(leaf, V, D))
_of("gather", "indices", lambda x: x.gather(1, _ids(N, 8, high=D)), _rows)
_alone("index_put", lambda: torch.zeros(V, D).index_put_((_ids(N),), torch.ones(N, D)), "indices")
_alone(
    "index_put accumulating",
    lambda: torch.zeros(V, D).index_put_((_ids(N),), torch.ones(N, D), accumulate=True),
    "indices",
)
_alone("scatter_add", lambda: torch.zeros(V).scatter_add_(0, _ids(N), torch.ones(N)), "indices")
_alone("index_add", lambda: torch.zeros(V, D).index_add_(0, _ids(N), torch.ones(N, D)), "indices")

for _name, _function in (
    ("nonzero", lambda: (torch.rand(N, D) > 0.5).nonzero()),
    ("masked_select", lambda: torch.rand(N, D).masked_select(torch.rand(N, D) > 0.5)),
    ("unique", lambda: _ids(N * D).unique()),
    ("bincount", lambda: _ids(N * D).bincount()),
):
    _alone(_name, _function, "indices", "the size of its result depends on values")

# -- order

_alone("sort rows", lambda: torch.rand(N, D).sort(), "order")
_alone("sort one long row", lambda: torch.rand(N * D).sort(), "order")
_alone("sort stable", lambda: torch.rand(N, D).sort(stable=True), "order")
_alone("argsort", lambda: torch.rand(N, D).argsort(), "order")
_alone("topk", lambda: torch.rand(N, D).topk(50), "order")
_alone("topk of a vocabulary", lambda: torch.rand(64, V).topk(50), "order")
_alone("kthvalue", lambda: torch.rand(N, D).kthvalue(7), "order")
_alone("median", lambda: torch.rand(N, D).median(dim=-1), "order")
_alone("multinomial", lambda: torch.rand(64, V).multinomial(4), "order")
_alone("randperm", lambda: torch.randperm(N * D), "order")
_alone("cumsum of rows", lambda: torch.rand(N, D).cumsum(-1), "order")
_alone("cumsum of columns", lambda: torch.rand(N, D).cumsum(0), "order")
_alone("cumsum of one row", lambda: torch.rand(N * D).cumsum(0), "order")
_alone("logcumsumexp", lambda: torch.rand(N, D).logcumsumexp(-1), "order")

# -- reductions and norms

_alone("sum", lambda: torch.rand(N, D).sum(), "reductions")
_alone("sum of columns", lambda: torch.rand(N, D).sum(0), "reductions")
_alone("sum of rows", lambda: torch.rand(N, D).sum(1), "reductions")
_alone("max", lambda: torch.rand(N, D).max(), "reductions")
_alone("argmax", lambda: torch.rand(N, D).argmax(-1), "reductions")
_alone("norm", lambda: torch.linalg.vector_norm(torch.rand(N, D)), "reductions")
_alone("std of columns", lambda: torch.rand(N, D).std(0), "reductions")
for _dtype in (torch.float32, HALF):
    _of(
        f"softmax {_dtype}",
        "reductions",
        lambda x: x.softmax(-1) * 2,
        partial(_rows, _dtype),
    )
    _of(
        f"layer_norm {_dtype}",
        "reductions",
        lambda x, w, b: functional.layer_norm(x, (D,), w, b),
        partial(_rows, _dtype),
        partial(leaf, D, dtype=_dtype),
        partial(leaf, D, dtype=_dtype),
    )
    _of(
        f"rms_norm {_dtype}",
        "reductions",
        lambda x, w: functional.rms_norm(x, (D,), w),
        partial(_rows, _dtype),
        partial(leaf, D, dtype=_dtype),
    )
    _of(
        f"cross_entropy {_dtype}",
        "reductions",
        lambda x: functional.cross_entropy(x, _ids(4_096)),
        partial(leaf, 4_096, V, dtype=_dtype),
    )
    _of(f"silu {_dtype}", "reductions", functional.silu, partial(_rows, _dtype))
    _of(
        f"dropout {_dtype}",
        "reductions",
        lambda x: functional.dropout(x, 0.1),
        partial(_rows, _dtype),
    )
_of(
    "group_norm",
    "reductions",
    lambda x, w: functional.group_norm(x, 32, w, w),
    partial(leaf, 16, 256, 56, 56),
    partial(leaf, 256),
)
_of(
    "interpolate",
    "reductions",
    lambda x: functional.interpolate(x, scale_factor=2),
    partial(leaf, 8, 64, 56, 56),
)
_of("max_pool", "reductions", lambda x: functional.max_pool2d(x, 2), partial(leaf, 8, 64, 112, 112))
_alone("fft", lambda: torch.fft.rfft(torch.rand(N, D)), "reductions")

# -- attention


def _attention(name: str, backend: SDPBackend, dtype: torch.dtype, **options: Any) -> None:
    heads = options.pop("kv_heads", 16)

    def run() -> None:
        q = leaf(2, 16, 2_048, 64, dtype=dtype)
        k, v = (leaf(2, heads, 2_048, 64, dtype=dtype) for _ in range(2))
        with sdpa_kernel(backend):
            output = functional.scaled_dot_product_attention(q, k, v, **options)
        output.sum().backward()

    _alone(name, run, "attention")


_attention("flash causal", SDPBackend.FLASH_ATTENTION, HALF, is_causal=True)
_attention("flash dropout", SDPBackend.FLASH_ATTENTION, HALF, dropout_p=0.1)
_attention("flash grouped", SDPBackend.FLASH_ATTENTION, HALF, kv_heads=4, enable_gqa=True)
_attention("efficient causal", SDPBackend.EFFICIENT_ATTENTION, torch.float32, is_causal=True)
_attention("efficient half", SDPBackend.EFFICIENT_ATTENTION, HALF)
_attention("efficient grouped", SDPBackend.EFFICIENT_ATTENTION, HALF, kv_heads=4, enable_gqa=True)
_attention("cudnn causal", SDPBackend.CUDNN_ATTENTION, HALF, is_causal=True)
_attention("cudnn grouped", SDPBackend.CUDNN_ATTENTION, HALF, kv_heads=4, enable_gqa=True)
_attention("math", SDPBackend.MATH, HALF, is_causal=True)

# -- cuDNN: convolutions, batch norm, RNNs


def _convolution(name: str, dtype: torch.dtype, *, image_last: bool, weight_last: bool) -> None:
    """A 3x3 convolution, 128 to 128 channels, with either operand in channels_last."""

    def run() -> None:
        x, weight = leaf(32, 128, 56, 56, dtype=dtype), leaf(128, 128, 3, 3, dtype=dtype)
        if image_last:
            x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
        if weight_last:
            weight = weight.detach().to(memory_format=torch.channels_last).requires_grad_()
        functional.conv2d(x, weight, padding=1).sum().backward()

    _alone(name, run, "cudnn")


for _dtype in (torch.float32, torch.float16, HALF):
    _convolution(f"conv {_dtype}", _dtype, image_last=False, weight_last=False)
    _convolution(f"conv {_dtype}, image last", _dtype, image_last=True, weight_last=False)
    _convolution(f"conv {_dtype}, weight last", _dtype, image_last=False, weight_last=True)
    _convolution(f"conv {_dtype}, both last", _dtype, image_last=True, weight_last=True)


def _module(name: str, build: Callable[[], nn.Module], *shape: int, last: bool = False) -> None:
    """Forward and backward of a module, whose reserve shows after its forward."""

    def make(device: str) -> Step:
        module = placed(build, device)
        dtype = next(module.parameters()).dtype

        def step() -> None:
            with tensors(device):
                x = torch.randn(*shape, dtype=dtype)
                if last:
                    x = x.to(memory_format=torch.channels_last)
                output = module(x.requires_grad_())
                (output[0] if isinstance(output, tuple) else output).sum().backward()

        return step

    case(f"cudnn: {name}", group="cudnn")(make)


_module("batch_norm", lambda: nn.BatchNorm2d(128), 32, 128, 56, 56)
_module("batch_norm, last", lambda: nn.BatchNorm2d(128), 32, 128, 56, 56, last=True)
_module("LSTM", lambda: nn.LSTM(512, 512, 2, dropout=0.1), 128, 32, 512)
_module("LSTM, both ways", lambda: nn.LSTM(512, 512, bidirectional=True), 128, 32, 512)
_module("LSTM, half", lambda: nn.LSTM(512, 512, 2).half(), 128, 32, 512)
_module("GRU", lambda: nn.GRU(512, 512, 2), 128, 32, 512)
_module("RNN", lambda: nn.RNN(512, 512, 2), 128, 32, 512)


def _reserves() -> dict[str, int]:
    """The sizes of cuDNN's reserve of batch norm, which only the library knows."""
    sizes = {}
    for dtype in (torch.float32, torch.float16):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(32, 128, 56, 56, dtype=dtype, device="cuda")
            x = x.to(memory_format=layout)
            weight, bias, mean, variance = torch.ones(4, 128, device="cuda").unbind()
            result = torch.ops.aten.cudnn_batch_norm(
                x, weight, bias, mean, variance, True, 0.1, 1e-5
            )
            sizes[f"batch norm {dtype} {layout}"] = result[3].numel()
    return sizes


@case("cudnn: reserves", group="cudnn", extra=_reserves, measured_only="it runs no operator")
def _nothing(device: str) -> Step:
    return lambda: None

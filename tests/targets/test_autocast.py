"""CUDA's autocast: its lists, its casts, its cache, and that nothing stays registered.

The rules run here on real CPU tensors. Where the CPU's own autocast has the same policy for
an operator it is the oracle: the same operators below, in the same order.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from graphmem.errors import InvariantError, UsageError
from graphmem.targets.cuda import autocast, autocast_lists
from graphmem.targets.cuda.autocast_lists import Policy, policies

BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
aten = torch.ops.aten


class Logged(TorchDispatchMode):
    """What reaches the kernels: the operator, with shapes and dtypes of its tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        self.calls.append((str(func), tuple((tuple(t.shape), t.dtype) for t in tensors)))
        return func(*args, **(kwargs or {}))

    @property
    def names(self) -> list[str]:
        return [name.removeprefix("aten.") for name, _ in self.calls]


@contextmanager
def cuda_rules(
    dtype: torch.dtype = BF16, on_device: Callable[[Tensor], bool] = lambda tensor: True
) -> Iterator[autocast.Casts]:
    """CUDA's rules, with autocast to ``dtype`` on."""
    before = torch.get_autocast_dtype("cuda")
    casts = autocast.Casts(on_device)
    with autocast.installed(casts):
        torch.set_autocast_dtype("cuda", dtype)
        torch.set_autocast_enabled("cpu", True)
        try:
            yield casts
        finally:
            torch.set_autocast_enabled("cpu", False)
            torch.set_autocast_dtype("cuda", before)


def registered(key: str) -> set[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return {n for n in names if n.startswith("aten::") and has(n, key)}


def weight(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(*shape))


# -- the lists


def test_the_lists_are_what_torch_itself_casts_on_cuda() -> None:
    on_cuda = registered("AutocastCUDA")
    assert on_cuda - policies().keys() == set()
    assert policies().keys() - on_cuda <= {"aten::_cudnn_rnn"}  # CUDA builds only


@pytest.mark.parametrize(
    ("operator", "policy"),
    [
        ("aten::mm", Policy.LOWER_PRECISION),
        ("aten::einsum", Policy.LOWER_PRECISION),
        ("aten::_convolution.deprecated", Policy.LOWER_PRECISION),
        ("aten::scaled_dot_product_attention", Policy.LOWER_PRECISION),
        ("aten::exp", Policy.FP32),
        ("aten::pow.Tensor_Scalar", Policy.FP32),
        ("aten::rms_norm", Policy.FP32),
        ("aten::softmax.int", Policy.FP32_SET_OPT_DTYPE),
        ("aten::sum.dim_IntList", Policy.FP32_SET_OPT_DTYPE),
        ("aten::norm.ScalarOpt_dim", Policy.FP32_APPEND_DTYPE),
        ("aten::index_put", Policy.PROMOTE),
        ("aten::binary_cross_entropy", Policy.BANNED),
        ("aten::_cudnn_rnn", Policy.CUDNN_RNN),
    ],
)
def test_the_policy_of_an_operator(operator: str, policy: Policy) -> None:
    assert policies()[operator] is policy


def test_what_is_not_listed_is_not_cast() -> None:
    assert not policies().keys() & {"aten::add.Tensor", "aten::cat", "aten::relu", "aten::mean"}


def test_a_torch_without_its_header_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    policies.cache_clear()
    monkeypatch.setattr(autocast_lists, "HEADER", Path("nowhere") / "autocast_mode.h")
    with pytest.raises(UsageError, match=r"lacks autocast_mode\.h"):
        policies()


def test_a_header_of_another_form_is_an_invariant_broken() -> None:
    with pytest.raises(InvariantError, match="no AT_FORALL_LOWER_PRECISION_FP"):
        autocast_lists.read("#define SOMETHING_ELSE(_) _(mm)\n")
    with pytest.raises(InvariantError, match="lists no operator"):
        autocast_lists.read("#define AT_FORALL_LOWER_PRECISION_FP(_)\n")


# -- casts


HALF = torch.randn(4, 4, dtype=BF16)
SINGLE = torch.randn(4, 4)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda: torch.mm(SINGLE, HALF), BF16),
        (lambda: torch.einsum("ij,jk->ik", SINGLE, SINGLE), BF16),
        (lambda: torch.exp(HALF), FP32),
        (lambda: HALF.pow(2), FP32),
        (lambda: torch.sum(HALF), FP32),
        (lambda: torch.sum(HALF, dim=0, dtype=BF16), BF16),
        (lambda: torch.softmax(HALF, -1), FP32),
        (lambda: torch.softmax(HALF, -1, BF16), BF16),
        (lambda: aten.norm.Scalar(HALF), FP32),
        (lambda: aten.norm.ScalarOpt_dim(HALF, 2, [0]), FP32),
        (lambda: torch.addcmul(SINGLE, HALF, HALF), FP32),
        (lambda: torch.addcmul(HALF, HALF, HALF), BF16),
        (lambda: torch.scatter_add(HALF, 0, torch.zeros(4, 4, dtype=torch.int64), SINGLE), FP32),
        (lambda: torch.ops.aten.index_put(HALF, [torch.tensor([0])], SINGLE[:1]), FP32),
        (lambda: F.layer_norm(HALF, (4,)), FP32),
        (lambda: HALF + HALF, BF16),  # in no list
        (lambda: HALF + SINGLE, FP32),  # its own promotion
        (lambda: HALF.mean(), BF16),
        (lambda: torch.mm(SINGLE.double(), SINGLE.double()), FP64),  # doubles stay
        (lambda: F.pad(HALF, (1, 1), mode="reflect"), BF16),  # in the CPU's fp32 list only
    ],
)
def test_the_dtype_of_a_result(call: Callable[[], Tensor], dtype: torch.dtype) -> None:
    with cuda_rules():
        assert call().dtype is dtype


def test_what_only_the_cpus_autocast_promotes_is_left_to_the_operator() -> None:
    with cuda_rules(), Logged() as log:
        torch.cat([SINGLE, HALF])
    assert log.names == ["cat.default"]
    with torch.autocast("cpu", BF16), Logged() as log:
        torch.cat([SINGLE, HALF])
    assert log.names == ["_to_copy.default", "cat.default"]


X, IMAGE = torch.randn(6, 4), torch.randn(2, 3, 8, 8)
W, B, KERNEL = weight(5, 4), weight(5), weight(4, 3, 3, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.linear(X, W, B),
        lambda: F.linear(X, W) + F.linear(X * 2, W),  # the second time from the cache
        lambda: torch.mm(X, W.t()),  # a view of a weight is not kept
        lambda: torch.baddbmm(torch.randn(1, 2, 5), torch.randn(1, 2, 4), W.t()[None]),
        lambda: F.conv2d(IMAGE, KERNEL),
        lambda: F.conv_transpose2d(IMAGE, KERNEL.transpose(0, 1)),
        lambda: F.prelu(X, weight(1)),
        lambda: F.mse_loss(X.bfloat16(), X),
        lambda: F.kl_div(X.bfloat16(), X.bfloat16()),
        lambda: F.nll_loss(X.bfloat16(), torch.zeros(6, dtype=torch.int64)),
        lambda: torch.cdist(X.bfloat16(), X),
    ],
    ids=lambda call: "",
)
@pytest.mark.parametrize("grad", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
def test_the_operators_below_are_those_of_the_cpus_autocast(
    call: Callable[[], Tensor], grad: Callable[[], Any]
) -> None:
    logs = []
    for rules in (cuda_rules(), torch.autocast("cpu", BF16)):
        torch.manual_seed(0)
        with grad(), rules, Logged() as log:
            call()
        logs.append(log.calls)
    assert logs[0] == logs[1]
    assert any(BF16 in {dtype for _, dtype in tensors} for _, tensors in logs[0])


def test_nested_operators_are_reached() -> None:
    """einsum's bmm runs on what einsum was given: autocast is off below it."""
    with cuda_rules(), Logged() as log:
        torch.einsum("...i,oi->...o", X, W)
    casts = [call for call in log.calls if call[0] == "aten._to_copy.default"]
    assert casts == [
        ("aten._to_copy.default", (((6, 4), FP32),)),  # a list is cast from its start
        ("aten._to_copy.default", (((5, 4), FP32),)),
    ]
    assert ("aten.bmm.default", (((1, 6, 4), BF16), ((1, 4, 5), BF16))) in log.calls


def test_host_tensors_are_not_cast() -> None:
    host = torch.ones(4, 4)
    with cuda_rules(on_device=lambda tensor: tensor is not host), Logged() as log:
        torch.addcmul(HALF, HALF, host)
    assert log.names == ["addcmul.default"]


def test_another_half_than_that_of_autocast_can_not_be_promoted() -> None:
    with cuda_rules(FP16), pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
        torch.addcmul(HALF, HALF, HALF)


def test_binary_cross_entropy_is_refused_as_on_cuda() -> None:
    with cuda_rules(), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        F.binary_cross_entropy(torch.rand(3), torch.rand(3))


# -- the cache of weights


@pytest.mark.parametrize(
    ("operand", "kept"),
    [
        (weight(4, 4), 1),
        (torch.randn(4, 4), 0),  # an activation
        (torch.nn.Parameter(torch.randn(4, 4), requires_grad=False), 0),
        (weight(4, 4) * 2, 0),  # no leaf
        (weight(16).view(4, 4), 0),
        (weight(4, 4).to(BF16).detach().requires_grad_(), 0),
    ],
    ids=["weight", "activation", "frozen", "computed", "view", "half"],
)
def test_only_fp32_weights_are_kept(operand: Tensor, kept: int) -> None:
    with cuda_rules() as casts:
        torch.mm(X, operand)
        assert len(casts) == kept


def test_casts_to_fp32_are_not_kept() -> None:
    with cuda_rules() as casts:
        torch.exp(weight(4).to(BF16).detach().requires_grad_())
        assert len(casts) == 0


def test_nothing_is_kept_under_inference_mode_or_where_it_is_switched_off() -> None:
    with cuda_rules() as casts:
        with torch.inference_mode():
            torch.mm(X, weight(4, 4))
        torch.set_autocast_cache_enabled(False)
        try:
            torch.mm(X, weight(4, 4))
        finally:
            torch.set_autocast_cache_enabled(True)
        assert len(casts) == 0


def test_a_cast_made_under_no_grad_serves_training_after_it() -> None:
    w = weight(4, 4)
    with cuda_rules() as casts:
        with torch.no_grad():
            torch.mm(X, w)
        torch.mm(X, w).sum().backward()
        assert len(casts) == 1
    assert w.grad is not None
    assert w.grad.dtype is FP32


def test_a_kept_cast_lives_until_the_cache_is_cleared() -> None:
    w = weight(4, 4)
    with cuda_rules() as casts, torch.no_grad():
        torch.mm(X, w)
        cast = casts._cached[id(w)][1]
        storage = weakref.ref(cast.untyped_storage())
        del cast
        assert storage() is not None
        casts.clear()
        assert storage() is None


def test_a_weight_at_the_place_of_a_dead_one_is_cast_anew() -> None:
    w = weight(4, 4)
    with cuda_rules() as casts:
        casts._cached[id(w)] = (weakref.ref(weight(4, 4)), torch.zeros(4, 4, dtype=BF16))
        gc.collect()
        product = torch.mm(torch.ones(4, 4), w)
    assert product.abs().sum() > 0


# -- recurrent networks


@pytest.mark.parametrize("biases", [True, False])
def test_cudnns_weights_are_copied_into_one_flat_fp16_buffer(biases: bool) -> None:
    """Whatever the dtype of autocast is, and with a place for biases where there are none.

    An LSTM, 4 -> 2: four gates.
    """
    weights = [weight(8, 4), weight(8, 2), *([weight(8), weight(8)] if biases else [])]
    x, h, c = torch.randn(3, 1, 4), torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)
    seen: list[Any] = []
    casts = autocast.Casts(lambda tensor: True)
    run = autocast.kernel(Policy.CUDNN_RNN, lambda *args: seen.append(args), casts)  # type: ignore[arg-type]
    rest: tuple[Any, ...] = (2, 2, 0, 1, False, 0.0, True, False, [], None)  # mode, hidden, ...
    run(x, weights, len(weights), None, h, c, *rest)

    cast_x, copies, stride, buffer, cast_h, cast_c, *others = seen[0]
    assert (stride, tuple(others)) == (len(weights), rest)
    assert cast_x.dtype is cast_h.dtype is cast_c.dtype is buffer.dtype is FP16
    assert buffer.shape == (8 * 4 + 8 * 2 + 2 * 8,)
    starts = (0, 8 * 4, 8 * 4 + 8 * 2, 8 * 4 + 8 * 2 + 8)
    assert [c.storage_offset() for c in copies] == list(starts[: len(weights)])
    assert {c.untyped_storage()._cdata for c in copies} == {buffer.untyped_storage()._cdata}
    assert [c.shape for c in copies] == [w.shape for w in weights]
    assert all(torch.equal(c, w.half()) for c, w in zip(copies, weights, strict=True))
    copies[1].sum().backward()
    assert weights[1].grad is not None
    assert weights[1].grad.dtype is FP32


def test_a_flat_buffer_that_is_fp16_already_stays() -> None:
    weights, buffer = [weight(8, 4).half()], torch.zeros(32, dtype=FP16)
    seen: list[Any] = []
    casts = autocast.Casts(lambda tensor: True)
    run = autocast.kernel(Policy.CUDNN_RNN, lambda *args: seen.append(args), casts)  # type: ignore[arg-type]
    run(torch.randn(3, 4), weights, 4, buffer, torch.zeros(2), torch.zeros(2))
    assert seen[0][1] is weights
    assert seen[0][3] is buffer


# -- custom operators, and what is left


def test_a_custom_operator_is_cast_as_it_asks() -> None:
    library = torch.library.Library("graphmem_tests", "DEF")
    try:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CPU")
        library.impl("double", lambda x: torch.ops.graphmem_tests.double(x.half()), "AutocastCUDA")
        with cuda_rules():
            assert torch.ops.graphmem_tests.double(X).dtype is FP16
    finally:
        library._destroy()


def test_nothing_is_left_registered() -> None:
    before = registered("AutocastCPU")
    with cuda_rules():
        assert registered("AutocastCPU") > before
    assert registered("AutocastCPU") == before
    with pytest.raises(RuntimeError, match="unsafe to autocast"), cuda_rules():
        F.binary_cross_entropy(torch.rand(3), torch.rand(3))
    assert registered("AutocastCPU") == before
    with torch.autocast("cpu", BF16):
        assert torch.mm(X, X.t()).dtype is BF16
        assert F.pad(HALF, (1, 1), mode="reflect").dtype is FP32
    assert torch.mm(X, X.t()).dtype is FP32

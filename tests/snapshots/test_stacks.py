"""What a stack tells: line, operator, kernel and node."""

from __future__ import annotations

import pytest

from graphmem.snapshots import Frame, Site
from graphmem.snapshots.stacks import UNKNOWN, site

ALLOCATOR = (
    Frame("??", 0, "torch::unwind::unwind()"),
    Frame("", 0, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(long)"),
)
EMPTY = (
    *ALLOCATOR,
    Frame("EmptyTensor.cpp", 0, "at::TensorBase at::detail::_empty_generic<long>(long)"),
    Frame("??", 0, "at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet)"),
)
MUL = (
    *EMPTY,
    Frame("??", 0, "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)"),
    Frame("??", 0, "at::_ops::mul_Scalar::call(at::Tensor const&, c10::Scalar const&)"),
)
MODULE = Frame("/env/lib/python3.12/site-packages/torch/nn/modules/module.py", 1784, "_call_impl")


def _python(*lines: tuple[str, int, str]) -> tuple[Frame, ...]:
    return tuple(Frame(*line) for line in lines)


@pytest.mark.parametrize(
    ("stack", "source", "function"),
    [
        # The user's own line is the innermost that is of no library of operators.
        ((MODULE, *_python(("train.py", 3, "main"))), "train.py:3", "main"),
        (_python(("torch/nn/modules/linear.py", 1, "forward"), ("a.py", 2, "f")), "a.py:2", "f"),
        (
            _python(("/src/pytorch/torch/_tensor.py", 1, "backward"), ("a.py", 2, "f")),
            "a.py:2",
            "f",
        ),
        (_python(("einops/einops.py", 1, "rearrange"), ("a.py", 2, "f")), "a.py:2", "f"),
        (
            _python(("/usr/lib/python3.12/contextlib.py", 1, "inner"), ("a.py", 2, "f")),
            "a.py:2",
            "f",
        ),
        (
            _python(("<frozen runpy>", 1, "run"), ("<stdin>", 2, "<module>")),
            "<stdin>:2",
            "<module>",
        ),
        # A package's line is one, and is told below its site-packages.
        (
            _python(
                ("/env/lib/python3.12/site-packages/timm/vit.py", 7, "forward"), ("a.py", 1, "f")
            ),
            "timm/vit.py:7",
            "forward",
        ),
        # The user may have a folder with the name of a library.
        (_python(("/home/me/torch/train.py", 5, "main")), "/home/me/torch/train.py:5", "main"),
        (_python(("/home/me/einops/a.py", 5, "main")), "/home/me/einops/a.py:5", "main"),
        # Nothing else than a library: its innermost line.
        ((MODULE,), "torch/nn/modules/module.py:1784", "_call_impl"),
        (MUL, None, None),
        ((), None, None),
    ],
)
def test_the_source_line_is_the_users(
    stack: tuple[Frame, ...], source: str | None, function: str | None
) -> None:
    found = site(stack)
    assert (found.source, found.function) == (source, function)


@pytest.mark.parametrize(
    ("stack", "op"),
    [
        (MUL, "aten.mul_Tensor"),
        (EMPTY, "aten.empty_memory_format"),  # torch.empty itself
        (ALLOCATOR, None),
        ((*EMPTY, Frame("??", 0, "at::_ops::empty_like::call(x)")), "aten.empty_like"),
    ],
)
def test_the_operator_is_the_innermost_that_is_no_plumbing(
    stack: tuple[Frame, ...], op: str | None
) -> None:
    assert site(stack).op == op


@pytest.mark.parametrize(
    ("caller", "kernel"),
    [
        ("void at::native::gpu_reduce_kernel<float, float, 4>(at::TensorIterator&)", "gpu_reduce_"),
        ("at::cuda::getNewWorkspace()", "getNewWorkspace"),
        ("at::native::(anonymous namespace)::run(long)", "run"),
        ("at::detail::empty_generic(c10::ArrayRef<long>)", None),
        ("c10::StorageImpl::StorageImpl(long)", None),
        ("at::native::resize_bytes_cuda(c10::StorageImpl*, unsigned long)", None),
    ],
)
def test_the_kernel_is_who_asks_for_more_than_a_tensor(caller: str, kernel: str | None) -> None:
    found = site((*ALLOCATOR, Frame("", 0, caller))).kernel
    assert found is None if kernel is None else str(found).startswith(kernel)


def test_in_backward_the_node_is_told() -> None:
    node = Frame(
        "??", 0, "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>)"
    )
    assert site((*MUL, node)).node == "MulBackward0"
    gradient = Frame("??", 0, "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)")
    assert site((*EMPTY, gradient)).node == "AccumulateGrad"
    assert site(MUL).node is None


def test_no_stack_tells_nothing() -> None:
    assert site(()) == UNKNOWN == Site()

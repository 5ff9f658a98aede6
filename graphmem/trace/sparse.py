"""Sparse COO tensors, such as the gradient of ``nn.Embedding(sparse=True)``.

A sparse tensor owns no bytes itself: its indices and values do. The recorder gives real
sparse tensors over hollow indices and values; torch has no meta kernels for them, so the
few operators that optimizers and the engine call have their rule here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphmem.trace import known
from graphmem.trace.hollow import hollow_like
from graphmem.trace.shapes import NoShapeRuleError

Rule = Callable[..., Any]

_aten = torch.ops.aten

CONSTRUCTORS = frozenset(
    {
        _aten._sparse_coo_tensor_with_dims_and_tensors.default,
        _aten._sparse_coo_tensor_unsafe.default,
    }
)
"""They take over the indices and values they are given; no data is read or copied."""


CLONE = _aten.clone.default
_IS_COALESCED = _aten.is_coalesced.default


def concerns(func: OpOverload, args: Any) -> bool:
    """Whether an operator builds or takes a sparse COO tensor."""
    if func in CONSTRUCTORS:
        return True
    return any(isinstance(a, Tensor) and a.layout is torch.sparse_coo for a in args)


def result(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on sparse tensors.

    Raises:
        NoShapeRuleError: if there is no rule for it.
    """
    if func in CONSTRUCTORS or func is _IS_COALESCED:
        return func(*args, **kwargs)
    rule = _RULES.get(func)
    if rule is None:
        raise NoShapeRuleError(f"{func} on sparse tensors")
    return rule(*args)


def shared(gradient: Tensor) -> Tensor:
    """A sparse gradient that AccumulateGrad keeps: over the same indices and values.

    For real it takes over a gradient that nobody else holds and clones it otherwise
    (torch/csrc/autograd/functions/accumulate_grad.h); under a dispatch mode Python's own
    reference to the indices makes it clone always.
    """
    return torch.sparse_coo_tensor(
        gradient._indices(), gradient._values(), tuple(gradient.shape), check_invariants=False
    )


def _unary(tensor: Tensor, *_: Any) -> Tensor:
    """Indices and values of the same size, both new."""
    return _sparse(tensor, tensor._nnz(), tensor.is_coalesced())


def _sum(first: Tensor, second: Tensor, *_: Any) -> Tensor:
    """Sparse + sparse concatenates (SparseTensorMath.cpp, ``add_out_sparse_cpu``)."""
    if first.layout is not torch.sparse_coo:
        return hollow_like(torch.empty(first.shape, dtype=first.dtype, device="meta"))
    return _sparse(first, first._nnz() + second._nnz(), coalesced=False)


def _in_place(tensor: Tensor, *_: Any) -> Tensor:
    """A dense tensor takes the sum; nothing is allocated for the result."""
    if tensor.layout is torch.sparse_coo:
        raise NoShapeRuleError("an in-place operation on a sparse tensor")
    return tensor


def _coalesce(tensor: Tensor) -> Tensor:
    """One entry for each distinct index.

    As many as there are if the indices are known, else as many as before: the upper bound.
    """
    indices = tensor._indices()
    nnz = tensor._nnz()
    if known.is_real(indices):
        nnz = torch.unique(indices, dim=1).shape[1]
    return _sparse(tensor, nnz, coalesced=True)


def _mask(dense: Tensor, mask: Tensor, *_: Any) -> Tensor:
    """The values of a dense tensor at a sparse one's indices."""
    return _sparse(mask, mask._nnz(), coalesced=True)


def _sparse(like: Tensor, nnz: int, coalesced: bool) -> Tensor:
    def hollow(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return hollow_like(torch.empty(shape, dtype=dtype, device="meta"))

    made = torch.sparse_coo_tensor(
        hollow((like.sparse_dim(), nnz), torch.int64),
        hollow((nnz, *like.shape[like.sparse_dim() :]), like.dtype),
        tuple(like.shape),
        check_invariants=False,
    )
    made._coalesced_(coalesced)
    return made


_RULES: dict[OpOverload, Rule] = {
    CLONE: _unary,
    _aten.mul.Tensor: _unary,
    _aten.mul.Scalar: _unary,
    _aten.div.Tensor: _unary,
    _aten.div.Scalar: _unary,
    _aten.neg.default: _unary,
    _aten._to_copy.default: _unary,
    _aten.add.Tensor: _sum,
    _aten.add_.Tensor: _in_place,
    _aten._coalesce.default: _coalesce,
    _aten.sparse_mask.default: _mask,
}

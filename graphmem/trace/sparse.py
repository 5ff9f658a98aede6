"""Sparse tensors: gradients of ``nn.Embedding(sparse=True)``, adjacency matrices of graphs.

A sparse tensor owns no bytes itself: its indices and values do. The recorder gives real
sparse tensors over hollow indices and values; torch has no meta kernels for them, so the
operators that models, optimizers and the engine call have their rule here. COO and the
compressed layouts (CSR, CSC, BSR, BSC) are known.
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
        _aten.sparse_compressed_tensor.comp_plain_value_size,
        _aten._sparse_compressed_tensor_unsafe.default,
    }
)
"""They take over the indices and values they are given; no data is read or copied."""


CLONE = _aten.clone.default
_IS_COALESCED = _aten.is_coalesced.default


def concerns(func: OpOverload, args: Any) -> bool:
    """Whether an operator builds or takes a sparse tensor."""
    if func in CONSTRUCTORS:
        return True
    return any(isinstance(a, Tensor) and a.layout is not torch.strided for a in args)


def is_copied(func: OpOverload, args: Any) -> bool:
    """Whether what is a view of a dense tensor is none of a COO tensor: it is transposed.

    Source: aten/src/ATen/native/TensorShape.cpp, ``transpose`` (torch 2.13): a clone whose
    rows of indices are exchanged.
    """
    return func in _TRANSPOSES and args[0].layout is torch.sparse_coo


def is_product(func: OpOverload) -> bool:
    """Whether cuSPARSE computes an operator on sparse tensors, with a buffer of its own."""
    return func in _PRODUCTS


def is_bound(func: OpOverload, args: Any) -> bool:
    """Whether nobody knows how many entries the product of two sparse matrices has."""
    if func not in _PRODUCTS:
        return False
    factors = [a for a in args if isinstance(a, Tensor)][-2:]
    return all(a.layout is torch.sparse_csr for a in factors) and not _know_places(*factors)


def with_parts(tensor: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    """A sparse tensor like another, over what ``part`` makes of its indices and values."""
    size = tuple(tensor.shape)
    if tensor.layout is torch.sparse_coo:
        made = torch.sparse_coo_tensor(
            part(tensor._indices()), part(tensor._values()), size, check_invariants=False
        )
        return made._coalesced_(tensor.is_coalesced())
    outer, inner, values = [part(p) for p in known.strided_parts(tensor)]
    return torch.sparse_compressed_tensor(
        outer, inner, values, size, layout=tensor.layout, check_invariants=False
    )


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
    return rule(*args, **kwargs)


def shared(gradient: Tensor) -> Tensor:
    """A sparse gradient that AccumulateGrad keeps: over the same indices and values.

    For real it takes over a gradient that nobody else holds and clones it otherwise
    (torch/csrc/autograd/functions/accumulate_grad.h); under a dispatch mode Python's own
    reference to the indices makes it clone always.
    """
    return torch.sparse_coo_tensor(
        gradient._indices(), gradient._values(), tuple(gradient.shape), check_invariants=False
    )


def _unary(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """Indices and values of the same size, both new."""
    return _sparse(tensor, tensor._nnz(), tensor.is_coalesced())


def _sum(first: Tensor, second: Tensor, *_: Any, **__: Any) -> Tensor:
    """Sparse + sparse concatenates (SparseTensorMath.cpp, ``add_out_sparse_cpu``)."""
    if first.layout is not torch.sparse_coo:
        return _dense(tuple(first.shape), first.dtype)
    return _sparse(first, first._nnz() + second._nnz(), coalesced=False)


def _in_place(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
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


def _product(first: Tensor, second: Tensor) -> Tensor:
    """A sparse matrix times a dense one, or a vector, or the other way round: dense."""
    if first.layout is not torch.strided and second.layout is not torch.strided:
        return _sparse_product(first, second)
    return _dense((*first.shape[:-1], *second.shape[1:]), first.dtype)


def _sparse_product(first: Tensor, second: Tensor) -> Tensor:
    """Two matrices by rows: an entry wherever a path leads over both, also if its sum is zero.

    As many as there are if both's places are known, else as many as there may be.
    """
    if first.layout is not torch.sparse_csr or second.layout is not torch.sparse_csr:
        raise NoShapeRuleError("a product of two sparse matrices that are not both CSR")
    size = (first.shape[0], second.shape[1])
    if _know_places(first, second):
        rows, columns, _ = known.strided_parts(_of_ones(first) @ _of_ones(second))
    else:
        most = min(size[0] * size[1], first._nnz() * min(size[1], second._nnz()))
        rows, columns = _dense((size[0] + 1,), torch.int64), _dense((most,), torch.int64)
    return torch.sparse_compressed_tensor(
        rows,
        columns,
        _dense((columns.numel(),), first.dtype),
        size,
        layout=torch.sparse_csr,
        check_invariants=False,
    )


def _know_places(*matrices: Tensor) -> bool:
    """Whether it is known where matrices by rows have entries."""
    places = (part for matrix in matrices for part in known.strided_parts(matrix)[:2])
    return all(known.is_real(part) for part in places)


def _of_ones(matrix: Tensor) -> Tensor:
    """A real matrix by rows with entries at the same places."""
    rows, columns, _ = known.strided_parts(matrix)
    return torch.sparse_csr_tensor(rows, columns, torch.ones(columns.numel()), tuple(matrix.shape))


def _sum_of_product(_: Tensor, first: Tensor, second: Tensor, **__: Any) -> Tensor:
    return _product(first, second)


def _all_summed(tensor: Tensor, **_: Any) -> Tensor:
    return _dense((), tensor.dtype)


def _densified(tensor: Tensor, dtype: torch.dtype | None = None, *_: Any, **__: Any) -> Tensor:
    return _dense(tuple(tensor.shape), dtype or tensor.dtype)


def _summed(tensor: Tensor, dims: list[int]) -> Tensor:
    """Over sparse dimensions alone: at most as many entries as before."""
    if any(dim % tensor.dim() >= tensor.sparse_dim() for dim in dims):
        raise NoShapeRuleError("a sum over a dense dimension of a sparse tensor")
    shape = [n for dim, n in enumerate(tensor.shape) if dim not in {d % tensor.dim() for d in dims}]
    rows = tensor.sparse_dim() - len(dims)
    values = (tensor._nnz(), *tensor.shape[tensor.sparse_dim() :])
    made = torch.sparse_coo_tensor(
        _dense((rows, tensor._nnz()), torch.int64),
        _dense(values, tensor.dtype),
        tuple(shape),
        check_invariants=False,
    )
    return made._coalesced_(True)


def _like_second(_: Tensor, like: Tensor, *__: Any) -> Tensor:
    return _sparse(like, like._nnz(), like.is_coalesced())


def _transposed(tensor: Tensor, *_: Any) -> Tensor:
    made = torch.sparse_coo_tensor(
        _dense((2, tensor._nnz()), torch.int64),
        _dense(tuple(tensor._values().shape), tensor.dtype),
        tuple(reversed(tensor.shape)),
        check_invariants=False,
    )
    return made._coalesced_(False)


def _by_rows(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """COO to CSR."""
    nnz = tensor._nnz()
    return torch.sparse_compressed_tensor(
        _dense((tensor.shape[0] + 1,), torch.int64),
        _dense((nnz,), torch.int64),
        _dense((nnz,), tensor.dtype),
        tuple(tensor.shape),
        layout=torch.sparse_csr,
        check_invariants=False,
    )


def _by_places(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """CSR to COO: new indices, the same values.

    Source: aten/src/ATen/native/TensorConversions.cpp, ``sparse_compressed_to_sparse`` (torch
    2.13).
    """
    if tensor.layout is not torch.sparse_csr:
        raise NoShapeRuleError(f"{tensor.layout} to COO")
    rows, columns, values = known.strided_parts(tensor)
    if known.is_real(rows) and known.is_real(columns):
        indices = torch._convert_indices_from_csr_to_coo(rows, columns)
    else:
        indices = _dense((2, tensor._nnz()), torch.int64)
    size = tuple(tensor.shape)
    made = torch.sparse_coo_tensor(indices, values, size, check_invariants=False)
    return made._coalesced_(True)


def _dense(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return hollow_like(torch.empty(shape, dtype=dtype, device="meta"))


def _sparse(like: Tensor, nnz: int, coalesced: bool) -> Tensor:
    made = torch.sparse_coo_tensor(
        _dense((like.sparse_dim(), nnz), torch.int64),
        _dense((nnz, *like.shape[like.sparse_dim() :]), like.dtype),
        tuple(like.shape),
        check_invariants=False,
    )
    made._coalesced_(coalesced)
    return made


_TRANSPOSES = (_aten.t.default, _aten.transpose.int)
_PRODUCTS: dict[OpOverload, Rule] = {
    _aten.mm.default: _product,
    _aten.mv.default: _product,
    _aten._sparse_addmm.default: _sum_of_product,
    _aten.addmm.default: _sum_of_product,
    _aten.addmv.default: _sum_of_product,
}
_RULES: dict[OpOverload, Rule] = {
    **_PRODUCTS,
    **dict.fromkeys(_TRANSPOSES, _transposed),
    _aten.sum.default: _all_summed,
    _aten._to_dense.default: _densified,
    _aten._sparse_sum.dim: _summed,
    _aten._sparse_sum_backward.default: _like_second,
    _aten._sparse_softmax.default: _unary,
    _aten._sparse_log_softmax.default: _unary,
    _aten._sparse_softmax_backward_data.default: _unary,
    _aten._sparse_log_softmax_backward_data.default: _unary,
    _aten._to_sparse_csr.default: _by_rows,
    _aten._to_sparse.default: _by_places,
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

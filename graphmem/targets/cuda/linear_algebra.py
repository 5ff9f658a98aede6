"""Matrix products: copies of matrices whose strides cuBLAS can't take; decompositions.

cuBLAS reads a matrix by rows or by columns, with gaps between them but not within, so views
that were transposed or sliced need no copy. A bias (``addmm``) is copied into the result or
added by cuBLASLt: nothing beside the result either way.
Source: ATen/native/cuda/cuBlasCommonArgs.h (``prepare_matrix_for_cublas``, torch 2.14) and
aten/src/ATen/native/cuda/Blas.cpp (``prepare_batch_matrix_for_cublas``,
``addmm_out_cuda_impl``).
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch, Unknown
from graphmem.targets import context
from graphmem.targets.cuda.calls import contiguous, copy_bytes, like, nbytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch


@scratch("aten::mm", "aten::bmm", target=Target.CUDA)
def product(call: Call) -> Scratch:
    """Inputs: self [..., N, M], mat2 [..., M, P]."""
    return (tuple(_copy(matrix) for matrix in call.args[:2]),)


@scratch(
    "aten::addmm",
    "aten::addmm_",
    "aten::_addmm_activation",
    "aten::baddbmm",
    "aten::baddbmm_",
    target=Target.CUDA,
)
def product_and_sum(call: Call) -> Scratch:
    """Inputs: self (broadcast to the result), mat1 [..., N, M], mat2 [..., M, P]."""
    return (tuple(_copy(matrix) for matrix in call.args[1:3]),)


@scratch("aten::mv", "aten::addmv", "aten::addmv_", target=Target.CUDA)
def product_with_vector(call: Call) -> Scratch:
    """A vector of stride 0 is copied too. Inputs: (self,) mat [N, M], vec [M]."""
    matrix, vector = call.args[-2:]
    spread = nbytes(vector) if vector.stride == (0,) and vector.numel > 1 else 0
    return ((_copy(matrix), spread),)


@scratch("aten::_euclidean_dist", target=Target.CUDA)
def euclidean_distances(call: Call) -> Scratch:
    """Both sets of points, with two columns more each, which are computed before.

    Inputs: x1 [..., N, D], x2 [..., M, D]. Source: aten/src/ATen/native/Distance.cpp,
    ``_euclidean_dist``.
    """
    x1, x2 = call.args[:2]
    width, item = x1.size[-1], x1.dtype.itemsize
    lines = [points.numel // max(width, 1) for points in (x1, x2)]
    columns = tuple(count * item for count in lines for _ in range(2))
    return ((*columns, *(count * (width + 2) * item for count in lines)),)


def _copy(matrix: Layout) -> int:
    """The bytes of a copy, 0 if cuBLAS reads the matrix, or each of a batch, as it is."""
    rows, columns = matrix.stride[-2:]
    height, width = matrix.size[-2:]
    by_columns = rows == 1 and columns >= max(1, height)
    by_rows = columns == 1 and rows >= max(1, width)
    whole = contiguous(matrix) if rows and columns else False
    dense = len(matrix.size) == 2 and like(matrix, matrix.dtype).stride == matrix.stride
    return 0 if by_columns or by_rows or whole or dense else nbytes(matrix)


_DECOMPOSITIONS = (
    "aten::linalg_cholesky_ex",
    "aten::cholesky",
    "aten::cholesky_inverse",
    "aten::cholesky_solve",
    "aten::_linalg_svd",
    "aten::_linalg_eigh",
    "aten::linalg_eig",
    "aten::_linalg_eigvals",
    "aten::linalg_qr",
    "aten::geqrf",
    "aten::linalg_householder_product",
    "aten::linalg_inv_ex",
    "aten::linalg_lu_factor_ex",
    "aten::linalg_lu_solve",
    "aten::linalg_ldl_factor_ex",
    "aten::_linalg_det",
    "aten::_linalg_slogdet",
    "aten::_linalg_solve_ex",
    "aten::linalg_lstsq",
)


@scratch(*_DECOMPOSITIONS, target=Target.CUDA)
def decomposition(call: Call) -> Scratch:
    """A column-major copy of the matrix; cuSOLVER's or MAGMA's workspace is not known.

    Inputs: A [..., N, M]. Source: aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp:
    the kernels work in place on a copy with columns one after another.
    """
    matrix: Layout = call.args[0]
    context.current().note(_SOLVER)
    return ((nbytes(matrix),),)


_SOLVER = Unknown(
    "the workspaces of cuSOLVER and MAGMA",
    "decompositions and solvers of torch.linalg",
    "a copy of each matrix",
)


@scratch("aten::linalg_solve_triangular", "aten::triangular_solve", target=Target.CUDA)
def triangular_solve(call: Call) -> Scratch:
    """Copies of what is not laid out by columns. Inputs: two matrices [..., N, M].

    Source: aten/src/ATen/native/BatchLinearAlgebra.cpp, ``linalg_solve_triangular_out``.
    """
    return (tuple(copy_bytes(_transposed(matrix)) for matrix in call.args[:2]),)


def _transposed(matrix: Layout) -> Layout:
    """The same elements, read by columns."""
    order = (*range(len(matrix.size) - 2), -1, -2)
    return matrix._replace(
        size=tuple(matrix.size[i] for i in order), stride=tuple(matrix.stride[i] for i in order)
    )

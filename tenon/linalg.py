"""The namespace `tn.linalg`: the linear algebra of the Array API standard and what NumPy and PyTorch add."""

from __future__ import annotations

from typing import Any

from tenon.errors import LinearAlgebraError, ShapeError
from tenon.migration_hints import LINALG, missing
from tenon.ops import diagonal as _diagonals
from tenon.ops.decompositions import eig, eigh, eigvals, eigvalsh, svd, svdvals
from tenon.ops.define import lift, remembering
from tenon.ops.joining_and_axes import matrix_transpose
from tenon.ops.linear_systems import inv_ex, solve_ex, tensorinv, tensorsolve, vander
from tenon.ops.lu_factors import lu, lu_factor, lu_solve
from tenon.ops.matrix_factorizations import cholesky, cholesky_ex, qr
from tenon.ops.matrix_products import matmul
from tenon.ops.reduction import vector_norm
from tenon.ops.solving import (
    cholesky_inverse,
    cholesky_solve,
    cond,
    det,
    inv,
    logdet,
    lstsq,
    matrix_exp,
    matrix_norm,
    matrix_power,
    matrix_rank,
    pinv,
    slogdet,
    solve,
    solve_triangular,
)
from tenon.ops.vector_products import cross, householder_product, multi_dot, outer, tensordot, vecdot

__all__ = ["matmul", "matrix_transpose", "outer", "cross", "tensordot", "vecdot", "multi_dot", "matrix_power",
           "diagonal", "trace", "cholesky", "cholesky_ex", "eig", "eigh", "eigvals", "eigvalsh", "lu", "lu_factor",
           "lu_solve", "qr", "svd", "svdvals", "solve", "solve_triangular", "cholesky_solve", "cholesky_inverse",
           "inv", "pinv", "lstsq", "det", "slogdet", "logdet", "norm", "vector_norm", "matrix_norm", "matrix_rank",
           "cond", "matrix_exp", "householder_product", "inv_ex", "solve_ex", "tensorinv", "tensorsolve", "vander",
           "LinAlgError"]

LinAlgError = LinearAlgebraError


def __getattr__(name: str) -> Any:
    raise missing("tenon.linalg", name, LINALG)


def diagonal(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """The elements (k, k + offset) of every matrix of a stack; `tn.diagonal` takes the first two axes.

    >>> tn.linalg.diagonal(tn.ones(4, 2, 3)).shape
    (4, 2)
    """
    return _diagonals.diagonal(x, offset, axis1, axis2)


def trace(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1, *, dtype: Any = None) -> Any:
    """The sum of the diagonal of every matrix of a stack; `tn.trace` takes the first two axes."""
    return diagonal(x, offset, axis1, axis2).sum(axis=-1, dtype=dtype)


@remembering
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors along an axis, or of matrices along two; by default the length of all elements as a vector.

    With `ord` and without an axis, x is a vector or a matrix.  `tn.norm` takes all elements as a vector for any `ord`.

    >>> tn.linalg.norm(tn.tensor([[3.0, 0.0], [0.0, 4.0]]), ord=2), tn.norm(tn.tensor([[3.0, 0.0], [0.0, 4.0]]), 2)
    (tensor(4.), tensor(5.))
    """
    x = lift(x)
    if axis is None and ord is not None:
        if x.ndim not in (1, 2):
            raise ShapeError(f"linalg.norm: of {x.type} ord={ord} needs an axis, or two")
        axis = (0, 1) if x.ndim == 2 else 0
    if isinstance(axis, (tuple, list)) and len(axis) == 2 and ord is not None:
        return matrix_norm(x, ord, tuple(axis), keepdims)
    return vector_norm(x, ord=2.0 if ord is None else ord, axis=axis, keepdims=keepdims)

"""The namespace `tn.linalg`: the linear algebra of the Array API standard and what NumPy and PyTorch add."""

from tenon.ops.arranging import matrix_transpose
from tenon.ops.decompositions import eig, eigh, eigvals, eigvalsh, svd, svdvals
from tenon.ops.diagonal import diagonal, trace
from tenon.ops.factors import cholesky, lu, qr
from tenon.ops.linalg import matmul
from tenon.ops.products import cross, multi_dot, outer, tensordot, vecdot
from tenon.ops.reduction import norm, vector_norm
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

__all__ = ["matmul", "matrix_transpose", "outer", "cross", "tensordot", "vecdot", "multi_dot", "matrix_power",
           "diagonal", "trace", "cholesky", "eig", "eigh", "eigvals", "eigvalsh", "lu", "qr", "svd", "svdvals",
           "solve", "solve_triangular", "cholesky_solve", "cholesky_inverse", "inv", "pinv", "lstsq", "det", "slogdet",
           "logdet", "norm", "vector_norm", "matrix_norm", "matrix_rank", "cond", "matrix_exp"]

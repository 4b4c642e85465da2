"""ATen's factors of matrices, and what is solved with them.

Those with `info` say there what is singular, and PyTorch raises the error; their results are NaN for such matrices.
"""

from __future__ import annotations

import math
from typing import Any

import tenon as tn
from tenon.ops.lu_factors import first_zero, lu_factor, lu_solve, lu_unpack
from tenon.ops.matrix_factorizations import cholesky_ex
from tenon.ops.vector_products import adjoint as adjoint_of
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type


def _solve_triangular(at: AtenCall, a: Any, b: Any, **how: Any) -> Any:
    """The solution, whose shape says how many systems there are."""
    lead, sizes = at.shape[:-2], (a.shape[-2:], b.shape[-2:])
    a, b = (tn.broadcast_to(x, shape=(*lead, *size)) for x, size in zip((a, b), sizes, strict=True))
    return tn.linalg.solve_triangular(a, b, **how)


def _factored(at: AtenCall, x: Any) -> tuple[Any, Any]:
    """What PyTorch keeps for the gradients of determinants: of a real matrix in order the factors of its transpose."""
    turned = at.arguments[0].is_contiguous() and x.dtype.kind != "c"
    return lu_factor(tn.matrix_transpose(x) if turned else x)


def _solved(packed: Any, pivots: Any, b: Any, **how: Any) -> Any:
    """NaN where a factor is singular, for which `lu_solve` raises."""
    singular = tn.reshape(first_zero(packed) > 0, (*packed.shape[:-2], 1, 1))
    found = lu_solve(tn.where(singular, tn.eye(packed.shape[-1], dtype=packed.dtype), packed), pivots, b, **how)
    return tn.where(singular, as_type(math.nan, packed.dtype), found)


def _lu_solve(at: AtenCall, packed: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    return _solved(packed, pivots, b, left=left, adjoint=adjoint)


def _slogdet(at: AtenCall, x: Any) -> Any:
    return (*tn.linalg.slogdet(x), *_factored(at, x))


def _lu_factor(at: AtenCall, x: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    packed, pivots = _pivoted(pivot, lu_factor(x))
    return packed, pivots, first_zero(packed)


def _pivoted(pivot: bool, found: Any) -> Any:
    if not pivot:
        raise UnmappedOperator("factors without pivots")
    return found


def _lu_unpack(at: AtenCall, packed: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    found = lu_unpack(packed, pivots)
    empty = tn.zeros((0,), dtype=packed.dtype)
    return found.P if unpack_pivots else empty, *((found.L, found.U) if unpack_data else (empty, empty))


def _inverse(at: AtenCall, x: Any, *, check_errors: bool = False) -> Any:
    packed, pivots = lu_factor(x)
    one = tn.broadcast_to(tn.eye(x.shape[-1], dtype=x.dtype), x.shape)
    return _solved(packed, pivots, one), first_zero(packed)


def _solve(at: AtenCall, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    packed, pivots = lu_factor(a)
    columns = b if len(at.shape) == b.ndim and b.ndim >= a.ndim else b[..., None]
    found = _solved(packed, pivots, columns, left=left)
    return tn.reshape(found, at.shape), packed, pivots, first_zero(packed)


def _mirrored(x: Any, upper: bool) -> Any:
    """The Hermitian matrix of which one triangle is read."""
    half = adjoint_of(x) if upper else x
    return tn.tril(half) + adjoint_of(tn.tril(half, -1))


def _cholesky(at: AtenCall, x: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    return tuple(cholesky_ex(_mirrored(x, upper), upper=upper))


def _qr(at: AtenCall, x: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return tn.zeros((0,), dtype=x.dtype), tn.linalg.qr(x)[1]
    return tuple(tn.linalg.qr(x, mode))


def _eigh(at: AtenCall, x: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    values, vectors = tn.linalg.eigh(_mirrored(x, UPLO.upper() == "U"))
    return values, vectors if compute_v else tn.zeros((0,), dtype=x.dtype)


def _svd(at: AtenCall, x: Any, full_matrices: bool = False, compute_uv: bool = True, *,
         driver: str | None = None) -> Any:
    if not compute_uv:
        empty = tn.zeros((0,), dtype=x.dtype)
        return empty, tn.linalg.svdvals(x), empty
    return tuple(tn.linalg.svd(x, full_matrices))


LINEAR_ALGEBRA: dict[str, Rule] = {
    "linalg_solve_triangular": _solve_triangular, "linalg_lu_solve": _lu_solve, "lu_unpack": _lu_unpack,
    "_linalg_det": lambda at, x: (tn.linalg.det(x), *_factored(at, x)), "_linalg_slogdet": _slogdet,
    "linalg_lu_factor_ex": _lu_factor, "linalg_inv_ex": _inverse, "_linalg_solve_ex": _solve,
    "linalg_lu": lambda at, x, *, pivot=True: tuple(_pivoted(pivot, tn.linalg.lu(x))),
    "linalg_cholesky_ex": _cholesky, "linalg_qr": _qr, "_linalg_eigh": _eigh, "_linalg_svd": _svd,
    "cholesky_solve": lambda at, x, factor, upper=False: tn.linalg.cholesky_solve(x, factor, upper),
    "cholesky_inverse": lambda at, x, upper=False: tn.linalg.cholesky_inverse(x, upper),
    "linalg_eig": lambda at, x: tuple(tn.linalg.eig(x)), "linalg_eigvals": lambda at, x: tn.linalg.eigvals(x),
    "linalg_householder_product": lambda at, x, tau: tn.linalg.householder_product(x, tau),
    "linalg_matrix_exp": lambda at, x: tn.linalg.matrix_exp(x),
}

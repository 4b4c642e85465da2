"""Matrices taken apart by NumPy's LAPACK at run time: cholesky, qr, svd, eigh, eig, lu.  Stacks of matrices throughout.

Gradients follow M. Seeger et al., "Auto-differentiating linear algebra" (2017), and for complex numbers the convention of
the rest of Tenon: the gradient G of a real L means dL = Re tr(G^H dA).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.errors import GradientError, LinearAlgebraError, ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.arranging import concat, expand_dims, narrow
from tenon.ops.complex_parts import conj, real
from tenon.ops.creation import eye
from tenon.ops.define import define, function, lift
from tenon.ops.diagonal import diag_embed, diagonal, tril, triu
from tenon.ops.linalg import matmul
from tenon.ops.products import adjoint, square
from tenon.ops.shape import cast
from tenon.types import DType, TensorType, complex_of, real_of

EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
EigResult = namedtuple("EigResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SVDResult = namedtuple("SVDResult", "U S Vh")
LUResult = namedtuple("LUResult", "P L U")


def lapack(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's routine, its errors said clearly."""
    def ref(*arrays: Any, **attrs: Any) -> Any:
        try:
            return fn(*arrays, **attrs)
        except np.linalg.LinAlgError as error:
            hints = {"Singular matrix": "tn.linalg.pinv and tn.linalg.lstsq take singular matrices",
                     "Matrix is not positive definite": "add a small multiple of the identity, or use tn.linalg.eigh"}
            raise LinearAlgebraError(f"{name}: {str(error)[:1].lower()}{str(error)[1:]}", hint=hints.get(str(error))) from None
    return ref


def square_type(name: str, x: TensorType) -> TensorType:
    """The type itself; raises ShapeError unless it is a stack of square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: {x} is no square matrix, nor a stack of them")
    return x


def matrix_type(name: str, x: TensorType) -> TensorType:
    """The type itself; raises ShapeError unless it is a stack of matrices."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: {x} is no matrix")
    return x


def hermitian(x: Any) -> Any:
    """The mean of the matrices and their adjoints: what is decomposed where a symmetric matrix is expected."""
    return (x + adjoint(x)) * 0.5


# ---------------------------------------------------------------- symmetric, positive definite

def _cholesky_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    inner = tril(matmul(adjoint(y), g))
    inner = inner - diag_embed(diagonal(inner, 0, -2, -1)) * 0.5
    left = solve_op(adjoint(y), inner)                                  # L^-H inner L^-1
    return (hermitian(adjoint(solve_op(adjoint(y), adjoint(left)))),)


cholesky_op: Op = define(
    "cholesky", public=False, type=lambda x: square_type("cholesky", x), promote=floating, vjp=_cholesky_vjp,
    ref=lapack("cholesky", np.linalg.cholesky), domain=(1, 2),
    doc="The lower triangular L with L @ L^H = x for a Hermitian, positive definite x.",
    examples=["cholesky(f32[2, 1, 1]) -> f32[2, 1, 1]", "cholesky(f32[2, 3]) -> error"])


@function
def cholesky(x: Any, upper: bool = False) -> Any:
    """The triangular factor of a symmetric (Hermitian), positive definite matrix: x = L @ L^H, or U^H @ U with `upper`.

    >>> tn.linalg.cholesky(tn.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    factor = cholesky_op(hermitian(square("cholesky", x)))
    return adjoint(factor) if upper else factor


def _gaps(w: Any) -> Any:
    """w[j] - w[i] at row i and column j, and 1 on the diagonal."""
    return expand_dims(w, -2) - expand_dims(w, -1) + eye(w.shape[-1], dtype=w.dtype)


def _off_diagonal(x: Any) -> Any:
    return x * (1 - eye(x.shape[-1], dtype=real_of(x.dtype)))


def _eigh_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (gw, gv), (w, v) = g, y
    inner = _off_diagonal(matmul(adjoint(v), gv)) / _gaps(w) + diag_embed(cast(gw, dtype=x.dtype))
    return (hermitian(matmul(matmul(v, inner), adjoint(v))),)


def _vectors(x: TensorType) -> TensorType:
    return TensorType(real_of(x.dtype), x.shape[:-1])


eigh_op: Op = define(
    "eigh", public=False, type=lambda x: (_vectors(square_type("eigh", x)), x), promote=floating, vjp=_eigh_vjp,
    ref=lapack("eigh", lambda x: tuple(np.linalg.eigh(x))),
    doc="The eigenvalues, ascending, and eigenvectors of a Hermitian matrix.",
    examples=["eigh(f32[2, 1, 1]) -> f32[2, 1], f32[2, 1, 1]"])


@function
def eigh(x: Any) -> Any:
    """The eigenvalues (ascending) and eigenvectors (columns) of a symmetric or Hermitian matrix.

    Gradients are those of the symmetric part; they grow without bound where eigenvalues meet.
    """
    return EighResult(*eigh_op(hermitian(square("eigh", x))))


@function
def eigvalsh(x: Any) -> Any:
    """The eigenvalues of a symmetric or Hermitian matrix, ascending."""
    return eigh(x)[0]


def _eig_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (gw, gv), (w, v) = g, y
    inner = matmul(adjoint(v), gv)
    length = real(diagonal(inner, 0, -2, -1))                           # eigenvectors have length 1
    inner = inner - matmul(adjoint(v), v * expand_dims(cast(length, dtype=v.dtype), -2))
    inner = _off_diagonal(inner) / conj(_gaps(w)) + diag_embed(gw)
    gradient = solve_op(adjoint(v), matmul(inner, adjoint(v)))
    return (gradient if x.dtype.kind == "c" else real(gradient),)


def _complex(x: TensorType) -> TensorType:
    return x.with_dtype(complex_of(x.dtype))


def _eig_ref(x: Any) -> Any:
    return tuple(np.linalg.eig(x.astype(np.result_type(x, np.complex64))) if x.dtype.kind == "c" else np.linalg.eig(x))


eig_op: Op = define(
    "eig", public=False, promote=floating, vjp=_eig_vjp, ref=lapack("eig", _eig_ref),
    type=lambda x: (_complex(square_type("eig", x)).with_shape(x.shape[:-1]), _complex(x)),
    doc="The complex eigenvalues and eigenvectors of a square matrix.", examples=["eig(f32[2, 1, 1]) -> c64[2, 1], c64[2, 1, 1]"])


@function
def eig(x: Any) -> Any:
    """The eigenvalues and eigenvectors (columns of length 1) of a square matrix, complex, in no order."""
    return EigResult(*eig_op(square("eig", x)))


@function
def eigvals(x: Any) -> Any:
    """The eigenvalues of a square matrix, complex, in no order."""
    return eig_op(square("eigvals", x))[0]


# ---------------------------------------------------------------- singular values

def _svd_type(x: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    m, n = matrix_type("svd", x).shape[-2:]
    k, lead = min(m, n), x.shape[:-2]
    return (x.with_shape((*lead, m, m if full else k)), TensorType(real_of(x.dtype), (*lead, k)),
            x.with_shape((*lead, n if full else k, n)))


def _svd_vjp(g: Any, y: Any, x: Any, full: bool) -> tuple[Any]:
    if full and x.shape[-1] != x.shape[-2]:
        raise GradientError("svd: with full_matrices=True the vectors beyond the rank have no gradient",
                            hint="pass full_matrices=False")
    (gu, gs, gvh), (u, s, vh) = g, y
    wide = cast(s, dtype=x.dtype)
    rows, columns, inverse = expand_dims(wide, -1), expand_dims(wide, -2), expand_dims(1 / wide, -2)
    left, right = matmul(adjoint(u), gu), matmul(gvh, adjoint(vh))       # U^H gU and (V^H gV)^H
    gaps = _gaps(wide * wide)
    inner = (_off_diagonal(left - adjoint(left)) / gaps) * columns + rows * (_off_diagonal(adjoint(right) - right) / gaps)
    inner = inner + diag_embed(cast(gs, dtype=x.dtype))
    if x.dtype.kind == "c":
        inner = inner + diag_embed((diagonal(left, 0, -2, -1) - conj(diagonal(left, 0, -2, -1))) * 0.5 / wide)
    gradient = matmul(matmul(u, inner), vh)
    if x.shape[-2] > s.shape[-1]:
        gradient = gradient + matmul((gu - matmul(u, left)) * inverse, vh)
    if x.shape[-1] > s.shape[-1]:
        gradient = gradient + matmul(u * inverse, gvh - matmul(right, vh))
    return (gradient,)


svd_op: Op = define(
    "svd", public=False, type=_svd_type, promote=floating, vjp=_svd_vjp,
    ref=lapack("svd", lambda x, full: tuple(np.linalg.svd(x, full_matrices=full))),
    doc="The singular values, descending, between the left and right singular vectors: x = U @ diag(S) @ Vh.",
    examples=["svd(f32[2, 3, 2], full=False) -> f32[2, 3, 2], f32[2, 2], f32[2, 2, 2]",
              "svd(f32[2, 3], full=False) -> f32[2, 2], f32[2], f32[2, 3]", "svd(f32[3], full=True) -> error"])

svdvals_op: Op = define(
    "svdvals", public=False, promote=floating, type=lambda x: _svd_type(x, full=False)[1],
    ref=lapack("svdvals", lambda x: np.linalg.svd(x, compute_uv=False)),
    vjp=lambda g, y, x: (_svd_values_vjp(g, x),),
    doc="The singular values, descending.", examples=["svdvals(f32[2, 3, 2]) -> f32[2, 2]"])


def _svd_values_vjp(g: Any, x: Any) -> Any:
    u, _, vh = svd_op(x, full=False)
    return matmul(u * expand_dims(cast(g, dtype=x.dtype), -2), vh)


@function
def svd(x: Any, full_matrices: bool = True) -> Any:
    """The singular value decomposition x = U @ diag(S) @ Vh, with square U and Vh unless `full_matrices=False`."""
    return SVDResult(*svd_op(x, full=bool(full_matrices)))


@function
def svdvals(x: Any) -> Any:
    """The singular values of a matrix, descending."""
    return svdvals_op(x)


# ---------------------------------------------------------------- triangular factors

def _qr_type(x: TensorType, *, complete: bool) -> tuple[TensorType, ...]:
    m, n = matrix_type("qr", x).shape[-2:]
    k, lead = m if complete else min(m, n), x.shape[:-2]
    return x.with_shape((*lead, m, k)), x.with_shape((*lead, k, n))


def _qr_vjp(g: Any, y: Any, x: Any, complete: bool) -> tuple[Any]:
    (gq, gr), (q, r) = g, y
    m, n = x.shape[-2:]
    if m < n or (complete and m != n):
        raise GradientError("qr: this form has no gradient", hint='mode="reduced" has one')
    inner = matmul(r, adjoint(gr)) - matmul(adjoint(gq), q)
    low = tril(inner, -1)
    inner = low + adjoint(low) + diag_embed(cast(real(diagonal(inner, 0, -2, -1)), dtype=x.dtype))
    return (adjoint(solve_op(r, adjoint(gq + matmul(q, inner)))),)      # (...) R^-H


qr_op: Op = define(
    "qr", public=False, type=_qr_type, promote=floating, vjp=_qr_vjp,
    ref=lapack("qr", lambda x, complete: tuple(np.linalg.qr(x, "complete" if complete else "reduced"))),
    doc="x = Q @ R with orthonormal columns of Q and upper triangular R.",
    examples=["qr(f32[2, 3, 2], complete=False) -> f32[2, 3, 2], f32[2, 2, 2]",
              "qr(f32[2, 2], complete=False) -> f32[2, 2], f32[2, 2]", "qr(f32[3], complete=False) -> error"])


@function
def qr(x: Any, mode: str = "reduced") -> Any:
    """x = Q @ R with orthonormal columns of Q and upper triangular R; `mode="complete"` gives a square Q."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    x = lift(x)
    m, n = matrix_type("qr", TensorType(x.dtype, x.shape)).shape[-2:]
    if m >= n or mode == "complete":
        return QRResult(*qr_op(x, complete=mode == "complete" and m != n))
    q, r = qr_op(narrow(x, x.ndim - 1, 0, m), complete=False)           # a wide matrix: the left square decides Q
    return QRResult(q, concat(r, matmul(adjoint(q), narrow(x, x.ndim - 1, m, n)), axis=-1))


def _lu_ref(x: Any) -> Any:
    """Row by row with partial pivoting; NumPy does not expose LAPACK's getrf."""
    m, n = x.shape[-2:]
    k = min(m, n)
    u, flat = x.reshape(-1, m, n).astype(np.result_type(x, np.float32)), int(np.prod(x.shape[:-2]))
    u, low = u.copy(), np.zeros((flat, m, k), u.dtype)
    order, at = np.tile(np.arange(m), (flat, 1)), np.arange(flat)
    for c in range(k):
        pivot = c + np.abs(u[:, c:, c]).argmax(1) if flat else np.zeros(0, int)
        for rows in (u, low, order):
            held = rows[:, c].copy()
            rows[:, c] = rows[at, pivot]
            rows[at, pivot] = held
        divisor = np.where(u[:, c, c] == 0, 1, u[:, c, c])
        low[:, c:, c] = u[:, c:, c] / divisor[:, None]
        low[:, c, c] = 1
        u[:, c + 1:] -= low[:, c + 1:, c, None] * u[:, c, None]
    p = (np.arange(m)[:, None] == order[:, None, :]).astype(u.dtype)
    lead = x.shape[:-2]
    return p.reshape(*lead, m, m), low.reshape(*lead, m, k), np.triu(u[:, :k]).reshape(*lead, k, n)


def _lu_type(x: TensorType) -> tuple[TensorType, ...]:
    m, n = matrix_type("lu", x).shape[-2:]
    k, lead = min(m, n), x.shape[:-2]
    return x.with_shape((*lead, m, m)), x.with_shape((*lead, m, k)), x.with_shape((*lead, k, n))


def _lu_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (_, gl, gu), (p, low, u) = g, y
    m, n = x.shape[-2:]
    rows, columns, k = x.ndim - 2, x.ndim - 1, min(m, n)
    low_square, u_square = narrow(low, rows, 0, k), narrow(u, columns, 0, k)
    below, right = matmul(adjoint(low_square), narrow(gl, rows, 0, k)), matmul(narrow(gu, columns, 0, k), adjoint(u_square))
    if n > m:
        below = below - matmul(narrow(gu, columns, k, n), adjoint(narrow(u, columns, k, n)))
    if m > n:
        right = right - matmul(adjoint(narrow(low, rows, k, m)), narrow(gl, rows, k, m))
    inner = tril(below, -1) + triu(right)
    if n > m:                                                           # P L^-H [inner U^-H | gu]
        inner = concat(adjoint(solve_op(u_square, adjoint(inner))), narrow(gu, columns, k, n), axis=-1)
        return (matmul(p, solve_op(adjoint(low_square), inner)),)
    inner = solve_op(adjoint(low_square), inner)                        # P [L^-H inner; gl] U^-H
    inner = concat(inner, narrow(gl, rows, k, m), axis=-2) if m > n else inner
    return (matmul(p, adjoint(solve_op(u_square, adjoint(inner)))),)


lu_op: Op = define(
    "lu", public=False, type=_lu_type, ref=_lu_ref, promote=floating, vjp=_lu_vjp,
    doc="x = P @ L @ U with a permutation P, unit lower L and upper U.",
    examples=["lu(f32[2, 3, 3]) -> f32[2, 3, 3], f32[2, 3, 3], f32[2, 3, 3]", "lu(f32[3, 2]) -> f32[3, 3], f32[3, 2], f32[2, 2]"])


@function
def lu(x: Any) -> Any:
    """x = P @ L @ U with a permutation P, unit lower triangular L and upper triangular U; pivots are the largest."""
    return LUResult(*lu_op(x))


# ---------------------------------------------------------------- the solver that the gradients above need

def _solve_type(a: TensorType, b: TensorType) -> TensorType:
    square_type("solve", a)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(f"solve: {a} and the right-hand side {b} do not fit")
    return b


def _solve_vjp(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    right = solve_op(adjoint(a), g)
    return (lambda: -matmul(right, adjoint(y))), right


solve_op: Op = define(
    "solve", public=False, type=_solve_type, promote=floating, vjp=_solve_vjp, ref=lapack("solve", np.linalg.solve),
    doc="The solution x of a @ x = b for a stack of square matrices and one of right-hand sides.",
    examples=["solve(f32[1, 2, 2], f32[1, 2, 4]) -> f32[1, 2, 4]", "solve(f32[3, 3], f32[2, 4]) -> error"])


def threshold(values: Any, shape: Any, rtol: float | None, dtype: DType) -> Any:
    """Below this a singular value counts as zero: `rtol` of the largest; by default rounding times the longer side."""
    if rtol is None:
        rtol = float(np.finfo(real_of(dtype).numpy).eps) * max(shape[-2:])
    return values.max(axis=-1, keepdims=True) * rtol



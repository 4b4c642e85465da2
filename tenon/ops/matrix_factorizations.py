"""Triangular factors of matrices by NumPy's LAPACK at run time, and the solver built on them: solve, cholesky, qr.

Gradients follow M. Seeger et al., "Auto-differentiating linear algebra" (2017), and for complex numbers the
convention of the rest of Tenon: the gradient G of a real L means dL = Re tr(G^H dA).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenon.dims.compare_sizes import least
from tenon.errors import GradientError, ShapeError, refused_matrix
from tenon.graph.axis_rule import over_batches
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.complex_parts import real
from tenon.ops.define import define, function, lift
from tenon.ops.diagonal import diag_embed, diagonal, tril, triu
from tenon.ops.elimination import Eliminated, cholesky_factor, eliminated, is_eliminated, solved, triangle_solved
from tenon.ops.joining_and_axes import concat
from tenon.ops.matrix_products import matmul
from tenon.ops.shape import cast
from tenon.ops.splitting import narrow
from tenon.ops.vector_products import adjoint, square
from tenon.types import TensorType, int32

if TYPE_CHECKING:
    from tenon.tensor import Tensor


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


class CholeskyExResult(NamedTuple):
    """What `cholesky_ex` returns."""

    L: Tensor
    info: Tensor


BLOCK = 32          # rows of a triangle that are solved for at once


def lapack(name: str, fn: Callable[..., Any], finite: bool = False,
           small: Eliminated | None = None) -> Callable[..., Any]:
    """NumPy's routine, its errors said clearly; where it iterates it asks for `finite` numbers.

    With others LAPACK raises, gives NaN, or does not end, by the matrix.  `small` is what a compiled program does with
    few rows: its order of elimination says which elements are NaN.
    """
    def ref(*arrays: Any, **attrs: Any) -> Any:
        if small is not None and is_eliminated(arrays):
            return eliminated(name, small, arrays, **attrs)
        if finite and not all(np.isfinite(x).all() for x in arrays):
            raise refused_matrix(name, said="Matrix has infinities or NaN")
        try:
            return fn(*arrays, **attrs)
        except np.linalg.LinAlgError as error:
            raise refused_matrix(name, said=str(error)) from None
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


# ---------------------------------------------------------------- the solver

def _solve_type(a: TensorType, b: TensorType) -> TensorType:
    square_type("solve", a)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(f"solve: {a} and the right-hand side {b} do not fit")
    return b


def _solve_vjp(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    right = solve_op(adjoint(a), g)
    return (lambda: -matmul(right, adjoint(y))), right


solve_op: Op = define(
    "solve", public=False, autocast="wide", axis_rule=over_batches(2),
    type=_solve_type, promote=floating, vjp=_solve_vjp, ref=lapack("solve", np.linalg.solve, small=solved),
    batch="front",
    fails="matrix", doc="The solution x of a @ x = b for a stack of square matrices and one of right-hand sides.",
    examples=["solve(f32[1, 2, 2], f32[1, 2, 4]) -> f32[1, 2, 4]", "solve(f32[3, 3], f32[2, 4]) -> error"])


def _triangular_type(a: TensorType, b: TensorType, *, upper: bool) -> TensorType:
    return _solve_type(a, b)


def _triangular_ref(a: Any, b: Any, upper: bool) -> Any:
    """Block of rows after block of rows: most of it is products; NumPy does not expose LAPACK's trtrs."""
    n, half = a.shape[-1], np.triu if upper else np.tril
    x, starts = np.array(b), range(0, n, BLOCK)
    for start in reversed(starts) if upper else starts:
        rows = slice(start, min(start + BLOCK, n))
        done = slice(rows.stop, n) if upper else slice(0, start)
        rest = x[..., rows, :] - a[..., rows, done] @ x[..., done, :]
        corner = half(a[..., rows, rows])
        many = b.shape[-1] > 2 * BLOCK          # for which a product with the inverse is faster
        x[..., rows, :] = np.linalg.inv(corner) @ rest if many else np.linalg.solve(corner, rest)
    return x


def _triangular_vjp(g: Any, y: Any, a: Any, b: Any, upper: bool) -> tuple[Any, Any]:
    right = triangular_op(adjoint(a), g, upper=not upper)
    return (lambda: -(triu if upper else tril)(matmul(right, adjoint(y)))), right


triangular_op: Op = define(
    "solve_triangular", public=False, autocast="wide", axis_rule=over_batches(2),
    type=_triangular_type, promote=floating,
    vjp=_triangular_vjp, ref=lapack("solve_triangular", _triangular_ref, small=triangle_solved),
    domain=((1.0, 2.0), (-2.0, 2.0)),
    batch="front",
    fails="matrix",
    doc="The solution x of a @ x = b, of whose matrices only the upper triangle is read, or only the lower one.",
    examples=["solve_triangular(f32[2, 1, 1], f32[2, 1, 4], upper=False) -> f32[2, 1, 4]",
              "solve_triangular(f32[1, 1], f32[1, 3], upper=True) -> f32[1, 3]",
              "solve_triangular(f32[3, 3], f32[2, 4], upper=True) -> error"])


# ---------------------------------------------------------------- positive definite matrices

def _cholesky_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    inner = tril(matmul(adjoint(y), g))
    inner = inner - diag_embed(diagonal(inner, 0, -2, -1)) * 0.5
    left = triangular_op(adjoint(y), inner, upper=True)                 # L^-H inner L^-1
    return (hermitian(adjoint(triangular_op(adjoint(y), adjoint(left), upper=True))),)


cholesky_op: Op = define(
    "cholesky", public=False, autocast="wide", axis_rule=over_batches(2),
    type=lambda x: square_type("cholesky", x), promote=floating, vjp=_cholesky_vjp,
    ref=lapack("cholesky", np.linalg.cholesky, small=cholesky_factor), domain=(1, 2),
    batch="front", fails="matrix", doc="The lower triangular L with L @ L^H = x for a Hermitian, positive definite x.",
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


def _leading(x: Any) -> int:
    """How many rows and columns of a Hermitian matrix are positive definite, from the first on."""
    good, bad = 0, len(x) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            np.linalg.cholesky(x[:middle, :middle])
            good = middle
        except np.linalg.LinAlgError:
            bad = middle
    return good


def _cholesky_ex_ref(x: Any) -> Any:
    """NumPy refuses the whole stack where one matrix is not positive definite, and does not say which."""
    info = np.zeros(x.shape[:-2], np.int32)
    try:
        return np.linalg.cholesky(x), info
    except np.linalg.LinAlgError:
        factor = np.zeros_like(x)
    for at in np.ndindex(info.shape):
        k = _leading(x[at])
        factor[(*at, slice(k), slice(k))] = np.linalg.cholesky(x[at][:k, :k])
        info[at] = 0 if k == x.shape[-1] else k + 1
    return factor, info


cholesky_ex_op: Op = define(
    "cholesky_ex", public=False, autocast="wide", axis_rule=over_batches(2, 0), domain=(1, 2), batch="front",
    type=lambda x: (square_type("cholesky_ex", x), TensorType(int32, x.shape[:-2])), promote=floating,
    vjp=lambda g, y, x: _cholesky_vjp(g[0], y[0], x), ref=_cholesky_ex_ref,
    doc="The Cholesky factor, and 0 or which leading minor, counted from 1, is the first that is not positive.",
    examples=["cholesky_ex(f32[2, 1, 1]) -> f32[2, 1, 1], i32[2]", "cholesky_ex(f32[2, 3]) -> error"])


@function
def cholesky_ex(x: Any, *, upper: bool = False) -> CholeskyExResult:
    """The Cholesky factor, and `info`, which says what is no positive definite matrix instead of an error.

    It is 0, or the size of the first leading minor that is not positive.

    >>> tn.linalg.cholesky_ex(tn.tensor([[4.0, 0.0], [0.0, -1.0]])).info
    tensor(2, dtype=int32)
    """
    factor, info = cholesky_ex_op(hermitian(square("cholesky_ex", x)))
    return CholeskyExResult(adjoint(factor) if upper else factor, info)


# ---------------------------------------------------------------- triangular factors

def _qr_type(x: TensorType, *, complete: bool) -> tuple[TensorType, ...]:
    m, n = matrix_type("qr", x).shape[-2:]
    k, lead = m if complete else least(m, n), x.shape[:-2]
    return x.with_shape((*lead, m, k)), x.with_shape((*lead, k, n))


def _qr_vjp(g: Any, y: Any, x: Any, complete: bool) -> tuple[Any]:
    (gq, gr), (q, r) = g, y
    m, n = x.shape[-2:]
    if m < n or (complete and m != n):
        raise GradientError("qr: this form has no gradient", hint='mode="reduced" has one')
    inner = matmul(r, adjoint(gr)) - matmul(adjoint(gq), q)
    low = tril(inner, -1)
    inner = low + adjoint(low) + diag_embed(cast(real(diagonal(inner, 0, -2, -1)), dtype=x.dtype))
    return (adjoint(triangular_op(r, adjoint(gq + matmul(q, inner)), upper=True)),)     # (...) R^-H


qr_op: Op = define(
    "qr", public=False, autocast="wide", axis_rule=over_batches(2, 2),
    type=_qr_type, promote=floating, vjp=_qr_vjp,
    ref=lapack("qr", lambda x, complete: tuple(np.linalg.qr(x, "complete" if complete else "reduced"))),
    batch="front", fails="matrix", doc="x = Q @ R with orthonormal columns of Q and upper triangular R.",
    examples=["qr(f32[2, 3, 2], complete=False) -> f32[2, 3, 2], f32[2, 2, 2]",
              "qr(f32[2, 2], complete=False) -> f32[2, 2], f32[2, 2]", "qr(f32[3], complete=False) -> error"])


@function
def qr(x: Any, mode: str = "reduced") -> QRResult:
    """x = Q @ R with orthonormal columns of Q and upper triangular R; `mode="complete"` gives a square Q."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    x = lift(x)
    m, n = matrix_type("qr", TensorType(x.dtype, x.shape)).shape[-2:]
    if m >= n or mode == "complete":
        return QRResult(*qr_op(x, complete=mode == "complete" and m != n))
    q, r = qr_op(narrow(x, x.ndim - 1, 0, m), complete=False)           # a wide matrix: the left square decides Q
    return QRResult(q, concat(r, matmul(adjoint(q), narrow(x, x.ndim - 1, m, n)), axis=-1))

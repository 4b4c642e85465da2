"""Linear equations and what is made of them: solve, inv, det, pinv, lstsq, norms, matrix_exp ..."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.axis_rule import over_batches
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.comparison import not_equal, where
from tenon.ops.complex_parts import conj, imag, real
from tenon.ops.creation import eye
from tenon.ops.decompositions import svd, svdvals, threshold
from tenon.ops.define import define, function, lift
from tenon.ops.elimination import determinant, inverted, sign_and_logarithm
from tenon.ops.joining_and_axes import concat, expand_dims
from tenon.ops.matrix_factorizations import lapack, matrix_type, solve_op, square_type, triangular_op
from tenon.ops.matrix_products import matmul, mT
from tenon.ops.reduction import count_nonzero, sum_
from tenon.ops.shape import broadcast_to, cast, permute, reshape_op
from tenon.ops.splitting import narrow
from tenon.ops.vector_products import adjoint, square
from tenon.types import TensorType, broadcast_shapes, floating_of, normalize_axes, real_of

if TYPE_CHECKING:
    from tenon.tensor import Tensor


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


class LstsqResult(NamedTuple):
    """What `lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# ---------------------------------------------------------------- solving

@function
def solve(x: Any, y: Any, *, left: bool = True) -> Any:
    """The solution z of x @ z = y for a square x; y is a vector or has right-hand sides as columns.

    With `left=False` that of z @ x = y.

    Raises LinearAlgebraError where x is singular.

    >>> tn.linalg.solve(tn.tensor([[2.0, 0.0], [0.0, 4.0]]), tn.tensor([2.0, 2.0]))
    tensor([1. , 0.5])
    """
    return _solved("solve", solve_op, x, y) if left else mT(_solved("solve", solve_op, mT(x), mT(y)))


def _solved(name: str, op: Op, x: Any, y: Any, **attrs: Any) -> Any:
    """What an operator for stacks gives for a vector, or where leading axes broadcast."""
    x, y = square(name, x), lift(y)
    if y.ndim == 1:
        return _solved(name, op, x, expand_dims(y, -1), **attrs)[..., 0]
    if y.shape[-2] != x.shape[-1]:
        raise ShapeError(f"{name}: {x.type} and the right-hand side {y.type} do not fit")
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return op(_spread(x, lead), _spread(y, lead), **attrs)


def _spread(x: Any, lead: Any) -> Any:
    shape = (*lead, *x.shape[-2:])
    return x if x.shape == shape else broadcast_to(x, shape=shape)


@function
def solve_triangular(x: Any, y: Any, upper: bool = False, left: bool = True, unitriangular: bool = False) -> Any:
    """The solution of x @ z = y (or z @ x = y where `left=False`), reading only one triangle of x."""
    x = square("solve_triangular", x)
    if unitriangular:
        one = eye(x.shape[-1], dtype=x.dtype)
        x = where(not_equal(one, 0), one, x)
    if not left:
        return mT(solve_triangular(mT(x), mT(y), not upper))
    return _solved("solve_triangular", triangular_op, x, y, upper=bool(upper))


@function
def cholesky_solve(x: Any, factor: Any, upper: bool = False) -> Any:
    """The solution z of A @ z = x, where `factor` is the Cholesky factor of A."""
    low = adjoint(factor) if upper else factor
    return solve_triangular(adjoint(low), solve_triangular(low, x), upper=True)


@function
def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    """The inverse of the matrix whose Cholesky factor is x."""
    x = square("cholesky_inverse", x)
    return cholesky_solve(_spread(eye(x.shape[-1], dtype=x.dtype), x.shape[:-2]), x, upper)


inv_op: Op = define(
    "inv", public=False, autocast="wide", axis_rule=over_batches(2),
    type=lambda x: square_type("inv", x), promote=floating, ref=lapack("inv", np.linalg.inv, small=inverted),
    vjp=lambda g, y, x: (-matmul(matmul(adjoint(y), g), adjoint(y)),),
    batch="front",
    fails="matrix",
    doc="The inverses of square matrices.", examples=["inv(f32[1, 2, 2]) -> f32[1, 2, 2]", "inv(f32[2, 3]) -> error"])


@function
def inv(x: Any) -> Any:
    """The inverse of a square matrix; raises LinearAlgebraError where there is none."""
    return inv_op(x)


@function
def matrix_power(x: Any, n: int) -> Any:
    """A square matrix times itself n times; the inverse where n is negative."""
    x = square("matrix_power", x)
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        return broadcast_to(eye(x.shape[-1], dtype=x.dtype), shape=x.shape)
    half = matrix_power(matmul(x, x), n // 2) if n > 1 else None
    return x if half is None else matmul(half, x) if n % 2 else half


def _pinv_vjp(g: Any, y: Any, x: Any, rtol: Any) -> tuple[Any]:
    """G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses" (1973)."""
    p, back, turned = y, adjoint(y), adjoint(g)
    rest = matmul(turned, matmul(p, back))
    other = matmul(matmul(back, p), turned)
    return (rest - matmul(x, matmul(p, rest)) + other - matmul(matmul(other, p), x) - matmul(matmul(back, g), back),)


def _pinv_type(x: TensorType, *, rtol: float | None) -> TensorType:
    return x.with_shape((*x.shape[:-2], *reversed(matrix_type("pinv", x).shape[-2:])))


pinv_op: Op = define(
    "pinv", public=False, autocast="wide", axis_rule=over_batches(2),
    type=_pinv_type,
    promote=floating,
    vjp=_pinv_vjp, ref=lapack("pinv", lambda x, rtol: np.linalg.pinv(x, rtol), finite=True),
    batch="front", fails="matrix", doc="The pseudo-inverse.",
    examples=["pinv(f32[2, 3, 2], rtol=1e-06) -> f32[2, 2, 3]", "pinv(f32[2, 3], rtol=1e-06) -> f32[3, 2]"])


@function
def pinv(x: Any, rtol: Any = None) -> Any:
    """The pseudo-inverse; singular values below `rtol` of the largest count as zero: a number, or one a matrix."""
    if getattr(rtol, "ndim", 0):
        u, s, vh = svd(x, full_matrices=False)
        keep = s > expand_dims(lift(rtol), -1) * s.max(axis=-1, keepdims=True)
        inverse = where(keep, 1 / where(keep, s, 1), 0)
        return matmul(adjoint(vh) * expand_dims(inverse, -2), adjoint(u))
    return pinv_op(x, rtol=_rtol(x, rtol))


def _rtol(x: Any, rtol: float | None) -> float:
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"{x.type} is no matrix")
    return float(np.finfo(real_of(floating_of(x.dtype)).numpy).eps) * max(x.shape[-2:]) if rtol is None else float(rtol)


@function
def lstsq(x: Any, y: Any, rtol: float | None = None) -> LstsqResult:
    """The z of least norm among those that minimise |x @ z - y|, with residuals, rank and singular values of x."""
    x, y = lift(x), lift(y)
    columns = expand_dims(y, -1) if y.ndim == 1 else y
    solution = matmul(pinv(x, rtol), columns)
    rest = columns - matmul(x, solution)
    residuals = sum_(real(rest * conj(rest)), axis=-2)
    if y.ndim == 1:
        solution, residuals = solution[..., 0], residuals[..., 0]
    return LstsqResult(solution, residuals, matrix_rank(x, rtol), svdvals(x))


# ---------------------------------------------------------------- determinants

det_op: Op = define(
    "det", public=False, autocast="wide", axis_rule=over_batches(0),
    type=lambda x: x.with_shape(square_type("det", x).shape[:-2]), promote=floating,
    ref=lapack("det", np.linalg.det, small=determinant),
    vjp=lambda g, y, x: (_scale(g * conj(y)) * adjoint(inv_op(x)),),
    batch="front",
    doc="The determinants of square matrices.", examples=["det(f32[1, 2, 2]) -> f32[1]", "det(f32[2, 3]) -> error"])


def _scale(x: Any) -> Any:
    """A number a matrix, to multiply matrices with."""
    return reshape_op(x, shape=(*x.shape, 1, 1))


def _slogdet_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (gs, gl), (sign, _) = g, y
    factor = cast(gl, dtype=x.dtype)
    if x.dtype.kind == "c":
        factor = factor - cast(imag(conj(gs) * sign), dtype=x.dtype) * 1j
    return (_scale(factor) * adjoint(inv_op(x)),)


def _slogdet_ref(x: Any) -> Any:
    """NumPy's; a determinant that is NaN has no sign either, for which LAPACK's permutation says 1 or -1."""
    sign, size = np.linalg.slogdet(x)
    return np.where(np.isnan(size), size, sign).astype(x.dtype), size


slogdet_op: Op = define(
    "slogdet", public=False, autocast="wide", axis_rule=over_batches(0, 0),
    promote=floating, vjp=_slogdet_vjp, ref=lapack("slogdet", _slogdet_ref, small=sign_and_logarithm),
    type=lambda x: (x.with_shape(square_type("slogdet", x).shape[:-2]), TensorType(real_of(x.dtype), x.shape[:-2])),
    batch="front",
    doc="The sign and the logarithm of the size of determinants.", examples=["slogdet(f32[1, 2, 2]) -> f32[1], f32[1]"])


@function
def det(x: Any) -> Any:
    """The determinant of a square matrix.

    >>> tn.linalg.det(tn.tensor([[1.0, 2.0], [3.0, 5.0]]))
    tensor(-1.)
    """
    return det_op(x)


@function
def slogdet(x: Any) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its size."""
    return SlogdetResult(*slogdet_op(x))


@function
def logdet(x: Any) -> Any:
    """The logarithm of the determinant; NaN where that is negative."""
    sign, size = slogdet_op(x)
    return where(sign > 0, size, math.nan) if sign.dtype.kind != "c" else sign.log() + size


# ---------------------------------------------------------------- rank, condition, norms

@function
def matrix_rank(x: Any, rtol: float | None = None) -> Any:
    """How many singular values are above `rtol` of the largest."""
    values = svdvals(x)
    return count_nonzero(values > threshold(values, x.shape, rtol, values.dtype), axis=-1)


@function
def matrix_norm(x: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    """A norm of matrices: "fro", "nuc", 1, -1, inf, -inf (sums of columns or rows), 2 or -2 (singular values)."""
    x = lift(x)
    axes = normalize_axes(axis, x.ndim)
    if len(axes) != 2:
        raise ShapeError(f"matrix_norm: two axes are needed, not {axis}")
    lead = tuple(k for k in range(x.ndim) if k not in axes)
    out = _matrix_norm(permute(x, axes=(*lead, *axes)), ord)
    return reshape_op(out, shape=tuple(1 if k in axes else n for k, n in enumerate(x.shape))) if keepdims else out


def _matrix_norm(x: Any, ord: Any) -> Any:
    if ord == "fro":
        return x.vector_norm(ord=2.0, axis=(-2, -1))
    if ord == "nuc":
        return svdvals(x).sum(axis=-1)
    if ord in (2, -2):
        return svdvals(x).max(axis=-1) if ord > 0 else svdvals(x).min(axis=-1)
    if ord in (1, -1, math.inf, -math.inf):
        sums = abs(x).sum(axis=-2 if abs(ord) == 1 else -1)
        return sums.max(axis=-1) if ord > 0 else sums.min(axis=-1)
    raise ArgumentError(f"matrix_norm: ord={ord!r} is unknown", hint='it is "fro", "nuc", 1, -1, 2, -2, inf or -inf')


def cond(x: Any, p: Any = None) -> Any:
    """The condition number: the norm of a matrix times that of its inverse; by default from its singular values."""
    if p in (None, 2, -2):
        values = svdvals(x)
        first, last = values.max(axis=-1), values.min(axis=-1)
        return last / first if p == -2 else first / last
    return matrix_norm(x, p) * matrix_norm(inv(x), p)


# ---------------------------------------------------------------- the exponential

def _exp_ref(x: Any) -> Any:
    """Scaling, a Pade approximant of order 13, squaring.  N. J. Higham, SIAM J. Matrix Anal. Appl. 26 (2005).

    A matrix with an element that is not finite gives NaN.
    """
    b = [64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
         670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1]
    wide = x.astype(np.promote_types(x.dtype, np.float64))
    finite = np.isfinite(wide).all((-2, -1), keepdims=True)
    wide = np.where(finite, wide, 0)
    size = np.abs(wide).sum(-2).max(-1, initial=0)[..., None, None]
    squarings = np.maximum(np.ceil(np.log2(np.maximum(size, 1e-300) / 5.37)), 0)
    a, one = wide / 2.0 ** squarings, np.eye(x.shape[-1])
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one
    out = np.linalg.solve(even - odd, even + odd)
    for iteration in range(int(squarings.max(initial=0))):
        out = np.where(iteration < squarings, out @ out, out)
    return np.where(finite, out, np.nan).astype(x.dtype)


def _exp_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    """exp of [[A, G], [0, A]] holds the derivative of exp at A along G in its upper right block."""
    n, a = x.shape[-1], adjoint(x)
    double = concat(concat(a, g, axis=-1), concat(a * 0, a, axis=-1), axis=-2)
    out = matrix_exp_op(double)
    return (narrow(narrow(out, out.ndim - 2, 0, n), out.ndim - 1, n, 2 * n),)


matrix_exp_op: Op = define(
    "matrix_exp", public=False, autocast="wide", axis_rule=over_batches(2),
    type=lambda x: square_type("matrix_exp", x), promote=floating, vjp=_exp_vjp,
    ref=lapack("matrix_exp", _exp_ref), batch="front", doc="The exponential of square matrices.",
    examples=["matrix_exp(f32[2, 3, 3]) -> f32[2, 3, 3]", "matrix_exp(f32[2, 3]) -> error"])


@function
def matrix_exp(x: Any) -> Any:
    """The exponential of a square matrix, I + x + x @ x / 2 + ..."""
    return matrix_exp_op(x)

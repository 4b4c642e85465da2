"""Eigenvalues and singular values by NumPy's LAPACK at run time: eigh, eig, svd.  Stacks of matrices throughout."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenon.dims.compare_sizes import least
from tenon.errors import ArgumentError, GradientError
from tenon.graph.axis_rule import over_batches
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.arithmetic import add
from tenon.ops.complex_parts import conj, real
from tenon.ops.creation import eye, zeros_like
from tenon.ops.define import define, function
from tenon.ops.diagonal import diag_embed, diagonal, tril
from tenon.ops.joining_and_axes import expand_dims
from tenon.ops.matrix_factorizations import hermitian, lapack, matrix_type, solve_op, square_type
from tenon.ops.matrix_products import matmul
from tenon.ops.shape import cast
from tenon.ops.vector_products import adjoint, square
from tenon.types import DType, TensorType, complex_of, real_of

if TYPE_CHECKING:
    from tenon.tensor import Tensor


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """What `eig` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# ---------------------------------------------------------------- eigenvalues

def _gaps(w: Any) -> Any:
    """w[j] - w[i] at row i and column j, and 1 on the diagonal."""
    return expand_dims(w, -2) - expand_dims(w, -1) + eye(w.shape[-1], dtype=w.dtype)


def _off_diagonal(x: Any) -> Any:
    return x * (1 - eye(x.shape[-1], dtype=real_of(x.dtype)))


def _eigh_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (gw, gv), (w, v) = g, y
    parts = [] if gv is None else [_off_diagonal(matmul(adjoint(v), gv)) / _gaps(w)]
    parts += [] if gw is None else [diag_embed(cast(gw, dtype=x.dtype))]
    inner = functools.reduce(add, parts)
    return (hermitian(matmul(matmul(v, inner), adjoint(v))),)


def _vectors(x: TensorType) -> TensorType:
    return TensorType(real_of(x.dtype), x.shape[:-1])


eigh_op: Op = define(
    "eigh", public=False, autocast="wide", axis_rule=over_batches(1, 2),
    type=lambda x: (_vectors(square_type("eigh", x)), x), promote=floating, vjp=_eigh_vjp, takes_none=True,
    ref=lapack("eigh", lambda x: tuple(np.linalg.eigh(x)), finite=True),
    batch="front", fails="matrix", doc="The eigenvalues, ascending, and eigenvectors of a Hermitian matrix.",
    examples=["eigh(f32[2, 1, 1]) -> f32[2, 1], f32[2, 1, 1]"])


@function
def eigh(x: Any, UPLO: str | None = None) -> EighResult:
    """The eigenvalues (ascending) and eigenvectors (columns) of a symmetric or Hermitian matrix.

    `UPLO` "L" or "U" reads that triangle alone.

    Gradients are those of the symmetric part; those of vectors grow without bound where eigenvalues meet.
    """
    whole = square("eigh", x)
    return EighResult(*eigh_op(hermitian(whole if UPLO is None else mirrored(whole, UPLO))))


@function
def eigvalsh(x: Any, UPLO: str | None = None) -> Any:
    """The eigenvalues of a symmetric or Hermitian matrix, ascending."""
    return eigh(x, UPLO)[0]


def mirrored(x: Any, triangle: str) -> Any:
    """The Hermitian matrix that one triangle, with the diagonal, names."""
    if triangle.upper() not in ("L", "U"):
        raise ArgumentError(f"eigh: UPLO={triangle!r} is neither 'L' nor 'U'")
    whole = x if triangle.upper() == "L" else adjoint(x)
    return tril(whole) + adjoint(tril(whole, -1))


def _eig_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (gw, gv), (w, v) = g, y
    parts = [] if gw is None else [diag_embed(gw)]
    if gv is not None:
        inner = matmul(adjoint(v), gv)
        length = real(diagonal(inner, 0, -2, -1))                       # eigenvectors have length 1
        inner = inner - matmul(adjoint(v), v * expand_dims(cast(length, dtype=v.dtype), -2))
        parts.append(_off_diagonal(inner) / conj(_gaps(w)))
    inner = functools.reduce(add, parts)
    gradient = solve_op(adjoint(v), matmul(inner, adjoint(v)))
    return (gradient if x.dtype.kind == "c" else real(gradient),)


def _complex(x: TensorType) -> TensorType:
    return x.with_dtype(complex_of(x.dtype))


def _eig_ref(x: Any) -> Any:
    return tuple(np.linalg.eig(x.astype(np.result_type(x, np.complex64))) if x.dtype.kind == "c" else np.linalg.eig(x))


eig_op: Op = define(
    "eig", public=False, autocast="wide", axis_rule=over_batches(1, 2),
    promote=floating, vjp=_eig_vjp, takes_none=True, ref=lapack("eig", _eig_ref, finite=True),
    type=lambda x: (_complex(square_type("eig", x)).with_shape(x.shape[:-1]), _complex(x)),
    batch="front", fails="matrix", doc="The complex eigenvalues and eigenvectors of a square matrix.",
    examples=["eig(f32[2, 1, 1]) -> c64[2, 1], c64[2, 1, 1]"])


@function
def eig(x: Any) -> EigResult:
    """The eigenvalues and eigenvectors (columns of length 1) of a square matrix, complex, in no order."""
    return EigResult(*eig_op(square("eig", x)))


@function
def eigvals(x: Any) -> Any:
    """The eigenvalues of a square matrix, complex, in no order."""
    return eig_op(square("eigvals", x))[0]


# ---------------------------------------------------------------- singular values

def _svd_type(x: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    m, n = matrix_type("svd", x).shape[-2:]
    k, lead = least(m, n), x.shape[:-2]
    return (x.with_shape((*lead, m, m if full else k)), TensorType(real_of(x.dtype), (*lead, k)),
            x.with_shape((*lead, n if full else k, n)))


def _svd_vjp(g: Any, y: Any, x: Any, full: bool) -> tuple[Any]:
    """The singular values have a gradient wherever they stand, vectors where no two values meet."""
    (gu, gs, gvh), (u, _, vh) = g, y
    parts = [] if gs is None else [_of_values(gs, u, vh, x)]
    if gu is not None or gvh is not None:
        gu, gvh = (zeros_like(z) if gz is None else gz for gz, z in ((gu, u), (gvh, vh)))
        parts.append(_of_vectors(gu, gvh, y, x, full))
    return (functools.reduce(add, parts),)


def _of_values(gs: Any, u: Any, vh: Any, x: Any) -> Any:
    """Of the singular values alone: U diag(g) Vh."""
    count = gs.shape[-1]
    return matmul(u[..., :count] * expand_dims(cast(gs, dtype=x.dtype), -2), vh[..., :count, :])


def _of_vectors(gu: Any, gvh: Any, y: Any, x: Any, full: bool) -> Any:
    if full and x.shape[-1] != x.shape[-2]:
        raise GradientError("svd: with full_matrices=True the vectors beyond the rank have no gradient",
                            hint="pass full_matrices=False")
    u, s, vh = y
    wide = cast(s, dtype=x.dtype)
    rows, columns, inverse = expand_dims(wide, -1), expand_dims(wide, -2), expand_dims(1 / wide, -2)
    left, right = matmul(adjoint(u), gu), matmul(gvh, adjoint(vh))       # U^H gU and (V^H gV)^H
    gaps = _gaps(wide * wide)
    inner = _off_diagonal(left - adjoint(left)) / gaps * columns + rows * (_off_diagonal(adjoint(right) - right) / gaps)
    if x.dtype.kind == "c":
        inner = inner + diag_embed((diagonal(left, 0, -2, -1) - conj(diagonal(left, 0, -2, -1))) * 0.5 / wide)
    gradient = matmul(matmul(u, inner), vh)
    if x.shape[-2] > s.shape[-1]:
        gradient = gradient + matmul((gu - matmul(u, left)) * inverse, vh)
    if x.shape[-1] > s.shape[-1]:
        gradient = gradient + matmul(u * inverse, gvh - matmul(right, vh))
    return gradient


svd_op: Op = define(
    "svd", public=False, autocast="wide", axis_rule=over_batches(2, 1, 2),
    type=_svd_type, promote=floating, vjp=_svd_vjp, takes_none=True,
    ref=lapack("svd", lambda x, full: tuple(np.linalg.svd(x, full_matrices=full)), finite=True),
    batch="front",
    fails="matrix",
    doc="The singular values, descending, between the left and right singular vectors: x = U @ diag(S) @ Vh.",
    examples=["svd(f32[2, 3, 2], full=False) -> f32[2, 3, 2], f32[2, 2], f32[2, 2, 2]",
              "svd(f32[2, 3], full=False) -> f32[2, 2], f32[2], f32[2, 3]", "svd(f32[3], full=True) -> error"])

svdvals_op: Op = define(
    "svdvals", public=False, autocast="wide", axis_rule=over_batches(1),
    promote=floating, type=lambda x: _svd_type(x, full=False)[1],
    ref=lapack("svdvals", lambda x: np.linalg.svd(x, compute_uv=False), finite=True),
    vjp=lambda g, y, x: _svd_vjp((None, g, None), svd_op(x, full=False), x, full=False),
    batch="front",
    fails="matrix", doc="The singular values, descending.", examples=["svdvals(f32[2, 3, 2]) -> f32[2, 2]"])


@function
def svd(x: Any, full_matrices: bool = True, *, driver: str | None = None) -> SVDResult:
    """The singular value decomposition x = U @ diag(S) @ Vh, with square U and Vh unless `full_matrices=False`.

    `driver`, PyTorch's for GPUs, means nothing here.
    """
    return SVDResult(*svd_op(x, full=bool(full_matrices)))


@function
def svdvals(x: Any, *, driver: str | None = None) -> Any:
    """The singular values of a matrix, descending."""
    return svdvals_op(x)


def threshold(values: Any, shape: Any, rtol: float | None, dtype: DType) -> Any:
    """Below this a singular value counts as zero: `rtol` of the largest; by default rounding times the longer side."""
    if rtol is None:
        rtol = float(np.finfo(real_of(dtype).numpy).eps) * max(shape[-2:])
    return values.max(axis=-1, keepdims=True) * rtol

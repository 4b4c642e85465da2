"""Diagonals, triangles, and products that lay tensors out in a grid: diag, tril, trace, kron, meshgrid ..."""

from __future__ import annotations

from typing import Any

from tenon.dims.compare_sizes import comparable
from tenon.dims.symbolic_dim import Dim
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.ops.comparison import equal, where
from tenon.ops.creation import iota, lower
from tenon.ops.define import define, function, lift
from tenon.ops.joining_and_axes import broadcast_arrays, expand_dims, moveaxis
from tenon.ops.repeating import pad
from tenon.ops.shape import reshape_op
from tenon.ops.slice_pad_concat import concat_op, pad_op
from tenon.types import TensorType, normalize_axes


def _diagonal_type(x: TensorType, *, offset: int = 0) -> TensorType:
    if x.ndim < 2:
        raise ShapeError(f"diagonal: {x} has fewer than two axes")
    rows, columns = x.shape[-2:]
    return x.with_shape((*x.shape[:-2], diagonal_size(rows, columns, offset)))


def diagonal_size(rows: Dim, columns: Dim, offset: int) -> Dim:
    """How many elements lie on a diagonal."""
    rows, columns = comparable(rows, columns)
    rows, columns = rows - max(-offset, 0), columns - max(offset, 0)
    if isinstance(rows, int) and isinstance(columns, int):
        return max(min(rows, columns), 0)
    return rows if rows == columns or columns > rows else columns


def _diagonal_vjp(g: Any, y: Any, x: Any, offset: int) -> tuple[Any]:
    """Each row of the gradient holds one element of `g`: spread it over the row, keep it on the diagonal."""
    rows, columns = x.shape[-2:]
    before = max(-offset, 0)
    others = (0,) * (g.ndim - 1)
    column = pad_op(g, 0, low=(*others, before), high=(*others, rows - before - g.shape[-1]))
    on = equal(iota(rows, 0, 2) + offset, iota(columns, 1, 2))
    return (where(on, expand_dims(column, -1), 0),)


diagonal_op = define(
    "diagonal", public=False, type=_diagonal_type, vjp=_diagonal_vjp,
    ref=lambda x, offset: x.diagonal(offset, -2, -1),
    compute=lambda s, i, x, offset: x((*i[:-1], i[-1] + max(-offset, 0), i[-1] + max(offset, 0))),
    batch="front", reads_part=True, doc="The elements (k, k + offset) of the last two axes.",
    examples=["diagonal(f32[3, 4], offset=1) -> f32[3]", "diagonal(f32[2, 4, 3], offset=-1) -> f32[2, 3]"])


@function
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements (k, k + offset) of two axes, which become the last axis.

    >>> tn.arange(9).reshape(3, 3).diagonal(1)
    tensor([1, 5])
    """
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"diagonal: {x.type} has fewer than two axes")
    normalize_axes((axis1, axis2), x.ndim)
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    return diagonal_op(x, offset=int(offset))


@function
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of a diagonal."""
    return diagonal(x, offset, axis1, axis2).sum(axis=-1)


@function
def diag_embed(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Square matrices, whose rows and columns are axis1 and axis2 of the result, with the last axis on a diagonal."""
    x = lift(x)
    size = x.shape[-1] + abs(offset)
    row = pad(x, [(0, 0)] * (x.ndim - 1) + [(max(-offset, 0), max(offset, 0))])
    on = equal(iota(size, 0, 2) + offset, iota(size, 1, 2))
    return moveaxis(where(on, expand_dims(row, -1), literal(0, row.dtype)), (-2, -1), (axis1, axis2))


@function
def diag(x: Any, k: int = 0) -> Any:
    """A vector as the k-th diagonal of a square matrix; of a matrix, its k-th diagonal.

    >>> tn.diag(tn.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    x = lift(x)
    if x.ndim not in (1, 2):
        raise ShapeError(f"diag: a vector or a matrix is needed, not {x.type}", hint="tn.diagonal takes any rank")
    return diag_embed(x, k) if x.ndim == 1 else diagonal(x, k)


@function
def tril(x: Any, k: int = 0) -> Any:
    """The elements at and below the k-th diagonal of the last two axes, zeros above.

    >>> tn.tril(tn.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    x = _matrix("tril", x)
    return where(lower(x.shape[-2], x.shape[-1], k), x, literal(0, x.dtype))


@function
def triu(x: Any, k: int = 0) -> Any:
    """The elements at and above the k-th diagonal of the last two axes, zeros below."""
    x = _matrix("triu", x)
    return where(lower(x.shape[-2], x.shape[-1], k - 1), literal(0, x.dtype), x)


def _matrix(name: str, x: Any) -> Any:
    x = lift(x)
    if x.ndim < 2:
        raise ShapeError(f"{name}: {x.type} has fewer than two axes")
    return x


# ---------------------------------------------------------------- grids

@function
def meshgrid(*xs: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """Vectors as the coordinates of a grid, one tensor each; "xy" exchanges the first two axes, "ij" does not."""
    tensors = [lift(x) for x in (xs[0] if len(xs) == 1 and isinstance(xs[0], (tuple, list)) else xs)]
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    n = len(tensors)
    at = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    return broadcast_arrays(*(reshape_op(x, shape=tuple(-1 if a == k else 1 for a in range(n)))
                              for x, k in zip(tensors, at, strict=True)))


@function
def cartesian_prod(*xs: Any) -> Any:
    """Every combination of elements of these vectors, a row each; of one vector, the vector."""
    if len(xs) == 1:
        return lift(xs[0])
    return concat_op(*(reshape_op(x, shape=(-1, 1)) for x in meshgrid(*xs, indexing="ij")), axis=1)


@function
def block_diag(*xs: Any) -> Any:
    """Matrices along the diagonal of one that is zero elsewhere; scalars and vectors are rows."""
    blocks = [x if x.ndim == 2 else reshape_op(x, shape=(1, -1)) for x in map(lift, xs)]
    if wrong := [x for x in map(lift, xs) if x.ndim > 2]:
        raise ShapeError(f"block_diag: {wrong[0].type} is no matrix")
    width: Dim = 0
    for x in blocks:
        width = width + x.shape[1]
    rows, left = [], 0
    for x in blocks:
        rows.append(pad_op(x, 0, low=(0, left), high=(0, width - left - x.shape[1])))
        left = left + x.shape[1]
    return concat_op(*rows, axis=0)


@function
def kron(x: Any, y: Any) -> Any:
    """The Kronecker product: every element of x times the whole of y, laid out as blocks.

    >>> tn.kron(tn.tensor([1, 10]), tn.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    x, y = lift(x), lift(y)
    n = max(x.ndim, y.ndim)
    a, b = ((1,) * (n - t.ndim) + t.shape for t in (x, y))
    left = reshape_op(x, shape=tuple(d for size in a for d in (size, 1)))
    right = reshape_op(y, shape=tuple(d for size in b for d in (1, size)))
    return reshape_op(left * right, shape=tuple(p * q for p, q in zip(a, b, strict=True)))



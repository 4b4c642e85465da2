"""Triangular factors by elimination with exchanged rows, and what is solved with them: lu, lu_factor, lu_solve.

NumPy does not expose LAPACK's getrf.  Here a panel of columns is eliminated at a time, and the rest by a product.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenon.dims.compare_sizes import least
from tenon.errors import ShapeError
from tenon.graph.axis_rule import over_batches
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.comparison import equal, where
from tenon.ops.creation import arange, eye
from tenon.ops.define import check_kind, define, function, lift
from tenon.ops.diagonal import diagonal, tril, triu
from tenon.ops.indexing import take_along_axis
from tenon.ops.joining_and_axes import concat, expand_dims
from tenon.ops.matrix_factorizations import matrix_type, solve_op, triangular_op
from tenon.ops.matrix_products import matmul
from tenon.ops.ordering import argsort
from tenon.ops.shape import broadcast_to, cast
from tenon.ops.splitting import narrow
from tenon.ops.vector_products import adjoint
from tenon.types import TensorType, broadcast_shapes, int32, int64

if TYPE_CHECKING:
    from tenon.tensor import Tensor


class LUResult(NamedTuple):
    """What `lu` returns."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactors(NamedTuple):
    """What `lu_factor` returns."""

    LU: Tensor
    pivots: Tensor


PANEL = 32          # columns that are eliminated one by one before the rest follows at once


# ---------------------------------------------------------------- elimination

def _factored(x: Any) -> tuple[Any, Any, Any]:
    """Both factors in one matrix, the row that each column took its pivot from, and the order of the rows after it."""
    m, n = x.shape[-2:]
    lead, k = x.shape[:-2], min(m, n)
    a = np.array(x.reshape(prod(lead), m, n), np.result_type(x, np.float32))
    at, pivots = np.arange(len(a)), np.zeros((len(a), k), np.int32)
    order = np.tile(np.arange(m), (len(a), 1))
    for start in range(0, k if len(a) else 0, PANEL):
        stop = min(start + PANEL, k)
        for c in range(start, stop):
            pivots[:, c] = c + np.abs(a[:, c:, c]).argmax(1)
            _exchange(a, at, c, pivots[:, c])
            _exchange(order, at, c, pivots[:, c])
            a[:, c + 1:, c] /= np.where(a[:, c, c] == 0, 1, a[:, c, c])[:, None]
            a[:, c + 1:, c + 1:stop] -= a[:, c + 1:, c, None] * a[:, c, None, c + 1:stop]
        if stop < n:
            low = np.tril(a[:, start:stop, start:stop], -1) + np.eye(stop - start, dtype=a.dtype)
            a[:, start:stop, stop:] = np.linalg.solve(low, a[:, start:stop, stop:])
            a[:, stop:, stop:] -= a[:, stop:, start:stop] @ a[:, start:stop, stop:]
    return a.reshape(x.shape), pivots.reshape(*lead, k), order.reshape(*lead, m)


def _exchange(rows: Any, at: Any, c: int, other: Any) -> None:
    """Row c of each matrix and another one change places."""
    held = rows[:, c].copy()
    rows[:, c] = rows[at, other]
    rows[at, other] = held


def _lu_ref(x: Any) -> Any:
    packed, _, order = _factored(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    p = (np.arange(m)[:, None] == order[..., None, :]).astype(packed.dtype)
    return p, np.tril(packed[..., :k], -1) + np.eye(m, k, dtype=packed.dtype), np.triu(packed[..., :k, :])


def _lu_type(x: TensorType) -> tuple[TensorType, ...]:
    m, n = matrix_type("lu", x).shape[-2:]
    k, lead = least(m, n), x.shape[:-2]
    return x.with_shape((*lead, m, m)), x.with_shape((*lead, m, k)), x.with_shape((*lead, k, n))


def _lu_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    (_, gl, gu), (p, low, u) = g, y
    m, n = x.shape[-2:]
    rows, columns, k = x.ndim - 2, x.ndim - 1, min(m, n)
    low_square, u_square = narrow(low, rows, 0, k), narrow(u, columns, 0, k)
    below = matmul(adjoint(low_square), narrow(gl, rows, 0, k))
    right = matmul(narrow(gu, columns, 0, k), adjoint(u_square))
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
    "lu", public=False, autocast="wide", axis_rule=over_batches(2, 2, 2),
    type=_lu_type, ref=_lu_ref, promote=floating, vjp=_lu_vjp,
    batch="front", fails="matrix", doc="x = P @ L @ U with a permutation P, unit lower L and upper U.",
    examples=["lu(f32[2, 3, 3]) -> f32[2, 3, 3], f32[2, 3, 3], f32[2, 3, 3]",
              "lu(f32[3, 2]) -> f32[3, 3], f32[3, 2], f32[2, 2]"])


@function
def lu(x: Any) -> LUResult:
    """x = P @ L @ U with a permutation P, unit lower triangular L and upper triangular U; pivots are the largest."""
    return LUResult(*lu_op(x))


# ---------------------------------------------------------------- both factors in one matrix

def _factor_ref(x: Any) -> Any:
    packed, pivots, _ = _factored(x)
    return packed, pivots + np.int32(1)


def _factor_type(x: TensorType) -> tuple[TensorType, TensorType]:
    m, n = matrix_type("lu_factor", x).shape[-2:]
    return x, TensorType(int32, (*x.shape[:-2], least(m, n)))


def _factor_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    m, n = x.shape[-2:]
    if (k := min(m, n)) == 0:
        return (g[0],)
    low, up = narrow(g[0], x.ndim - 1, 0, k), narrow(g[0], x.ndim - 2, 0, k)
    return _lu_vjp((None, tril(low, -1), triu(up)), lu_unpack(*y), x)


lu_factor_op: Op = define(
    "lu_factor", public=False, autocast="wide", axis_rule=over_batches(2, 1),
    type=_factor_type, ref=_factor_ref, promote=floating, vjp=_factor_vjp, batch="front",
    doc="L (without its ones) and U of x = P @ L @ U in one matrix, and the row, from 1, that each column's pivot "
        "comes from.",
    examples=["lu_factor(f32[2, 3, 3]) -> f32[2, 3, 3], i32[2, 3]", "lu_factor(f32[3, 2]) -> f32[3, 2], i32[2]",
              "lu_factor(f32[2, 3, 0]) -> f32[2, 3, 0], i32[2, 0]"])


def _order_ref(pivots: Any, rows: int) -> Any:
    flat = np.clip(pivots.reshape(prod(pivots.shape[:-1]), pivots.shape[-1]).astype(np.int64) - 1, 0, rows - 1)
    order, at = np.tile(np.arange(rows), (len(flat), 1)), np.arange(len(flat))
    for c in range(flat.shape[-1]):
        _exchange(order, at, c, flat[:, c])
    return order.reshape(*pivots.shape[:-1], rows)


def _order_type(pivots: TensorType, *, rows: int) -> TensorType:
    check_kind("row_order", pivots.dtype, "iu")
    if pivots.ndim == 0 or (isinstance(pivots.shape[-1], int) and rows < pivots.shape[-1]):
        raise ShapeError(f"row_order: {pivots} are no pivots of {rows} rows")
    return TensorType(int64, (*pivots.shape[:-1], rows))


row_order: Op = define(
    "row_order", public=False, ref=_order_ref, vjp=lambda g, y, pivots, rows: (None,), batch="front",
    type=_order_type,
    doc="The rows of a matrix, from 0, in the order in which pivots put them.",
    examples=["row_order(i32[2, 3], rows=4) -> i64[2, 4]"])


@function
def lu_factor(x: Any) -> LUFactors:
    """Both factors of x = P @ L @ U in one matrix, and the pivots' rows, counted from 1; for `lu_solve`.

    >>> tn.linalg.lu_factor(tn.tensor([[1.0, 2.0], [4.0, 4.0]])).LU
    tensor([[4.  , 4.  ],
            [0.25, 1.  ]])
    """
    return LUFactors(*lu_factor_op(x))


@function
def lu_unpack(LU: Any, pivots: Any) -> LUResult:
    """P, L and U of what `lu_factor` gives."""
    packed = lift(LU)
    m, n = packed.shape[-2:]
    k, order = least(m, n), row_order(pivots, rows=m)
    low = tril(narrow(packed, packed.ndim - 1, 0, k), -1) + eye(m, k, dtype=packed.dtype)
    p = equal(expand_dims(arange(m), -1), expand_dims(order, -2))
    return LUResult(cast(p, dtype=packed.dtype), low, triu(narrow(packed, packed.ndim - 2, 0, k)))


@function
def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """The solution z of A @ z = B, from what `lu_factor` gives for A: z @ A = B where not `left`, A^H for `adjoint`.

    >>> a = tn.tensor([[1.0, 2.0], [4.0, 4.0]])
    >>> tn.linalg.lu_solve(*tn.linalg.lu_factor(a), a @ tn.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    packed, pivots, b = lift(LU), lift(pivots), lift(B)
    if not left:
        return _turned(lu_solve(packed, pivots, _turned(b), adjoint=not adjoint))
    lead = broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    packed, b = (broadcast_to(x, shape=(*lead, *x.shape[-2:])) for x in (packed, b))
    order = broadcast_to(row_order(pivots, rows=packed.shape[-1]), shape=(*lead, packed.shape[-1]))
    low = tril(packed, -1) + eye(packed.shape[-1], dtype=packed.dtype)
    if adjoint:
        inner = triangular_op(_turned(low), triangular_op(_turned(triu(packed)), b, upper=False), upper=True)
        return _rows(inner, argsort(order, axis=-1))
    return triangular_op(packed, triangular_op(low, _rows(b, order), upper=False), upper=True)


_turned = adjoint


def _rows(x: Any, order: Any) -> Any:
    return take_along_axis(x, broadcast_to(expand_dims(order, -1), shape=x.shape), axis=-2)


def first_zero(LU: Any) -> Any:
    """Which pivot of each matrix is the first that is zero, from 1; 0 where none is."""
    zero = equal(diagonal(lift(LU), 0, -2, -1), 0)
    place = cast(zero, dtype=int32).argmax(axis=-1) + 1
    return cast(where(zero.any(axis=-1), place, 0), dtype=int32)

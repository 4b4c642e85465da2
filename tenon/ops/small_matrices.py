"""Systems of few equations, a stack of them, written out: what the pass `unroll_small_linalg` puts in the place of
LAPACK.

A system of two equations takes nanoseconds, a call of LAPACK microseconds, and it leaves the compiled program.  Rows
are eliminated with the largest pivot of each column, as LAPACK does it, and the same matrices are refused.  They stand
in optimised graphs only, so they have no gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tenon.errors import ShapeError
from tenon.graph.op import Op
from tenon.ops.define import define
from tenon.ops.matrix_factorizations import cholesky_op, solve_op, triangular_op
from tenon.ops.solving import det_op, inv_op, slogdet_op
from tenon.types import TensorType, int64

MOST_ROWS, MOST_COLUMNS = 6, 12         # elimination that is written out grows with their third power
Rows = list[list[Any]]
Keep = Callable[[Any], Any]


def _small(op: Op, matrices: Callable[..., Any], examples: list[str], domain: Any = None) -> Op:
    """The operator for small matrices: `matrices(s, keep, *rows, **attrs)` says the elements of each result."""
    def fill(s: Any, *xs: Any, **attrs: Any) -> None:
        lead = xs[0].shape[:-2]

        def elements(place: Any, keep: Keep) -> Any:
            return matrices(s, keep, *([[keep(x((*place, i, j))) for j in range(x.shape[-1])]
                                        for i in range(x.shape[-2])] for x in xs), **attrs)
        s.each(lead, elements)

    @wraps(op.type)
    def type(*xs: TensorType, **attrs: Any) -> Any:
        found = op.type(*xs, **attrs)
        if not all(is_small(x) for x in xs):
            raise ShapeError(f"small_{op.name}: expected 1 to {MOST_ROWS} rows and 1 to {MOST_COLUMNS} columns, "
                             f"got {', '.join(map(str, xs))}")
        return found
    return define(f"small_{op.name}", public=False, type=type, ref=op.ref, promote=op.promote, fill=fill,
                  axis_rule=op.axis_rule,
                  doc=f"`{op.name}` of few rows, written out.", examples=examples, domain=domain)


def is_small(x: TensorType) -> bool:
    """Whether matrices are known to have so few rows and columns that working with each can be written out."""
    rows, columns = map(int, x.shape[-2:])
    return 0 < rows <= MOST_ROWS and 0 < columns <= MOST_COLUMNS


# ---------------------------------------------------------------- elimination

def _eliminate(s: Any, keep: Keep, rows: Rows, refuse: bool) -> Any:
    """Make rows [n, n + m] upper triangular; -1 where an odd number of them changed places, else 1."""
    sign = s.const(1, rows[0][0].dtype)
    for k in range(len(rows)):
        for r in range(k + 1, len(rows)):
            larger = keep(s.call("abs", rows[r][k]) > s.call("abs", rows[k][k]))
            sign = keep(s.select(larger, -sign, sign))
            for c in range(k, len(rows[0])):
                rows[k][c], rows[r][c] = (keep(s.select(larger, rows[r][c], rows[k][c])),
                                          keep(s.select(larger, rows[k][c], rows[r][c])))
        if refuse:
            _demand(s, keep, s.ne(rows[k][k], 0))
        # a pivot of zero is the largest of its column, which holds nothing to eliminate then
        pivot = keep(s.select(s.eq(rows[k][k], 0), 1, rows[k][k]))
        for r in range(k + 1, len(rows)):
            factor = keep(rows[r][k] / pivot)
            for c in range(k + 1, len(rows[0])):
                rows[r][c] = keep(rows[r][c] - factor * rows[k][c])
    return sign


def _demand(s: Any, keep: Keep, condition: Any) -> None:
    """Refuse the matrix where the condition does not hold."""
    keep(s.index(s.select(condition, s.const(0, int64), s.const(1, int64)), 1))


def _substituted(keep: Keep, a: Rows, b: Rows, upper: bool) -> Rows:
    """The solution of a @ x = b, where a is a triangle."""
    x: Rows = [list(row) for row in b]
    order = range(len(a))
    for k in reversed(order) if upper else order:
        for j in order[k + 1:] if upper else order[:k]:
            x[k] = [keep(value - a[k][j] * known) for value, known in zip(x[k], x[j], strict=True)]
        x[k] = [keep(value / a[k][k]) for value in x[k]]
    return x


def _solve(s: Any, keep: Keep, a: Rows, b: Rows) -> Any:
    n, rows = len(a), [[*left, *right] for left, right in zip(a, b, strict=True)]
    _eliminate(s, keep, rows, refuse=True)
    return [_substituted(keep, [row[:n] for row in rows], [row[n:] for row in rows], upper=True)]


def _inv(s: Any, keep: Keep, a: Rows) -> Any:
    one = [[s.const(int(i == j), a[0][0].dtype) for j in range(len(a))] for i in range(len(a))]
    return _solve(s, keep, a, one)


def _slogdet(s: Any, keep: Keep, a: Rows) -> Any:
    sign, size = _eliminate(s, keep, a, refuse=False), s.const(0, a[0][0].dtype)
    for k, row in enumerate(a):
        sign = keep(s.select(row[k] < 0, -sign, s.select(row[k] > 0, sign, row[k] * sign)))     # NaN stays NaN
        size = keep(size + s.call("log", s.call("abs", row[k])))
    return [[[_without_sign(s, sign)]], [[size]]]


def _det(s: Any, keep: Keep, a: Rows) -> Any:
    whole = _eliminate(s, keep, a, refuse=False)
    for k, row in enumerate(a):
        whole = keep(whole * row[k])
    return [[[_without_sign(s, whole)]]]


def _without_sign(s: Any, x: Any) -> Any:
    """x, or zero for either zero."""
    return s.select(s.eq(x, 0), 0, x)


# ---------------------------------------------------------------- triangles

def _triangular(s: Any, keep: Keep, a: Rows, b: Rows, upper: bool) -> Any:
    for k, row in enumerate(a):
        _demand(s, keep, s.ne(row[k], 0))
    return [_substituted(keep, a, b, upper)]


def _cholesky(s: Any, keep: Keep, a: Rows) -> Any:
    n, zero = len(a), s.const(0, a[0][0].dtype)
    low: Rows = [[zero] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = a[i][j]
            for k in range(j):
                rest = keep(rest - low[i][k] * low[j][k])
            if i == j:
                _demand(s, keep, rest > 0)
            low[i][j] = keep(s.call("sqrt", rest) if i == j else rest / low[j][j])
    return [low]


small_solve = _small(solve_op, _solve, ["small_solve(f32[1, 2, 2], f32[1, 2, 4]) -> f32[1, 2, 4]"])
small_inv = _small(inv_op, _inv, ["small_inv(f32[1, 2, 2]) -> f32[1, 2, 2]"])
small_slogdet = _small(slogdet_op, _slogdet, ["small_slogdet(f32[1, 2, 2]) -> f32[1], f32[1]"])
small_det = _small(det_op, _det, ["small_det(f32[1, 2, 2]) -> f32[1]"])
small_triangular = _small(triangular_op, _triangular, domain=((1.0, 2.0), (-2.0, 2.0)),
                          examples=["small_solve_triangular(f32[2, 1, 1], f32[2, 1, 4], upper=False) -> f32[2, 1, 4]"])
small_cholesky = _small(cholesky_op, _cholesky, ["small_cholesky(f32[2, 1, 1]) -> f32[2, 1, 1]"], domain=(1, 2))

WRITTEN_OUT: dict[Op, Op] = {solve_op: small_solve, inv_op: small_inv, slogdet_op: small_slogdet, det_op: small_det,
                       triangular_op: small_triangular, cholesky_op: small_cholesky}

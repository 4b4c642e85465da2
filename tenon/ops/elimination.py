"""Small matrices, as rows of elements -> systems solved, inverses, determinants, factors: elimination written out.

`s` says what an operation is: of compiled loops in `small_matrices`, of arrays here.  Eager code asks LAPACK, but where
a matrix has infinities or NaN: which elements of a result are NaN then depends on the order of elimination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.errors import refused_matrix
from tenon.types import int64

MAX_ROWS, MAX_COLUMNS = 6, 12           # elimination that is written out grows with their third power
Rows = list[list[Any]]
Keep = Callable[[Any], Any]
Eliminated = Callable[..., Any]         # (s, keep, *rows, **attrs) -> the elements of each result


class ElementsOfStacks:
    """The operations on stacks of numbers, one array an element."""

    def __init__(self, name: str) -> None:
        self.name = name

    def const(self, value: Any, dtype: Any) -> Any:
        return np.asarray(value, getattr(dtype, "numpy", dtype))

    def call(self, function: str, x: Any) -> Any:
        return getattr(np, function)(x)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition, x, y)

    def eq(self, x: Any, y: Any) -> Any:
        return np.equal(x, y)

    def ne(self, x: Any, y: Any) -> Any:
        return np.not_equal(x, y)

    def index(self, x: Any, extent: int) -> Any:
        """A position; a matrix is refused by one that is too large."""
        if np.any(x >= extent):
            raise refused_matrix(self.name)
        return x


def is_eliminated(arrays: Sequence[Any]) -> bool:
    """Whether compiled programs write elimination of these out, and LAPACK may put NaN into other elements."""
    return all(0 < x.shape[-2] <= MAX_ROWS and 0 < x.shape[-1] <= MAX_COLUMNS and x.dtype.char in "fd"
               for x in arrays) and not all(np.isfinite(x).all() for x in arrays)


def eliminated(name: str, matrices: Eliminated, arrays: Sequence[Any], **attrs: Any) -> Any:
    """What a compiled program computes: the matrices of each result, or its numbers."""
    rows = [[[x[..., i, j] for j in range(x.shape[-1])] for i in range(x.shape[-2])] for x in arrays]
    with np.errstate(all="ignore"):
        found = matrices(ElementsOfStacks(name), lambda x: x, *rows, **attrs)
    lead, dtype = arrays[0].shape[:-2], arrays[0].dtype
    results = []
    for part in found:
        whole = np.empty((*lead, len(part), len(part[0])), dtype)
        for i, row in enumerate(part):
            for j, x in enumerate(row):
                whole[..., i, j] = x
        results.append(whole[..., 0, 0] if matrices in (determinant, sign_and_logarithm) else whole)
    return results[0] if len(results) == 1 else tuple(results)


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


def solved(s: Any, keep: Keep, a: Rows, b: Rows) -> Any:
    n, rows = len(a), [[*left, *right] for left, right in zip(a, b, strict=True)]
    _eliminate(s, keep, rows, refuse=True)
    return [_substituted(keep, [row[:n] for row in rows], [row[n:] for row in rows], upper=True)]


def inverted(s: Any, keep: Keep, a: Rows) -> Any:
    one = [[s.const(int(i == j), a[0][0].dtype) for j in range(len(a))] for i in range(len(a))]
    return solved(s, keep, a, one)


def sign_and_logarithm(s: Any, keep: Keep, a: Rows) -> Any:
    sign, size = _eliminate(s, keep, a, refuse=False), s.const(0, a[0][0].dtype)
    for k, row in enumerate(a):
        sign = keep(s.select(row[k] < 0, -sign, s.select(row[k] > 0, sign, row[k] * sign)))     # NaN stays NaN
        size = keep(size + s.call("log", s.call("abs", row[k])))
    return [[[_without_sign(s, sign)]], [[size]]]


def determinant(s: Any, keep: Keep, a: Rows) -> Any:
    whole = _eliminate(s, keep, a, refuse=False)
    for k, row in enumerate(a):
        whole = keep(whole * row[k])
    return [[[_without_sign(s, whole)]]]


def _without_sign(s: Any, x: Any) -> Any:
    """x, or zero for either zero."""
    return s.select(s.eq(x, 0), 0, x)


# ---------------------------------------------------------------- triangles

def triangle_solved(s: Any, keep: Keep, a: Rows, b: Rows, upper: bool) -> Any:
    for k, row in enumerate(a):
        _demand(s, keep, s.ne(row[k], 0))
    return [_substituted(keep, a, b, upper)]


def cholesky_factor(s: Any, keep: Keep, a: Rows) -> Any:
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

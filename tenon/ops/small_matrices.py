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
from tenon.ops.elimination import (
    MAX_COLUMNS,
    MAX_ROWS,
    Keep,
    cholesky_factor,
    determinant,
    inverted,
    sign_and_logarithm,
    solved,
    triangle_solved,
)
from tenon.ops.matrix_factorizations import cholesky_op, solve_op, triangular_op
from tenon.ops.solving import det_op, inv_op, slogdet_op
from tenon.types import TensorType


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
            raise ShapeError(f"small_{op.name}: expected 1 to {MAX_ROWS} rows and 1 to {MAX_COLUMNS} columns, "
                             f"got {', '.join(map(str, xs))}")
        return found
    return define(f"small_{op.name}", public=False, type=type, ref=op.ref, promote=op.promote, fill=fill,
                  axis_rule=op.axis_rule,
                  doc=f"`{op.name}` of few rows, written out.", examples=examples, domain=domain)


def is_small(x: TensorType) -> bool:
    """Whether matrices are known to have so few rows and columns that working with each can be written out."""
    rows, columns = map(int, x.shape[-2:])
    return 0 < rows <= MAX_ROWS and 0 < columns <= MAX_COLUMNS


small_solve = _small(solve_op, solved, ["small_solve(f32[1, 2, 2], f32[1, 2, 4]) -> f32[1, 2, 4]"])
small_inv = _small(inv_op, inverted, ["small_inv(f32[1, 2, 2]) -> f32[1, 2, 2]"])
small_slogdet = _small(slogdet_op, sign_and_logarithm, ["small_slogdet(f32[1, 2, 2]) -> f32[1], f32[1]"])
small_det = _small(det_op, determinant, ["small_det(f32[1, 2, 2]) -> f32[1]"])
small_triangular = _small(triangular_op, triangle_solved, domain=((1.0, 2.0), (-2.0, 2.0)),
                          examples=["small_solve_triangular(f32[2, 1, 1], f32[2, 1, 4], upper=False) -> f32[2, 1, 4]"])
small_cholesky = _small(cholesky_op, cholesky_factor, ["small_cholesky(f32[2, 1, 1]) -> f32[2, 1, 1]"], domain=(1, 2))

WRITTEN_OUT: dict[Op, Op] = {solve_op: small_solve, inv_op: small_inv, slogdet_op: small_slogdet, det_op: small_det,
                       triangular_op: small_triangular, cholesky_op: small_cholesky}

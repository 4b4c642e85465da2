"""Products of matrices and what is made of them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tenon.errors import ShapeError
from tenon.graph.build import PYTHON_SCALARS
from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.batching import Arguments
from tenon.ops.complex_parts import conj
from tenon.ops.define import define, function
from tenon.ops.shape import broadcast_to, permute, reshape_op
from tenon.types import TensorType, broadcast_shapes


def _matmul_type(a: TensorType, b: TensorType) -> TensorType:
    if a.ndim < 2 or b.ndim != a.ndim:
        raise ShapeError(f"matmul: {a} @ {b} are not matrices of one rank")
    if a.shape[-1] != b.shape[-2]:
        hint = "did you mean x @ w.mT ?" if b.shape[-1] == a.shape[-1] else None
        raise ShapeError(f"matmul: inner sizes differ: {a} @ {b}", hint=hint)
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul: batch sizes differ: {a} @ {b}")
    return TensorType(a.dtype, (*a.shape[:-1], b.shape[-1]))


def mT(x: Any) -> Any:
    """The last two axes swapped."""
    return permute(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _matmul_batch(op: Op, a: Arguments) -> Any:
    """A matrix that all examples share is multiplied once, with all their rows."""
    return matmul(a.inputs[0], a.inputs[1]) if len(a.shape(0)) == 2 else op(a.whole(0), a.whole(1))


matmul_op: Op = define(
    "matmul", public=False, type=_matmul_type, ref=np.matmul, promote=same, autocast="narrow",
    vjp=lambda g, y, a, b: (lambda: matmul_op(g, mT(conj(b))), lambda: matmul_op(mT(conj(a)), g)),
    compute=lambda s, i, a, b: s.reduce("add", (a.shape[-1],),
                                        lambda k: a((*i[:-1], k[0])) * b((*i[:-2], k[0], i[-1]))),
    batch=_matmul_batch,
    multiply_adds=lambda a, b, y: prod(y) * a[-1],
    counts=True, doc="The matrix product of two stacks of matrices with equal leading sizes.",
    examples=["matmul(f32[2, 3], f32[3, 4]) -> f32[2, 4]", "matmul(f32[5, 2, 3], f32[5, 3, 4]) -> f32[5, 2, 4]",
              "matmul(f32[2, 3], f32[2, 3]) -> error"])


@function
def matmul(x: Any, y: Any) -> Any:
    """The matrix product; leading axes broadcast, a vector is a row on the left and a column on the right.

    >>> (tn.ones((5, 2, 3)) @ tn.ones((3, 4))).shape
    (5, 2, 4)
    """
    scalar = isinstance(x, PYTHON_SCALARS) or isinstance(y, PYTHON_SCALARS)
    if not scalar and x.ndim == 2 and y.ndim == 2:
        return matmul_op(x, y)
    if scalar or x.ndim == 0 or y.ndim == 0:
        raise ShapeError("matmul: a scalar has no axis to multiply over", hint="use * for a product with a scalar")
    a = reshape_op(x, shape=(1, *x.shape)) if x.ndim == 1 else x
    b = reshape_op(y, shape=(*y.shape, 1)) if y.ndim == 1 else y
    if a.shape[-1] != b.shape[-2]:
        _matmul_type(TensorType(x.dtype, a.shape[-2:]), TensorType(y.dtype, b.shape[-2:]))
    if b.ndim == 2 and a.ndim > 2:      # one right matrix: a single large product
        rows = reshape_op(a, shape=(-1, a.shape[-1])) if 0 not in a.shape else a
        if rows is not a:
            out = reshape_op(matmul_op(rows, b), shape=(*a.shape[:-1], b.shape[-1]))
            return reshape_op(out, shape=out.shape[:-1]) if y.ndim == 1 else out
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = a if a.shape[:-2] == batch else broadcast_to(a, shape=(*batch, *a.shape[-2:]))
    b = b if b.shape[:-2] == batch else broadcast_to(b, shape=(*batch, *b.shape[-2:]))
    out = matmul_op(a, b)
    shape = out.shape
    if x.ndim == 1:
        shape = (*shape[:-2], shape[-1])
    if y.ndim == 1:
        shape = shape[:-1]
    return out if shape == out.shape else reshape_op(out, shape=shape)

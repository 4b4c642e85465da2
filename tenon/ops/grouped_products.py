"""Products of rows with the matrix of the group that they belong to: the experts of a mixture.

Rows of a group stand together; `offs` says where each group ends.  Rows after the last group give zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenon.errors import ShapeError
from tenon.graph.op import Op
from tenon.ops.define import check_kind, define, function, lift
from tenon.ops.matrix_products import matmul, mT
from tenon.ops.vector_products import adjoint
from tenon.types import TensorType


def _groups(ends: Any, rows: int) -> Iterator[tuple[int, slice]]:
    """The groups that have rows, and which these are."""
    start = 0
    for group, end in enumerate(np.clip(ends, 0, rows).tolist()):
        if end > start:
            yield group, slice(start, end)
            start = end


def _rows_ref(x: Any, weight: Any, ends: Any) -> Any:
    found = np.zeros((x.shape[0], weight.shape[-1]), x.dtype)
    for group, rows in _groups(ends, len(x)):
        found[rows] = x[rows] @ weight[group]
    return found


def _rows_type(x: TensorType, weight: TensorType, ends: TensorType) -> TensorType:
    check_kind("grouped_mm", ends.dtype, "iu")
    if (x.ndim, weight.ndim) != (2, 3) or x.shape[1] != weight.shape[1] or ends.shape != weight.shape[:1] \
            or x.dtype is not weight.dtype:
        raise ShapeError(f"grouped_mm: {x}, {weight} and the ends of groups {ends} do not fit")
    return x.with_shape((x.shape[0], weight.shape[2]))


def _outer_ref(x: Any, y: Any, ends: Any) -> Any:
    found = np.zeros((len(ends), x.shape[1], y.shape[1]), x.dtype)
    for group, rows in _groups(ends, len(x)):
        found[group] = x[rows].T @ y[rows]
    return found


def _outer_type(x: TensorType, y: TensorType, ends: TensorType) -> TensorType:
    check_kind("grouped_mm", ends.dtype, "iu")
    if (x.ndim, y.ndim, ends.ndim) != (2, 2, 1) or x.shape[0] != y.shape[0] or x.dtype is not y.dtype:
        raise ShapeError(f"grouped_mm: {x}, {y} and the ends of groups {ends} do not fit")
    return x.with_shape((ends.shape[0], x.shape[1], y.shape[1]))


grouped_rows: Op = define(
    "grouped_rows", public=False, type=_rows_type, ref=_rows_ref,
    vjp=lambda g, y, x, weight, ends: (grouped_rows(g, adjoint(weight), ends), grouped_outer(x.conj(), g, ends), None),
    doc="Each row times the matrix of its group.",
    examples=["grouped_rows(f32[5, 2], f32[3, 2, 4], i32[3]) -> f32[5, 4]",
              "grouped_rows(f32[5, 2], f32[3, 1, 4], i32[3]) -> error",
              "grouped_rows(f32[5, 2], f32[3, 2, 4], f32[3]) -> error"])

grouped_outer: Op = define(
    "grouped_outer", public=False, type=_outer_type, ref=_outer_ref,
    vjp=lambda g, y, x, z, ends: (grouped_rows(z.conj(), mT(g), ends), grouped_rows(x.conj(), g, ends), None),
    doc="The sum over the rows of each group of products of a row of x with one of y.",
    examples=["grouped_outer(f32[5, 2], f32[5, 4], i32[3]) -> f32[3, 2, 4]"])


@function
def grouped_mm(x: Any, y: Any, *, offs: Any = None) -> Any:
    """Products of matrices in groups, which end where `offs` says, as in a mixture of experts.

    Groups are rows of x for matrices (n, k) and (groups, k, m), columns of y for (groups, n, k) and (k, m); for two
    matrices they are columns of x and rows of y.  Without `offs` both are stacks.

    >>> tn.grouped_mm(tn.ones(3, 1), tn.tensor([[[1.0]], [[5.0]]]), offs=tn.tensor([2, 3]))
    tensor([[1.],
            [1.],
            [5.]])
    """
    x, y = lift(x), lift(y)
    if offs is None:
        return matmul(x, y)
    if x.ndim == 2 and y.ndim == 2:
        return grouped_outer(mT(x), y, offs)
    if x.ndim == 3 and y.ndim == 2:
        return mT(grouped_rows(mT(y), mT(x), offs))
    return grouped_rows(x, y, offs)

"""`unique`: the different elements of a tensor, or the different slices along an axis."""

from __future__ import annotations

from typing import Any

from tenon.ops.comparison import not_equal
from tenon.ops.cumulative import cumsum
from tenon.ops.define import function, lift
from tenon.ops.indexing import put, take
from tenon.ops.joining_and_axes import concat, moveaxis, reshape
from tenon.ops.ordering import argsort
from tenon.ops.reduction import any_
from tenon.ops.searching import distinct, unique_op
from tenon.ops.shape import cast
from tenon.types import int64, normalize_axis


@function
def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None) -> Any | tuple[Any, ...]:
    """The different elements in ascending order, asked for or not; with the flags, also inverse indices and counts.

    With `axis`, the different slices along it, the first element of which counts most.

    >>> tn.unique(tn.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    >>> tn.unique(tn.tensor([[3, 1], [2, 5], [3, 1]]), axis=0).tolist()
    [[2, 5], [3, 1]]
    """
    if axis is None and not (return_inverse or return_counts):
        return distinct(x)
    if axis is None:
        values, _, inverse, counts = unique_op(x)
    else:
        x = lift(x)
        at = normalize_axis(axis, x.ndim)
        _, first, inverse, counts = unique_op(_ranks(moveaxis(x, at, 0)))
        values = take(x, first, axis=at)
    found = (values, *[inverse] * return_inverse, *[counts] * return_counts)
    return found if len(found) > 1 else values


def _ranks(rows: Any) -> Any:
    """Numbers of slices, in their order; those of equal ones are equal."""
    count, width = rows.shape[0], 1
    for n in rows.shape[1:]:
        width = width * n
    rows = reshape(rows, (count, width))
    order = None
    for k in reversed(range(width)):
        column = rows[:, k]
        order = argsort(column) if order is None else take(order, argsort(take(column, order, axis=0)), axis=0)
    if order is None:       # slices of no elements are equal
        return cast(any_(rows, axis=1), dtype=int64)
    ordered = take(rows, order, axis=0)
    new = cast(any_(not_equal(ordered[1:], ordered[:-1]), axis=1), dtype=int64)
    numbers = cumsum(concat(new[:0], new) if not count else concat(cast(order[:1] * 0, dtype=int64), new), 0)
    return put(order, order, numbers, axis=0, reduce="set")

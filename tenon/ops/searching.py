"""Search: searchsorted, bincount; and what has the size that the data decide: argwhere, nonzero, unique, masked_select.

In a graph that size is a symbol of its own, the attribute `size`, which is known when the operator has run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenon.dims.symbolic_dim import Dim, symbol
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.axis_rule import AxisRule
from tenon.graph.op import Op, current
from tenon.graph.promotion import same
from tenon.ops.batching import Arguments
from tenon.ops.comparison import less, maximum, where
from tenon.ops.define import define, function
from tenon.ops.indexing import flat, gather, put, take
from tenon.ops.joining_and_axes import broadcast_arrays
from tenon.ops.ordering import comparable, ordered, ordered_places
from tenon.ops.shape import cast, dimension, full_op, reshape_op
from tenon.ops.windows import shown
from tenon.types import TensorType, bool_, int32, int64

if TYPE_CHECKING:
    from tenon.tensor import Tensor


# ---------------------------------------------------------------- search

def _searchsorted_ref(x: Any, values: Any, right: bool) -> Any:
    side: Any = "right" if right else "left"
    x, values = comparable(x), comparable(values)
    if x.ndim == 1:
        return np.searchsorted(x, values, side)
    out = np.empty(values.shape, np.int64)
    for row in np.ndindex(x.shape[:-1]):
        out[row] = np.searchsorted(x[row], values[row], side)
    return out


def _searchsorted_type(x: TensorType, values: TensorType, *, right: bool) -> TensorType:
    if not x.ndim or (x.ndim != 1 and x.shape[:-1] != values.shape[:-1]):
        raise ShapeError(f"searchsorted: the rows of {x} and {values} do not match")
    return values.with_dtype(int64)


def _searchsorted_axes(x: TensorType, values: TensorType, *, right: bool) -> AxisRule:
    """Every value by itself, beside its row where there are several."""
    row = tuple(range(values.ndim))
    return AxisRule(((*row[:-1], None) if x.ndim > 1 else (None,), row), (row,))


def _search_batch(op: Op, a: Arguments, right: bool) -> Any:
    if not a.batched[0] and len(a.shape(0)) == 1:
        return op(a.inputs[0], a.inputs[1], right=right)
    return op(a.whole(0), a.whole(1), right=right) if len(a.shape(0)) > 1 or len(a.shape(1)) == 1 else NotImplemented


searchsorted_op: Op = define(
    "searchsorted", public=False, type=_searchsorted_type, ref=_searchsorted_ref, promote=same,
    axis_rule=_searchsorted_axes,
    fill=lambda s, x, values, right: s.search(x, values, right),
    batch=_search_batch, doc="Where values belong in the sorted last axis of x.",
    examples=["searchsorted(f32[5], f32[2, 3], right=False) -> i64[2, 3]",
              "searchsorted(f32[2, 5], f32[2, 3], right=True) -> i64[2, 3]"])


@function
def searchsorted(x: Any, values: Any, side: str = "left", sorter: Any = None, right: bool = False, *,
                 out_int32: bool = False) -> Any:
    """Where each value would be put into the sorted x so that it stays sorted: before equals, or after (side="right").

    `right=True` is PyTorch's word for the latter; `out_int32` gives them in that type.

    >>> tn.searchsorted(tn.tensor([1, 3, 5]), tn.tensor([3, 4]))
    tensor([1, 2])
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side={side!r} is neither left nor right")
    found = searchsorted_op(x if sorter is None else gather(x, sorter, axis=-1), values, right=right or side == "right")
    return cast(found, dtype=int32) if out_int32 else found


@function
def bucketize(x: Any, boundaries: Any, right: bool = False, *, out_int32: bool = False) -> Any:
    """The number of the bucket between sorted boundaries that each element falls in; in int32 if asked for."""
    found = searchsorted_op(boundaries, x, right=right)
    return cast(found, dtype=int32) if out_int32 else found


@function
def bincount(x: Any, weights: Any = None, minlength: int = 0, length: int | None = None) -> Any:
    """How often each of 0, 1, 2 ... occurs in x, or the sum of its weights.

    `length` fixes the number of bins, which otherwise depends on the data; branches, loops and `vmap` need it.

    >>> tn.bincount(tn.tensor([0, 1, 1, 3]))
    tensor([1, 2, 0, 1])
    """
    if x.ndim != 1:
        raise ShapeError(f"bincount: {shown(x)} has more or less than one axis")
    if length is None and is_in_graph(x):
        empty = isinstance(x.shape[0], int) and x.shape[0] == 0
        length = minlength if empty else as_size(where(less(x.min(), 0), -1, maximum(x.max() + 1, minlength)))
    elif length is None:
        least, most = (int(x.min()), int(x.max())) if x.shape[0] else (0, -1)
        if least < 0:
            raise ArgumentError("bincount: negative numbers have no bin")
        length = max(most + 1, minlength)
    start = full_op(np.zeros((), np.int64 if weights is None else weights.dtype.numpy), shape=(length,))
    ones = full_op(np.ones((), np.int64), shape=x.shape)
    return put(start, x, ones if weights is None else weights, axis=0, reduce="add")


# ---------------------------------------------------------------- as many elements as the data says

def _size(size: Dim | None) -> Dim:
    """The size of a result; eagerly nobody needs to know it."""
    return symbol("count") if size is None else size


def _argwhere_type(x: TensorType, *, size: Dim | None = None) -> TensorType:
    return TensorType(int64, (_size(size), x.ndim))


argwhere_op: Op = define(
    "argwhere", public=False, data_dependent=True, type=_argwhere_type,
    ref=lambda x, size: np.argwhere(x) if x.ndim else np.zeros((int(bool(x)), 0), np.int64),
    doc="The indices of the elements that are not zero, one row each.",
    examples=["argwhere(f32[2, 3]) -> i64[count, 2]"])


def _counted_ref(count: Any, size: Any) -> Any:
    if count < 0:
        raise ShapeError(f"a size must not be negative: {int(count)}")
    return np.zeros(int(count), np.bool_)


def _counted_type(count: TensorType, *, size: Dim | None = None) -> TensorType:
    if count.shape or count.dtype.kind not in "iu":
        raise ShapeError(f"counted: a size is an integer, not {count}")
    return TensorType(bool_, (_size(size),))


counted: Op = define(
    "counted", public=False, data_dependent=True, type=_counted_type, ref=_counted_ref,
    doc="As many elements as a number says, which makes the number a size.",
    examples=["counted(i64) -> bool[count]"])


def as_size(number: Any) -> Any:
    """A whole number of the graph as a size."""
    return counted(number).shape[0]


def is_in_graph(x: Any) -> bool:
    """Whether a tensor is one that a graph computes."""
    interpreter = current()
    return interpreter is not None and interpreter.records and hasattr(x, "dtype") and not isinstance(
        x, (np.ndarray, np.generic))


def in_graph(size: Any) -> Any:
    """A size, or a number that the graph computes, as a scalar of 64 bits."""
    return cast(size, dtype=int64) if hasattr(size, "dtype") else dimension(size=size, dtype=int64)


@function
def argwhere(x: Any) -> Any:
    """The indices of the elements that are not zero, one row each.

    >>> tn.argwhere(tn.tensor([[0, 3], [4, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return argwhere_op(x)


@function
def nonzero(x: Any, as_tuple: bool = True) -> Any | tuple[Any, ...]:
    """The indices of the elements that are not zero, one tensor an axis; `as_tuple=False` gives them as rows.

    >>> tn.nonzero(tn.tensor([0, 3, 4]))
    (tensor([1, 2]),)
    """
    if not as_tuple:
        return argwhere(x)
    if not x.ndim:
        raise ShapeError("nonzero: a scalar has no axes")
    places = argwhere(x)
    return tuple(take(places, np.asarray(k), axis=1) for k in range(x.ndim))


where.elsewhere = lambda args, named: nonzero(args[0]) if len(args) == 1 and not named else None    # as in NumPy


@function
def masked_select(x: Any, mask: Any) -> Any:
    """The elements of x where the mask holds, in one axis; the two broadcast against each other."""
    x, mask = broadcast_arrays(x, mask)
    return take(flat(x), reshape_op(argwhere(flat(mask)), shape=(-1,)), axis=0)


def _unique_ref(x: Any, size: Any = None) -> tuple[Any, ...]:
    if (beyond := _beyond_least(x)) is not None:
        counts = np.bincount(beyond.ravel())
        values = np.flatnonzero(counts)
        number, first = np.empty(len(counts), np.int64), np.empty(len(values), np.int64)
        number[values] = np.arange(len(values))
        inverse = number[beyond]
        first[inverse.ravel()[::-1]] = np.arange(x.size)[::-1]          # the one that is written last stays
        return values.astype(x.dtype) + x.min(), first, inverse, counts[values]
    x_flat = x.ravel()
    order = ordered_places(x_flat, 0, False, True)
    new = _differs(x_flat[order])
    starts, inverse = np.flatnonzero(new), np.empty(x.size, np.int64)
    inverse[order] = np.cumsum(new) - 1
    first = order[starts]
    return x_flat[first], first, inverse.reshape(x.shape), np.diff(starts, append=x.size)


def _distinct_ref(x: Any, size: Any = None) -> Any:
    if (beyond := _beyond_least(x)) is not None:
        return np.flatnonzero(np.bincount(beyond.ravel())).astype(x.dtype) + x.min()
    elements = ordered(x.ravel(), 0, False, False)
    return elements[_differs(elements)]


def _beyond_least(x: Any) -> Any:
    """How far integers are from the least of them; None where they span more numbers than there are of them."""
    if x.dtype.kind not in "iu" or not x.size or int(x.max()) - int(x.min()) > x.size:
        return None
    return (x - x.min()).view(f"u{x.itemsize}").astype(np.int64)


def _differs(elements: Any) -> Any:
    """Where, in order, an element stands that is not equal to the one before it."""
    return np.concatenate([np.ones(min(1, len(elements)), bool), elements[1:] != elements[:-1]])


def _unique_type(x: TensorType, *, size: Dim | None = None) -> tuple[TensorType, ...]:
    count = TensorType(int64, (_size(size),))
    return count.with_dtype(x.dtype), count, x.with_dtype(int64), count


def _distinct_type(x: TensorType, *, size: Dim | None = None) -> TensorType:
    return _unique_type(x, size=size)[0]


def _shared(g: Any, inverse: Any, counts: Any) -> Any:
    """Equal elements share a gradient."""
    return take(g, inverse, axis=0) / take(counts, inverse, axis=0)


unique_op: Op = define(
    "unique", public=False, data_dependent=True, type=_unique_type, ref=_unique_ref,
    vjp=lambda g, y, x, size: (_shared(g[0], y[2], y[3]),),
    doc="The different elements in order, where each stands first, which one each element is, how often each occurs.",
    examples=["unique(f32[2, 3]) -> f32[count], i64[count], i64[2, 3], i64[count]"])

distinct: Op = define(
    "distinct", public=False, data_dependent=True, type=_distinct_type, ref=_distinct_ref,
    vjp=lambda g, y, x, size: (_shared(g, *unique_op(x, size=size)[2:]),),
    doc="The different elements in order.",
    examples=["distinct(f32[2, 3]) -> f32[count]"])

class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


@function
def unique_all(x: Any) -> UniqueAll:
    """The different elements in ascending order, their first places, inverse indices and counts."""
    return UniqueAll(*unique_op(x))


@function
def unique_counts(x: Any) -> UniqueCounts:
    """The different elements in ascending order and how often each occurs."""
    values, _, _, counts = unique_op(x)
    return UniqueCounts(values, counts)


@function
def unique_inverse(x: Any) -> UniqueInverse:
    """The different elements in ascending order and, for every element, which of them it is."""
    values, _, inverse, _ = unique_op(x)
    return UniqueInverse(values, inverse)


@function
def unique_values(x: Any) -> Any:
    """The different elements in ascending order."""
    return distinct(x)

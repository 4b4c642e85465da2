"""Order and search: sort, argsort, topk, quantile, searchsorted, bincount; and what has the size that the data says.

The last kind (argwhere, nonzero, unique, masked_select) runs eagerly only: a graph states the shape of every value.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from tenon.dims import symbol
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.arranging import broadcast_arrays
from tenon.ops.comparison import isnan, where
from tenon.ops.define import check_kind, composite, define, function
from tenon.ops.indexing import flat, gather, put, take
from tenon.ops.shape import full_op, reshape_op
from tenon.ops.slicing import box
from tenon.ops.windows import shown
from tenon.types import TensorType, bfloat16, int64, normalize_axis

FEW = 1000              # integers that are not worth being put together with their places

# ---------------------------------------------------------------- order

def _sort_attrs(x: Any, axis: Any, descending: Any, stable: Any) -> dict[str, Any]:
    return {"axis": normalize_axis(axis, x.ndim), "descending": bool(descending), "stable": bool(stable)}


def _sort_type(x: TensorType, *, axis: int = -1, descending: bool = False, stable: bool = True) -> TensorType:
    check_kind("sort", x.dtype, "buifc")
    return x


def _comparable(x: Any) -> Any:
    """Without bfloat16, in which NumPy finds no place for NaN."""
    return x.astype(np.float32) if x.dtype == bfloat16.numpy else x


def _argsort_ref(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    if x.dtype.kind in "iu" and x.size > FEW and (words := _words(x, axis, descending)) is not None:
        return np.sort(words, axis) & ((1 << _bits(x.shape[axis])) - 1)
    kind: Any = "stable" if stable else None
    x = _comparable(x)
    if descending:      # from the back, so that equal elements keep their order; NaN comes first
        return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind=kind), axis)
    return np.argsort(x, axis, kind=kind)


def _words(x: Any, axis: int, descending: bool) -> Any:
    """How far integers are from the first, above their places, which NumPy orders sooner than it finds the places of
    `x`; None where the two need more bits than there are."""
    low, high, bits = x.min(), x.max(), _bits(x.shape[axis])
    if (int(high) - int(low)).bit_length() + bits > 63:
        return None
    place = np.arange(x.shape[axis]).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    x = x if x.dtype.itemsize == 8 else x.astype(np.int64)
    return ((high - x if descending else x - low).astype(np.int64) << bits) | place


def _bits(count: int) -> int:
    return (count - 1).bit_length()


def _sort_ref(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    if descending:      # as `argsort`: 0.0 and -0.0 keep their order
        return np.flip(_sort_ref(np.flip(x, axis), axis, False, stable), axis)
    return np.sort(_comparable(x), axis, kind="stable" if stable else None).astype(x.dtype)


argsort: Op = define(
    "argsort", canonical=_sort_attrs, ref=_argsort_ref,
    fill=lambda s, x, axis, descending, stable: s.order(x, axis, descending, x.shape[axis]),
    type=lambda x, *, axis=-1, descending=False, stable=True: _sort_type(x).with_dtype(int64),
    doc="The places of the elements in ascending (or descending) order along an axis; equal elements keep their "
        "order.  NaN counts as largest.",
    examples=["argsort(f32[2, 5], axis=1, descending=False, stable=True) -> i64[2, 5]",
              "argsort(i32[5], axis=0, descending=True, stable=True) -> i64[5]"])


def _first_type(x: TensorType, *, k: int, axis: int, descending: bool) -> TensorType:
    _sort_type(x)
    return TensorType(int64, tuple(k if place == axis else n for place, n in enumerate(x.shape)))


def _first_ref(x: Any, k: int, axis: int, descending: bool) -> Any:
    return np.take(_argsort_ref(x, axis, descending, True), np.arange(k), axis)


first_places: Op = define(
    "first_places", public=False, type=_first_type, ref=_first_ref, vjp=lambda g, y, x, **_: (None,),
    fill=lambda s, x, k, axis, descending: s.order(x, axis, descending, k),
    canonical=lambda x, k, axis, descending: {
        "k": k, "axis": normalize_axis(axis, x.ndim), "descending": bool(descending)},
    doc="The first k of the places that `argsort` tells, found without ordering the others.",
    examples=["first_places(f32[2, 5], k=2, axis=1, descending=True) -> i64[2, 2]",
              "first_places(i32[5], k=3, axis=0, descending=False) -> i64[3]"])


@composite(canonical=_sort_attrs, ref=_sort_ref,
           examples=["sort(f32[2, 5], axis=1, descending=False, stable=True) -> f32[2, 5]",
                     "sort(f32[5], axis=0, descending=True, stable=True) -> f32[5]",
                     "sort(f32[5], axis=1, descending=True, stable=True) -> error"])
def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in ascending (or descending) order along an axis.  NaN counts as largest."""
    return gather(x, argsort(x, axis=axis, descending=descending, stable=stable), axis=axis)


@function
def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> Any:
    """The k largest (or smallest) elements along an axis, in order, and their places.

    >>> tn.topk(tn.tensor([1.0, 5.0, 3.0]), 2)
    (tensor([5., 3.]), tensor([1, 2]))
    """
    axis = normalize_axis(axis, x.ndim)
    if isinstance(x.shape[axis], int) and not 0 <= k <= x.shape[axis]:
        raise ArgumentError(f"topk: k={k} of {x.shape[axis]} elements along axis {axis}")
    order = first_places(x, k=k, axis=axis, descending=largest)
    return gather(x, order, axis=axis), order


@function
def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> Any:
    """The k-th smallest element along an axis (k counts from 1), and its place."""
    axis = normalize_axis(axis, x.ndim)
    if isinstance(x.shape[axis], int) and not 1 <= k <= x.shape[axis]:
        raise ArgumentError(f"kthvalue: k={k} of {x.shape[axis]} elements along axis {axis}")
    at = _part(first_places(x, k=k, axis=axis, descending=False), axis, k - 1, 1)
    value = gather(x, at, axis=axis)
    shape = value.shape if keepdims else (*x.shape[:axis], *x.shape[axis + 1:])
    return reshape_op(value, shape=shape), reshape_op(at, shape=shape)


@function
def quantile(x: Any, q: float, axis: int | None = None, keepdims: bool = False) -> Any:
    """The element below which a share q of the elements along an axis lies, interpolated linearly.

    >>> tn.quantile(tn.tensor([1.0, 2.0, 4.0]), 0.75)
    tensor(3.)
    """
    if not 0 <= q <= 1:
        raise ArgumentError(f"quantile: q={q} is not between 0 and 1")
    check_kind("quantile", x.dtype, "f")
    shape = x.shape
    x, at = (flat(x), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    ordered, count = sort(x, axis=at), int(x.shape[at])
    if not count:
        raise ShapeError(f"quantile: there are no elements along axis {at} of {shown(x)}")
    below = min(int(q * (count - 1)), max(count - 2, 0))
    share = q * (count - 1) - below
    low, last = _part(ordered, at, below, 1), _part(ordered, at, count - 1, 1)
    out = low if share == 0 else low * (1 - share) + _part(ordered, at, below + 1, 1) * share
    out = where(isnan(last), last, out)         # NaN, which sorts last, makes the result NaN
    if keepdims:
        return reshape_op(out, shape=(1,) * len(shape)) if axis is None else out
    return reshape_op(out, shape=(*x.shape[:at], *x.shape[at + 1:]))


@function
def median(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The middle element along an axis, or the mean of the two middle ones."""
    return quantile(x, 0.5, axis, keepdims)


def _part(x: Any, axis: int, start: int, size: int) -> Any:
    sizes = tuple(size if k == axis else n for k, n in enumerate(x.shape))
    return box(x, tuple(start if k == axis else 0 for k in range(x.ndim)), sizes, (1,) * x.ndim)


# ---------------------------------------------------------------- search

def _searchsorted_ref(x: Any, values: Any, right: bool) -> Any:
    side: Any = "right" if right else "left"
    x, values = _comparable(x), _comparable(values)
    if x.ndim == 1:
        return np.searchsorted(x, values, side)
    out = np.empty(values.shape, np.int64)
    for row in np.ndindex(x.shape[:-1]):
        out[row] = np.searchsorted(x[row], values[row], side)
    return out


def _searchsorted_type(x: TensorType, values: TensorType, *, right: bool) -> TensorType:
    if x.ndim != 1 and x.shape[:-1] != values.shape[:-1]:
        raise ShapeError(f"searchsorted: the rows of {x} and {values} do not match")
    return values.with_dtype(int64)


searchsorted_op: Op = define(
    "searchsorted", public=False, type=_searchsorted_type, ref=_searchsorted_ref, promote=same,
    fill=lambda s, x, values, right: s.search(x, values, right),
    doc="Where values belong in the sorted last axis of x.",
    examples=["searchsorted(f32[5], f32[2, 3], right=False) -> i64[2, 3]",
              "searchsorted(f32[2, 5], f32[2, 3], right=True) -> i64[2, 3]"])


@function
def searchsorted(x: Any, values: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where each value would be put into the sorted x so that it stays sorted: before equals, or after (side="right").

    >>> tn.searchsorted(tn.tensor([1, 3, 5]), tn.tensor([3, 4]))
    tensor([1, 2])
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side={side!r} is neither left nor right")
    return searchsorted_op(x if sorter is None else gather(x, sorter, axis=-1), values, right=side == "right")


@function
def bucketize(x: Any, boundaries: Any, right: bool = False) -> Any:
    """The number of the bucket between sorted boundaries that each element falls in."""
    return searchsorted_op(boundaries, x, right=right)


@function
def bincount(x: Any, weights: Any = None, minlength: int = 0, length: int | None = None) -> Any:
    """How often each of 0, 1, 2 ... occurs in x, or the sum of its weights.

    `length` fixes the number of bins, which otherwise depends on the data and cannot be captured.

    >>> tn.bincount(tn.tensor([0, 1, 1, 3]))
    tensor([1, 2, 0, 1])
    """
    if x.ndim != 1:
        raise ShapeError(f"bincount: {shown(x)} has more or less than one axis")
    if length is None:
        counts = x.tolist()
        if min(counts, default=0) < 0:
            raise ArgumentError("bincount: negative numbers have no bin")
        length = max(max(counts, default=-1) + 1, minlength)
    start = full_op(np.zeros((), np.int64 if weights is None else weights.dtype.numpy), shape=(length,))
    ones = full_op(np.ones((), np.int64), shape=x.shape)
    return put(start, x, ones if weights is None else weights, axis=0, reduce="add")


# ---------------------------------------------------------------- as many elements as the data says

argwhere: Op = define(
    "argwhere", data_dependent=True, type=lambda x: TensorType(int64, (symbol("count"), x.ndim)),
    ref=lambda x: np.argwhere(x) if x.ndim else np.zeros((int(bool(x)), 0), np.int64),
    doc="The indices of the elements that are not zero, one row each.  Eager only.",
    examples=["argwhere(f32[2, 3]) -> i64[count, 2]"])


@function
def nonzero(x: Any) -> tuple[Any, ...]:
    """The indices of the elements that are not zero, one array an axis.  Eager only.

    >>> tn.nonzero(tn.tensor([0, 3, 4]))
    (tensor([1, 2]),)
    """
    if not x.ndim:
        raise ShapeError("nonzero: a scalar has no axes")
    places = argwhere(x)
    return tuple(take(places, np.asarray(k), axis=1) for k in range(x.ndim))


@function
def masked_select(x: Any, mask: Any) -> Any:
    """The elements of x where the mask holds, in one axis; the two broadcast against each other.  Eager only."""
    x, mask = broadcast_arrays(x, mask)
    return take(flat(x), reshape_op(argwhere(flat(mask)), shape=(-1,)), axis=0)


def _unique_ref(x: Any) -> tuple[Any, ...]:
    if (beyond := _beyond_least(x)) is not None:
        counts = np.bincount(beyond.ravel())
        values = np.flatnonzero(counts)
        number, first = np.empty(len(counts), np.int64), np.empty(len(values), np.int64)
        number[values] = np.arange(len(values))
        inverse = number[beyond]
        first[inverse.ravel()[::-1]] = np.arange(x.size)[::-1]          # the one that is written last stays
        return values.astype(x.dtype) + x.min(), first, inverse, counts[values]
    x_flat = x.ravel()
    order = _argsort_ref(x_flat, 0, False, True)
    new = _differs(x_flat[order])
    starts, inverse = np.flatnonzero(new), np.empty(x.size, np.int64)
    inverse[order] = np.cumsum(new) - 1
    first = order[starts]
    return x_flat[first], first, inverse.reshape(x.shape), np.diff(starts, append=x.size)


def _distinct_ref(x: Any) -> Any:
    if (beyond := _beyond_least(x)) is not None:
        return np.flatnonzero(np.bincount(beyond.ravel())).astype(x.dtype) + x.min()
    ordered = _sort_ref(x.ravel(), 0, False, False)
    return ordered[_differs(ordered)]


def _beyond_least(x: Any) -> Any:
    """How far integers are from the least of them; None where they span more numbers than there are of them."""
    if x.dtype.kind not in "iu" or not x.size or int(x.max()) - int(x.min()) > x.size:
        return None
    return (x - x.min()).view(f"u{x.itemsize}").astype(np.int64)


def _differs(ordered: Any) -> Any:
    """Where an element stands that is not equal to the one before it."""
    return np.concatenate([np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1]])


def _unique_type(x: TensorType) -> tuple[TensorType, ...]:
    count = TensorType(int64, (symbol("count"),))
    return count.with_dtype(x.dtype), count, x.with_dtype(int64), count


def _shared(g: Any, inverse: Any, counts: Any) -> Any:
    """Equal elements share a gradient."""
    return take(g, inverse, axis=0) / take(counts, inverse, axis=0)


unique_op: Op = define(
    "unique", public=False, data_dependent=True, type=_unique_type, ref=_unique_ref,
    vjp=lambda g, y, x: (_shared(g[0], y[2], y[3]),),
    doc="The different elements in order, where each stands first, which one each element is, how often each occurs.",
    examples=["unique(f32[2, 3]) -> f32[count], i64[count], i64[2, 3], i64[count]"])

distinct: Op = define(
    "distinct", public=False, data_dependent=True, type=lambda x: _unique_type(x)[0], ref=_distinct_ref,
    vjp=lambda g, y, x: (_shared(g, *unique_op(x)[2:]),),
    doc="The different elements in order.",
    examples=["distinct(f32[2, 3]) -> f32[count]"])

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


@function
def unique_all(x: Any) -> Any:
    """The different elements in ascending order, their first places, inverse indices and counts.  Eager only."""
    return UniqueAll(*unique_op(x))


@function
def unique_counts(x: Any) -> Any:
    """The different elements in ascending order and how often each occurs.  Eager only."""
    values, _, _, counts = unique_op(x)
    return UniqueCounts(values, counts)


@function
def unique_inverse(x: Any) -> Any:
    """The different elements in ascending order and, for every element, which of them it is.  Eager only."""
    values, _, inverse, _ = unique_op(x)
    return UniqueInverse(values, inverse)


@function
def unique_values(x: Any) -> Any:
    """The different elements in ascending order.  Eager only."""
    return distinct(x)


@function
def unique(x: Any, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The different elements in ascending order; with the flags, also inverse indices and counts.  Eager only.

    >>> tn.unique(tn.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if not (return_inverse or return_counts):
        return distinct(x)
    values, _, inverse, counts = unique_op(x)
    return (values, *[inverse] * return_inverse, *[counts] * return_counts)

"""Order: sort, argsort, topk, kthvalue, quantile, median."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenon.dims.compare_sizes import hold_for_data_where_natural
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.axis_rule import beside_axis
from tenon.graph.op import Op
from tenon.ops.comparison import isnan, where
from tenon.ops.define import check_kind, composite, define, function
from tenon.ops.indexing import flat, gather
from tenon.ops.joining_and_axes import concat, expand_dims
from tenon.ops.shape import as_dim, as_shape, reshape_op
from tenon.ops.slicing import box
from tenon.ops.windows import shown
from tenon.types import TensorType, bfloat16, int64, normalize_axis

if TYPE_CHECKING:
    from tenon.tensor import Tensor

MAX_UNPACKED_ELEMENTS = 1000  # integers that are not worth being put together with their places


class Ranked(NamedTuple):
    """What `topk`, `kthvalue` and `mode` return: elements, and the places where they stood."""

    values: Tensor
    indices: Tensor


def _sort_attrs(x: Any, axis: Any, descending: Any, stable: Any) -> dict[str, Any]:
    return {"axis": normalize_axis(axis, x.ndim), "descending": bool(descending), "stable": bool(stable)}


def _sort_type(x: TensorType, *, axis: int = -1, descending: bool = False, stable: bool = True) -> TensorType:
    check_kind("sort", x.dtype, "buifc")
    return x


def _places_type(x: TensorType, *, axis: int = -1, descending: bool = False, stable: bool = True) -> TensorType:
    return _sort_type(x).with_dtype(int64)


def comparable(x: Any) -> Any:
    """Without bfloat16, in which NumPy finds no place for NaN."""
    return x.astype(np.float32) if x.dtype == bfloat16.numpy else x


def ordered_places(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    """`argsort` of an array."""
    if x.dtype.kind in "iu" and x.size > MAX_UNPACKED_ELEMENTS and (words := _words(x, axis, descending)) is not None:
        return np.sort(words, axis) & ((1 << _bits(x.shape[axis])) - 1)
    kind: Any = "stable" if stable else None
    x = comparable(x)
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


def ordered(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    """`sort` of an array."""
    if descending:      # as `argsort`: 0.0 and -0.0 keep their order
        return np.flip(ordered(np.flip(x, axis), axis, False, stable), axis)
    return np.sort(comparable(x), axis, kind="stable" if stable else None).astype(x.dtype)


argsort: Op = define(
    "argsort", canonical=_sort_attrs, ref=ordered_places, axis_rule=beside_axis(),
    fill=lambda s, x, axis, descending, stable: s.order(x, axis, descending, x.shape[axis]),
    type=_places_type,
    batch="axis",
    exact=True,
    doc="The places of the elements in ascending (or descending) order along an axis; equal elements keep their "
        "order.  NaN counts as largest.",
    examples=["argsort(f32[2, 5], axis=1, descending=False, stable=True) -> i64[2, 5]",
              "argsort(i32[5], axis=0, descending=True, stable=True) -> i64[5]"])


def _first_type(x: TensorType, *, k: int, axis: int, descending: bool) -> TensorType:
    _sort_type(x)
    if isinstance(k, int) and (k < 0 or (isinstance(x.shape[axis], int) and k > x.shape[axis])):
        raise ShapeError(f"first_places: there are no {k} places along axis {axis} of {x}")
    hold_for_data_where_natural(x.shape[axis] - k)
    return TensorType(int64, tuple(k if place == axis else n for place, n in enumerate(x.shape)))


def _first_ref(x: Any, k: int, axis: int, descending: bool) -> Any:
    return np.take(ordered_places(x, axis, descending, True), np.arange(k), axis)


first_places: Op = define(
    "first_places", public=False, type=_first_type, ref=_first_ref, vjp=lambda g, y, x, **_: (None,),
    axis_rule=beside_axis(),
    fill=lambda s, x, k, axis, descending: s.order(x, axis, descending, k),
    canonical=lambda x, k, axis, descending: {
        "k": as_shape(k)[0], "axis": normalize_axis(axis, x.ndim), "descending": bool(descending)},
    batch="axis", exact=True, doc="The first k of the places that `argsort` tells, found without ordering the others.",
    examples=["first_places(f32[2, 5], k=2, axis=1, descending=True) -> i64[2, 2]",
              "first_places(i32[5], k=3, axis=0, descending=False) -> i64[3]"])


@composite(canonical=_sort_attrs, ref=ordered,
           batch="axis", exact=True, examples=["sort(f32[2, 5], axis=1, descending=False, stable=True) -> f32[2, 5]",
                     "sort(f32[5], axis=0, descending=True, stable=True) -> f32[5]",
                     "sort(f32[5], axis=1, descending=True, stable=True) -> error"])
def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in ascending (or descending) order along an axis.  NaN counts as largest."""
    return gather(x, argsort(x, axis=axis, descending=descending, stable=stable), axis=axis)


@function
def topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Ranked:
    """The k largest (or smallest) elements along an axis, and their places; in order, even where it is not asked for.

    >>> tn.topk(tn.tensor([1.0, 5.0, 3.0]), 2)
    Ranked(values=tensor([5., 3.]), indices=tensor([1, 2]))
    """
    axis = normalize_axis(axis, x.ndim)
    k = as_dim(k)
    if isinstance(x.shape[axis], int) and isinstance(k, int) and not 0 <= k <= x.shape[axis]:
        raise ArgumentError(f"topk: k={k} of {x.shape[axis]} elements along axis {axis}")
    order = first_places(x, k=k, axis=axis, descending=largest)
    return Ranked(gather(x, order, axis=axis), order)


@function
def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> Ranked:
    """The k-th smallest element along an axis (k counts from 1), and its place."""
    axis = normalize_axis(axis, x.ndim)
    k = as_dim(k)
    if isinstance(x.shape[axis], int) and isinstance(k, int) and not 1 <= k <= x.shape[axis]:
        raise ArgumentError(f"kthvalue: k={k} of {x.shape[axis]} elements along axis {axis}")
    at = _part(first_places(x, k=k, axis=axis, descending=False), axis, k - 1, 1)
    value = gather(x, at, axis=axis)
    shape = value.shape if keepdims else (*x.shape[:axis], *x.shape[axis + 1:])
    return Ranked(reshape_op(value, shape=shape), reshape_op(at, shape=shape))


@function
def quantile(x: Any, q: float | Sequence[float] | Tensor, axis: int | None = None, keepdims: bool = False,
             method: str = "linear") -> Any:
    """The element below which a share q of the elements along an axis lies.

    Between two elements it is interpolated by the `method`: "linear", "lower", "higher", "midpoint" or "nearest".
    Several shares give a first axis of their own.

    >>> tn.quantile(tn.tensor([1.0, 2.0, 4.0]), 0.75)
    tensor(3.)
    """
    share: Any = q.tolist() if hasattr(q, "tolist") else q
    if isinstance(share, (list, tuple)):
        found = [expand_dims(quantile(x, one, axis, keepdims, method), 0) for one in share]
        return concat(found, axis=0)
    if not 0 <= share <= 1:
        raise ArgumentError(f"quantile: q={share} is not between 0 and 1")
    if method not in INTERPOLATION:
        raise ArgumentError(f"quantile: no method {method!r}", hint="one of " + ", ".join(INTERPOLATION))
    check_kind("quantile", x.dtype, "f")
    return _quantile(x, share, axis, keepdims, INTERPOLATION[method])


# The place of a quantile, between the places of two elements, where they are not mixed by how near they are.
INTERPOLATION: dict[str, Callable[[float], float]] = {
    "linear": lambda place: place, "lower": math.floor, "higher": math.ceil, "nearest": round,
    "midpoint": lambda place: (math.floor(place) + math.ceil(place)) / 2}


def _quantile(x: Any, q: float, axis: int | None, keepdims: bool, moved: Callable[[float], float]) -> Any:
    shape = x.shape
    x, at = (flat(x), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    elements, count = sort(x, axis=at), int(x.shape[at])
    if not count:
        raise ShapeError(f"quantile: there are no elements along axis {at} of {shown(x)}")
    place = moved(q * (count - 1))
    below = min(math.floor(place), max(count - 2, 0))
    share = place - below
    low, last = _element(elements, at, below), _element(elements, at, count - 1)
    out = low if share == 0 else low * (1 - share) + _element(elements, at, below + 1) * share
    out = where(isnan(last), last, out)         # NaN, which sorts last, makes the result NaN
    if keepdims:
        return reshape_op(out, shape=(1,) * len(shape)) if axis is None else out
    return reshape_op(out, shape=(*x.shape[:at], *x.shape[at + 1:]))


@function
def median(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The middle element along an axis, or the mean of the two middle ones."""
    return quantile(x, 0.5, axis, keepdims)


def _element(x: Any, axis: int, place: Any) -> Any:
    """One along an axis, which stays; at a place that may be a number that changes from call to call."""
    return _part(x, axis, place, 1) if type(place) is int else expand_dims(x[(slice(None),) * axis + (place,)], axis)


def _part(x: Any, axis: int, start: int, size: int) -> Any:
    sizes = tuple(size if k == axis else n for k, n in enumerate(x.shape))
    return box(x, tuple(start if k == axis else 0 for k in range(x.ndim)), sizes, (1,) * x.ndim)

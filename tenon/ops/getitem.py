"""x[key] and x[key] = y with the meaning of NumPy: integers, slices, None, ..., integer arrays and boolean masks.

A key is read once into a `Selection`: a strided box, then axes put in and left out, then index arrays along some axes.
Reading is slice -> reshape -> take; writing is the same backwards, and returns a new tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import same_sizes
from tenon.dims.symbolic_dim import Dim, is_by_data, product
from tenon.errors import DTypeError, OutOfRange, ShapeError
from tenon.graph.op import at_once
from tenon.ops.comparison import less, maximum, minimum, where
from tenon.ops.define import function, is_computed, scalar
from tenon.ops.indexing import check_range, put, take, wrap_index
from tenon.ops.searching import argwhere_op, as_size, in_graph, is_in_graph
from tenon.ops.shape import as_dim, broadcast_to, cast, dimension, full_op, inverse_permutation, permute, reshape_op
from tenon.ops.slicing import box, slice_update
from tenon.records import dataclass, field
from tenon.types import Shape, broadcast_shapes, int64


@dataclass
class Selection:
    """What a key selects: a box of the tensor, seen under a shape, with index arrays along some of its axes."""

    start: list[Dim] = field(default_factory=list)
    size: list[Dim] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    shape: list[Dim] = field(default_factory=list)          # of the box, with new axes in and integers' axes out
    arrays: dict[int, Any] = field(default_factory=dict)    # axis of `shape` -> index array

    def whole(self, x: Any) -> bool:
        """Whether the box is all of `x`, in order."""
        return same_sizes(tuple(self.size), tuple(x.shape)) and all(d == 1 for d in self.step)


def selects_box(x: Any, key: Any) -> bool:
    """Whether x[key] lies at regular places, and is a view in NumPy and PyTorch: no index array, no mask."""
    return _mask_of(key) is None and not _read(x, key).arrays


@function
def getitem(x: Any, key: Any) -> Any:
    """x[key], for keys as in NumPy.

    >>> x = tn.tensor([[1, 2, 3], [4, 5, 6]])
    >>> x[1, ::-1], x[:, [2, 0]], x[x > 4]
    (tensor([6, 5, 4]), tensor([[3, 1],
            [6, 4]]), tensor([5, 6]))
    """
    mask = _mask_of(key)
    if mask is not None and (at_once() or not isinstance(mask, np.ndarray)):
        return _chosen(x, mask)
    selection = _read(x, key)
    part = _box(x, selection)
    if not selection.arrays:
        return part if part is not x else reshape_op(x, shape=x.shape)      # a tensor of its own, as any other part
    rows, at, axis, _ = _rows(part, selection.arrays)
    return take(rows, at, axis=axis)


@function
def setitem(x: Any, key: Any, value: Any) -> Any:
    """A copy of x with x[key] replaced by `value`, which broadcasts; what x[key] = value means.

    >>> tn.setitem(tn.tensor([1, 2, 3]), slice(1, None), 0)
    tensor([1, 0, 0])
    """
    if is_computed(value) or (isinstance(value, (bool, int, float, complex)) and not hasattr(value, "shape")):
        value = full_op(scalar(value, x.dtype), shape=())
    value = value if hasattr(value, "shape") else np.asarray(value)
    mask = _mask_of(key)
    if mask is not None and value.ndim <= x.ndim - mask.ndim and tuple(mask.shape) == tuple(x.shape[:mask.ndim]):
        wide = reshape_op(mask, shape=(*mask.shape, *[1] * (x.ndim - mask.ndim)))
        value = _spread("x[mask] = value", value, tuple(x.shape[mask.ndim:]))
        return where(broadcast_to(wide, shape=x.shape), cast(value, dtype=x.dtype), x)
    selection = _read(x, key)
    value = cast(value, dtype=x.dtype)
    if not selection.arrays:
        new = _spread("x[key] = value", value, tuple(selection.shape))
    else:
        part = _box(x, selection)
        rows, at, axis, order = _rows(part, selection.arrays)
        target = (*rows.shape[:axis], *at.shape, *rows.shape[axis + 1:])
        new = put(rows, at, _spread("x[key] = value", value, target), axis=axis, reduce="set")
        new = reshape_op(new, shape=tuple(part.shape[k] for k in order))
        new = new if order == tuple(range(part.ndim)) else permute(new, axes=inverse_permutation(order))
    if selection.whole(x):
        return reshape_op(new, shape=x.shape)
    return slice_update(x, reshape_op(new, shape=tuple(selection.size)), start=tuple(selection.start),
                        step=tuple(selection.step))


# ---------------------------------------------------------------- reading a key

def _read(x: Any, key: Any) -> Selection:
    items = _with_numbers(x, _items(x, key))
    has_arrays = any(_is_array(item) for item in items)
    selection, axis = Selection(), 0
    for item in items:
        if item is None:
            selection.shape.append(1)
            continue
        if _is_array(item) and item.dtype == np.bool_:      # a mask of no axes: a new axis of one or no element
            selection.arrays[len(selection.shape)] = np.zeros(int(item), np.int64)
            selection.shape.append(1)
            continue
        size: Any = x.shape[axis]
        if isinstance(item, slice):
            start, count, step = _slice(item, size)
            selection.shape.append(count)
        elif _is_array(item) or has_arrays:
            start, count, step = 0, size, 1
            selection.arrays[len(selection.shape)] = (
                check_range("x[key]", np.asarray(item), size, axis) if isinstance(item, (int, np.ndarray))
                else wrap_index(cast(item, dtype=int64), size=size, axis=axis))
            selection.shape.append(size)
        else:
            if not (item < size if item >= 0 else size + item >= 0):
                raise OutOfRange(f"x[key]: index {item} is out of range for axis {axis} of size {size}")
            start, count, step = item if item >= 0 else size + item, 1, 1
        selection.start.append(start)
        selection.size.append(count)
        selection.step.append(step)
        axis += 1
    return selection


def _with_numbers(x: Any, items: list[Any]) -> list[Any]:
    """The items, with numbers that change from call to call in the graph."""
    if not any(hasattr(type(item), "as_index") for item in items):
        return items
    axes = np.cumsum([0, *(item is not None and not (_is_array(item) and item.dtype == np.bool_) for item in items)])
    return [item.as_index(x.shape[axis]) if hasattr(type(item), "as_index") else item
            for item, axis in zip(items, axes.tolist(), strict=False)]


def _items(x: Any, key: Any) -> list[Any]:
    """The key as one item an axis (and None for new ones): `...` filled in, masks turned into index arrays."""
    items: list[Any] = []
    for item in key if isinstance(key, tuple) else (key,):
        if _is_mask(item):
            _check_mask(x, item, items)
        items.extend(_item(item))
    used = sum(item is not None and item is not Ellipsis and not (_is_array(item) and item.dtype == np.bool_)
               for item in items)
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise OutOfRange("x[key]: the key has more than one ...")
    if used > x.ndim:
        raise OutOfRange(f"x[key]: the key has {used} indices, the tensor {x.ndim} axes")
    at = dots[0] if dots else len(items)
    items[at:at + 1] = [slice(None)] * (x.ndim - used)
    return items


def _check_mask(x: Any, mask: Any, before: Sequence[Any]) -> None:
    """Raise OutOfRange unless a mask has the sizes of the axes that it stands for."""
    if any(item is Ellipsis for item in before):
        return
    first = sum(item is not None for item in before)
    shape = np.shape(mask) if isinstance(mask, (list, tuple)) else tuple(mask.shape)
    if shape and shape != tuple(x.shape[first:first + len(shape)]):
        raise OutOfRange(f"x[mask]: a mask of shape {list(shape)} does not fit a tensor of shape {list(x.shape)}",
                         hint="a mask has the sizes of the axes it selects from")


def _is_mask(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return bool(item) and np.asarray(item).dtype == np.bool_
    return getattr(getattr(item, "dtype", None), "kind", "") == "b"


def _item(item: Any) -> list[Any]:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, (bool, np.bool_)):
        return [np.asarray(item)]
    if isinstance(item, (list, tuple, range)):
        item = np.asarray(item) if len(item) else np.zeros(0, np.int64)
        if item.dtype == object:
            raise OutOfRange("x[key]: a list in a key must be a regular array of integers or booleans")
    if isinstance(item, (np.ndarray, np.generic)) and item.dtype.kind in "biu":
        if item.dtype != np.bool_:
            return [int(item)] if isinstance(item, np.generic) else [item.astype(np.int64)]
        return list(np.nonzero(item)) if item.ndim else [np.asarray(item)]
    if hasattr(item, "shape") and hasattr(item, "dtype") and not isinstance(item, (np.ndarray, np.generic)):
        if item.dtype.kind == "b":
            return _nonzero(item)
        if item.dtype.kind in "iu":
            return [item]
    elif not isinstance(item, (np.ndarray, np.generic)):
        try:
            return [item if hasattr(item, "terms") or hasattr(type(item), "as_index") else operator.index(item)]
        except TypeError:
            pass
    raise DTypeError(f"x[key]: an index must be an integer, a slice, None, ... or an array of integers or booleans, "
                     f"not {getattr(item, 'dtype', type(item).__name__)}")


def _chosen(x: Any, mask: Any) -> Any:
    """x[mask]: rows of the axes that the mask stands for, as one axis."""
    _check_mask(x, mask, ())
    rows = reshape_op(x, shape=(product(x.shape[:mask.ndim]), *x.shape[mask.ndim:]))
    places = argwhere_op(mask.reshape(-1))
    return take(rows, reshape_op(places, shape=(places.shape[0],)), axis=0)


def _nonzero(mask: Any) -> list[Any]:
    places = argwhere_op(mask)
    return [reshape_op(box(places, (0, k), (places.shape[0], 1), (1, 1)), shape=(places.shape[0],))
            for k in range(mask.ndim)] if mask.ndim else [np.asarray(bool(mask))]


def _mask_of(key: Any) -> Any:
    """The mask, where the key is nothing else."""
    key = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if isinstance(key, list) and key and np.asarray(key).dtype == np.bool_:
        return np.asarray(key)
    if hasattr(key, "dtype") and hasattr(key, "ndim") and key.ndim:
        return key if (key.dtype == np.bool_ if isinstance(key, np.ndarray) else key.dtype.kind == "b") else None
    return None


def _is_array(item: Any) -> bool:
    return hasattr(item, "dtype") and hasattr(item, "shape")


def _slice(item: slice, size: Any) -> tuple[Any, Any, int]:
    """First element, number of elements and step of a slice along an axis of this size."""
    item = slice(*map(as_dim, (item.start, item.stop, item.step)))
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise ShapeError("x[key]: the step of a slice must not be 0")
    if any(map(_is_decided_by_data, (size, item.start, item.stop))):
        return _slice_by_data(item, size, step)
    if not any(hasattr(x, "terms") for x in (size, item.start, item.stop)):     # no size is symbolic
        places = range(*slice(_whole(item.start), _whole(item.stop), step).indices(size))
        return (places.start if places else 0), len(places), step
    start = _bound(item.start, size, 0 if step > 0 else size - 1, step)
    stop = _bound(item.stop, size, size if step > 0 else -1, step)
    span = stop - start if step > 0 else start - stop
    if (isinstance(span, int) or item.start is not None or item.stop is not None) and span <= 0:
        return 0, 0, step
    return start, (span + abs(step) - 1) // abs(step), step


def _is_decided_by_data(x: Any) -> bool:
    """Whether a size or a bound is one that the graph computes."""
    if hasattr(x, "terms"):
        return is_by_data(x)
    return hasattr(x, "as_size") or (is_in_graph(x) and x.ndim == 0 and x.dtype.kind in "iu")


def _slice_by_data(item: slice, size: Any, step: int) -> tuple[Any, Any, int]:
    """The same where the data decide a bound, or the size: computed in the graph, as far as it has to be."""
    if item.start is None and item.stop is None and step in (1, -1):
        return (0 if step > 0 else size - 1), size, step
    if step < 0:
        operator.index(size if item.start is None else item.start)      # which says that it must be known
    low = 0 if item.start is None else _bound_by_data(item.start, size)
    high = in_graph(size) if item.stop is None else _bound_by_data(item.stop, size)
    span = high - low
    count = as_size(high if isinstance(low, int) and step == 1 else maximum((span + (step - 1)) // step, 0))
    return (low if isinstance(low, int) else as_size(low)), count, step


def _bound_by_data(value: Any, size: Any) -> Any:
    """A bound counted from the front, within an axis of this size."""
    whole = in_graph(size)
    if isinstance(value, int):
        return 0 if value == 0 else minimum(whole, value) if value > 0 else maximum(whole + value, 0)
    bound = in_graph(value)
    return where(less(bound, 0), maximum(bound + whole, 0), minimum(bound, whole))


def _whole(value: Any) -> int | None:
    return None if value is None else operator.index(value)


def _bound(value: Any, size: Any, default: Any, step: int) -> Any:
    if value is None:
        return default
    low, high = (0, size) if step > 0 else (-1, size - 1)
    value = value if hasattr(value, "terms") else operator.index(value)
    if value < 0:
        value = value + size
        return low if value < low else value
    return high if value > high else value


# ---------------------------------------------------------------- following a selection

def _box(x: Any, selection: Selection) -> Any:
    if not selection.whole(x):
        x = box(x, selection.start, selection.size, selection.step)
    return x if same_sizes(tuple(x.shape), tuple(selection.shape)) else reshape_op(x, shape=tuple(selection.shape))


def _rows(part: Any, arrays: dict[int, Any]) -> tuple[Any, Any, int, tuple[int, ...]]:
    """The box with its indexed axes merged into one, the index along it, its place, and the former order of axes."""
    axes = list(arrays)
    order = tuple(range(part.ndim))
    shape = broadcast_shapes(*(a.shape for a in arrays.values()))
    if len(axes) == 1:
        return part, arrays[axes[0]], axes[0], order
    first = axes[0]
    if axes != list(range(first, first + len(axes))):       # NumPy puts the axes of separated arrays in front
        order, first = (*axes, *(k for k in order if k not in arrays)), 0
        part = permute(part, axes=order)
    sizes: Shape = tuple(part.shape[first:first + len(axes)])
    at = _merge([arrays[k] for k in axes], sizes, shape)
    merged = (*part.shape[:first], product(sizes), *part.shape[first + len(axes):])
    return reshape_op(part, shape=merged), at, first, order


def _merge(arrays: Sequence[Any], sizes: Sequence[Any], shape: Shape) -> Any:
    """One index for several axes in row-major order."""
    total: Any = None
    for at, size in zip(arrays, sizes, strict=True):
        width = dimension(size=size, dtype=int64) if hasattr(size, "terms") else size
        total = at if total is None else at + total * width
    return total if tuple(total.shape) == tuple(shape) else broadcast_to(total, shape=shape)


def _spread(name: str, value: Any, shape: Shape) -> Any:
    """The value broadcast to `shape`; leading axes of size 1 may be too many, as in NumPy."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        value = reshape_op(value, shape=tuple(value.shape[extra:]))
    if tuple(value.shape) == tuple(shape):
        return value
    if value.ndim > len(shape) or broadcast_shapes(value.shape, shape) != tuple(shape):
        raise ShapeError(f"{name}: a value of shape {list(value.shape)} does not broadcast to {list(shape)}")
    return broadcast_to(value, shape=tuple(shape))

"""Pieces and places as PyTorch and NumPy name them: narrow, sliding_window, diagonal_scatter, scatter_reduce ..."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import hold_for_data_where_natural, hold_where_natural
from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.ops import splitting
from tenon.ops.arithmetic import floor_divide, remainder
from tenon.ops.comparison import clip, not_equal, where
from tenon.ops.complex_parts import complex_, imag, real
from tenon.ops.creation import arange
from tenon.ops.cumulative import cumsum, diff
from tenon.ops.define import function, lift
from tenon.ops.diagonal import diag, diagonal_size
from tenon.ops.getitem import setitem
from tenon.ops.indexing import put, scatter_op, take
from tenon.ops.joining_and_axes import concat, moveaxis, ravel, reshaped, stack
from tenon.ops.reduction import any_
from tenon.ops.searching import argwhere, masked_select
from tenon.ops.shape import as_dim, broadcast_to, cast, full_op
from tenon.types import DType, bool_, int64, normalize_axis

# ---------------------------------------------------------------- cut out, write back

@function
def narrow_(x: Any, axis: int, start: Any, length: Any) -> Any:
    """The `length` positions of an axis from `start` on, as PyTorch says x[..., start:start + length].

    Raises ShapeError where the axis has fewer.

    >>> tn.narrow(tn.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    start, length, size = _whole(start), _whole(length), x.shape[axis]
    hold_where_natural(start, length, size - start)
    start = start + size if isinstance(start, int) and start < 0 else start
    if isinstance(length, int) and (length < 0 or (isinstance(start, int) and isinstance(size, int) and start > size)):
        raise ShapeError(f"narrow: {length} positions from {start} on of axis {axis} of {x.type}")
    return splitting.narrow(x, axis, start, start + length)


def _whole(n: Any) -> Any:
    """A position or a number, as Python's: of a tensor without axes, its element."""
    n = as_dim(n)
    return n if hasattr(n, "terms") else operator.index(n)


@function
def sliding_window(x: Any, window: int, step: int = 1, axis: int = -1) -> Any:
    """The windows of so many elements, `step` apart, along an axis; their elements are a new last axis.

    >>> tn.sliding_window(tn.arange(4), 2)
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if window < 0 or step < 1 or (isinstance(size, int) and window > size):
        raise ShapeError(f"sliding_window: windows of {window}, {step} apart, along axis {axis} of {x.type}")
    hold_for_data_where_natural(size - window)
    at = reshaped(arange(0, size - window + 1, step), (-1, 1)) + arange(window)
    return moveaxis(take(x, at, axis=axis), axis + 1, -1)


@function
def diagflat(x: Any, k: int = 0) -> Any:
    """The elements of x as the k-th diagonal of a square matrix."""
    return diag(ravel(x), k)


@function
def diagonal_scatter(x: Any, values: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """x with a diagonal of two axes replaced by `values`, which have the shape of `x.diagonal(...)`.

    >>> tn.diagonal_scatter(tn.zeros(2, 2), tn.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    last = moveaxis(lift(x), (axis1, axis2), (-2, -1))
    count = arange(diagonal_size(last.shape[-2], last.shape[-1], offset))
    new = setitem(last, (..., count + max(-offset, 0), count + max(offset, 0)), values)
    return moveaxis(new, (-2, -1), (axis1, axis2))


# ---------------------------------------------------------------- places as numbers

@function
def unravel_index(x: Any, shape: Sequence[Dim]) -> tuple[Any, ...]:
    """Places in the flattened form of a tensor of this shape, as one index an axis.

    >>> tn.unravel_index(tn.tensor([1, 5]), (2, 3))
    (tensor([0, 1]), tensor([1, 2]))
    """
    rest, found = lift(x), []
    for size in reversed(shape):
        found.append(remainder(rest, size))
        rest = floor_divide(rest, size)
    return tuple(reversed(found))


@function
def combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """Every choice of r elements of a vector in order, a row each.

    >>> tn.combinations(tn.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    x = lift(x)
    if x.ndim != 1:
        raise ShapeError(f"combinations: {x.type} is no vector")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(int(x.shape[0])), r)), np.int64).reshape(-1, r)
    return take(x, rows, axis=0)


@function
def tril_indices(rows: int, columns: int | None = None, k: int = 0) -> tuple[Any, Any]:
    """The row and column numbers of the elements at and below the k-th diagonal, as NumPy gives them."""
    return _triangle(np.tri(rows, rows if columns is None else columns, k, dtype=bool))


@function
def triu_indices(rows: int, columns: int | None = None, k: int = 0) -> tuple[Any, Any]:
    """The row and column numbers of the elements at and above the k-th diagonal, as NumPy gives them."""
    return _triangle(~np.tri(rows, rows if columns is None else columns, k - 1, dtype=bool))


def _triangle(mask: np.ndarray) -> tuple[Any, Any]:
    rows, columns = np.nonzero(mask)
    return lift(rows.copy()), lift(columns.copy())


@function
def unique_consecutive(x: Any, return_inverse: bool = False, return_counts: bool = False,
                       axis: int | None = None) -> Any:
    """The elements without those that repeat the one before; with the flags, inverse indices and counts.  Eager only.

    With `axis`, the slices along it.

    >>> tn.unique_consecutive(tn.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    x = lift(x)
    line = ravel(x) if axis is None else moveaxis(x, axis, 0)
    count = int(line.shape[0])
    first = full_op(literal(True, bool_), shape=(min(count, 1),))
    differ = not_equal(line[1:], line[:-1])
    starts = concat([first, any_(differ, axis=tuple(range(1, line.ndim)))]) if count else first
    found = [masked_select(line, starts) if axis is None else take(x, ravel(argwhere(starts)), axis=axis)]
    if return_inverse:
        inverse = cumsum(cast(starts, dtype=int64), 0) - 1
        found.append(reshaped(inverse, x.shape) if axis is None else inverse)
    if return_counts:
        ends = concat([ravel(argwhere(starts)), full_op(literal(count, int64), shape=(1,))])
        found.append(diff(ends))
    return tuple(found) if len(found) > 1 else found[0]


# ---------------------------------------------------------------- what stands at places

@function
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """x with the elements under a mask replaced by those of `source`, one after the other.

    Raises OutOfRange where `source` has fewer.

    >>> tn.masked_scatter(tn.zeros(4), tn.tensor([True, False, True, True]), tn.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([1., 0., 2., 3.])
    """
    x, mask, source = lift(x), lift(mask), lift(source)
    mask = broadcast_to(mask, shape=x.shape)
    place = cumsum(cast(ravel(mask), dtype=int64), 0) - 1
    given = take(ravel(source), where(mask, reshaped(place, x.shape), 0), axis=0)
    return where(mask, cast(given, dtype=x.dtype), x)


@function
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """x with x[indices] replaced by `values`, which are broadcast; with `accumulate` they are added, all of them.

    >>> tn.index_put(tn.zeros(3), (tn.tensor([0, 0, 2]),), tn.tensor(1.0), accumulate=True)
    tensor([2., 0., 1.])
    """
    x, key = lift(x), tuple(indices) if isinstance(indices, (list, tuple)) else (indices,)
    if not accumulate:
        return setitem(x, key, values)
    places = reshaped(arange(product(x.shape)), x.shape)[key]
    return put_(x, places, cast(broadcast_to(lift(values), shape=places.shape), dtype=x.dtype), True)


# ---------------------------------------------------------------- complex numbers as pairs

@function
def view_as_real(x: Any) -> Any:
    """Complex numbers as pairs of real and imaginary part along a new last axis."""
    return stack([real(x), imag(x)], axis=-1)


@function
def view_as_complex(x: Any) -> Any:
    """Pairs along the last axis as complex numbers.

    >>> tn.view_as_complex(tn.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    x = lift(x)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the last axis of {x.type} does not have two elements")
    return complex_(x[..., 0], x[..., 1])


# ---------------------------------------------------------------- several values for one place

COMBINING = ("add", "mul", "max", "min")
ALSO = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}         # PyTorch's words


def _combined(name: str, write: Callable[..., Any], x: Any, at: Any, values: Any, axis: int, reduce: str,
              include_self: bool) -> Any:
    """`write` with what one place gets combined; without x there, or as a mean, too."""
    reduce = ALSO.get(reduce, reduce)
    if reduce not in (*COMBINING, "mean"):
        raise ArgumentError(f"{name}: reduce={reduce!r} is unknown", hint="one of add, mul, max, min, mean")
    kind = "add" if reduce == "mean" else reduce
    nothing = None if include_self else _filled(_identity(kind, x.dtype), values.shape, x.dtype)
    start = x if include_self else write(x, at, nothing, axis=axis, reduce="set")
    total = write(start, at, values, axis=axis, reduce=kind)
    if reduce != "mean":
        return total
    ones = _filled(1, x.shape, x.dtype)
    counted = ones if include_self else write(ones, at, _filled(0, values.shape, x.dtype), axis=axis, reduce="set")
    count = write(counted, at, _filled(1, values.shape, x.dtype), axis=axis, reduce="add")
    mean = total / clip(count, 1, None)
    return mean if x.dtype.kind in "fc" else cast(mean.floor(), dtype=x.dtype)


def _identity(kind: str, dtype: DType) -> Any:
    """What changes nothing that it is combined with."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    if dtype.kind in "ui":
        ends = np.iinfo(dtype.numpy)
        return int(ends.min if kind == "max" else ends.max)
    least = kind == "max"
    return not least if dtype.kind == "b" else -np.inf if least else np.inf


def _filled(value: Any, shape: Any, dtype: Any) -> Any:
    return full_op(literal(value, dtype), shape=tuple(shape))


@function
def scatter_reduce(x: Any, indices: Any, values: Any, axis: int = 0, reduce: str = "add",
                   include_self: bool = True) -> Any:
    """x with the values that `indices` send to one place combined with it: add, mul, max, min or mean.

    PyTorch's words are taken too: sum, prod, amax, amin.

    `include_self=False` leaves out what x holds there.

    >>> tn.scatter_reduce(tn.ones(2), tn.tensor([0, 0]), tn.tensor([2.0, 4.0]), reduce="mean", include_self=False)
    tensor([3., 1.])
    """
    x, indices, values = lift(x), lift(indices), lift(values)
    if values.shape != indices.shape:       # PyTorch allows more values than indices; the first ones count
        values = values[tuple(slice(0, n) for n in indices.shape)]
    return _combined("scatter_reduce", scatter_op, x, indices, values, axis, reduce, include_self)


@function
def index_reduce(x: Any, indices: Any, values: Any, axis: int = 0, reduce: str = "add",
                 include_self: bool = True) -> Any:
    """x with the slices that `indices` send to one place along an axis combined with it, as `scatter_reduce`."""
    x, indices, values = lift(x), lift(indices), lift(values)
    axis = normalize_axis(axis, x.ndim)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
    values = values if values.shape == shape else broadcast_to(values, shape=shape)
    return _combined("index_reduce", put, x, indices, values, axis, reduce, include_self)


@function
def put_(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """x with the elements at places of its flattened form replaced, or added to, by values.

    >>> tn.put(tn.zeros(2, 2), tn.tensor([0, 3]), tn.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    x, indices, values = lift(x), ravel(lift(indices)), ravel(lift(values))
    values = values if values.shape == indices.shape else broadcast_to(values, shape=indices.shape)
    return reshaped(put(ravel(x), indices, values, axis=0, reduce="add" if accumulate else "set"), x.shape)

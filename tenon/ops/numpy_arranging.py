"""NumPy's names for elements put together, taken away, looked up and folded: append, delete, interp, convolve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.ops.comparison import clip, logical_and, where
from tenon.ops.convolution import conv
from tenon.ops.creation import eye, linspace
from tenon.ops.cumulative import cumsum, diff
from tenon.ops.define import aliases, layer_function, lift
from tenon.ops.exponential import exp
from tenon.ops.joining_and_axes import concat, ravel
from tenon.ops.ordering import argsort
from tenon.ops.rounding import round_, trunc
from tenon.ops.searching import searchsorted
from tenon.ops.splitting import narrow
from tenon.ops.statistics import isin
from tenon.ops.unique_rows import unique
from tenon.types import normalize_axis

# ---------------------------------------------------------------- put together and taken away

@layer_function
def append(x: Any, values: Any, axis: int | None = None) -> Any:
    """x with `values` behind it along an axis; without one both are flat first.

    >>> tn.append(tn.tensor([1, 2]), tn.tensor([3]))
    tensor([1, 2, 3])
    """
    x, values = lift(x), lift(values)
    return concat([ravel(x), ravel(values)], axis=0) if axis is None else concat([x, values], axis=axis)


@layer_function
def insert(x: Any, index: int, values: Any, axis: int | None = None) -> Any:
    """x with `values` before an index of an axis, or of the flat elements.

    >>> tn.insert(tn.tensor([1, 2]), 1, 9)
    tensor([1, 9, 2])
    """
    x = ravel(lift(x)) if axis is None else lift(x)
    at = 0 if axis is None else normalize_axis(axis, x.ndim)
    index, values = _place(x, at, index, 1), lift(values)
    shape = [*x.shape[:at], 1, *x.shape[at + 1:]]
    if values.ndim == x.ndim:
        shape[at] = values.shape[at]
    put = values.astype(x.dtype).expand(shape)
    return concat([narrow(x, at, 0, index), put, narrow(x, at, index, int(x.shape[at]))], axis=at)


@layer_function
def delete(x: Any, index: int | Sequence[int], axis: int | None = None) -> Any:
    """x without what stands at an index, or several, of an axis, or of the flat elements.

    >>> tn.delete(tn.tensor([1, 2, 3]), 1)
    tensor([1, 3])
    """
    x = ravel(lift(x)) if axis is None else lift(x)
    at = 0 if axis is None else normalize_axis(axis, x.ndim)
    gone = {_place(x, at, k, 0) for k in ([index] if isinstance(index, int) else map(int, index))}
    kept = [k for k in range(int(x.shape[at])) if k not in gone]
    return x[(slice(None),) * at + (np.array(kept, np.int64),)]


def _place(x: Any, axis: int, index: int, beyond: int) -> int:
    """An index counted from the front; raises ArgumentError for one outside."""
    size = int(x.shape[axis])
    if not -size <= index < size + beyond:
        raise ArgumentError(f"index {index} is outside of axis {axis} with size {size}")
    return index + size if index < 0 else index


@layer_function
def block(arrays: Any) -> Any:
    """One tensor of nested lists of tensors: the innermost are joined along the last axis.

    >>> tn.block([[tn.ones(1, 1), tn.zeros(1, 1)], [tn.zeros(1, 1), tn.ones(1, 1)]])
    tensor([[1., 0.],
            [0., 1.]])
    """
    def depth(part: Any) -> int:
        return 1 + max(map(depth, part)) if isinstance(part, list) else 0

    def joined(part: Any, axis: int) -> Any:
        return concat([joined(inner, axis + 1) for inner in part], axis=axis) if isinstance(part, list) else lift(part)
    return joined(arrays, -depth(arrays))


# ---------------------------------------------------------------- numbers in order

@layer_function
def identity(n: int, dtype: Any = None) -> Any:
    """The matrix of n rows with 1 on its diagonal, 0 elsewhere."""
    return eye(n, dtype=dtype or "float32")


@layer_function
def geomspace(start: float, stop: float, num: int = 50) -> Any:
    """Numbers from `start` to `stop` of which each is the same multiple of the one before.

    >>> tn.geomspace(1, 8, 4).round(4)
    tensor([1., 2., 4., 8.])
    """
    if start * stop <= 0:
        raise ArgumentError(f"geomspace: {start} and {stop} must have the same sign, and be no zeros")
    return exp(linspace(0.0, math.log(stop / start), num)) * start


@layer_function
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """In which of the increasing `bins` each element lies: k where bins[k - 1] <= x < bins[k].

    >>> tn.digitize(tn.tensor([0.5, 2.0]), tn.tensor([0.0, 1.0, 2.0]))
    tensor([1, 3])
    """
    return searchsorted(bins, x, side="left" if right else "right")


@layer_function
def interp(x: Any, xp: Any, fp: Any, left: float | None = None, right: float | None = None) -> Any:
    """The function through the points (xp, fp), which increase along xp, linear between them and constant outside.

    >>> tn.interp(tn.tensor([0.5, 9.0]), tn.tensor([0.0, 1.0]), tn.tensor([2.0, 4.0]))
    tensor([3., 4.])
    """
    x, xp, fp = lift(x), lift(xp), lift(fp)
    if xp.shape != fp.shape or xp.ndim != 1:
        raise ShapeError(f"interp: points {xp.type} and {fp.type} must be vectors of one size")
    last = int(xp.shape[0]) - 1
    if last < 1:
        return x * 0 + fp[0]
    k = clip(searchsorted(xp, x, side="right") - 1, 0, last - 1)
    share = (x - xp[k]) / (xp[k + 1] - xp[k])
    found = fp[k] + (fp[k + 1] - fp[k]) * clip(share, 0.0, 1.0)
    found = found if left is None else where(x < xp[0], left, found)
    return found if right is None else where(x > xp[last], right, found)


@layer_function
def ediff1d(x: Any) -> Any:
    """Each element less the one before it, of the flat elements."""
    return diff(ravel(lift(x)))


@layer_function
def unwrap(x: Any, axis: int = -1, period: float = 2 * math.pi) -> Any:
    """Angles with jumps of more than half a period taken out along an axis."""
    x = lift(x)
    at, size = normalize_axis(axis, x.ndim), x.shape[axis]
    step = diff(x, axis=at)
    near = (step + period / 2) % period - period / 2
    near = where(logical_and(near == -period / 2, step > 0), period / 2, near)
    moved = where(abs(step) < period / 2, 0.0, near - step)
    return concat([narrow(x, at, 0, 1), narrow(x, at, 1, size) + cumsum(moved, at)], axis=at)


@layer_function
def modf(x: Any) -> tuple[Any, Any]:
    """The fractions and the whole parts of the elements, both with their sign.

    >>> tn.modf(tn.tensor([2.5, -1.25]))
    (tensor([ 0.5 , -0.25]), tensor([ 2., -1.]))
    """
    whole = trunc(x)
    return where(whole == x, 0.0, x - whole).copysign(x), whole


@layer_function
def lexsort(keys: Any, axis: int = -1) -> Any:
    """The order of the last of `keys`; where elements are equal, of the one before it, and so on."""
    listed = [lift(key) for key in keys]
    order = argsort(listed[0], axis=axis)
    for key in listed[1:]:
        order = order.gather(argsort(key.gather(order, axis=axis), axis=axis), axis=axis)
    return order


# ---------------------------------------------------------------- sets, filters

@layer_function
def union1d(x: Any, y: Any) -> Any:
    """The distinct elements of both, in order."""
    return unique(append(x, y))


@layer_function
def intersect1d(x: Any, y: Any) -> Any:
    """The distinct elements that both have, in order."""
    found = unique(x)
    return found[isin(found, y)]


@layer_function
def setdiff1d(x: Any, y: Any) -> Any:
    """The distinct elements of x that y does not have, in order.

    >>> tn.setdiff1d(tn.tensor([3, 1, 1]), tn.tensor([3]))
    tensor([1])
    """
    found = unique(x)
    return found[~isin(found, y)]


@layer_function
def convolve(x: Any, y: Any, mode: str = "full") -> Any:
    """The convolution of two vectors: "full", "same" (as long as the longer), or "valid" (where both overlap).

    >>> tn.convolve(tn.tensor([1.0, 2.0, 3.0]), tn.tensor([0.0, 1.0]))
    tensor([0., 1., 2., 3.])
    """
    x, y = lift(x), lift(y)
    longer, shorter = (x, y) if int(x.shape[0]) >= int(y.shape[0]) else (y, x)
    return _slid("convolve", longer, shorter.flip(0), mode)


@layer_function
def correlate(x: Any, y: Any, mode: str = "valid") -> Any:
    """The products of a vector y laid along a vector x, summed at each place; modes as of `convolve`."""
    x, y = lift(x), lift(y)
    if int(x.shape[0]) >= int(y.shape[0]):
        return _slid("correlate", x, y, mode)
    return _slid("correlate", y, x, mode).flip(0)


def _slid(name: str, x: Any, y: Any, mode: str) -> Any:
    count = int(y.shape[0])
    around = {"full": (count - 1, count - 1), "same": (count // 2, (count - 1) // 2), "valid": (0, 0)}
    if mode not in around or x.ndim != 1 or y.ndim != 1 or not count:
        raise ArgumentError(f"{name}: two vectors with elements and a mode of full, same or valid are needed, not "
                            f"{x.type}, {y.type} and {mode!r}")
    return conv(x.reshape(1, 1, -1), y.reshape(1, 1, -1), padding=(around[mode],)).reshape(-1)


aliases(around=round_)

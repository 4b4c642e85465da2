"""Functions that repeat, turn round and surround tensors: flip, roll, tile, repeat, pad.

They are made of slice, pad, concat and broadcast_to, and leave no node of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.ops.comparison import less, where
from tenon.ops.creation import arange
from tenon.ops.define import aliases, function, lift
from tenon.ops.indexing import take
from tenon.ops.joining_and_axes import expand_dims, listed, ravel, replaced, swapaxes
from tenon.ops.searching import as_size, is_in_graph, searchsorted
from tenon.ops.shape import as_dim, as_shape, broadcast_to, cast, reshape_op
from tenon.ops.slice_pad_concat import concat_op, pad_op, slice_op
from tenon.ops.splitting import narrow
from tenon.types import int64, normalize_axes, normalize_axis


@function
def flip(x: Any, axis: Any = None, *more: int) -> Any:
    """The order of the elements turned round along some axes, a tuple or one by one, or all.

    >>> tn.arange(3).flip()
    tensor([2, 1, 0])
    """
    x = lift(x)
    axes = normalize_axes((axis, *more) if more else axis, x.ndim)
    return slice_op(x, start=[n - 1 if k in axes else 0 for k, n in enumerate(x.shape)],
                    stop=[-1 if k in axes else n for k, n in enumerate(x.shape)],
                    step=[-1 if k in axes else 1 for k in range(x.ndim)])


@function
def fliplr(x: Any) -> Any:
    """Axis 1 turned round."""
    return flip(x, 1)


@function
def flipud(x: Any) -> Any:
    """Axis 0 turned round."""
    return flip(x, 0)


@function
def rot90(x: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Turned by k quarters from the first of two axes towards the second."""
    x = lift(x)
    a, b = normalize_axes(tuple(axes), x.ndim, "axes")
    match k % 4:
        case 1: return swapaxes(flip(x, b), a, b)
        case 2: return flip(x, (a, b))
        case 3: return flip(swapaxes(x, a, b), b)
    return x


@function
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """The elements moved by `shift` places; what falls off one end comes in at the other.

    >>> tn.arange(5).roll(2)
    tensor([3, 4, 0, 1, 2])
    """
    x = lift(x)
    if any(isinstance(by, (float, np.floating)) for by in listed([shift])):
        raise DTypeError(f"roll: a shift must be an integer, not {shift!r}")
    if axis is None:
        return reshape_op(roll(ravel(x), sum(listed([shift])), 0), shape=x.shape)
    axes = [normalize_axis(a, x.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(axes) != len(shifts):
        raise ShapeError(f"roll: {len(shifts)} shifts and {len(axes)} axes")
    for a, by in zip(axes, shifts, strict=True):
        size = x.shape[a]
        by = as_dim(by % max(size, 1) if isinstance(size, int) else by)
        if by == 0 or size == 0:
            continue
        cut = size - by if not isinstance(by, int) or by > 0 else -by
        x = concat_op(narrow(x, a, cut, size), narrow(x, a, 0, cut), axis=a)
    return x


@function
def tile(x: Any, *reps: Any) -> Any:
    """The whole tensor repeated along each axis, as `numpy.tile`.

    >>> tn.arange(2).tile((2, 2))
    tensor([[0, 1, 0, 1],
            [0, 1, 0, 1]])
    """
    x, times = lift(x), listed(reps)
    times = (1,) * (x.ndim - len(times)) + as_shape(times)
    shape = (1,) * (len(times) - x.ndim) + x.shape
    pairs = [d for pair in zip(times, shape, strict=True) for d in pair]
    spread = [d for n in shape for d in (1, n)]
    return reshape_op(broadcast_to(reshape_op(x, shape=spread), shape=pairs),
                      shape=[a * b for a, b in zip(times, shape, strict=True)])


@function
def repeat(x: Any, repeats: Any, axis: int | None = None, *more: int, output_size: Any = None) -> Any:
    """Each element repeated, so many times or as often as its entry in `repeats` says, as `numpy.repeat`.

    `x.repeat(2, 1, 1)`, which only PyTorch means, is `x.tile(2, 1, 1)`; so is `x.repeat(1, 2)` without an axis 2.
    `output_size` says how many there will be, where the data decide that.

    >>> tn.arange(3).repeat(2), tn.arange(3).repeat([2, 0, 1])
    (tensor([0, 0, 1, 1, 2, 2]), tensor([0, 0, 2]))
    """
    x = lift(x)
    if more or (isinstance(repeats, int) and isinstance(axis, int) and axis >= max(x.ndim, 1)):
        return tile(x, (repeats, axis, *more))
    if axis is None:
        return repeat(ravel(x), repeats, 0, output_size=output_size)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if is_in_graph(repeats):
        return _repeat_by_data(x, repeats, axis, output_size)
    counts = repeats if isinstance(repeats, int) else np.asarray(repeats)
    if not isinstance(counts, int) and counts.size and counts.dtype.kind not in "biu":
        raise DTypeError(f"repeat: counts must be integers, not {repeats!r}")
    if not isinstance(counts, int) and counts.size != 1:
        if counts.ndim != 1 or counts.size != size:
            raise ShapeError(f"repeat: {counts.size} counts for axis {axis} of {x.type}")
        if (counts < 0).any():
            raise ShapeError(f"repeat: a count must not be negative: {counts.min()}")
        return take(x, np.repeat(np.arange(counts.size), counts), axis=axis)
    times = as_dim(counts) if isinstance(counts, int) else int(counts.item())
    wide = broadcast_to(expand_dims(x, axis + 1), shape=replaced(x.shape, axis, size, times))
    return reshape_op(wide, shape=replaced(x.shape, axis, size * times))


def _repeat_by_data(x: Any, counts: Any, axis: int, output_size: Any) -> Any:
    """The same where the graph computes the counts: behind element k stand as many as all up to it are repeated."""
    size = x.shape[axis]
    if counts.dtype.kind not in "biu":
        raise DTypeError(f"repeat: counts must be integers, not {counts.type}")
    if counts.ndim > 1 or not (counts.size == 1 or counts.size == size):
        raise ShapeError(f"repeat: {counts.size} counts for axis {axis} of {x.type}")
    counts = broadcast_to(cast(counts, dtype=int64), shape=(size,))
    ends = counts.cumsum(axis=0)
    total = output_size if output_size is not None else \
        as_size(where(less(counts, 0).any(), -1, counts.sum()))      # which is refused
    return take(x, searchsorted(ends, arange(total), "right"), axis=axis)


@function
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """More elements before and after each axis, as `numpy.pad`.

    `pad_width` is a size for all sides, a (before, after) pair for all axes, or a pair an axis, and so are
    `constant_values`; a negative size cuts elements off.  `mode`: "constant", "edge" (or "replicate"), "reflect",
    "symmetric", "wrap" (or "circular").

    >>> tn.pad(tn.tensor([1, 2, 3]), (1, 2), mode="reflect")
    tensor([2, 1, 2, 3, 2, 1])

    Raises ShapeError where "reflect", "symmetric" or "wrap" needs more elements than there are.
    """
    x = lift(x)
    pairs = _pad_pairs(pad_width, x.ndim)
    if any(isinstance(n, int) and n < 0 for pair in pairs for n in pair):
        x = pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], mode, constant_values)
        for axis, (a, b) in enumerate(pairs):
            x = narrow(x, axis, max(-a, 0), x.shape[axis] - max(-b, 0)) if min(a, b) < 0 else x
        return x
    mode = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    if mode == "constant" and isinstance(constant_values, (tuple, list)):
        return _pad_each(x, pairs, _pad_pairs(constant_values, x.ndim))
    if mode == "constant":
        return pad_op(x, constant_values, low=[as_dim(a) for a, _ in pairs], high=[as_dim(b) for _, b in pairs])
    if mode not in _BORDERS:
        raise ArgumentError(f"pad: no mode {mode!r}", hint="one of constant, " + ", ".join(_BORDERS))
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        if before == 0 and after == 0:
            continue
        most = {"edge": math.inf, "reflect": size - 1}.get(mode, size)
        if (isinstance(size, int) and max(before, after) > most) or (mode == "edge" and size == 0 and before + after):
            raise ShapeError(f"pad: {max(before, after)} elements on one side of axis {axis} of {x.type} are too many "
                             f"for mode {mode!r}")
        left, right = _BORDERS[mode](x, axis, size, before, after)
        parts = [left] * (before > 0) + [x] + [right] * (after > 0)
        x = concat_op(*(part() if callable(part) else part for part in parts), axis=axis) if len(parts) > 1 else x
    return x


def _pad_each(x: Any, pairs: Sequence[tuple[Any, Any]], values: Sequence[tuple[Any, Any]]) -> Any:
    """The sides one after the other, each with a value of its own."""
    for axis, (sizes, fills) in enumerate(zip(pairs, values, strict=True)):
        for side, (size, fill) in enumerate(zip(sizes, fills, strict=True)):
            ends = [as_dim(size if k == axis else 0) for k in range(x.ndim)], [0] * x.ndim
            x = pad_op(x, fill, low=ends[side], high=ends[1 - side])
    return x


_BORDERS: dict[str, Any] = {       # what stands before and after an axis of size n
    "edge": lambda x, axis, n, a, b: (lambda: repeat(narrow(x, axis, 0, 1), a, axis),
                                      lambda: repeat(narrow(x, axis, n - 1, n), b, axis)),
    "reflect": lambda x, axis, n, a, b: (lambda: narrow(x, axis, a, 0, -1),
                                         lambda: narrow(x, axis, n - 2, n - 2 - b, -1)),
    "symmetric": lambda x, axis, n, a, b: (lambda: narrow(x, axis, a - 1, -1, -1),
                                           lambda: narrow(x, axis, n - 1, n - 1 - b, -1)),
    "wrap": lambda x, axis, n, a, b: (lambda: narrow(x, axis, n - a, n), lambda: narrow(x, axis, 0, b)),
}


def _pad_pairs(width: Any, ndim: int) -> list[tuple[Any, Any]]:
    width = width.tolist() if isinstance(width, np.ndarray) else width
    if not isinstance(width, (tuple, list)):
        return [(width, width)] * ndim
    if len(width) == 1:
        return _pad_pairs(width[0], ndim)
    if not isinstance(width[0], (tuple, list)):
        if len(width) != 2:
            raise ShapeError(f"pad: {len(width)} numbers are no (before, after) pair, nor a pair an axis",
                             hint="((1, 1), (2, 2)); nn.functional.pad takes PyTorch's flat list, last axis first")
        return [(width[0], width[1])] * ndim
    if len(width) != ndim:
        raise ShapeError(f"pad: {len(width)} pairs of sizes for {ndim} axes")
    return [(a, b) for a, b in width]


aliases(repeat_interleave=repeat)

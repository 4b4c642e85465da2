"""Functions that rearrange axes and pieces: flatten, squeeze, stack, split, pad, flip, roll, tile ...

They are made of reshape, permute, broadcast_to, slice, pad and concat, and leave no node of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.dims import Dim, product
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.define import alias, function, lift
from tenon.ops.pieces import concat_op, pad_op, slice_op
from tenon.ops.shape import as_shape, broadcast_to, cast, permute, reshape_op, resolve_shape, sum_to
from tenon.types import as_dtype, broadcast_shapes, check_device, normalize_axes, normalize_axis


def listed(values: Sequence[Any]) -> tuple[Any, ...]:
    """`f(1, 2)` and `f((1, 2))` are the same call."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else tuple(values)


def replaced(values: Sequence[Any], axis: int, *new: Any) -> tuple[Any, ...]:
    """A tuple with the entry at `axis` replaced by others."""
    return (*values[:axis], *new, *values[axis + 1:])


def reshaped(x: Any, shape: Sequence[Any]) -> Any:
    """`x` under another shape, or `x` itself where it has that shape."""
    return x if tuple(shape) == x.shape else reshape_op(x, shape=tuple(shape))


# ---------------------------------------------------------------- shapes and types

@function
def astype(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> Any:
    """The elements converted to another type; fractions are cut off towards zero.

    Tensors are values, so that `copy` makes no difference that could be seen.

    >>> tn.tensor([1.9, -1.9]).astype(int)
    tensor([ 1, -1])
    """
    check_device(device)
    x, dtype = lift(x), as_dtype(dtype)
    return x if x.dtype is dtype else cast(x, dtype=dtype)


@function
def reshape(x: Any, shape: Any, *more: Any, copy: bool | None = None) -> Any:
    """The same elements in row-major order under another shape, given as sizes or a tuple; one may be -1.

    Tensors are values, so that `copy` makes no difference that could be seen.

    >>> tn.arange(6).reshape(2, -1).shape
    (2, 3)
    """
    return reshape_op(x, shape=listed((shape, *more)))


@function
def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Any:
    """The axes from start_axis to end_axis made into one.

    >>> tn.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    x = lift(x)
    if x.ndim == 0:
        return reshape_op(x, shape=(1,))
    start, end = normalize_axis(start_axis, x.ndim, "start_axis"), normalize_axis(end_axis, x.ndim, "end_axis")
    if start > end:
        raise ShapeError(f"flatten: start_axis {start_axis} comes after end_axis {end_axis}")
    return reshaped(x, (*x.shape[:start], product(x.shape[start:end + 1]), *x.shape[end + 1:]))


@function
def unflatten(x: Any, axis: int, shape: Sequence[Any]) -> Any:
    """One axis made into several; one of the sizes may be -1.

    >>> tn.zeros(2, 12).unflatten(1, (3, -1)).shape
    (2, 3, 4)
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    sizes = resolve_shape(x.type.with_shape(x.shape[axis:axis + 1]), shape)
    return reshape_op(x, shape=replaced(x.shape, axis, *sizes))


@function
def ravel(x: Any) -> Any:
    """The elements as one axis."""
    return reshape_op(x, shape=(-1,)) if 0 not in lift(x).shape else reshape_op(x, shape=(0,))


@function
def expand_dims(x: Any, axis: Any = 0) -> Any:
    """New axes of size 1, so that they stand at `axis` (an integer or several) of the result.

    >>> tn.zeros(2, 3).expand_dims(-1).shape
    (2, 3, 1)
    """
    x = lift(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = normalize_axes(axis, x.ndim + count)
    old = iter(x.shape)
    return reshape_op(x, shape=tuple(1 if k in axes else next(old) for k in range(x.ndim + count)))


@function
def squeeze(x: Any, axis: Any = None) -> Any:
    """Without axes of size 1: those named, or all.  Raises ShapeError where a named one has another size.

    >>> tn.zeros(1, 3, 1).squeeze(0).shape
    (3, 1)
    """
    x = lift(x)
    axes = normalize_axes(axis, x.ndim)
    if axis is None:
        axes = tuple(k for k in axes if isinstance(x.shape[k], int) and x.shape[k] == 1)
    elif wide := [k for k in axes if x.shape[k] != 1]:
        raise ShapeError(f"squeeze: axis {wide[0]} of {x.type} has size {x.shape[wide[0]]}, not 1")
    return reshaped(x, [n for k, n in enumerate(x.shape) if k not in axes])


@function
def expand(x: Any, *shape: Any) -> Any:
    """Repeated along axes of size 1 to this shape, where -1 keeps an axis as it is."""
    x, sizes = lift(x), listed(shape)
    extra = len(sizes) - x.ndim
    if extra < 0:
        raise ShapeError(f"expand: {x.type} has more axes than {list(sizes)}")
    return broadcast_to(x, shape=tuple(x.shape[k - extra] if isinstance(n, int) and n == -1 and k >= extra else n
                                       for k, n in enumerate(sizes)))


@function
def broadcast_arrays(*xs: Any) -> tuple[Any, ...]:
    """The tensors, each repeated to the shape that all broadcast to."""
    tensors = [lift(x) for x in listed(xs)]
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x if x.shape == shape else broadcast_to(x, shape=shape) for x in tensors)


def _atleast(n: int, front: int, xs: Sequence[Any]) -> Any:
    """Each with n axes or more; of the new ones at most `front` come before the old."""
    def one(x: Any) -> Any:
        x = lift(x)
        missing = n - x.ndim
        before = min(missing, front) if x.ndim else missing
        return x if missing <= 0 else reshape_op(x, shape=(1,) * before + x.shape + (1,) * (missing - before))
    return one(xs[0]) if len(xs) == 1 else tuple(map(one, xs))


@function
def atleast_1d(*xs: Any) -> Any:
    """The tensors with one axis or more."""
    return _atleast(1, 1, xs)


@function
def atleast_2d(*xs: Any) -> Any:
    """The tensors with two axes or more; new ones come first."""
    return _atleast(2, 2, xs)


@function
def atleast_3d(*xs: Any) -> Any:
    """The tensors with three axes or more: a vector becomes [1, n, 1], a matrix [m, n, 1]."""
    return _atleast(3, 1, [x if lift(x).ndim != 2 else reshape_op(x, shape=(*lift(x).shape, 1)) for x in xs])


# ---------------------------------------------------------------- the order of axes

@function
def transpose(x: Any, *axes: Any) -> Any:
    """The axes reversed, or in the order given.

    >>> tn.zeros(2, 3, 4).transpose().shape, tn.zeros(2, 3, 4).transpose(0, 2, 1).shape
    ((4, 3, 2), (2, 4, 3))
    """
    x = lift(x)
    return permute(x, axes=listed(axes) or tuple(reversed(range(x.ndim))))


@function
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """The axes `source` (an integer or several) moved to `destination`; the others keep their order."""
    x = lift(x)
    old, new = normalize_axes(source, x.ndim, "source"), normalize_axes(destination, x.ndim, "destination")
    if len(old) != len(new):
        raise ShapeError(f"moveaxis: {len(old)} source axes and {len(new)} destinations")
    order = [k for k in range(x.ndim) if k not in old]
    for to, axis in sorted(zip(new, old, strict=True)):
        order.insert(to, axis)
    return permute(x, axes=tuple(order))


@function
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    x = lift(x)
    order = list(range(x.ndim))
    a, b = normalize_axis(axis1, x.ndim, "axis1"), normalize_axis(axis2, x.ndim, "axis2")
    order[a], order[b] = b, a
    return permute(x, axes=tuple(order))


@function
def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    return swapaxes(x, -1, -2)


# ---------------------------------------------------------------- join

@function
def concat(*tensors: Any, axis: int | None = 0) -> Any:
    """The tensors joined along an axis that they have; `axis=None` joins their elements in row-major order.

    >>> tn.concat([tn.zeros(2, 3), tn.ones(1, 3)]).shape
    (3, 3)

    Raises ShapeError where other axes differ in size.
    """
    parts, axis = _parts("concat", tensors, axis)
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    if any(x.ndim == 0 for x in parts):
        raise ShapeError("concat: a scalar has no axis to join along", hint="tn.stack joins tensors along a new axis")
    return concat_op(*parts, axis=axis)


def _parts(name: str, tensors: Sequence[Any], axis: Any) -> tuple[list[Any], Any]:
    """The tensors of `f([a, b], axis)` or `f(a, b, axis=axis)`, and the axis."""
    if tensors and isinstance(tensors[0], (tuple, list)):
        if len(tensors) > 2:
            raise ArgumentError(f"{name} takes a list of tensors and an axis")
        axis = tensors[1] if len(tensors) == 2 else axis
        tensors = tensors[0]
    if not tensors:
        raise ArgumentError(f"{name}: no tensors were given")
    return [lift(x) for x in tensors], axis


@function
def stack(*tensors: Any, axis: int = 0) -> Any:
    """Tensors of one shape joined along a new axis.

    >>> tn.stack([tn.zeros(3), tn.ones(3)], axis=1).shape
    (3, 2)

    Raises ShapeError where the shapes differ.
    """
    parts, axis = _parts("stack", tensors, axis)
    if other := [x for x in parts if x.shape != parts[0].shape]:
        raise ShapeError(f"stack: {parts[0].type} and {other[0].type} differ in shape")
    axis = normalize_axis(axis, parts[0].ndim + 1)
    return concat_op(*(expand_dims(x, axis) for x in parts), axis=axis)


@function
def hstack(*tensors: Any) -> Any:
    """Joined side by side: vectors along their axis, others along axis 1."""
    parts = [atleast_1d(x) for x in _parts("hstack", tensors, None)[0]]
    return concat_op(*parts, axis=0 if parts[0].ndim == 1 else 1)


@function
def vstack(*tensors: Any) -> Any:
    """Joined one below the other, along axis 0; vectors are rows."""
    return concat_op(*(atleast_2d(x) for x in _parts("vstack", tensors, None)[0]), axis=0)


@function
def dstack(*tensors: Any) -> Any:
    """Joined along axis 2; vectors and matrices get the axes they lack."""
    return concat_op(*(atleast_3d(x) for x in _parts("dstack", tensors, None)[0]), axis=2)


@function
def column_stack(*tensors: Any) -> Any:
    """Joined side by side; vectors are columns."""
    parts = _parts("column_stack", tensors, None)[0]
    return concat_op(*(reshape_op(x, shape=(-1, 1)) if x.ndim <= 1 else x for x in parts), axis=1)


# ---------------------------------------------------------------- cut

def narrow(x: Any, axis: int, start: Dim, stop: Dim, step: int = 1) -> Any:
    """The positions start, start + step ... before stop along one axis."""
    return slice_op(x, start=replaced((0,) * x.ndim, axis, start), stop=replaced(x.shape, axis, stop),
                    step=replaced((1,) * x.ndim, axis, step))


def _cut(x: Any, axis: int, ends: Sequence[Dim]) -> tuple[Any, ...]:
    return tuple(narrow(x, axis, a, b) for a, b in zip(ends, ends[1:], strict=False))


@function
def split(x: Any, sections: Any, axis: int = 0) -> tuple[Any, ...]:
    """Cut into so many equal pieces, or at a list of positions, as NumPy does.

    >>> [part.shape for part in tn.zeros(6, 2).split(3)], [part.shape for part in tn.zeros(6).split([1, 4])]
    ([(2, 2), (2, 2), (2, 2)], [(1,), (3,), (2,)])

    Raises ShapeError where the size does not divide; `tensor_split` allows it, `split_with_sizes` takes sizes.
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(sections, int) and isinstance(size, int) and (sections < 1 or size % sections):
        raise ShapeError(f"split: axis {axis} of {x.type} does not divide into {sections} equal pieces",
                         hint="x.tensor_split(n) makes pieces that differ by one, x.chunk(n) a smaller last one")
    return tensor_split(x, sections, axis)


@function
def tensor_split(x: Any, sections: Any, axis: int = 0) -> tuple[Any, ...]:
    """Cut into so many pieces, whose sizes differ by one at most, or at a list of positions."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if not isinstance(sections, int):
        cuts = [_position(k, size) for k in sections]
        return tuple(narrow(x, axis, a, b if not (isinstance(a, int) and isinstance(b, int)) else max(a, b))
                     for a, b in zip([0, *cuts], [*cuts, size], strict=True))
    if sections < 1:
        raise ArgumentError(f"tensor_split: at least one piece is needed, got {sections}")
    each, larger = size // sections, size % sections
    if not isinstance(larger, int):     # a symbolic size divides, or the check is the caller's
        return _cut(x, axis, [each * k for k in range(sections + 1)])
    return _cut(x, axis, [each * k + min(k, larger) for k in range(sections + 1)])


def _position(k: Any, size: Dim) -> Dim:
    k = int(k) if hasattr(k, "item") else k
    wrapped = k + size if isinstance(k, int) and k < 0 else k
    return min(max(wrapped, 0), size) if isinstance(size, int) and isinstance(wrapped, int) else wrapped


@function
def split_with_sizes(x: Any, sizes: Sequence[Any], axis: int = 0) -> tuple[Any, ...]:
    """Cut into pieces of these sizes, which add up to the axis."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    ends: list[Dim] = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    if ends[-1] != x.shape[axis]:
        raise ShapeError(f"split_with_sizes: {list(sizes)} add up to {ends[-1]}, axis {axis} of {x.type} does not")
    return _cut(x, axis, ends)


@function
def chunk(x: Any, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    """Cut into at most so many pieces of one size; the last may be smaller, as in PyTorch."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    if chunks < 1:
        raise ArgumentError(f"chunk: at least one piece is needed, got {chunks}")
    size = int(x.shape[axis])
    each = max(math.ceil(size / chunks), 1)
    return _cut(x, axis, [*range(0, size, each), size]) if size else (x,) * chunks


@function
def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The tensors that lie along an axis, which they no longer have."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    return tuple(select(x, axis, k) for k in range(int(x.shape[axis])))


@function
def select(x: Any, axis: int, index: Any) -> Any:
    """The tensor at one position of an axis, which it no longer has; a negative index counts from the end."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(index, int) and isinstance(size, int):
        index = normalize_axis(index, size, f"select: the index into axis {axis}") if size else index
    elif isinstance(index, int) and index < 0:
        index = size + index
    return reshape_op(narrow(x, axis, index, index + 1), shape=replaced(x.shape, axis))


# ---------------------------------------------------------------- repeat, turn, pad

@function
def flip(x: Any, axis: Any = None) -> Any:
    """The order of the elements turned round along some axes, or all.

    >>> tn.arange(3).flip()
    tensor([2, 1, 0])
    """
    x = lift(x)
    axes = normalize_axes(axis, x.ndim)
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
    if axis is None:
        return reshape_op(roll(ravel(x), int(np.sum(shift)), 0), shape=x.shape)
    axes = [normalize_axis(a, x.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(axes) != len(shifts):
        raise ShapeError(f"roll: {len(shifts)} shifts and {len(axes)} axes")
    for a, by in zip(axes, shifts, strict=True):
        size = x.shape[a]
        by = by % size if isinstance(size, int) and size else by
        if isinstance(by, int) and by == 0 or isinstance(size, int) and size == 0:
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
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated, so many times or as often as its entry in `repeats` says, as `numpy.repeat`.

    >>> tn.arange(3).repeat(2), tn.arange(3).repeat([2, 0, 1])
    (tensor([0, 0, 1, 1, 2, 2]), tensor([0, 0, 2]))
    """
    x = lift(x)
    if axis is None:
        return repeat(ravel(x), repeats, 0)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    counts = repeats if isinstance(repeats, int) else np.asarray(repeats)
    if not isinstance(counts, int) and counts.size != 1:
        if counts.ndim != 1 or counts.size != size:
            raise ShapeError(f"repeat: {counts.size} counts for axis {axis} of {x.type}")
        parts = [repeat(narrow(x, axis, k, k + 1), int(n), axis) for k, n in enumerate(counts) if n]
        return concat_op(*parts, axis=axis) if parts else narrow(x, axis, 0, 0)
    times = int(counts)
    wide = broadcast_to(expand_dims(x, axis + 1), shape=replaced(x.shape, axis, size, times))
    return reshape_op(wide, shape=replaced(x.shape, axis, size * times))


@function
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """More elements before and after each axis, as `numpy.pad`.

    `pad_width` is a size for all sides, a (before, after) pair for all axes, or a pair an axis; a negative size cuts
    elements off.  `mode`: "constant", "edge" (or "replicate"), "reflect", "symmetric", "wrap" (or "circular").

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
    if mode == "constant":
        return pad_op(x, constant_values, low=[a for a, _ in pairs], high=[b for _, b in pairs])
    if mode not in _BORDERS:
        raise ArgumentError(f"pad: no mode {mode!r}", hint="one of constant, " + ", ".join(_BORDERS))
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        if isinstance(before, int) and isinstance(after, int) and before + after == 0:
            continue
        most = {"edge": math.inf, "reflect": size - 1}.get(mode, size)
        if isinstance(size, int) and max(before, after) > most or (mode == "edge" and size == 0 and before + after):
            raise ShapeError(f"pad: {max(before, after)} elements on one side of axis {axis} of {x.type} are too many "
                             f"for mode {mode!r}")
        left, right = _BORDERS[mode](x, axis, size, before, after)
        parts = [left] * (before > 0) + [x] + [right] * (after > 0)
        x = concat_op(*(part() if callable(part) else part for part in parts), axis=axis) if len(parts) > 1 else x
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


def _pad_pairs(width: Any, ndim: int) -> list[tuple[int, int]]:
    if not isinstance(width, (tuple, list)):
        return [(width, width)] * ndim
    if len(width) == 1:
        return _pad_pairs(width[0], ndim)
    if not isinstance(width[0], (tuple, list)):
        return [(width[0], width[1])] * ndim
    if len(width) != ndim:
        raise ShapeError(f"pad: {len(width)} pairs of sizes for {ndim} axes")
    return [(a, b) for a, b in width]


for _name, _target in {
    "unsqueeze": expand_dims, "permute_dims": permute, "movedim": moveaxis, "swapdims": swapaxes, "cat": concat,
    "concatenate": concat, "row_stack": vstack, "unbind": unstack, "array_split": tensor_split,
    "sum_to": sum_to, "repeat_interleave": repeat, "broadcast_tensors": broadcast_arrays,
}.items():
    alias(_name, _target)

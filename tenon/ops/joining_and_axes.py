"""Functions that rearrange axes and join tensors: flatten, squeeze, moveaxis, concat, stack ...

They are made of reshape, permute, broadcast_to and concat, and leave no node of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.dims.compare_sizes import is_one, same_sizes
from tenon.dims.symbolic_dim import product
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.define import aliases, function, lift, remembering
from tenon.ops.placing import on_device
from tenon.ops.shape import as_dim, broadcast_to, cast, permute, reshape_op, resolve_shape, sum_to
from tenon.ops.slice_pad_concat import concat_op
from tenon.types import as_dtype, broadcast_shapes, normalize_axes, normalize_axis


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
    x, dtype = lift(x), as_dtype(dtype)
    x = x if x.dtype is dtype else cast(x, dtype=dtype)
    return x if device is None else on_device(x, device)


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


@remembering
def squeezed(x: Any, axis: Any = None) -> Any:
    """Without axes of size 1: those named, or all; a named one of another size stays, where `tn.squeeze` raises.

    >>> tn.zeros(1, 3, 1).squeeze(0).shape, tn.zeros(1, 3, 1).squeeze(1).shape
    ((3, 1), (1, 3, 1))
    """
    x = lift(x)
    return squeeze(x, tuple(k for k in normalize_axes(axis, x.ndim) if is_one(x.shape[k])))


@function
def squeeze(x: Any, axis: Any = None) -> Any:
    """Without axes of size 1: those named, or all.  Raises ShapeError where a named one has another size.

    >>> tn.squeeze(tn.zeros(1, 3, 1), 0).shape
    (3, 1)
    """
    x = lift(x)
    axes = normalize_axes(axis, x.ndim)
    if axis is None:
        axes = tuple(k for k in axes if is_one(x.shape[k]))
    elif wide := [k for k in axes if x.shape[k] != 1]:
        raise ShapeError(f"squeeze: axis {wide[0]} of {x.type} has size {x.shape[wide[0]]}, not 1")
    return reshape_op(x, shape=tuple(n for k, n in enumerate(x.shape) if k not in axes))


@function
def expand(x: Any, *shape: Any) -> Any:
    """Repeated along axes of size 1 to this shape, where -1 keeps an axis as it is."""
    x, sizes = lift(x), list(map(as_dim, listed(shape)))
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
    return tuple(x if same_sizes(x.shape, shape) else broadcast_to(x, shape=shape) for x in tensors)


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
def transpose(x: Any, *axes: Any, axis1: int | None = None, axis2: int | None = None) -> Any:
    """The axes reversed, or in the order given; two numbers are two axes to exchange, as in PyTorch.

    >>> tn.zeros(2, 3, 4).transpose().shape, tn.zeros(2, 3, 4).transpose(0, 2, 1).shape
    ((4, 3, 2), (2, 4, 3))
    >>> tn.zeros(2, 3, 4).transpose(0, 1).shape
    (3, 2, 4)
    """
    x = lift(x)
    if axis1 is not None and axis2 is not None:
        return swapaxes(x, axis1, axis2)
    if len(axes) == 2 and not isinstance(axes[0], (tuple, list)):
        return swapaxes(x, *axes)
    return permute(x, axes=listed(axes) or tuple(reversed(range(x.ndim))))


@function
def permute_(x: Any, axes: Any, *order: Any) -> Any:
    """The axes in another order, `permute(x, (2, 0, 1))` or `x.permute(2, 0, 1)`: axis k is axis `axes[k]` of x.

    >>> tn.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    return permute(x, axes=listed((axes, *order)))


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


aliases(sum_to=remembering(sum_to), unsqueeze=expand_dims, permute_dims=permute_, movedim=moveaxis, swapdims=swapaxes,
        cat=concat, concatenate=concat, row_stack=vstack, broadcast_tensors=broadcast_arrays)

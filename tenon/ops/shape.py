"""The same elements under another shape or type: cast, constant, reshape, permute, broadcast.

Also what the other families need to speak of shapes and indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import is_one, same_sizes
from tenon.dims.element_count import Size
from tenon.dims.symbolic_dim import Dim, SymbolicDim, product
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.op import NumPyCall, Op
from tenon.ops.define import define
from tenon.types import (
    DType,
    Shape,
    TensorType,
    as_dtype,
    broadcast_shapes,
    int64,
    normalize_axes,
)


def _cast_call(types: Sequence[Any], attrs: Mapping[str, Any]) -> NumPyCall | None:
    source, target = types[0].dtype, attrs["dtype"]
    cut = source.kind == "c" or (source.kind == "f" and target.kind in "ui")       # what lies beyond the type's ends
    return None if cut else (np.ndarray.astype, (target.numpy,))


def _cast_ref(x: Any, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        x = np.asarray(x)
        real = x.real if x.dtype.kind == "c" and dtype.kind in "uif" else x
        return _whole(real, dtype) if real.dtype.kind == "f" and dtype.kind in "ui" else \
            real.astype(dtype.numpy, copy=False)      # a copy of what is broadcast would lie otherwise


def _whole(x: Any, dtype: DType) -> Any:
    """Cut off; where the type ends, its end, and 0 for NaN: NumPy gives what the processor happens to give."""
    ends = np.iinfo(dtype.numpy)
    low, high = x <= float(ends.min) - 1, x >= float(ends.max) + 1     # the sums are exact, or round to the end
    inside = ~(low | high | np.isnan(x))
    if inside.all():
        return x.astype(dtype.numpy)
    return np.where(high, ends.max, np.where(low, ends.min, np.where(inside, x, 0).astype(dtype.numpy)))


cast: Op = define(
    "cast", type=lambda x, *, dtype: x.with_dtype(dtype), ref=_cast_ref, elementwise=True,
    canonical=lambda x, dtype: {"dtype": as_dtype(dtype)},
    vjp=lambda g, y, x, dtype: (cast(g, dtype=x.dtype),)
    if dtype.is_differentiable else (None,),
    compute=lambda s, i, x, dtype: s.cast(x(i), dtype),
    numpy_call=_cast_call,
    operations=0,
    doc="The elements converted to another type.  To an integer type: cut off towards zero; what lies beyond becomes "
        "its largest or smallest number, NaN 0.",
    examples=["cast(f32[2, 3], dtype=i64) -> i64[2, 3]", "cast(f32[3], dtype=f64) -> f64[3]"])

NUMBERS_OF: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}, "c": {int, float, complex}}


def _constant_type(*, data: tuple[Any, ...], dtype: DType, shape: tuple[int, ...]) -> TensorType:
    if len(data) != prod(shape):
        raise ShapeError(f"constant: {len(data)} numbers are no array of shape {list(shape)}")
    if not set(map(type, data)) <= NUMBERS_OF.get(dtype.kind, set()):
        raise DTypeError(f"constant: its data are no numbers of type {dtype.name}")
    if dtype.kind in "ui" and data and not np.iinfo(dtype.numpy).min <= min(data) <= max(data) <= np.iinfo(
            dtype.numpy).max:
        raise DTypeError(f"constant: a number does not fit {dtype.name}")
    return TensorType(dtype, shape)


constant = define(
    "constant", public=False, type=_constant_type,
    ref=lambda data, dtype, shape: np.array(data, dtype.numpy).reshape(shape), vjp=lambda g, y, **_: (),
    moves="source", doc="An array known when the graph is built.",
    examples=["constant(data=(1.0, 2.0), dtype=f32, shape=(2,)) -> f32[2]"])

def _dimension_type(*, size: Dim, dtype: DType) -> TensorType:
    if dtype.kind not in "uif":
        raise DTypeError(f"dimension: a size is no {dtype.name}")
    if dtype.kind in "ui" and isinstance(size, int) and not np.iinfo(dtype.numpy).min <= size <= np.iinfo(
            dtype.numpy).max:
        raise DTypeError(f"dimension: {size} does not fit {dtype.name}")
    return TensorType(dtype, ())


dimension = define(
    "dimension", public=False, type=_dimension_type, vjp=lambda g, y, **_: (),
    ref=lambda size, dtype: np.asarray(size, dtype.numpy),
    compute=lambda s, i, size, dtype: size_expression(s, size, dtype),
    moves="source", doc="A size that may be symbolic, as a number.", examples=["dimension(size=3, dtype=i64) -> i64"])

def _full_type(value: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
    if value.shape:
        raise ShapeError(f"full_op: the value must be a scalar, not {value}")
    return TensorType(value.dtype, shape)


def _broadcast_batch(op: Op, a: Any, shape: Shape) -> Any:
    """New axes come between the batch axis and those of the example; a scalar is filled likewise."""
    own = a.shape(0)
    x = reshape_op(a.inputs[0], shape=(a.size, *(1,) * (len(shape) - len(own)), *own))
    return broadcast_to(x, shape=(a.size, *shape))


full_op = define(
    "full_op", public=False, type=_full_type,
    vjp=lambda g, y, value, shape: (g,),
    ref=lambda value, shape: np.full(shape, value, value.dtype), compute=lambda s, i, value, shape: value(()),
    batch=_broadcast_batch,
    moves="source",
    doc="A tensor with one value everywhere.", examples=["full_op(f32(1.5), shape=(2, 3)) -> f32[2, 3]"])


def spread(x: Any, shape: Any) -> Any:
    """NumPy: the array broadcast to a shape, a view that cannot be written to.

    A copy would take half of the time where there are few elements; but in which order the elements of results lie, and
    so in which order they are added up, follows from where those of inputs lie, and recipes make neither copy nor view.
    """
    if not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    out = np.ndarray(shape, x.dtype, x, 0, _steps(x.shape, shape, x.itemsize))      # sooner than broadcast_to
    out.flags.writeable = False
    return out


@lru_cache(4096)
def _steps(shape: tuple[int, ...], wide: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Bytes between neighbours along each axis of a view in the `wide` shape of elements that lie side by side."""
    inside = [size * prod(shape[k + 1:]) for k in range(len(shape))]
    return (0,) * (len(wide) - len(shape)) + tuple([0 if n == 1 else step for n, step in zip(shape, inside)])


broadcast_to = define(
    "broadcast_to", handles=True,
    type=lambda x, *, shape: _broadcast_type(x, shape),
    canonical=lambda x, shape: {"shape": as_shape(shape)},
    ref=spread,
    vjp=lambda g, y, x, shape: (sum_to(g, x.shape),),
    compute=lambda s, i, x, shape: x(tuple(0 if n == 1 else k
                                           for n, k in zip(x.shape, i[len(i) - x.ndim:], strict=True))),
    batch=_broadcast_batch,
    moves="view", doc="The tensor repeated along axes of size 1 and new leading axes until it has this shape.",
    examples=["broadcast_to(f32[3, 1], shape=(2, 3, 4)) -> f32[2, 3, 4]", "broadcast_to(f32[3], shape=(2,)) -> error"])

def _reshape_batch(op: Op, a: Any, shape: Shape) -> Any:
    return op(a.inputs[0], shape=(a.size, *shape))


reshape_op: Op = define(
    "reshape", public=False, handles=True, type=lambda x, *, shape: _reshape_type(x, shape),
    canonical=lambda x, shape: {"shape": resolve_shape(x, shape)},
    ref=lambda x, shape: x.reshape(shape), vjp=lambda g, y, x, shape: (reshape_op(g, shape=x.shape),),
    compute=lambda s, i, x, shape: x(reshaped_index(i, shape, x.shape)),
    batch=_reshape_batch,
    moves="view", doc="The same elements in row-major order under another shape; one size may be -1 and is worked out.",
    examples=["reshape(f32[2, 6], shape=(3, 4)) -> f32[3, 4]", "reshape(f32[2, 6], shape=(5, 2)) -> error"])

def _permute_batch(op: Op, a: Any, axes: tuple[int, ...]) -> Any:
    return op(a.inputs[0], axes=(0, *(k + 1 for k in axes)))


permute: Op = define(
    "permute", public=False, handles=True, type=lambda x, *, axes: x.with_shape([x.shape[a] for a in axes]),
    canonical=lambda x, axes: {"axes": _permutation(x, axes)},
    ref=lambda x, axes: x.transpose(axes), vjp=lambda g, y, x, axes: (permute(g, axes=inverse_permutation(axes)),),
    compute=lambda s, i, x, axes: x(tuple(i[axes.index(k)] for k in range(len(axes)))),
    batch=_permute_batch,
    moves="view", doc="The axes in another order; axis k of the result is axis axes[k] of the input.",
    examples=["permute(f32[2, 3, 4], axes=(2, 0, 1)) -> f32[4, 2, 3]", "permute(f32[2, 3], axes=(0, 0)) -> error"])


# ---------------------------------------------------------------- shapes and indices

def size_expression(s: Any, size: Any, dtype: DType) -> Any:
    """A number or a symbolic size as an expression of this type."""
    return s.cast(s.const(0, int64) + size, dtype) if isinstance(size, SymbolicDim) else s.const(size, dtype)


def is_size(n: Any) -> bool:
    """Whether this is a number that a size may be, or be cut at."""
    return type(n) is int or issubclass(type(n), (Size, SymbolicDim))


def as_dim(n: Any) -> Any:
    """A number that changes from call to call as a size of the graph, NumPy's as Python's; anything else is itself."""
    return n.as_dim() if hasattr(type(n), "as_dim") else int(n) if issubclass(type(n), np.integer) else n


def as_number(x: Any, kind: type) -> Any:
    """A number of this type; one that changes from call to call is itself."""
    return x if hasattr(type(x), "as_dim") else kind(x)


def as_shape(shape: Any) -> Shape:
    """A shape given as a size or a sequence of sizes, as a tuple; raises ShapeError on a negative size."""
    listed = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for size in listed:
        if type(size) is not int or size < 0:
            break
    else:
        return listed           # Python's own, as nearly always
    listed = tuple(map(as_dim, listed))
    sizes = tuple(int(size) if hasattr(size, "__index__") and isinstance(size, (np.integer, bool, Size)) else size
                  for size in listed)
    for size in sizes:
        if isinstance(size, int) and size < 0:
            raise ShapeError(f"a size must not be negative: {list(sizes)}")
        if isinstance(size, float) or not hasattr(size, "__index__"):
            raise ArgumentError(f"a size must be an integer, not {size!r}")
    return sizes


def resolve_shape(x: Any, shape: Any) -> Shape:
    """The shape with its -1 worked out from the number of elements of `x`."""
    listed = list(map(as_dim, shape if isinstance(shape, (tuple, list)) else [shape]))
    unknown = [k for k, size in enumerate(listed) if isinstance(size, int) and size == -1]
    if len(unknown) > 1:
        raise ShapeError(f"only one size may be -1: {listed}")
    if unknown:
        known = product(size for k, size in enumerate(listed) if k != unknown[0])
        if isinstance(known, int) and known == 0:
            raise ShapeError(f"-1 has no single answer in {listed}: the other sizes multiply to 0")
        total = product(x.shape)
        if isinstance(total, int) and isinstance(known, int) and total % known:
            raise ShapeError(f"reshape: {total} elements do not divide into {listed}")
        listed[unknown[0]] = total // known
    return as_shape(tuple(listed))


def ravel(i: Sequence[Any], shape: Sequence[Dim]) -> Any:
    """The position of index `i` in row-major order."""
    flat: Any = i[0] if i else 0
    for k, size in zip(i[1:], shape[1:], strict=True):
        flat = flat * size + k
    return flat


def unravel(flat: Any, shape: Sequence[Dim]) -> tuple[Any, ...]:
    """The index at a position in row-major order."""
    index: list[Any] = []
    for size in reversed(shape[1:]):
        index.append(flat % size)
        flat = flat // size
    return (flat, *reversed(index)) if shape else ()


def reshaped_index(i: Sequence[Any], shape: Sequence[Dim], source: Sequence[Dim]) -> tuple[Any, ...]:
    """The index into `source` of the element at index `i` of `shape`.

    The shapes are cut where as many elements stand to the left of both, so that most axes need no division.
    """
    ends = [product(source[:k]) for k in range(len(source) + 1)]
    cuts = [(0, 0)]
    for a in range(1, len(shape) + 1):
        before = product(shape[:a])
        match = next((b for b in range(cuts[-1][1], len(ends)) if _identical(ends[b], before)), None)
        cuts += [] if match is None else [(a, match)]
    index: list[Any] = []
    for (a, b), (end_a, end_b) in zip(cuts, [*cuts[1:], (len(shape), len(source))], strict=True):
        index += unravel(ravel(i[a:end_a], shape[a:end_a]), source[b:end_b])
    return tuple(index)


def _identical(a: Dim, b: Dim) -> bool:
    """Equal without asking about symbolic sizes."""
    return a.terms == b.terms if isinstance(a, SymbolicDim) and isinstance(b, SymbolicDim) else a is b or (
        isinstance(a, int) and isinstance(b, int) and a == b)


def inverse_permutation(axes: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes `axes`."""
    return tuple(axes.index(k) for k in range(len(axes)))


def sum_to(g: Any, shape: Shape) -> Any:
    """Sum a gradient over the axes along which its tensor was broadcast, back to `shape`."""
    if same_sizes(g.shape, shape):
        return g
    extra = len(g.shape) - len(shape)
    pairs = enumerate(zip(shape, g.shape[extra:], strict=True), extra)
    repeated = tuple(range(extra)) + tuple(k for k, (small, wide) in pairs if is_one(small) and not is_one(wide))
    g = g.sum(axis=repeated) if repeated else g
    return g if same_sizes(g.shape, shape) else reshape_op(g, shape=shape)


def restore(g: Any, shape: Shape, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Undo a reduction's loss of axes: `g` broadcast to `shape`."""
    if not keepdims:
        g = reshape_op(g, shape=tuple(1 if k in axis else n for k, n in enumerate(shape)))
    return broadcast_to(g, shape=shape)


def _permutation(x: TensorType, axes: Any) -> tuple[int, ...]:
    normal = normalize_axes(axes, x.ndim, "axes")
    if len(normal) != x.ndim:
        raise ShapeError(f"permute: {x} needs {x.ndim} axes, got {axes}")
    return normal


def _broadcast_type(x: TensorType, shape: Shape) -> TensorType:
    found = broadcast_shapes(x.shape, shape)
    if not same_sizes(found, shape) and found != shape:
        raise ShapeError(f"broadcast_to: {x} does not broadcast to {list(shape)}")
    return x.with_shape(shape)


def _reshape_type(x: TensorType, shape: Shape) -> TensorType:
    if product(shape) != x.size:
        raise ShapeError(f"reshape: {x} has {x.size} elements, {list(shape)} has {product(shape)}")
    return x.with_shape(shape)



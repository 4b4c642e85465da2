"""Elements chosen by indices that are data: rows (take, put) and single elements (take_along_axis, scatter).

    take(x, at, axis)             y[a, i, b] = x[a, at[i], b]          put      writes the same places
    take_along_axis(x, at, axis)  y[a, i, b] = x[a, at[a, i, b], b]    scatter  writes the same places

Indices count from the end when negative; one outside its axis is an error, in compiled code too.  Writing returns a new
tensor; where a place is written twice, "set" keeps the last write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tenon.dims.compare_sizes import hold_where_natural, is_zero
from tenon.dims.symbolic_dim import Dim, SymbolicDim, product
from tenon.errors import ArgumentError, DTypeError, OutOfRange, ShapeError
from tenon.graph.axis_rule import AxisRule, Labels, linear_in
from tenon.graph.build import literal
from tenon.graph.op import NumPyCall, Op
from tenon.graph.promotion import Kinds, like_first, separate
from tenon.ops.batching import Arguments, merge, split
from tenon.ops.comparison import equal, where
from tenon.ops.creation import arange, arange_op, zeros_like
from tenon.ops.define import canonical_axis, define, function, is_computed, lift, scalar
from tenon.ops.shape import broadcast_to, cast, full_op, permute, reshape_op
from tenon.ops.windows import shown
from tenon.types import TensorType, as_dtype, broadcast_shapes, int64, normalize_axis

UNSIGNED = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}
REDUCTIONS = {"set": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def check_range(name: str, at: Any, size: int, axis: int) -> Any:
    """NumPy: indices counted from the front; raises OutOfRange at the first outside the axis."""
    if at.dtype.kind == "i" and at.size and int(at.view(UNSIGNED[at.itemsize]).max()) < size:
        return at                               # none is negative: as an unsigned number it would be large
    bad = (at < -size) | (at >= size)
    if bad.any():
        raise OutOfRange(f"{name}: index {at[bad].flat[0]} is out of range for axis {axis} of size {size}",
                         hint=f"indices run from {-size} to {size - 1}" if size else "the axis is empty")
    return np.where(at < 0, at + size, at) if at.dtype.kind == "i" else at


def _integers(name: str, at: TensorType) -> None:
    if at.dtype.kind not in "ui":
        raise DTypeError(f"{name}: indices must be integers, these are {at}",
                         hint="x[mask] selects by a mask" if at.dtype.kind == "b" else None)


def _written(kinds: Kinds) -> tuple[Any, ...]:
    """The updates get the type of what they are written to; the indices keep theirs."""
    return (*like_first((kinds[0],)), *separate((kinds[1],)), like_first((kinds[0], kinds[2]))[1])


# ---------------------------------------------------------------- rows

def _take_axis(x: Any, indices: Any, axis: Any) -> dict[str, Any]:
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: axis= is needed for {x}")
    return canonical_axis(x, axis=0 if axis is None else axis)


def _take_type(x: TensorType, indices: TensorType, *, axis: Any = None) -> TensorType:
    _integers("take", indices)
    return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]))


def _take_call(types: Sequence[Any], attrs: Mapping[str, Any]) -> NumPyCall | None:
    return (np.ndarray.take, (attrs["axis"],)) if types[1].dtype.kind == "i" else None


def _take_batch(op: Op, a: Arguments, axis: int) -> Any:
    x, at = a.inputs
    if not a.batched[1]:
        return op(x, at, axis=axis + 1)
    if not a.batched[0]:        # the axes of the indices stand where the axis was: the batch axis among them
        out = op(x, at, axis=axis)
    else:                       # every example has its own rows: one long axis of all, and indices counted along it
        out = op(merge(x, axis), _counted_along(at, a.shape(0)[axis], a.size, axis), axis=axis)
    return permute(out, axes=(axis, *(k for k in range(out.ndim) if k != axis)))


def _counted_along(at: Any, count: Dim, size: Dim, axis: int) -> Any:
    """Indices into axes of `count` elements -> indices into one axis that holds `size` of them, one after the other."""
    at = wrap_index(at, size=count, axis=axis).astype("int64")
    return at + reshape_op(arange(size), shape=(size, *(1,) * (at.ndim - 1))) * count


take: Op = define(
    "take", type=_take_type, canonical=_take_axis,
    ref=lambda x, at, axis: np.take(x, check_range("take", at, x.shape[axis], axis), axis),
    vjp=lambda g, y, x, at, axis: (put(zeros_like(x), at, g, axis=axis, reduce="add"), None),
    compute=lambda s, i, x, at, axis: x(
        (*i[:axis], s.index(at(i[axis:axis + at.ndim]), x.shape[axis]), *i[axis + at.ndim:])),
    batch=_take_batch,
    numpy_call=_take_call, reads_part=True, fails="index",
    doc="The elements of x at these places along an axis (which a vector need not name); the axes of `indices` "
        "replace it.",
    examples=["take(f32[5, 3], i64[4], axis=0) -> f32[4, 3]",
              "take(f32[2, 5, 3], i32[2, 2], axis=1) -> f32[2, 2, 2, 3]",
              "take(f32[5, 3], i64, axis=1) -> f32[5]", "take(f32[5, 3], f32[4], axis=0) -> error"])


@function
def take_(x: Any, indices: Any, axis: int | None = None) -> Any:
    """The elements of x at these places along an axis, which the axes of `indices` replace; else of all elements.

    >>> tn.take(tn.tensor([[1, 2], [3, 4]]), tn.tensor([0, 3]))
    tensor([1, 4])
    """
    x = lift(x)
    return take(flat(x) if axis is None else x, indices, axis=0 if axis is None else axis)


Reduction = Literal["set", "add", "mul", "max", "min"]


def _put_type(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduce: Reduction) -> TensorType:
    if updates.shape != _take_type(x, indices, axis=axis).shape:
        raise ShapeError(f"put: places {indices} along axis {axis} of {x} hold "
                         f"{_take_type(x, indices, axis=axis)}, the updates are {updates}")
    return x


def _put_ref(x: Any, at: Any, updates: Any, axis: int, reduce: str) -> Any:
    out = x.copy()
    rows = np.moveaxis(out, axis, 0) if axis else out
    moved = np.moveaxis(updates, range(axis, axis + at.ndim), range(at.ndim)) if axis else updates
    new = moved.reshape(at.size, *rows.shape[1:])
    place = check_range("put", at, x.shape[axis], axis).ravel()
    # add.at is slow on rows: sort, then sum runs of one place
    if reduce == "add" and new.ndim > 1 and at.size > 1 and x.dtype != np.bool_:
        order = np.argsort(place, kind="stable")
        first = np.flatnonzero(np.diff(place[order], prepend=-1))
        rows[place[order][first]] += np.add.reduceat(new[order], first, axis=0).astype(rows.dtype, copy=False)
    else:
        _write(rows, (place,), new, reduce)
    return out


def _write(out: Any, index: Any, updates: Any, reduce: str) -> None:
    ufunc = REDUCTIONS[reduce]
    if ufunc is None:
        out[index] = updates
    elif updates.size:
        ufunc.at(out, index, updates)


def _written_vjp(read: Callable[..., Any], write: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of writing, from reading and writing the same places."""
    def last(at: Any, updates: Any, x: Any, axis: int) -> Any:
        """Whether each update is the last one written to its place."""
        count = arange_op(start=0, step=1, size=product(updates.shape), dtype=int64)
        number = reshape_op(count, shape=tuple(updates.shape))
        numbers = write(full_op(literal(-1, int64), shape=x.shape), at, number, axis=axis, reduce="set")
        return equal(read(numbers, at, axis=axis), number)

    def factors(g: Any, x: Any, at: Any, updates: Any, axis: int) -> Any:
        """The product of the others at the same place: without any zero by division, with another zero 0."""
        zero, known = (cast(equal(t, 0), dtype=g.dtype) for t in (updates, x))
        safe = where(equal(updates, 0), 1, updates)
        whole = write(where(equal(x, 0), 1, x), at, safe, axis=axis, reduce="mul")
        others = read(write(known, at, zero, axis=axis, reduce="add"), at, axis=axis) - zero
        return where(equal(others, 0), read(g * whole, at, axis=axis) / safe, 0)

    def vjp(g: Any, y: Any, x: Any, at: Any, updates: Any, axis: int, reduce: str) -> Any:
        if reduce == "add":
            return g, None, lambda: read(g, at, axis=axis)
        if reduce == "set":
            return (lambda: write(g, at, zeros_like(updates), axis=axis, reduce="set"), None,
                    lambda: where(last(at, updates, x, axis), read(g, at, axis=axis), 0))
        if reduce == "mul":
            ones = full_op(literal(1, x.dtype), shape=x.shape)
            return (lambda: g * write(ones, at, updates, axis=axis, reduce="mul"), None,
                    lambda: factors(g, x, at, updates, axis))
        kept = cast(equal(x, y), dtype=g.dtype)                  # max and min: shared by all that reach the extreme
        won = cast(equal(updates, read(y, at, axis=axis)), dtype=g.dtype)
        share = g / write(kept, at, won, axis=axis, reduce="add")
        return kept * share, None, won * read(share, at, axis=axis)
    return vjp


COMBINED = {"add": "add", "max": "max", "min": "min"}      # writes of which each device may make some


def _put_axes(x: TensorType, at: TensorType, updates: TensorType, *, axis: int, reduce: Reduction) -> AxisRule:
    """Places may be split where the order of writes does not matter: tensors are combined."""
    combined = reduce in COMBINED
    places = tuple(("place", k) if combined else None for k in range(at.ndim))
    row: Labels = tuple(None if k == axis else k for k in range(x.ndim))
    return AxisRule((row, places, (*row[:axis], *places, *row[axis + 1:])), (row,),
                    {label: COMBINED[reduce] for label in places if combined},
                    linear_in(0, 2) if reduce == "add" else None)


def _put_work(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return 4 * int(inputs[2].size)          # NumPy sorts what meets in a place


def _put_batch(op: Op, a: Arguments, axis: int, reduce: str) -> Any:
    x, at, updates = a.whole(0), a.inputs[1], a.whole(2)
    if not a.batched[1]:
        return op(x, at, updates, axis=axis + 1, reduce=reduce)
    at = _counted_along(at, a.shape(0)[axis], a.size, axis)
    rows = permute(updates, axes=(*range(1, axis + 1), 0, *range(axis + 1, updates.ndim)))
    return split(op(merge(x, axis), at, rows, axis=axis, reduce=reduce), axis, a.size)


put: Op = define(
    "put", public=False, axis_rule=_put_axes, type=_put_type, canonical=canonical_axis, promote=_written, ref=_put_ref,
    vjp=_written_vjp(lambda *a, **k: take(*a, **k), lambda *a, **k: put(*a, **k)),
    fill=lambda s, x, at, updates, axis, reduce: s.write_rows(x, at, updates, axis, reduce),
    batch=_put_batch,
    numpy_work=_put_work, fails="index",
    doc="x with `updates` written to these places along an axis: set, add, mul, max or min.",
    examples=["put(f32[5, 3], i64[4], f32[4, 3], axis=0, reduce='add') -> f32[5, 3]",
              "put(f32[2, 5], i64[2, 2], f32[2, 2, 2], axis=1, reduce='set') -> f32[2, 5]",
              "put(f32[5, 3], i64[4], f32[4, 2], axis=0, reduce='add') -> error"])


# ---------------------------------------------------------------- single elements

def _along_type(name: str, x: TensorType, indices: TensorType, axis: int) -> TensorType:
    _integers(name, indices)
    if indices.ndim != x.ndim or any(isinstance(n, int) and isinstance(m, int) and m > n for k, (n, m) in
                                     enumerate(zip(x.shape, indices.shape, strict=False)) if k != axis):
        raise ShapeError(f"{name}: indices {indices} do not fit {x} along axis {axis}",
                         hint="they have as many axes as the tensor, and no more elements along the others")
    return x.with_shape(indices.shape)


def _gather_type(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    return _along_type("gather", x, indices, axis)


def _places_along(name: str, x: Any, at: Any, axis: int) -> tuple[Any, ...]:
    index: list[Any] = list(np.indices(at.shape, sparse=True))
    index[axis] = check_range(name, at, x.shape[axis], axis)
    return tuple(index)


def _gather_call(types: Sequence[Any], attrs: Mapping[str, Any]) -> NumPyCall | None:
    axis, grid = attrs["axis"], np.indices(types[1].shape, sparse=True)
    before, behind = grid[:axis], grid[axis + 1:]
    return (lambda x, at: x[(*before, at, *behind)], ()) if types[1].dtype.kind == "i" else None


gather: Op = define(
    "gather", type=_gather_type, canonical=canonical_axis,
    ref=lambda x, at, axis: x[_places_along("gather", x, at, axis)],
    vjp=lambda g, y, x, at, axis: (scatter_op(zeros_like(x), at, g, axis=axis, reduce="add"), None),
    compute=lambda s, i, x, at, axis: x((*i[:axis], s.index(at(i), x.shape[axis]), *i[axis + 1:])),
    batch="axis",
    exact=True, numpy_call=_gather_call, reads_part=True, fails="index",
    doc="y[a, i, b] = x[a, indices[a, i, b], b]: one element of x along an axis for every element of `indices`.",
    examples=["gather(f32[2, 5], i64[2, 3], axis=1) -> f32[2, 3]", "gather(f32[5, 3], i32[2, 2], axis=0) -> f32[2, 2]",
              "gather(f32[2, 5], i64[3, 3], axis=1) -> error"])


def _scatter_type(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int,
                  reduce: Reduction) -> TensorType:
    _along_type("scatter", x, indices, axis)
    if updates.shape != indices.shape:
        raise ShapeError(f"scatter: {updates} cannot be written to places {indices}; their shapes differ")
    return x


def _scatter_ref(x: Any, at: Any, updates: Any, axis: int, reduce: str) -> Any:
    out = x.copy()
    _write(out, _places_along("scatter", x, at, axis), updates, reduce)
    return out


def _scatter_axes(x: TensorType, at: TensorType, updates: TensorType, *, axis: int,
                  reduce: Reduction) -> AxisRule:
    """As for `put`; the other axes may be split where the places are as many as the elements."""
    combined = reduce in COMBINED
    pairs = enumerate(zip(x.shape, at.shape, strict=True))
    row: Labels = tuple(None if k == axis or n != m else k for k, (n, m) in pairs)
    places = tuple("place" if k == axis and combined else label for k, label in enumerate(row))
    return AxisRule((row, places, places), (row,), {"place": COMBINED[reduce]} if combined else {},
                    linear_in(0, 2) if reduce == "add" else None)


scatter_op: Op = define(
    "scatter", public=False, axis_rule=_scatter_axes, type=_scatter_type, canonical=canonical_axis, promote=_written,
    ref=_scatter_ref,
    vjp=_written_vjp(lambda *a, **k: gather(*a, **k), lambda *a, **k: scatter_op(*a, **k)),
    fill=lambda s, x, at, updates, axis, reduce: s.write_elements(x, at, updates, axis, reduce),
    batch="axis",
    exact=True, fails="index",
    doc="x with x[a, indices[a, i, b], b] set to updates[a, i, b], or combined with it by add, mul, max or min.",
    examples=["scatter(f32[2, 5], i64[2, 3], f32[2, 3], axis=1, reduce='add') -> f32[2, 5]",
              "scatter(f32[5, 3], i64[2, 2], f32[2, 2], axis=0, reduce='set') -> f32[5, 3]",
              "scatter(f32[5, 3], i64[2, 2], f32[2, 3], axis=0, reduce='set') -> error"])

def _wrap_type(x: TensorType, *, size: Dim, axis: int) -> TensorType:
    _integers("wrap_index", x)
    return x


wrap_index: Op = define(
    "wrap_index", public=False, type=_wrap_type,
    ref=lambda x, size, axis: check_range("x[key]", x, size, axis),
    compute=lambda s, i, x, size, axis: s.cast(s.index(x(i), size), x.dtype),
    batch="front",
    fails="index", doc="Indices counted from the front; an error where one is outside an axis of this size.",
    examples=["wrap_index(i64[4], size=5, axis=0) -> i64[4]"])


# ---------------------------------------------------------------- what users call

@function
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Any:
    """One element of x along an axis for every element of `indices`; the other axes broadcast.

    >>> x = tn.tensor([[3.0, 1.0], [2.0, 4.0]])
    >>> x.take_along_axis(tn.tensor([[1], [0]]), axis=1)
    tensor([[1.], [2.]])
    """
    x, indices, axis = _broadcast_others(x, indices, axis)
    return gather(x, indices, axis=axis)


@function
def index_select(x: Any, indices: Any, axis: int = 0) -> Any:
    """The slices of x at these places along an axis."""
    return take(x, indices, axis=axis)


@function
def scatter(x: Any, indices: Any, updates: Any, axis: int = 0, reduce: str = "set") -> Any:
    """x with `updates` written to the places of `indices` along an axis: "set", "add", "mul", "max" or "min".

    >>> tn.scatter(tn.zeros(4), tn.tensor([1, 1, 3]), 1.0, reduce="add")
    tensor([0., 2., 0., 1.])
    """
    reduce = "mul" if reduce == "multiply" else reduce
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"scatter: reduce={reduce!r} is unknown", hint="one of " + " ".join(REDUCTIONS))
    return scatter_op(x, indices, _spread(first_of(updates, indices), indices.shape, x.dtype), axis=axis, reduce=reduce)


def first_of(values: Any, indices: Any) -> Any:
    """As many values along each axis as there are indices: PyTorch allows more."""
    wanted, own = tuple(indices.shape), tuple(getattr(values, "shape", ()))
    if len(own) != len(wanted) or not any(a > b for a, b in zip(own, wanted, strict=True)):
        return values
    return lift(values)[tuple(slice(0, n) if own[k] != 1 else slice(None) for k, n in enumerate(wanted))]


@function
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """x with `updates` added to the places of `indices` along an axis."""
    return scatter(x, indices, updates, axis, "add")


def _at_slices(x: Any, indices: Any, updates: Any, axis: int, reduce: Reduction) -> Any:
    axis = normalize_axis(axis, x.ndim)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
    return put(x, indices, _spread(updates, shape, x.dtype), axis=axis, reduce=reduce)


@function
def index_add(x: Any, indices: Any, updates: Any, axis: int = 0, alpha: Any = 1) -> Any:
    """x with `alpha * updates` added to the slices at these places along an axis."""
    return _at_slices(x, indices, updates if type(alpha) is int and alpha == 1 else updates * alpha, axis, "add")


def _index_function(name: str, reduce: Reduction, what: str) -> None:
    def fn(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
        return _at_slices(x, indices, updates, axis, reduce)
    fn.__name__ = name
    fn.__doc__ = f"x with `updates` {what} the slices at these places along an axis."
    function(fn)


for _name, _what in (("index_copy", "in the place of"), ("index_fill", "(a number) in the place of")):
    _index_function(_name, "set", _what)


@function
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """x with `value` where the mask holds.

    >>> tn.masked_fill(tn.ones(3), tn.tensor([True, False, True]), 0.0)
    tensor([0., 1., 0.])
    """
    kind = lift(mask).dtype
    if kind.kind != "b":
        raise DTypeError(f"masked_fill: a mask is bool, this one is {kind.name}", hint="mask != 0 makes one")
    return where(mask, value if is_computed(value) or not hasattr(value, "dtype") else cast(value, dtype=x.dtype), x)


def _one_hot_ref(x: Any, num_classes: int, dtype: Any) -> Any:
    return (check_range("one_hot", x, num_classes, -1)[..., None] == np.arange(num_classes)).astype(dtype.numpy)


def _one_hot_type(x: TensorType, *, num_classes: Dim, dtype: Any = "int64") -> TensorType:
    _integers("one_hot", x)
    if not hasattr(num_classes, "__index__") or (isinstance(num_classes, int) and num_classes < 0):
        raise ArgumentError(f"one_hot: num_classes must be a size, not {num_classes!r}")
    if isinstance(num_classes, SymbolicDim):
        hold_where_natural(num_classes - 1)
    elif num_classes == 0 and not any(map(is_zero, x.shape)):
        raise OutOfRange(f"one_hot: there are no classes for {x}")
    return TensorType(dtype, (*x.shape, num_classes))


one_hot: Op = define(
    "one_hot", type=_one_hot_type, ref=_one_hot_ref,
    canonical=lambda x, num_classes, dtype: {"num_classes": num_classes, "dtype": as_dtype(dtype)},
    compute=lambda s, i, x, num_classes, dtype: s.select(
        s.eq(s.index(x(i[:-1]), num_classes), i[-1]), s.const(1, dtype), s.const(0, dtype)),
    vjp=lambda g, y, x, **_: (None,),
    batch="front", fails="index", doc="A last axis that is 1 at the class that x names and 0 elsewhere.",
    examples=["one_hot(i64[3], num_classes=5, dtype=f32) -> f32[3, 5]",
              "one_hot(f32[3], num_classes=5, dtype=f32) -> error"])


@function
def one_hot_(x: Any, num_classes: Any = -1, dtype: Any = "int64") -> Any:
    """A last axis that is 1 at the class that x names and 0 elsewhere; -1 is as many classes as x has.

    >>> tn.one_hot(tn.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    return one_hot(x, num_classes=int(lift(x).max()) + 1 if num_classes == -1 else num_classes, dtype=dtype)


def _broadcast_others(x: Any, indices: Any, axis: int) -> tuple[Any, Any, int]:
    """Both broadcast against each other along all axes but one."""
    axis = normalize_axis(axis, x.ndim)
    if indices.ndim != x.ndim:
        raise ShapeError(f"take_along_axis: {shown(indices)} and {shown(x)} differ in the number of axes")
    shape = broadcast_shapes(*((*y.shape[:axis], *y.shape[axis + 1:]) for y in (x, indices)))
    wide = [(*shape[:axis], y.shape[axis], *shape[axis:]) for y in (x, indices)]
    return _spread(x, wide[0]), _spread(indices, wide[1]), axis


def _spread(x: Any, shape: Any, dtype: Any = None) -> Any:
    """`x`, or a number of this type, with this shape."""
    if is_computed(x) or not hasattr(x, "shape"):
        return full_op(scalar(x, dtype), shape=tuple(shape))
    return x if tuple(x.shape) == tuple(shape) else broadcast_to(x, shape=tuple(shape))


def flat(x: Any) -> Any:
    """The elements in one axis."""
    return x if x.ndim == 1 else reshape_op(x, shape=(product(x.shape),))

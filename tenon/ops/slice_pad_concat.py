"""Cut tensors into pieces and join pieces: slice, pad, concat.  Their gradients are one another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import hold_where_natural
from tenon.dims.symbolic_dim import Dim
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.graph.op import Op
from tenon.graph.promotion import like_first, same
from tenon.ops.batching import Arguments
from tenon.ops.comparison import where
from tenon.ops.define import define
from tenon.ops.shape import as_shape, full_op, is_size, reshape_op
from tenon.types import TensorType, int64, normalize_axis


def _slice_attrs(x: TensorType, start: Any, stop: Any, step: Any) -> dict[str, Any]:
    return {"start": (0,) * x.ndim if start is None else tuple(start), "stop": x.shape if stop is None else tuple(stop),
            "step": (1,) * x.ndim if step is None else tuple(step)}


def _slice_type(x: TensorType, *, start: Any = None, stop: Any = None, step: Any = None) -> TensorType:
    if not len(start) == len(stop) == len(step) == x.ndim or not all(map(is_size, (*start, *stop, *step))):
        raise ShapeError(f"slice: {x} needs a start, a stop and a step for each axis")
    for n, a, b, c in zip(x.shape, start, stop, step, strict=True):
        numbers = all(isinstance(d, int) for d in (n, a, b))
        if c == 0 or (numbers and (b - a) * c > 0 and min(slice_needs(n, a, b, c)) < 0):
            raise ShapeError(f"slice: {a}:{b}:{c} does not lie within an axis of size {n}")
        hold_where_natural(*slice_needs(n, a, b, c), b - a if c > 0 else a - b)
    return x.with_shape([slice_size(*abc) for abc in zip(start, stop, step, strict=True)])


def slice_needs(size: Dim, start: Dim, stop: Dim, step: int) -> tuple[Dim, Dim]:
    """What is not negative where the positions of a slice, if there are any, lie within an axis of this size."""
    return (start, size - stop) if step > 0 else (stop + 1, size - 1 - start)


def slice_size(start: Dim, stop: Dim, step: int) -> Dim:
    """How many positions start, start + step ... there are before stop."""
    size = (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step
    return max(size, 0) if isinstance(size, int) else size


def _slice_vjp(g: Any, y: Any, x: Any, start: Any, stop: Any, step: Any) -> tuple[Any]:
    sizes = y.shape
    if any(isinstance(n, int) and n == 0 for n in sizes):
        return (full_op(literal(0, x.dtype), shape=x.shape),)
    if any(c < 0 for c in step):        # turn the gradient round, then it is a slice that runs forwards
        g = slice_op(g, start=[n - 1 if c < 0 else 0 for n, c in zip(sizes, step, strict=True)],
                     stop=[-1 if c < 0 else n for n, c in zip(sizes, step, strict=True)],
                     step=[-1 if c < 0 else 1 for c in step])
        start = tuple(a + (n - 1) * c if c < 0 else a for a, n, c in zip(start, sizes, step, strict=True))
        step = tuple(map(abs, step))
    high = [n - a - (m - 1) * c - 1 for n, a, m, c in zip(x.shape, start, sizes, step, strict=True)]
    return (pad_op(g, 0, low=start, high=high, interior=[c - 1 for c in step]),)


def _slice_batch(op: Op, a: Arguments, start: Any, stop: Any, step: Any) -> Any:
    return op(a.inputs[0], start=(0, *start), stop=(a.size, *stop), step=(1, *step))


def _range(start: int, stop: int, step: int) -> slice:
    """The positions as NumPy counts them, to which -1 is the last."""
    return slice(start, stop if stop >= 0 else None, step) if (stop - start) * step > 0 else slice(0)


slice_op = define(
    "slice", public=False, handles=True, type=_slice_type, canonical=_slice_attrs, vjp=_slice_vjp,
    ref=lambda x, start, stop, step: x[tuple(map(_range, start, stop, step))],
    compute=lambda s, i, x, start, stop, step: x(tuple(k * c + a for k, a, c in zip(i, start, step, strict=True))),
    batch=_slice_batch,
    reads_part=True,
    moves="part",
    doc="Every step-th element from start up to (not including) stop, axis by axis.  Positions count from 0 and do not "
        "wrap; with a negative step, stop is -1 to go on to the first element.",
    examples=["slice(f32[5, 6], start=(1, 0), stop=(4, 6), step=(1, 2)) -> f32[3, 3]",
              "slice(f32[5], start=(4,), stop=(-1,), step=(-2,)) -> f32[3]",
              "slice(f32[5], start=(1,), stop=(7,), step=(1,)) -> error"])


def _pad_type(x: TensorType, value: TensorType, *, low: Any, high: Any, interior: Any = None) -> TensorType:
    if value.shape or not len(low) == len(high) == len(interior) == x.ndim:
        raise ShapeError(f"pad: {x} needs a low, a high and an interior size for each axis, and a scalar value")
    if any(isinstance(n, int) and n < 0 for n in (*low, *high, *interior)):
        raise ShapeError(f"pad: sizes must not be negative: {low}, {high}, {interior}")
    return x.with_shape([n + a + b + (n - 1) * c if c else n + a + b
                         for n, a, b, c in zip(x.shape, low, high, interior, strict=True)])


def _pad_slices(sizes: Any, low: Any, interior: Any) -> dict[str, tuple[Any, ...]]:
    """Where the elements of a tensor of these sizes stand in the padded one."""
    return {"start": tuple(low), "stop": tuple(a + (n - 1) * (c + 1) + 1 if c else a + n
                                               for n, a, c in zip(sizes, low, interior, strict=True)),
            "step": tuple(c + 1 for c in interior)}


def _pad_ref(x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    shape, place = _pad_places(x.shape, low, high, interior)
    out = np.empty(shape, x.dtype)
    out.fill(value)
    out[place] = x
    return out


@lru_cache(1024)
def _pad_places(sizes: Sequence[int], low: Any, high: Any, interior: Any) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """NumPy: the sizes of the padded array, and where the elements stand in it."""
    shape = tuple(n + a + b + max(n - 1, 0) * c for n, a, b, c in zip(sizes, low, high, interior, strict=True))
    return shape, tuple(map(slice, *_pad_slices(sizes, low, interior).values()))


def _pad_compute(s: Any, i: Any, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    inside, index = None, []
    for k, n, a, b, c in zip(i, x.shape, low, high, interior, strict=True):
        k = k if isinstance(a, int) and a == 0 else k - a
        tests = [k >= 0] if not (isinstance(a, int) and a == 0) else []
        tests += [k < (n - 1) * (c + 1) + 1] if not (isinstance(b, int) and b == 0) else []
        tests += [s.eq(k % (c + 1), s.const(0, int64))] if c else []
        index.append(k // (c + 1) if c else k)
        for test in tests:
            inside = test if inside is None else inside & test
    return x(tuple(index)) if inside is None else s.when(inside, lambda: x(tuple(index)), value(()))


def _pad_vjp(g: Any, y: Any, x: Any, value: Any, low: Any, high: Any, interior: Any) -> tuple[Any, Any]:
    if 0 in x.shape:
        return None, lambda: g.sum()
    inner = slice_op(g, **_pad_slices(x.shape, low, interior))
    return inner, lambda: g.sum() - inner.sum()


def _pad_batch(op: Op, a: Arguments, low: Any, high: Any, interior: Any) -> Any:
    if a.batched[1]:        # pad with zeros, then put the example's own value where the padding is
        x, value = a.whole(0), a.inputs[1]
        widths = {"low": (0, *low), "high": (0, *high), "interior": (0, *interior)}
        inside = op(full_op(True, shape=x.shape), False, **widths)
        return where(inside, op(x, 0, **widths), reshape_op(value, shape=(a.size, *(1,) * (x.ndim - 1))))
    return op(a.inputs[0], a.inputs[1], low=(0, *low), high=(0, *high), interior=(0, *interior))


pad_op = define(
    "pad", public=False, type=_pad_type, ref=_pad_ref, vjp=_pad_vjp, compute=_pad_compute, promote=like_first,
    canonical=lambda x, value, low, high, interior: {
        "low": as_shape(tuple(low)), "high": as_shape(tuple(high)),
        "interior": (0,) * x.ndim if interior is None else as_shape(tuple(interior))},
    batch=_pad_batch,
    reads_part=True,
    doc="The tensor with `value` before (low), after (high) and between (interior) its elements, axis by axis.",
    examples=["pad(f32[2, 3], f32(0.0), low=(1, 0), high=(0, 2), interior=(0, 1)) -> f32[3, 7]"])


def _concat_type(*xs: TensorType, axis: int = 0) -> TensorType:
    if not xs:
        raise ArgumentError("concat: no tensors were given")
    first = xs[0]
    for other in xs[1:]:
        if other.ndim != first.ndim or any(n != m for k, (n, m) in enumerate(zip(first.shape, other.shape, strict=True))
                                           if k != axis):
            raise ShapeError(f"concat: {first} and {other} differ in more than axis {axis}")
    total = xs[0].shape[axis]
    for other in xs[1:]:
        total = total + other.shape[axis]
    return first.with_shape([total if k == axis else n for k, n in enumerate(first.shape)])


def _offsets(xs: Sequence[Any], axis: int) -> list[tuple[Dim, Dim]]:
    """Where each part begins and ends along the axis."""
    found: list[tuple[Dim, Dim]] = []
    end: Dim = 0
    for x in xs:
        begin, end = end, end + x.shape[axis]
        found.append((begin, end))
    return found


def _concat_compute(s: Any, i: Any, *xs: Any, axis: int) -> Any:
    out = s.const(0, xs[0].dtype)
    for x, (begin, end) in reversed(list(zip(xs, _offsets(xs, axis), strict=True))):
        def part(x: Any = x, begin: Any = begin) -> Any:
            return x((*i[:axis], i[axis] - begin, *i[axis + 1:]))
        out = s.when((i[axis] >= begin) & (i[axis] < end), part, out)
    return out


def _concat_vjp(g: Any, y: Any, *xs: Any, axis: int) -> tuple[Any, ...]:
    def part(begin: Dim, end: Dim) -> Any:
        return lambda: slice_op(g, start=[begin if k == axis else 0 for k in range(g.ndim)],
                                stop=[end if k == axis else n for k, n in enumerate(g.shape)])
    return tuple(part(begin, end) for begin, end in _offsets(xs, axis))


concat_op = define(
    "concat", public=False, handles=True, type=_concat_type, compute=_concat_compute, vjp=_concat_vjp, promote=same,
    canonical=lambda *xs, axis: {"axis": normalize_axis(axis, xs[0].ndim) if xs else 0},
    ref=lambda *xs, axis: np.concatenate(xs, axis), batch="axis", doc="Tensors joined along an axis that exists.",
    examples=["concat(f32[2, 3], f32[4, 3], axis=0) -> f32[6, 3]", "concat(f32[2], f32[0], f32[3], axis=0) -> f32[5]",
              "concat(f32[2, 3], f32[2, 4], axis=0) -> error"])

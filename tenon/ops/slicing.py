"""Parts of a tensor at regular places, read and written: one strided box, of which `x[1:7:2, -1]` is made."""

from __future__ import annotations

from typing import Any

from tenon.dims.compare_sizes import is_zero
from tenon.dims.symbolic_dim import Dim
from tenon.errors import ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import like_first
from tenon.ops.batching import Arguments
from tenon.ops.creation import zeros_like
from tenon.ops.define import define
from tenon.ops.slice_pad_concat import slice_op
from tenon.types import TensorType


def _places(start: Any, size: Any, step: Any) -> tuple[slice, ...]:
    """NumPy: the box as slices; a backward slice that reaches the first element has no stop."""
    stops = [a + (n - 1) * d + (1 if d > 0 else -1) if n else a for a, n, d in zip(start, size, step, strict=True)]
    return tuple(slice(a, None if stop < 0 else stop, d) for a, stop, d in zip(start, stops, step, strict=True))


def _inside(x: TensorType, start: Any, size: Any, step: Any) -> TensorType:
    if not len(start) == len(size) == len(step) == x.ndim:
        raise ShapeError(f"slice_update: {x} needs a start, a size and a step for each of its {x.ndim} axes")
    for axis, (n, a, m, d) in enumerate(zip(x.shape, start, size, step, strict=True)):
        known = all(isinstance(value, int) for value in (n, a, m))
        if d == 0 or (known and m and not (0 <= a < n and 0 <= a + (m - 1) * d < n)):
            raise ShapeError(f"slice_update: {m} elements from {a} in steps of {d} leave axis {axis} of {x}")
    return x.with_shape(size)


def box(x: Any, start: Any, size: Any, step: Any) -> Any:
    """The `size` elements an axis from `start` in steps of `step`."""
    stop = tuple(a + (n - 1) * d + (1 if d > 0 else -1) if not is_zero(n) else a
                 for a, n, d in zip(start, size, step, strict=True))
    return slice_op(x, start=tuple(start), stop=stop, step=tuple(step))


def _update_ref(x: Any, updates: Any, start: Any, step: Any) -> Any:
    out = x.copy()
    out[_places(start, updates.shape, step)] = updates
    return out


def _update_compute(s: Any, i: Any, x: Any, updates: Any, start: Any, step: Any) -> Any:
    inside, at = None, []
    for k, n, m, a, d in zip(i, x.shape, updates.shape, start, step, strict=True):
        place = k - a if d > 0 else a - k
        at.append(place // abs(d) if abs(d) != 1 else place)
        if m is not n and not (m == n and d == 1):
            conditions = [place >= 0, at[-1] < m] + ([s.eq(place % abs(d), 0)] if abs(d) != 1 else [])
            for condition in conditions:
                inside = condition if inside is None else inside & condition
    if inside is None:
        return updates(tuple(at))
    return s.select(inside, s.when(inside, lambda: updates(tuple(at)), s.const(0, updates.dtype)), x(i))


def _update_type(x: TensorType, updates: TensorType, *, start: tuple[Dim, ...], step: tuple[int, ...]) -> TensorType:
    return _inside(x, start, updates.shape, step).with_shape(x.shape)


def _update_batch(op: Op, a: Arguments, start: Any, step: Any) -> Any:
    return op(a.whole(0), a.whole(1), start=(0, *start), step=(1, *step))


slice_update: Op = define(
    "slice_update", public=False, promote=like_first, ref=_update_ref, compute=_update_compute,
    type=_update_type,
    vjp=lambda g, y, x, updates, start, step: (
        lambda: slice_update(g, zeros_like(updates), start=start, step=step),
        lambda: box(g, start, updates.shape, step)),
    batch=_update_batch,
    reads_part=True,
    doc="x with the box of `updates.shape` elements from `start` in steps of `step` replaced by `updates`.",
    examples=["slice_update(f32[5, 6], f32[2, 3], start=(1, 5), step=(3, -2)) -> f32[5, 6]"])

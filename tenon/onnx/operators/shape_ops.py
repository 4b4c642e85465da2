"""Shapes: what changes where elements stand, and computes with sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import Known, as_tensor, check_bytes, host, ints
from tenon.onnx.operator_table import OperatorCall, axis_of, operator
from tenon.onnx.operators.cast_ops import tenon_type


def bounded(shape: Any, call: OperatorCall) -> list[int]:
    """Sizes that a model says, if they can be."""
    sizes = [int(d) for d in shape]
    if min(sizes, default=0) < 0:
        raise ShapeError(f"{call.step.label}: sizes {sizes} are not all positive")
    check_bytes(sizes, 1, call.step.label)
    return sizes


@operator("Identity", raw=True)
def identity(call: OperatorCall, x: Any) -> Any:
    return list(x) if isinstance(x, list) else x


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.array.shape if isinstance(x, Known) else x.shape)


@operator("Shape", raw=True)
def shape(call: OperatorCall, x: Any) -> Any:
    return np.array(_shape(x)[slice(call.get("start", 0), call.get("end"))], np.int64)


@operator("Size", raw=True)
def size(call: OperatorCall, x: Any) -> Any:
    return np.array(math.prod(_shape(x)), np.int64)


@operator("Reshape", known="shape", moves=True)
def reshape(call: OperatorCall, x: Any, shape: Any = None) -> Any:
    sizes = call.need("shape") if shape is None else ints(shape)
    if not call.get("allowzero", 0):
        sizes = [x.shape[k] if d == 0 and k < x.ndim else d for k, d in enumerate(sizes)]
    return tn.reshape(x, tuple(sizes))


@operator("Flatten", moves=True)
def flatten(call: OperatorCall, x: Any) -> Any:
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    if not 0 <= axis <= x.ndim:
        raise ShapeError(f"{call.step.label}: axis {axis} is not one of {x.ndim}")
    return tn.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose", moves=True)
def transpose(call: OperatorCall, x: Any) -> Any:
    return tn.permute(x, tuple(call.get("perm", range(x.ndim)[::-1])))


@operator("Squeeze", known="axes", moves=True)
def squeeze(call: OperatorCall, x: Any, axes: Any = None) -> Any:
    chosen = call.get("axes") if axes is None else ints(axes)
    if chosen is None:
        chosen = [k for k, d in enumerate(x.shape) if d == 1]
    return tn.squeeze(x, tuple(chosen)) if chosen else x


@operator("Unsqueeze", known="axes", moves=True)
def unsqueeze(call: OperatorCall, x: Any, axes: Any = None) -> Any:
    chosen = call.need("axes") if axes is None else ints(axes)
    count = x.ndim + len(chosen)
    places = {axis_of(a, tn.zeros([1] * count), call) for a in chosen} if count <= 32 else set()
    if len(places) != len(chosen):
        raise ShapeError(f"{call.step.label}: axes {chosen} name one twice")
    sizes = iter(x.shape)
    return tn.reshape(x, tuple([1 if k in places else next(sizes) for k in range(count)]))


@operator("Expand", known="shape", moves=True)
def expand(call: OperatorCall, x: Any, shape: Any) -> Any:
    sizes = tn.broadcast_shapes(x.shape, tuple(ints(shape)))
    return tn.broadcast_to(x, tuple(bounded(sizes, call)))


@operator("Tile", known="repeats", moves=True)
def tile(call: OperatorCall, x: Any, repeats: Any) -> Any:
    counts = ints(repeats)
    bounded([d * r for d, r in zip(x.shape, counts)], call)
    return tn.tile(x, tuple(counts))


@operator("Concat", moves=True)
def concat(call: OperatorCall, *xs: Any) -> Any:
    return xs[0] if len(xs) == 1 else tn.concat(xs, axis=call.get("axis", 1))


@operator("Split", known="split", moves=True)
def split(call: OperatorCall, x: Any, split: Any = None) -> Any:
    axis = axis_of(call.get("axis", 0), x, call)
    sizes = call.get("split") if split is None else ints(split)
    if sizes is None:
        parts = call.get("num_outputs", call.results)
        each = -(-x.shape[axis] // parts)
        sizes = [max(0, min(each, x.shape[axis] - k * each)) for k in range(parts)]
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise ShapeError(f"{call.step.label}: parts of {sizes} of an axis of {x.shape[axis]}")
    return tuple(tn.split_with_sizes(x, tuple(sizes), axis=axis))


@operator("Slice", known="starts ends axes steps", moves=True)
def slices(call: OperatorCall, x: Any, starts: Any = None, ends: Any = None, axes: Any = None,
           steps: Any = None) -> Any:
    first = call.need("starts") if starts is None else ints(starts)
    last = call.need("ends") if ends is None else ints(ends)
    along = call.get("axes") if axes is None else ints(axes)
    along = range(len(first)) if along is None else along
    by = [1] * len(first) if steps is None else ints(steps)
    key = [slice(None)] * x.ndim
    flipped = []
    for start, stop, axis, step in zip(first, last, along, by, strict=True):
        axis, length = axis_of(axis, x, call), x.shape[axis]
        if step == 0:
            raise ShapeError(f"{call.step.label}: a step of 0")
        begin, end, step = slice(start, stop, step).indices(length)
        if step < 0:        # the same elements, taken from the other side
            begin = max(begin, 0) if length else -1     # the standard moves a start before the first element there
            count = len(range(begin, end, step))
            begin, end, step = (begin + (count - 1) * step, begin + 1, -step) if count else (0, 0, 1)
            flipped.append(axis)
        key[axis] = slice(begin, max(begin, end), min(step, max(length, 1)))
    found = x[tuple(key)] if key else x
    return tn.flip(found, tuple(flipped)) if flipped else found


@operator("Pad", known="pads axes", moves=True)
def pad(call: OperatorCall, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    sides = (call.get("pads") or call.need("paddings")) if pads is None else ints(pads)
    along = list(range(x.ndim)) if axes is None else [axis_of(a, x, call) for a in ints(axes)]
    widths = [(0, 0)] * x.ndim
    for k, axis in enumerate(along):
        widths[axis] = sides[k], sides[k + len(along)]
    bounded([max(0, d + a + b) for d, (a, b) in zip(x.shape, widths)], call)
    mode = call.get("mode", "constant")
    if mode == "constant":
        fill = call.get("value", 0) if value is None else value.reshape(())
        fill = fill if x.dtype.is_floating or isinstance(fill, tn.Tensor) else int(fill)
        return _padded(x, widths, fill)
    for axis, (a, b) in enumerate(widths):      # cutting comes first
        if min(a, b) < 0:
            x = x[tuple(slice(max(0, -a), x.shape[axis] - max(0, -b)) if k == axis else slice(None)
                        for k in range(x.ndim))]
    return tn.pad(x, [(max(a, 0), max(b, 0)) for a, b in widths], mode=mode)


def _padded(x: Any, widths: Any, fill: Any) -> Any:
    """A constant around x; one that is a tensor is chosen by a mask."""
    if not isinstance(fill, tn.Tensor):
        return tn.pad(x, widths, constant_values=fill)
    kept = tn.pad(tn.ones(x.shape, dtype=tn.bool), widths, constant_values=False)
    return tn.where(kept, tn.pad(x, widths), tn.cast(fill, x.dtype))


@operator("ConstantOfShape", known="shape")
def constant_of_shape(call: OperatorCall, shape: Any) -> Any:
    value = call.get("value")
    sizes = bounded(ints(shape), call)
    if value is None:
        return tn.zeros(tuple(sizes), dtype=tn.float32)
    if not value.is_regular:
        return np.full(sizes, value.array.reshape(-1)[0])
    return tn.broadcast_to(value.tensor().reshape(()), tuple(sizes))


CONSTANTS = {"value_float": np.float32, "value_int": np.int64, "value_floats": np.float32, "value_ints": np.int64,
             "value_string": object, "value_strings": object}


@operator("Constant", raw=True)
def constant(call: OperatorCall) -> Any:
    for name in ("value", "sparse_value"):
        if call.get(name) is not None:
            return call.get(name)
    for name, dtype in CONSTANTS.items():
        if name in call.attributes:
            return np.array(call.attributes[name], dtype)
    raise call.unsupported("it has no value")


@operator("Range", known="start limit delta")
def sequence(call: OperatorCall, start: Any, limit: Any, delta: Any) -> Any:
    first, stop, step = (x.reshape(()) for x in (start, limit, delta))
    if step == 0:
        raise ShapeError(f"{call.step.label}: a step of 0")
    if first.dtype.kind in "iu":
        count = max(0, -(-(int(stop) - int(first)) // int(step)))
    else:
        turns = (float(stop) - float(first)) / float(step)
        if not math.isfinite(turns):
            raise ShapeError(f"{call.step.label}: from {first} to {stop} by {step} is no number of steps")
        count = max(0, math.ceil(turns))
    bounded([count], call)
    places = tn.arange(count)
    if first.dtype.kind in "iu":
        return tn.cast(places * int(step) + int(first), start.dtype)
    return tn.cast(tn.cast(places, tn.float64) * float(step) + float(first), start.dtype)


@operator("EyeLike")
def eye_like(call: OperatorCall, x: Any) -> Any:
    number = call.get("dtype")
    dtype = x.dtype if number is None else tenon_type(number, call)
    return tn.eye(x.shape[0], x.shape[1], k=call.get("k", 0), dtype=dtype)


@operator("Trilu", known="k", moves=True)
def triangle(call: OperatorCall, x: Any, k: Any = None) -> Any:
    return (tn.triu if call.get("upper", 1) else tn.tril)(x, k=0 if k is None else ints(k)[0])


@operator("DepthToSpace", moves=True)
def depth_to_space(call: OperatorCall, x: Any) -> Any:
    b, (n, c, *sizes) = call.need("blocksize"), x.shape
    count, depth = len(sizes), c // b ** len(sizes)
    blocks = range(count)
    if call.get("mode", "DCR") == "DCR":
        y = x.reshape(n, *[b] * count, depth, *sizes)
        order = [0, count + 1] + [axis for k in blocks for axis in (count + 2 + k, 1 + k)]
    else:
        y = x.reshape(n, depth, *[b] * count, *sizes)
        order = [0, 1] + [axis for k in blocks for axis in (count + 2 + k, 2 + k)]
    return tn.permute(y, tuple(order)).reshape(n, depth, *[d * b for d in sizes])


@operator("SpaceToDepth", moves=True)
def space_to_depth(call: OperatorCall, x: Any) -> Any:
    b, (n, c, *sizes) = call.need("blocksize"), x.shape
    count = len(sizes)
    y = x.reshape(n, c, *[part for d in sizes for part in (d // b, b)])
    inner, outer = [3 + 2 * k for k in range(count)], [2 + 2 * k for k in range(count)]
    order = [0, *inner, 1, *outer] if call.get("mode", "DCR") == "DCR" else [0, 1, *inner, *outer]
    return tn.permute(y, tuple(order)).reshape(n, c * b ** count, *[d // b for d in sizes])


@operator("ReverseSequence", known="lengths", moves=True)
def reverse_sequence(call: OperatorCall, x: Any, lengths: Any) -> Any:
    time, batch = call.get("time_axis", 0), call.get("batch_axis", 1)
    places = np.arange(x.shape[time])[:, None].repeat(x.shape[batch], 1)
    turned = np.where(places < lengths, lengths - 1 - places, places)
    turned = turned if time < batch else turned.T
    index = tn.tensor(turned.reshape([x.shape[k] if k in (time, batch) else 1 for k in range(x.ndim)]))
    return tn.take_along_axis(x, tn.broadcast_to(index, x.shape), axis=time)


@operator("Optional", raw=True)
def optional(call: OperatorCall, x: Any = None) -> Any:
    return x


@operator("OptionalHasElement", raw=True)
def optional_has_element(call: OperatorCall, x: Any = None) -> Any:
    return np.array(x is not None)


@operator("OptionalGetElement", raw=True)
def optional_get_element(call: OperatorCall, x: Any = None) -> Any:
    if x is None:
        raise ShapeError(f"{call.step.label}: the optional is empty")
    return x


@operator("Unique", raw=True)
def unique(call: OperatorCall, x: Any) -> Any:
    """Different elements, or slices; sorted, or in the order in which they are first met."""
    array, axis = host(x), call.get("axis")
    flat = array.astype(str) if array.dtype.kind in "OUS" else array
    values, first, inverse, counts = np.unique(flat, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        inverse = back[inverse]
    values = values.astype(object) if array.dtype.kind in "OUS" else values
    return values, *[k.astype(np.int64) for k in (first, inverse, counts)]


@operator("CenterCropPad", known="shape", moves=True)
def center_crop_pad(call: OperatorCall, x: Any, shape: Any) -> Any:
    sizes = ints(shape)
    axes = call.get("axes") or range(x.ndim)
    key, widths = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, wanted in zip((axis_of(a, x, call) for a in axes), sizes, strict=True):
        more = wanted - x.shape[axis]
        if more < 0:
            begin = (-more) // 2
            key[axis] = slice(begin, begin + wanted)
        widths[axis] = (max(more, 0) // 2, max(more, 0) - max(more, 0) // 2)
    return tn.pad(as_tensor(x)[tuple(key)], widths)

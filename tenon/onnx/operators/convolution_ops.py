"""Convolutions, and what is made of windows beside pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import ints
from tenon.onnx.operator_table import OperatorCall, operator

Pairs = list[tuple[int, int]]


def padding_of(call: OperatorCall, sizes: Any, kernel: Any, strides: Any, dilations: Any) -> Pairs:
    """The padding of each axis, said by numbers or by `auto_pad`."""
    auto, count = call.get("auto_pad", "NOTSET"), len(kernel)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for n, k, s, d in zip(sizes, kernel, strides, dilations):
            total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
            small, large = total // 2, total - total // 2
            found.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return found
    pads = call.get("pads", [0] * 2 * count) if auto != "VALID" else [0] * 2 * count
    if len(pads) != 2 * count:
        raise ShapeError(f"{call.step.label}: {len(pads)} pads for {count} axes")
    return list(zip(pads[:count], pads[count:]))


def conv_sizes(call: OperatorCall, x: Any, w: Any) -> dict[str, Any]:
    """The attributes of a convolution in Tenon's words."""
    count = x.ndim - 2
    kernel = call.get("kernel_shape") or list(w.shape[2:])
    if count < 1 or w.ndim != x.ndim or list(w.shape[2:]) != list(kernel):
        raise ShapeError(f"{call.step.label}: kernel_shape {kernel}, the weight {tuple(w.shape)} and the input "
                         f"{tuple(x.shape)} do not agree")
    strides, dilations = call.get("strides", [1] * count), call.get("dilations", [1] * count)
    if len(strides) != count or len(dilations) != count or min(*strides, *dilations) < 1:
        raise ShapeError(f"{call.step.label}: strides {strides} and dilations {dilations} for {count} axes")
    return {"stride": tuple(strides), "dilation": tuple(dilations), "groups": call.get("group", 1),
            "padding": tuple(padding_of(call, x.shape[2:], kernel, strides, dilations))}


def along_channels(b: Any, count: int) -> Any:
    """A number a channel, for [N, C, *sizes] of this many sizes."""
    return b.reshape(1, -1, *[1] * count)


@operator("Conv")
def convolution(call: OperatorCall, x: Any, w: Any, b: Any = None) -> Any:
    y = tn.conv(x, w, **conv_sizes(call, x, w))
    return y if b is None else y + along_channels(b, x.ndim - 2)


@operator("ConvInteger")
def convolution_of_integers(call: OperatorCall, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    return integer_convolution(call, shifted(x, x_zero, 1), shifted(w, w_zero, 0), w.shape[0])


def shifted(x: Any, zero: Any, axis: int) -> Any:
    """Integers less their zero point, in 32 bits; a zero point may be one for each place of an axis."""
    x = tn.cast(x, tn.int32)
    if zero is None:
        return x
    zero = tn.cast(zero, tn.int32)
    return x - (zero.reshape(()) if zero.size == 1 else zero.reshape(*[-1 if k == axis else 1 for k in range(x.ndim)]))


def integer_convolution(call: OperatorCall, x: Any, w: Any, channels: int) -> Any:
    """The convolution of integers, exact in 32 bits."""
    return tn.cast(tn.conv(x, w, **conv_sizes(call, x, w)), tn.int32)


@operator("ConvTranspose")
def transposed_convolution(call: OperatorCall, x: Any, w: Any, b: Any = None) -> Any:
    count = x.ndim - 2
    kernel = list(w.shape[2:])
    strides, dilations = call.get("strides", [1] * count), call.get("dilations", [1] * count)
    more = call.get("output_padding", [0] * count)
    pads = _transposed_pads(call, x.shape[2:], kernel, strides, dilations, more)
    y = tn.conv_transpose(x, w, stride=tuple(strides), dilation=tuple(dilations), groups=call.get("group", 1))
    widths = [(0, 0), (0, 0), *[(-low, extra - high) for (low, high), extra in zip(pads, more)]]
    y = tn.pad(y, widths) if any(a or b_ for a, b_ in widths) else y
    return y if b is None else y + along_channels(b, count)


def _transposed_pads(call: OperatorCall, sizes: Any, kernel: Any, strides: Any, dilations: Any, more: Any) -> Pairs:
    wanted, auto = call.get("output_shape"), call.get("auto_pad", "NOTSET")
    if wanted is None and not auto.startswith("SAME"):
        return padding_of(call, sizes, kernel, strides, dilations)
    wanted = [n * s for n, s in zip(sizes, strides)] if wanted is None else wanted[-len(kernel):]
    found = []
    for n, k, s, d, e, out in zip(sizes, kernel, strides, dilations, more, wanted):
        total = (n - 1) * s + e + d * (k - 1) + 1 - out
        small, large = total // 2, total - total // 2
        found.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return found


@operator("DeformConv")
def deformable_convolution(call: OperatorCall, x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None) -> Any:
    """A convolution that reads at shifted places, between which the image is interpolated."""
    if x.ndim != 4:
        raise call.unsupported(f"an input of {x.ndim} axes")
    attrs, parts = conv_sizes(call, x, w), call.get("offset_group", 1)
    n, c, h, wide = x.shape
    o, taps = w.shape[0], math.prod(w.shape[2:])
    high, across = offset.shape[2:]
    shift = offset.reshape(n, parts, taps, 2, high, across)
    (low_y, _), (low_x, _) = attrs["padding"]
    rows = np.arange(w.shape[2]).repeat(w.shape[3]) * attrs["dilation"][0] - low_y
    columns = np.tile(np.arange(w.shape[3]), w.shape[2]) * attrs["dilation"][1] - low_x
    base_y = rows[:, None, None] + (np.arange(high) * attrs["stride"][0])[None, :, None]
    base_x = columns[:, None, None] + (np.arange(across) * attrs["stride"][1])[None, None, :]
    dtype = x.dtype.numpy
    y_at = shift[:, :, :, 0] + tn.tensor(base_y.astype(dtype))
    x_at = shift[:, :, :, 1] + tn.tensor(base_x.astype(dtype))
    read = _between(x.reshape(n, parts, c // parts, h * wide), y_at, x_at, h, wide)
    if mask is not None:
        read = read * mask.reshape(n, parts, 1, taps, high, across)
    groups = attrs["groups"]
    columns_ = read.reshape(n, groups, c // groups * taps, high * across)
    y = tn.matmul(w.reshape(1, groups, o // groups, -1), columns_).reshape(n, o, high, across)
    return y if b is None else y + along_channels(b, 2)


def _between(x: Any, y_at: Any, x_at: Any, h: int, wide: int) -> Any:
    """x [N, G, C, H W] at places [N, G, T, H', W'], with zeros around it -> [N, G, C, T, H', W']."""
    n, g, c = x.shape[:3]
    top, left = tn.floor(y_at), tn.floor(x_at)
    total: Any = 0
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = top + dy, left + dx
            weight = (1 - tn.abs(y_at - row)) * (1 - tn.abs(x_at - column))
            inside = (row >= 0) & (row < h) & (column >= 0) & (column < wide)
            place = tn.cast(tn.clip(row, 0, h - 1) * wide + tn.clip(column, 0, wide - 1), tn.int64)
            flat = tn.broadcast_to(place.reshape(n, g, 1, -1), (n, g, c, math.prod(place.shape[2:])))
            values = tn.take_along_axis(x, flat, axis=3).reshape(n, g, c, *place.shape[2:])
            total = total + values * tn.expand_dims(tn.where(inside, weight, 0.0), 2)
    return total


@operator("Col2Im", known="image_shape block_shape")
def columns_to_image(call: OperatorCall, x: Any, image_shape: Any, block_shape: Any) -> Any:
    """Columns added up where their blocks overlap."""
    sizes, kernel = ints(image_shape), ints(block_shape)
    count = len(sizes)
    strides, dilations = call.get("strides", [1] * count), call.get("dilations", [1] * count)
    pads = call.get("pads", [0] * 2 * count)
    if min(*sizes, *kernel, *strides, *dilations) < 1 or math.prod(sizes) * math.prod(kernel) > 1 << 31:
        raise ShapeError(f"{call.step.label}: an image of {sizes} with blocks of {kernel} cannot be")
    n, taps = x.shape[0], math.prod(kernel)
    padded = [d + pads[k] + pads[k + count] for k, d in enumerate(sizes)]
    blocks = [(p - d * (k - 1) - 1) // s + 1 for p, k, s, d in zip(padded, kernel, strides, dilations)]
    if math.prod(blocks) != x.shape[2] or x.shape[1] % taps:
        raise ShapeError(f"{call.step.label}: columns {tuple(x.shape)} are not {math.prod(blocks)} blocks of {taps}")
    place = np.zeros([*kernel, *blocks], np.int64)
    for axis in range(count):
        tap = (np.arange(kernel[axis]) * dilations[axis]).reshape([-1 if k == axis else 1 for k in range(2 * count)])
        at = (np.arange(blocks[axis]) * strides[axis]).reshape([-1 if k == axis + count else 1
                                                                for k in range(2 * count)])
        place = place * padded[axis] + tap + at
    channels = x.shape[1] // taps
    flat = tn.zeros((n, channels, math.prod(padded)), dtype=x.dtype)
    index = tn.broadcast_to(tn.tensor(place.reshape(1, 1, -1)), (n, channels, place.size))
    flat = tn.scatter(flat, index, x.reshape(n, channels, -1), axis=2, reduce="add")
    key = (slice(None), slice(None), *[slice(pads[k], pads[k] + d) for k, d in enumerate(sizes)])
    return flat.reshape(n, channels, *padded)[key]


@operator("CausalConvWithState")
def causal_convolution(call: OperatorCall, x: Any, w: Any, b: Any = None, past: Any = None) -> Any:
    """Each channel by itself, and what the next part of the sequence needs of this one."""
    k = w.shape[2]
    before = tn.zeros((*x.shape[:2], k - 1), dtype=x.dtype) if past is None else past
    joined = tn.concat([before, x], axis=2)
    y = tn.conv(joined, w, groups=x.shape[1])
    y = y if b is None else y + along_channels(b, 1)
    y = tn.silu(y) if call.get("activation", "none") in ("silu", "swish") else y
    return y, joined[:, :, joined.shape[2] - (k - 1):]

"""Pooling: the largest, the mean, the norm of windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import ints
from tenon.onnx.operator_table import OperatorCall, operator
from tenon.onnx.operators.convolution_ops import Pairs, padding_of


def _windows_of(call: OperatorCall, x: Any) -> tuple[list[int], list[int], list[int], Pairs, list[int]]:
    """Kernel, strides, dilations, padding, and what `ceil_mode` adds at the end of each axis."""
    kernel, count = call.need("kernel_shape"), x.ndim - 2
    if count < 1 or len(kernel) != count:
        raise ShapeError(f"{call.step.label}: a kernel of {len(kernel)} axes for an input of {x.ndim}")
    strides, dilations = call.get("strides", [1] * count), call.get("dilations", [1] * count)
    if min(*strides, *dilations, *kernel) < 1:
        raise ShapeError(f"{call.step.label}: kernel {kernel}, strides {strides} and dilations {dilations} are not all "
                         "positive")
    pads = padding_of(call, x.shape[2:], kernel, strides, dilations)
    more = [0] * count
    if call.get("ceil_mode", 0):
        for axis, (n, k, s, d, (low, high)) in enumerate(zip(x.shape[2:], kernel, strides, dilations, pads)):
            windows = -(-(n + low + high - d * (k - 1) - 1) // s) + 1
            if (windows - 1) * s >= n + low:        # it would begin in the padding at the end
                windows -= 1
            more[axis] = max(0, (windows - 1) * s + d * (k - 1) + 1 - n - low - high)
    return kernel, strides, dilations, pads, more


def _padded(x: Any, pads: Pairs, more: list[int], value: Any) -> Any:
    widths = [(0, 0), (0, 0), *[(low, high + m) for (low, high), m in zip(pads, more)]]
    return tn.pad(x, widths, constant_values=value) if any(a or b for a, b in widths) else x


def windows(x: Any, kernel: list[int], strides: list[int], dilations: list[int]) -> Any:
    """[N, C, *sizes] -> [N, C, *windows, *kernel]."""
    for axis, (k, s, d) in enumerate(zip(kernel, strides, dilations)):
        x = tn.sliding_window(x, d * (k - 1) + 1, s, axis=2 + axis)
        x = x[..., ::d] if d > 1 else x
    return x


def _least(dtype: Any) -> Any:
    return -math.inf if dtype.is_floating else int(np.iinfo(dtype.numpy).min)


@operator("MaxPool")
def max_pool(call: OperatorCall, x: Any) -> Any:
    kernel, strides, dilations, pads, more = _windows_of(call, x)
    if call.results > 1:
        return _with_places(call, x)
    if all(max(low, high + m) <= (d * (k - 1) + 1) // 2 for (low, high), m, k, d in zip(pads, more, kernel, dilations)):
        padding = tuple((low, high + m) for (low, high), m in zip(pads, more))
        return tn.max_pool(x, tuple(kernel), tuple(strides), padding, tuple(dilations))
    return tn.max_pool(_padded(x, pads, more, _least(x.dtype)), tuple(kernel), tuple(strides), 0, tuple(dilations))


def _with_places(call: OperatorCall, x: Any) -> Any:
    """The largest, and where they stand in the whole tensor."""
    kernel, strides, dilations, pads, more = _windows_of(call, x)
    sizes, count = list(x.shape[2:]), len(kernel)
    order = range(count) if not call.get("storage_order", 0) else range(count)[::-1]
    place, stride = np.zeros(sizes, np.int64), 1
    for axis in reversed(order):
        place = place + (np.arange(sizes[axis]) * stride).reshape([-1 if k == axis else 1 for k in range(count)])
        stride *= sizes[axis]
    values = windows(_padded(x, pads, more, _least(x.dtype)), kernel, strides, dilations)
    places = windows(_padded(tn.tensor(place.reshape(1, 1, *sizes)), pads, more, 0), kernel, strides, dilations)
    shape = values.shape[:2 + count]
    values = values.reshape(*shape, -1)
    best = tn.argmax(values, axis=-1, keepdims=True)
    found = tn.take_along_axis(tn.broadcast_to(places.reshape(1, 1, *shape[2:], -1), values.shape), best, axis=-1)
    planes = tn.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], *[1] * count) * math.prod(sizes)
    return tn.take_along_axis(values, best, axis=-1).reshape(*shape), found.reshape(*shape) + planes


@operator("AveragePool")
def average_pool(call: OperatorCall, x: Any) -> Any:
    kernel, strides, dilations, pads, more = _windows_of(call, x)
    flat = all(d == 1 for d in dilations) and not any(more)
    with_pads = bool(call.get("count_include_pad", 0))
    if flat and all(max(p) <= k // 2 for p, k in zip(pads, kernel)):
        return tn.avg_pool(x, tuple(kernel), tuple(strides), tuple(pads), count_include_pad=with_pads)
    axes = tuple(range(-len(kernel), 0))
    total = tn.sum(windows(_padded(x, pads, more, 0), kernel, strides, dilations), axis=axes)
    ones = tn.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    none = [0] * len(kernel)
    ones = _padded(_padded(ones, pads, none, 1 if with_pads else 0), [(0, 0)] * len(kernel), more, 0)
    return total / tn.sum(windows(ones, kernel, strides, dilations), axis=axes)


@operator("LpPool")
def lp_pool(call: OperatorCall, x: Any) -> Any:
    kernel, strides, dilations, pads, more = _windows_of(call, x)
    p = call.get("p", 2)
    power = tn.abs(_padded(x, pads, more, 0)) ** p
    total = tn.sum(windows(power, kernel, strides, dilations), axis=tuple(range(-len(kernel), 0)))
    return total ** (1.0 / p)


@operator("GlobalAveragePool")
def global_average_pool(call: OperatorCall, x: Any) -> Any:
    return tn.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(call: OperatorCall, x: Any) -> Any:
    return tn.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(call: OperatorCall, x: Any) -> Any:
    p = call.get("p", 2)
    return tn.sum(tn.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1.0 / p)


@operator("MaxUnpool", known="output_shape")
def max_unpool(call: OperatorCall, x: Any, places: Any, output_shape: Any = None) -> Any:
    """Elements back at the places where MaxPool found them, in zeros."""
    kernel, count = call.need("kernel_shape"), x.ndim - 2
    strides, pads = call.get("strides", [1] * count), call.get("pads", [0] * 2 * count)
    natural = [*x.shape[:2], *[(n - 1) * s + k - pads[a] - pads[a + count]
                               for a, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel))]]
    flat = tn.zeros((math.prod(natural),), dtype=x.dtype)
    found = tn.put(flat, places.reshape(-1), x.reshape(-1)).reshape(*natural)
    if output_shape is None:
        return found
    return tn.pad(found, [(0, out - n) for out, n in zip(ints(output_shape), natural)])

"""ATen's normalisations and pooling, with what their gradients need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon.dims.symbolic_dim import product
from tenon.ops.indexing import scatter_op
from tenon.ops.pooling import max_pool_grad
from tenon.ops.unpooling import adaptive_maxima
from tenon.ops.windows import add_windows
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type, axis_of, filled

# ---------------------------------------------------------------- normalisation


def _wide(x: Any) -> Any:
    return as_type(x, tn.float32) if x.dtype.bits < 32 else x


def _standard(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """x with mean 0 and variance 1 along the axes, the mean, and the reciprocal of the deviation."""
    mean = tn.mean(x, axis=axes, keepdims=True)
    centred = tn.subtract(x, mean)
    scale = tn.rsqrt(tn.add(tn.mean(tn.multiply(centred, centred), axis=axes, keepdims=True), eps))
    return tn.multiply(centred, scale), mean, scale


def _affine(normal: Any, weight: Any, bias: Any) -> Any:
    normal = normal if weight is None else tn.multiply(normal, _wide(weight))
    return normal if bias is None else tn.add(normal, _wide(bias))


def _shaped(at: AtenCall, *values: Any) -> tuple[Any, ...]:
    """The values in the types that PyTorch promises."""
    return tuple(None if type is None or x is None else as_type(tn.reshape(x, type.shape), type.dtype)
                 for x, type in zip(values, at.types, strict=True))


def _layer_norm(at: AtenCall, x: Any, normalized_shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> Any:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    normal, mean, scale = _standard(_wide(x), axes, eps)
    return _shaped(at, _affine(normal, weight, bias), mean, scale)


def _group_norm(at: AtenCall, x: Any, weight: Any, bias: Any, n: Any, channels: Any, size: Any, groups: int,
                eps: float) -> Any:
    grouped = tn.reshape(_wide(x), (n, groups, channels // groups * size))
    normal, mean, scale = _standard(grouped, (2,), eps)
    normal = tn.reshape(normal, x.shape)
    return _shaped(at, _affine(normal, _channels(weight, x), _channels(bias, x)), mean, scale)


def _channels(v: Any, x: Any) -> Any:
    """A vector with an element a channel, as it broadcasts against x."""
    return None if v is None else tn.reshape(v, (v.shape[0], *(1,) * (x.ndim - 2)))


def _batch_norm(at: AtenCall, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
                momentum: float, eps: float) -> Any:
    """The result, the mean and reciprocal deviation of this batch, and the running statistics as they are then."""
    wide = _wide(x)
    if not training:
        scale = tn.rsqrt(tn.add(_wide(running_var), eps))
        normal = tn.multiply(tn.subtract(wide, _channels(running_mean, x)), _channels(scale, x))
        y = _affine(normal, _channels(weight, x), _channels(bias, x))
        empty = filled((0,), 0, wide.dtype)
        return y, empty, empty, running_mean, running_var
    axes = (0, *range(2, x.ndim))
    normal, mean, scale = _standard(wide, axes, eps)
    y = _affine(normal, _channels(weight, x), _channels(bias, x))
    if running_mean is None:
        return y, mean, scale, None, None
    count = product([x.shape[k] for k in axes])
    unbiased = tn.multiply(tn.mean(tn.square(tn.subtract(wide, mean)), axis=axes), _ratio(count, wide.dtype))
    return (y, mean, scale, _moved(running_mean, tn.reshape(mean, (x.shape[1],)), momentum),
            _moved(running_var, unbiased, momentum))


def _ratio(count: Any, dtype: Any) -> Any:
    """count / (count - 1), of which a size that is not known yet makes a value."""
    if isinstance(count, int):
        return count / (count - 1) if count > 1 else float("nan")
    number = tn.add(filled((), 0, dtype), count)
    return tn.divide(number, tn.subtract(number, 1))


def _moved(running: Any, now: Any, momentum: float) -> Any:
    return tn.add(tn.multiply(running, 1 - momentum), tn.multiply(as_type(now, running.dtype), momentum))


def _batch_norm_functional(at: AtenCall, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
                           training: bool, momentum: float, eps: float) -> Any:
    return _shaped(at, *_batch_norm(at, x, weight, bias, running_mean, running_var, training, momentum, eps))


def _batch_norm_no_stats(at: AtenCall, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float,
                         *more: Any) -> Any:
    if more:
        raise UnmappedOperator("a batch norm that changes its arguments")
    return _shaped(at, *_batch_norm(at, x, weight, bias, None, None, training, momentum, eps)[:3])


def _batch_norm_inference(at: AtenCall, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float,
                          eps: float) -> Any:
    y, *rest = _batch_norm(at, x, weight, bias, mean, var, False, momentum, eps)
    return _shaped(at, y, *rest[:2])


def _weight_norm_backward(at: AtenCall, g: Any, v: Any, scale: Any, norms: Any, dim: int) -> Any:
    """The gradients of the direction and the length of a weight that is length * direction / norm."""
    axes = tuple(k for k in range(v.ndim) if k != axis_of(dim, v.ndim))
    wide = tuple(1 if k in axes else n for k, n in enumerate(v.shape))
    norms, scale = (tn.reshape(as_type(x, v.dtype), wide) for x in (norms, scale))
    along = tn.divide(tn.sum(tn.multiply(g, v), axis=axes, keepdims=True), norms)
    to_v = tn.multiply(tn.divide(scale, norms), tn.subtract(g, tn.multiply(v, tn.divide(along, norms))))
    return _shaped(at, to_v, along)


# ---------------------------------------------------------------- pooling

def _each(values: Any, count: int, default: Any = None) -> tuple[Any, ...]:
    listed = tuple(values) if values else tuple(default)
    return listed * count if len(listed) == 1 else listed


def _max_pool(count: int) -> Rule:
    def rule(at: AtenCall, x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
             ceil_mode: bool = False) -> Any:
        kernel = _each(kernel, count)
        return tn.max_pool(x, kernel, _each(stride, count, kernel), _each(padding, count, (0,)),
                           _each(dilation, count, (1,)), ceil_mode, True, count)
    return rule


def _max_pool_backward(count: int) -> Rule:
    """The gradient goes to the places that won; places are numbers within the sizes."""
    def rule(at: AtenCall, g: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
             places: Any) -> Any:
        lead = x.ndim - count
        kernel, sizes = _each(kernel, count), tuple(x.shape[lead:])
        stride, padding = _each(stride, count, kernel), _each(padding, count, (0,))
        dilation = _each(dilation, count, (1,))
        counts = g.shape[lead:]
        rest: Any = places
        taps: Any = 0
        at_axis: list[Any] = []
        for size in reversed(sizes):
            at_axis.append(tn.remainder(rest, size))
            rest = tn.floor_divide(rest, size)
        for axis, place in enumerate(reversed(at_axis)):
            first = tn.arange(0, counts[axis]) * stride[axis] - padding[axis]
            first = tn.reshape(first, (counts[axis], *(1,) * (count - axis - 1)))
            taps = taps * kernel[axis] + tn.floor_divide(place - first, dilation[axis])
        high = tuple(max(0, (m - 1) * s + d * (k - 1) + 1 - n - p) for n, m, k, s, p, d
                     in zip(sizes, counts, kernel, stride, padding, dilation, strict=True))
        return max_pool_grad(g, as_type(taps, tn.int32), sizes=sizes, kernel=kernel, stride=stride,
                             padding=tuple(zip(padding, high, strict=True)), dilation=dilation)
    return rule


def _avg_pool(count: int) -> Rule:
    def rule(at: AtenCall, x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> Any:
        kernel = _each(kernel, count)
        return tn.avg_pool(x, kernel, _each(stride, count, kernel), _each(padding, count, (0,)), ceil_mode,
                           count_include_pad, divisor_override, count)
    return rule


def _avg_pool_backward(count: int) -> Rule:
    """Every element gets its share of the windows that it lies in."""
    def rule(at: AtenCall, g: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
             count_include_pad: bool, divisor_override: Any) -> Any:
        lead = x.ndim - count
        kernel, sizes, counts = _each(kernel, count), tuple(x.shape[lead:]), tuple(g.shape[lead:])
        stride, padding = _each(stride, count, kernel), _each(padding, count, (0,))
        if not all(isinstance(n, int) for n in (*sizes, *counts)):
            raise UnmappedOperator("the gradient of pooling over a size that is not known yet")
        divisors = divisor_override or _divisors(sizes, counts, kernel, stride, padding, count_include_pad)
        share = tn.divide(g, divisors if isinstance(divisors, int) else divisors.astype(g.dtype.numpy))
        high = tuple(max(0, (m - 1) * s + k - n - p)
                     for n, m, k, s, p in zip(sizes, counts, kernel, stride, padding, strict=True))
        every_tap = tn.reshape(share, (*share.shape[:lead], *(1,) * count, *counts))
        spread = tn.broadcast_to(every_tap, shape=(*share.shape[:lead], *kernel, *counts))
        return add_windows(spread, sizes=sizes, kernel=kernel, stride=stride,
                           padding=tuple(zip(padding, high, strict=True)), dilation=(1,) * count)
    return rule


def _divisors(sizes: Any, counts: Any, kernel: Any, stride: Any, padding: Any, count_include_pad: bool) -> np.ndarray:
    """By how much each window's sum is divided."""
    found = np.ones((1,) * len(sizes), np.int64)
    for axis, (n, m, k, s, p) in enumerate(zip(sizes, counts, kernel, stride, padding, strict=True)):
        start = np.arange(m) * s - p
        stop = np.minimum(start + k, n + p)
        along = stop - start if count_include_pad else np.minimum(stop, n) - np.maximum(start, 0)
        found = found * along.reshape(m, *(1,) * (len(sizes) - axis - 1))
    return found


def _adaptive(count: int) -> Rule:
    return lambda at, x, size: tn.adaptive_avg_pool(x, tuple(size), count)


def _adaptive_backward(count: int) -> Rule:
    def rule(at: AtenCall, g: Any, x: Any) -> Any:
        sizes, counts = tuple(x.shape[-count:]), tuple(g.shape[-count:])
        if not all(isinstance(n, int) for n in (*sizes, *counts)):
            raise UnmappedOperator("the gradient of pooling over a size that is not known yet")
        for axis, (n, m) in enumerate(zip(sizes, counts, strict=True)):
            g = _shared(g, g.ndim - count + axis, n, m)
        return g
    return rule


def _adaptive_max(count: int) -> Rule:
    """The maxima of windows that divide the sizes evenly, and their places in the plane."""
    def rule(at: AtenCall, x: Any, size: Sequence[Any]) -> Any:
        if not all(isinstance(n, int) for n in (*x.shape[-count:], *size)):
            raise UnmappedOperator("adaptive pooling over a size that is not known yet")
        return tuple(tn.reshape(y, at.shape) for y in adaptive_maxima(x, size))
    return rule


def _to_places(count: int) -> Rule:
    """Gradients added to the elements whose places in the plane are told."""
    def rule(at: AtenCall, g: Any, x: Any, places: Any) -> Any:
        lead = g.shape[:-count]
        flat, g = (tn.reshape(y, (*lead, product(y.shape[-count:]))) for y in (places, g))
        zeros = filled((*lead, product(x.shape[-count:])), 0, at.dtype)
        return tn.reshape(scatter_op(zeros, flat, g, axis=zeros.ndim - 1, reduce="add"), at.shape)
    return rule


def _shared(g: Any, axis: int, n: int, m: int) -> Any:
    """Along an axis of m windows over n elements, each window's gradient in equal parts to its elements."""
    if n % m == 0:
        return tn.divide(tn.repeat(g, n // m, axis=axis), n // m)
    share = np.zeros((m, n), g.dtype.numpy)
    for k in range(m):
        first, last = k * n // m, -(-(k + 1) * n // m)
        share[k, first:last] = 1 / (last - first)
    return tn.moveaxis(tn.matmul(tn.moveaxis(g, axis, -1), share), -1, axis)


NORMS: dict[str, Rule] = {
    "native_layer_norm": _layer_norm, "native_group_norm": _group_norm,
    "_native_batch_norm_legit_functional": _batch_norm_functional, "_native_batch_norm_legit": _batch_norm_no_stats,
    "_native_batch_norm_legit_no_training": _batch_norm_inference,
    "_weight_norm_interface_backward": _weight_norm_backward,
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices_backward": _max_pool_backward(n) for n in (2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d_backward": _avg_pool_backward(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive(n) for n in (2, 3)}, "adaptive_avg_pool1d": _adaptive(1),
    **{f"_adaptive_avg_pool{n}d_backward": _adaptive_backward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_max(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": _to_places(n) for n in (2, 3)},
}

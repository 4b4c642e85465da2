"""Normalisations: subtract a mean, divide by a deviation, scale and shift.

16-bit inputs are computed in float32 and rounded once.  The rules of layer_norm, rms_norm and batch_norm_train are the
usual ones, with the mean over the normalised axes written as `average`:

    dx = deviation**-1 * (gx - average(gx) - normal * average(gx * normal))       gx = g * weight
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.promotion import floating
from tenon.ops.comparison import maximum
from tenon.ops.creation import as_number
from tenon.ops.define import check_kind, composite, layer_function, remembering
from tenon.ops.exponential import rsqrt
from tenon.ops.reduction import norm
from tenon.ops.shape import cast, reshape_op
from tenon.ops.shape_generic_programs import norm_sizes
from tenon.ops.slice_pad_concat import pad_op, slice_op
from tenon.ops.upcast_narrow import widened
from tenon.types import Shape


def _scaled(normal: Any, weight: Any, bias: Any) -> Any:
    y = normal if weight is None else normal * weight
    return y if bias is None else y + bias


def _slopes(g: Any, normal: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of weight and bias, before they are summed to their shapes."""
    rules = (lambda: g * normal, lambda: g)
    return tuple(None if x is None else rule for x, rule in zip(inputs, rules))


def _trailing(name: str, x: Any, normalized_shape: Any, *parameters: Any) -> int:
    """How many last axes are normalised; raises ShapeError where shapes do not fit."""
    shape: Shape = (normalized_shape,) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
    if not shape or x.shape[max(0, x.ndim - len(shape)):] != shape:
        raise ShapeError(f"{name}: the last sizes of {x.type} are not {list(shape)}")
    for p in parameters:
        if p is not None and p.shape != shape:
            raise ShapeError(f"{name}: weight and bias must have the shape {list(shape)}, one is {p.type}")
    return len(shape)


def _last(x: Any, count: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - count, x.ndim))


# ---------------------------------------------------------------- over the last axes

def _standard(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    """x with mean 0 and variance 1 along the axes, and the reciprocal of its deviation."""
    check_kind("layer_norm", x.dtype, "f")          # the square of a complex number is no variance
    centred = x - x.mean(axis=axes, keepdims=True)
    scale = rsqrt((centred * centred).mean(axis=axes, keepdims=True) + eps)
    return centred * scale, scale


def _layer_norm_vjp(g: Any, y: Any, x: Any, weight: Any, bias: Any, count: int, eps: float) -> tuple[Any, ...]:
    axes, g = _last(x, count), widened(g)
    normal, scale = _standard(widened(x), axes, eps)

    def to_x() -> Any:
        gx = g if weight is None else g * weight
        return scale * (gx - gx.mean(axis=axes, keepdims=True) - normal * (gx * normal).mean(axis=axes, keepdims=True))
    return to_x, *_slopes(g, normal, (weight, bias))


def _norm_work(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return 10 * int(inputs[0].size)


@composite(autocast="wide", public=False, promote=floating, vjp=_layer_norm_vjp, batch="first",
           numpy_work=_norm_work, examples=[
    "layer_norm(f32[2, 5], f32[5], f32[5], count=1, eps=1e-05) -> f32[2, 5]",
    "layer_norm(f32[2, 3, 4], count=2, eps=1e-05) -> f32[2, 3, 4]"])
def layer_norm_(x: Any, weight: Any = None, bias: Any = None, *, count: int, eps: float) -> Any:
    """Mean 0 and variance 1 along the last `count` axes, scaled and shifted."""
    return cast(_scaled(_standard(widened(x), _last(x, count), eps)[0], weight, bias), dtype=x.dtype)


@layer_function
def layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Mean 0 and variance 1 along the last axes, which have the sizes `normalized_shape`; scaled and shifted.

    >>> tn.layer_norm(tn.tensor([1.0, 3.0]), 2)
    tensor([-1.,  1.])
    """
    return layer_norm_(x, weight, bias, count=_trailing("layer_norm", x, normalized_shape, weight, bias), eps=eps)


def _root_mean(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    check_kind("rms_norm", x.dtype, "f")
    return rsqrt((x * x).mean(axis=axes, keepdims=True) + eps)


def _rms_norm_vjp(g: Any, y: Any, x: Any, weight: Any, count: int, eps: float) -> tuple[Any, ...]:
    axes, g, wide = _last(x, count), widened(g), widened(x)
    scale = _root_mean(wide, axes, eps)
    normal = wide * scale

    def to_x() -> Any:
        gx = g if weight is None else g * weight
        return scale * (gx - normal * (gx * normal).mean(axis=axes, keepdims=True))
    return to_x, *_slopes(g, normal, (weight,))


@composite(autocast="wide", public=False, promote=floating, vjp=_rms_norm_vjp, batch="first",
           numpy_work=_norm_work, examples=[
    "rms_norm(f32[2, 5], f32[5], count=1, eps=1e-05) -> f32[2, 5]",
    "rms_norm(f32[2, 3, 4], count=2, eps=1e-05) -> f32[2, 3, 4]"])
def rms_norm_(x: Any, weight: Any = None, *, count: int, eps: float) -> Any:
    """Divided by the root of the mean square along the last `count` axes, and scaled."""
    wide = widened(x)
    return cast(_scaled(wide * _root_mean(wide, _last(x, count), eps), weight, None), dtype=x.dtype)


@layer_function
def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """Divided by the root of the mean square along the last axes; `eps` is the spacing of the type at 1 by default."""
    count = _trailing("rms_norm", x, normalized_shape, weight)
    spacing = float(np.finfo(x.dtype.numpy).eps) if eps is None and x.dtype.bits > 16 else 1.1920929e-07
    return rms_norm_(x, weight, count=count, eps=spacing if eps is None else eps)


# ---------------------------------------------------------------- over the batch

def _batch_axes(x: Any) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _channels(v: Any, x: Any) -> Any:
    """A vector with an element a channel, as it broadcasts against `x`."""
    return None if v is None else reshape_op(v, shape=(x.shape[1], *(1,) * (x.ndim - 2)))


def _check_channels(name: str, x: Any, *vectors: Any) -> None:
    if x.ndim < 2:
        raise ShapeError(f"{name}: the input must be [N, C, ...], it is {x.type}")
    for v in vectors:
        if v is not None and v.shape != (x.shape[1],):
            raise ShapeError(f"{name}: {x.type} has {x.shape[1]} channels, a vector for them is {v.type}")


def _batch_norm_vjp(g: Any, outputs: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:
    (g, g_mean, g_var), axes, wide = g, _batch_axes(x), widened(x)
    g = widened(g)
    mean, variance = (_channels(v, x) for v in outputs[1:])
    scale = rsqrt(variance + eps)
    normal = (wide - mean) * scale
    n = as_number(product(x.shape[a] for a in axes), wide.dtype)

    def total(a: Any) -> Any:       # in one shape for all that needs it, so that it is summed up once
        return a.sum(axis=axes, keepdims=True)

    def to_x() -> Any:
        factor = scale if weight is None else scale * _channels(weight, x)
        offset = factor * (total(g) / n) - _channels(g_mean, x) / n
        slope = factor * (total(g * normal) / n) - _channels(g_var, x) * 2 / (n * scale)
        return factor * g - offset - normal * slope
    return (to_x, None if weight is None else lambda: reshape_op(total(g * normal), shape=weight.shape),
            None if bias is None else lambda: reshape_op(total(g), shape=bias.shape))


@composite(autocast="wide", public=False, promote=floating, vjp=_batch_norm_vjp,
           numpy_work=_norm_work, any_sizes=norm_sizes, examples=[
    "batch_norm_train(f32[4, 3], f32[3], f32[3], eps=1e-05) -> f32[4, 3], f32[3], f32[3]",
    "batch_norm_train(f32[2, 3, 2], eps=1e-05) -> f32[2, 3, 2], f32[3], f32[3]"])
def batch_norm_train(x: Any, weight: Any = None, bias: Any = None, *, eps: float) -> Any:
    """Mean 0 and variance 1 for every channel (axis 1), scaled and shifted; also the mean and variance found."""
    check_kind("batch_norm", x.dtype, "f")
    axes, wide = _batch_axes(x), widened(x)
    mean = wide.mean(axis=axes)
    centred = wide - _channels(mean, x)
    variance = (centred * centred).mean(axis=axes)
    normal = centred * rsqrt(_channels(variance, x) + eps)
    return cast(_scaled(normal, _channels(weight, x), _channels(bias, x)), dtype=x.dtype), mean, variance


@composite(autocast="wide", public=False, examples=[
    "batch_norm(f32[4, 3], f32[3], f32[3], f32[3], f32[3], eps=1e-05) -> f32[4, 3]",
    "batch_norm(f32[2, 3, 2], f32[3], f32[3], eps=1e-05) -> f32[2, 3, 2]"], promote=floating,
    domain=((-2.0, 2.0), (-2.0, 2.0), (0.5, 2.0)))
def batch_norm_(x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, *, eps: float) -> Any:
    """x normalised channel by channel with these means and variances, scaled and shifted."""
    scale = rsqrt(widened(variance) + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return cast(widened(x) * _channels(scale, x) + _channels(shift, x), dtype=x.dtype)


@layer_function
def batch_norm(x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: Any = 0.1, eps: float = 1e-5) -> Any:
    """Mean 0 and variance 1 for every channel of x [N, C, ...], scaled and shifted.

    With `training`, mean and variance are those of `x`, and the running ones, if given, are moved towards them by the
    share `momentum`; without, they are the running ones.
    """
    _check_channels("batch_norm", x, running_mean, running_var, weight, bias)
    if not training and running_mean is not None and running_var is not None:
        return batch_norm_(x, running_mean, running_var, weight, bias, eps=eps)
    count = product(x.shape[a] for a in _batch_axes(x))
    if isinstance(count, int) and count <= 1:
        raise ArgumentError(f"batch_norm: training needs more than one value a channel, the input is {x.type}",
                            hint="use a larger batch, or module.eval()")
    y, mean, variance = batch_norm_train(x, weight, bias, eps=eps)
    for running, now in ((running_mean, mean), (running_var, variance)):
        if training and running is not None:
            factor = None if running is running_mean else _unbiased(count, now)
            running.assign(_followed(running, now.detach(), factor, momentum))
    return y


@remembering
def _followed(running: Any, now: Any, factor: Any, momentum: Any) -> Any:
    """A running statistic moved towards what it is now."""
    return running * (1 - momentum) + (now if factor is None else now * factor) * momentum


def _unbiased(count: Dim, like: Any) -> Any:
    n = as_number(count, like.dtype)
    return n / (n - 1)


# ---------------------------------------------------------------- over groups of channels

@composite(autocast="wide", public=False, promote=floating, examples=[
    "group_norm(f32[2, 6, 3], f32[6], f32[6], num_groups=2, eps=1e-05) -> f32[2, 6, 3]",
    "group_norm(f32[2, 6], num_groups=3, eps=1e-05) -> f32[2, 6]"])
def group_norm_(x: Any, weight: Any = None, bias: Any = None, *, num_groups: int, eps: float) -> Any:
    """Mean 0 and variance 1 in every group of channels, scaled and shifted channel by channel."""
    grouped = reshape_op(widened(x), shape=(x.shape[0], num_groups, product(x.shape[1:]) // num_groups))
    normal = reshape_op(layer_norm_(grouped, count=1, eps=eps), shape=x.shape)
    return cast(_scaled(normal, _channels(weight, x), _channels(bias, x)), dtype=x.dtype)


@layer_function
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Mean 0 and variance 1 in each of `num_groups` groups of the channels of x [N, C, ...], scaled and shifted."""
    _check_channels("group_norm", x, weight, bias)
    if num_groups < 1 or x.shape[1] % num_groups != 0:
        raise ShapeError(f"group_norm: the {x.shape[1]} channels of {x.type} do not divide into {num_groups} groups")
    return group_norm_(x, weight, bias, num_groups=num_groups, eps=eps)


@layer_function
def instance_norm(x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
                  use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> Any:
    """Mean 0 and variance 1 in every channel of every item of x [N, C, ...], scaled and shifted."""
    _check_channels("instance_norm", x, running_mean, running_var, weight, bias)
    if not use_input_stats:
        return batch_norm_(x, running_mean, running_var, weight, bias, eps=eps)
    inner = tuple(range(2, x.ndim))
    count = product(x.shape[2:])
    if isinstance(count, int) and count <= 1:
        raise ArgumentError(f"instance_norm: more than one value a channel is needed, the input is {x.type}")
    if running_mean is not None:
        seen = x.detach()
        variance = seen.var(axis=inner).mean(axis=0) * _unbiased(count, running_var)
        running_mean.assign(running_mean * (1 - momentum) + seen.mean(axis=(0, *inner)) * momentum)
        running_var.assign(running_var * (1 - momentum) + variance * momentum)
    return group_norm_(x, weight, bias, num_groups=x.shape[1], eps=eps)


@composite(autocast="wide", promote=floating,
           method=False, examples=["local_response_norm(f32[2, 5, 3], size=3, alpha=0.5, beta=0.75, k=1.0)"
                                       " -> f32[2, 5, 3]"])
def local_response_norm(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """x divided by (k + alpha * mean of the squares of `size` neighbouring channels) ** beta."""
    if x.ndim < 2:
        raise ShapeError(f"local_response_norm: the input must be [N, C, ...], it is {x.type}")
    if size < 1:
        raise ArgumentError(f"local_response_norm: size must be positive, it is {size}")
    before, after = size // 2, (size - 1) // 2
    channels, rest = x.shape[1], [0] * (x.ndim - 2)
    if isinstance(channels, int):       # those that are further away than the last channel add nothing
        before, after = min(before, channels), min(after, channels)
    wide = pad_op(x * x, 0, low=[0, before, *rest], high=[0, after, *rest], interior=[0] * x.ndim)
    total: Any = 0
    for shift in range(before + after + 1):
        start = tuple(shift if axis == 1 else 0 for axis in range(x.ndim))
        stop = tuple(shift + n if axis == 1 else n for axis, n in enumerate(x.shape))
        total = total + slice_op(wide, start=start, stop=stop, step=(1,) * x.ndim)
    return x / (total * (alpha / size) + k) ** beta


@layer_function
def normalize(x: Any, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Any:
    """x divided by its p-norm along an axis, or by eps where that is larger."""
    return x / maximum(norm(x, p, axis, True), eps)

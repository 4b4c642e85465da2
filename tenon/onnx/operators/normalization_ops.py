"""Normalisation, over batches, layers, channels and rows; and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.known_values import host
from tenon.onnx.operator_table import OperatorCall, operator
from tenon.onnx.operators.convolution_ops import along_channels


@operator("BatchNormalization")
def batch_normalization(call: OperatorCall, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    """With the statistics that are given; in training mode with those of the batch, which are mixed into them."""
    eps, count = call.get("epsilon", 1e-5), x.ndim - 2
    training = call.get("training_mode", 0) if call.opset >= 14 else 0
    if call.opset < 7 and not call.get("is_test", 0):
        training = 1
    if not training:
        if scale.dtype is x.dtype and mean.dtype is x.dtype and x.ndim >= 2:
            return tn.batch_norm(x, mean, variance, scale, bias, eps=eps)
        factor = scale / tn.sqrt(variance + eps)
        return tn.cast((x - along_channels(mean, count)) * along_channels(factor, count)
                       + along_channels(bias, count), x.dtype)
    axes = (0, *range(2, x.ndim))
    own_mean, own_variance = tn.mean(x, axis=axes), tn.var(x, axis=axes)
    momentum = call.get("momentum", 0.9)
    y = (x - along_channels(own_mean, count)) / along_channels(tn.sqrt(own_variance + eps), count)
    return (tn.cast(y * along_channels(scale, count) + along_channels(bias, count), x.dtype),
            tn.cast(mean * momentum + own_mean * (1 - momentum), mean.dtype),
            tn.cast(variance * momentum + own_variance * (1 - momentum), variance.dtype))


@operator("InstanceNormalization")
def instance_normalization(call: OperatorCall, x: Any, scale: Any, bias: Any) -> Any:
    return tn.instance_norm(x, weight=scale, bias=bias, eps=call.get("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(call: OperatorCall, x: Any, scale: Any, bias: Any = None) -> Any:
    """The mean and the reciprocal deviation are results too, where they are asked for."""
    axis = call.get("axis", -1)
    axes, eps = tuple(range(axis % x.ndim, x.ndim)), call.get("epsilon", 1e-5)
    if call.results == 1 and scale.shape == tuple(x.shape[axes[0]:]):
        return tn.layer_norm(x, tuple(x.shape[axes[0]:]), scale, bias, eps=eps)
    wide = tn.cast(x, tn.float64 if x.dtype is tn.float64 else tn.float32)
    mean = tn.mean(wide, axis=axes, keepdims=True)
    away = wide - mean
    inverse = 1 / tn.sqrt(tn.mean(away * away, axis=axes, keepdims=True) + eps)
    y = tn.cast(away * inverse, x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@operator("RMSNormalization")
def rms_normalization(call: OperatorCall, x: Any, scale: Any) -> Any:
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    wide = tn.cast(x, tn.float64 if x.dtype is tn.float64 else tn.float32)
    inverse = 1 / tn.sqrt(tn.mean(wide * wide, axis=axes, keepdims=True) + call.get("epsilon", 1e-5))
    return tn.cast(tn.cast(wide * inverse, x.dtype) * scale, scale.dtype)


@operator("GroupNormalization")
def group_normalization(call: OperatorCall, x: Any, scale: Any, bias: Any) -> Any:
    """Scale and bias are one a group before opset 21, and one a channel since."""
    groups, count = call.need("num_groups"), x.ndim - 2
    if call.opset < 21:
        each = x.shape[1] // groups
        scale, bias = tn.repeat_interleave(scale, each), tn.repeat_interleave(bias, each)
    y = tn.group_norm(x, groups, eps=call.get("epsilon", 1e-5))
    return y * along_channels(scale, count) + along_channels(bias, count)


@operator("LRN")
def local_response_normalization(call: OperatorCall, x: Any) -> Any:
    size = call.need("size")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = tn.pad(x * x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = tn.sum(tn.sliding_window(squares, size, axis=1), axis=-1)
    factor = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * total
    return x / factor ** call.get("beta", 0.75)


@operator("LpNormalization")
def lp_normalization(call: OperatorCall, x: Any) -> Any:
    p, axis = call.get("p", 2), call.get("axis", -1)
    norm = tn.sqrt(tn.sum(x * x, axis=axis, keepdims=True)) if p == 2 else tn.sum(tn.abs(x), axis=axis, keepdims=True)
    return tn.where(norm == 0, 0.0, x / tn.where(norm == 0, 1.0, norm)).cast(x.dtype)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(call: OperatorCall, x: Any) -> Any:
    axes = tuple(call.get("axes", [0, 2, 3]))
    away = x - tn.mean(x, axis=axes, keepdims=True)
    return away / (tn.sqrt(tn.mean(away * away, axis=axes, keepdims=True)) + 1e-9)


@operator("Dropout", known="ratio training", random=True)
def dropout(call: OperatorCall, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Nothing is dropped but in training mode; with a seed, what NumPy drops with it."""
    share = float(call.get("ratio", 0.5) if ratio is None else np.asarray(ratio).reshape(-1)[0])
    drops = bool(np.any(host(training))) if training is not None else False
    if call.opset < 7:
        drops = not call.get("is_test", 0)
    if not drops or share == 0:
        return x, tn.ones(x.shape, dtype=tn.bool)
    seed = call.get("seed")
    if seed is not None:
        kept = tn.tensor(np.random.RandomState(seed % (1 << 32)).uniform(0, 1, x.shape) >= share)
    else:
        kept = tn.rand(*x.shape) >= share
    return tn.where(kept, x / (1 - share), 0.0).cast(x.dtype), kept

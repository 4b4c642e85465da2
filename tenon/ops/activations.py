"""Activations of neural networks: relu, gelu, softmax ... as composites with gradients of their own where that pays.

A gradient rule says what differentiating the definition would find after simplification; it uses the result `y`
where it can, so that the input need not be kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.promotion import floating, separate
from tenon.ops.arithmetic import abs_, sign
from tenon.ops.comparison import (
    clip,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    maximum,
    minimum,
    where,
)
from tenon.ops.complex_parts import conj, real
from tenon.ops.define import canonical_axis, composite, function
from tenon.ops.exponential import exp, expm1, log, log1p, sigmoid
from tenon.ops.shape import cast, reshape_op
from tenon.ops.special_functions import normal_cdf
from tenon.ops.trigonometric import tanh
from tenon.ops.upcast_narrow import rounded_gradient, rounded_once
from tenon.types import TensorType, as_dtype, normalize_axis

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
GAUSS = 1 / math.sqrt(2 * math.pi)                                  # the normal density at 0
TANH_A, TANH_B = math.sqrt(2 / math.pi), 0.044715                   # Hendrycks and Gimpel 2016, arXiv:1606.08415


# ---------------------------------------------------------------- piecewise linear

@composite(promote=separate, vjp=lambda g, y, x: (where(less_equal(y, 0), 0, g),), ref=lambda x: np.maximum(0, x),
           batch="front", examples=["relu(f32[2, 3]) -> f32[2, 3]"])
def relu(x: Any) -> Any:
    """max(x, 0); the gradient at 0 is 0, and at NaN what comes in, as in PyTorch.

    >>> tn.relu(tn.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return maximum(0, x)            # of equal ones it gives the second: -0.0 stays -0.0, eager and compiled


@composite(promote=floating, batch="front", examples=["leaky_relu(f32[2, 3], negative_slope=0.1) -> f32[2, 3]"],
           vjp=lambda g, y, x, negative_slope: (where(greater(x, 0), g, g * negative_slope),),
           ref=lambda x, negative_slope: np.where(x > 0, x, x * negative_slope))
def leaky_relu(x: Any, *, negative_slope: float = 0.01) -> Any:
    """x where positive, else negative_slope * x."""
    return where(greater(x, 0), x, x * negative_slope)


@composite(promote=floating, examples=["prelu(f32[2, 3], f32[3]) -> f32[2, 3]", "prelu(f32[2, 3], f32[1]) -> f32[2, 3]",
                                       "prelu(f32, f32[1]) -> f32", "prelu(f32[2, 3, 4], f32[4]) -> error"])
def prelu(x: Any, weight: Any) -> Any:
    """x where positive, else weight * x, with one weight, or one a channel (axis 1)."""
    if weight.ndim > 1:
        raise ShapeError(f"prelu: the weight must have one axis, it is {weight.type}")
    if weight.ndim == 1 and weight.shape[0] != 1:
        channels = x.shape[1] if x.ndim > 1 else 1
        if weight.shape[0] != channels:
            raise ShapeError(f"prelu: {x.type} has {channels} channels, the weight is {weight.type}")
        weight = reshape_op(weight, shape=(channels, *(1,) * (x.ndim - 2)))
    if x.ndim == 0:
        weight = reshape_op(weight, shape=())
    return where(greater(x, 0), x, weight * x)


def _between(g: Any, x: Any, low: float, high: float, slope: float = 1) -> Any:
    """g * slope strictly between `low` and `high`, else 0."""
    return where(logical_and(greater(x, low), less(x, high)), g * slope if slope != 1 else g, 0)


@composite(promote=floating, batch="front", examples=["hardtanh(f32[2, 3], min_val=-0.5, max_val=0.5) -> f32[2, 3]"],
           vjp=lambda g, y, x, min_val, max_val: (_between(g, x, min_val, max_val),))
def hardtanh(x: Any, *, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x cut to lie between min_val and max_val."""
    if min_val > max_val:
        raise ArgumentError(f"hardtanh: min_val {min_val} is larger than max_val {max_val}")
    return clip(x, min_val, max_val)


@composite(promote=floating, vjp=lambda g, y, x: (_between(g, x, 0, 6),),
           batch="front", examples=["relu6(f32[2, 3]) -> f32[2, 3]"])
def relu6(x: Any) -> Any:
    """x cut to lie between 0 and 6."""
    return clip(x, 0, 6)


@composite(promote=floating, vjp=rounded_gradient(lambda g, y, x: (_between(g, x, -3, 3, 1 / 6),)),
           batch="front", examples=["hardsigmoid(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def hardsigmoid(x: Any) -> Any:
    """x / 6 + 1/2 cut to lie between 0 and 1."""
    return clip(x + 3, 0, 6) / 6


@composite(promote=floating, batch="front", examples=["hardswish(f32[2, 3]) -> f32[2, 3]"],
           vjp=rounded_gradient(
               lambda g, y, x: (where(less_equal(x, -3), 0, where(greater_equal(x, 3), g, g * (x / 3 + 0.5))),)))
@rounded_once
def hardswish(x: Any) -> Any:
    """x * hardsigmoid(x)."""
    return x * (clip(x + 3, 0, 6) / 6)


@composite(promote=floating, examples=["threshold(f32[2, 3], threshold=0.5, value=9.0) -> f32[2, 3]"])
def threshold(x: Any, *, threshold: float, value: float) -> Any:
    """x where above the threshold, or NaN, else the value."""
    return where(less_equal(x, threshold), value, x)


@composite(promote=floating, examples=["softshrink(f32[2, 3], lambd=0.5) -> f32[2, 3]"])
def softshrink(x: Any, *, lambd: float = 0.5) -> Any:
    """x moved towards 0 by lambd, 0 where it is nearer than that."""
    if lambd < 0:
        raise ArgumentError(f"softshrink: lambd must not be negative, got {lambd}")
    return where(greater(x, lambd), x - lambd, where(less(x, -lambd), x + lambd, x * 0))


@composite(promote=floating, examples=["hardshrink(f32[2, 3], lambd=0.5) -> f32[2, 3]"])
def hardshrink(x: Any, *, lambd: float = 0.5) -> Any:
    """x, but 0 where its absolute value is at most lambd."""
    return where(logical_and(greater_equal(x, -lambd), less_equal(x, lambd)), 0, x)


# ---------------------------------------------------------------- exponential

@composite(promote=floating, vjp=rounded_gradient(
               lambda g, y, x, alpha: (g * where(greater(x, 0), 1, exp(minimum(x, 0)) * alpha),)),
           batch="front", numpy_work=8, examples=["elu(f32[2, 3], alpha=1.5) -> f32[2, 3]"])
@rounded_once
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    """x where positive, else alpha * (exp(x) - 1)."""
    return where(greater(x, 0), x, expm1(minimum(x, 0)) * alpha)


@composite(promote=floating, vjp=rounded_gradient(
               lambda g, y, x, alpha: (g * where(greater(x, 0), 1, exp(minimum(x, 0) / alpha)),)),
           batch="front", numpy_work=8, examples=["celu(f32[2, 3], alpha=1.5) -> f32[2, 3]"])
@rounded_once
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    """x where positive, else alpha * (exp(x / alpha) - 1)."""
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0")
    return where(greater(x, 0), x, expm1(minimum(x, 0) / alpha) * alpha)


@composite(promote=floating, batch="front", numpy_work=8, examples=["selu(f32[2, 3]) -> f32[2, 3]"],
           vjp=rounded_gradient(
               lambda g, y, x: (g * where(greater(x, 0), SELU_SCALE, exp(minimum(x, 0)) * (SELU_SCALE * SELU_ALPHA)),)))
@rounded_once
def selu(x: Any) -> Any:
    """The self-normalising elu (Klambauer et al. 2017): SCALE * elu(x, alpha=ALPHA)."""
    return where(greater(x, 0), x, expm1(minimum(x, 0)) * SELU_ALPHA) * SELU_SCALE


@rounded_gradient
def _gelu_vjp(g: Any, y: Any, x: Any, approximate: str) -> tuple[Any]:
    if approximate == "none":
        return (g * (normal_cdf(x) + x * exp(x * x * -0.5) * GAUSS),)
    bent = tanh((x + x * x * x * TANH_B) * TANH_A)
    slope = (x * x * (3 * TANH_B) + 1) * TANH_A
    return (g * conj((bent + 1) * 0.5 + x * (1 - bent * bent) * slope * 0.5),)


@composite(promote=floating, vjp=_gelu_vjp, batch="front",
           numpy_work=250, examples=["gelu(f32[2, 3], approximate='none') -> f32[2, 3]",
                                                      "gelu(f32[2, 3], approximate='tanh') -> f32[2, 3]"])
@rounded_once
def gelu(x: Any, *, approximate: str = "none") -> Any:
    """x times the normal distribution function; "tanh" is the usual approximation of it.

    >>> tn.gelu(tn.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.    ,  1.9545])
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    if approximate == "none":
        return x * normal_cdf(x)
    return x * (tanh((x + x * x * x * TANH_B) * TANH_A) + 1) * 0.5


@rounded_gradient
def _silu_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    s = sigmoid(x)
    return (g * conj(s + x * s * (1 - s)),)


@composite(promote=floating, vjp=_silu_vjp, batch="front", numpy_work=8, examples=["silu(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish."""
    return x * sigmoid(x)


@function
def swish(x: Any) -> Any:
    """x * sigmoid(x): `silu` by its other name."""
    return silu(x)


@composite(promote=floating, batch="front",
           numpy_work=15, examples=["softplus(f32[2, 3], beta=2.0, threshold=20.0) -> f32[2, 3]"],
           vjp=rounded_gradient(
               lambda g, y, x, beta, threshold: (where(greater(x * beta, threshold), g, g * sigmoid(x * beta)),)))
@rounded_once
def softplus(x: Any, *, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    scaled = x * beta
    return where(greater(scaled, threshold), x, (maximum(scaled, 0) + log1p(exp(-abs_(scaled)))) / beta)


@composite(promote=floating, vjp=rounded_gradient(lambda g, y, x: (g * sigmoid(-x),)),
           batch="front", numpy_work=8, examples=["logsigmoid(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def logsigmoid(x: Any) -> Any:
    """log(sigmoid(x)), exact for large negative x."""
    return minimum(x, 0) - log1p(exp(-abs_(x)))


@rounded_gradient
def _mish_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    bent = tanh(softplus(x))
    return (g * (bent + x * sigmoid(x) * (1 - bent * bent)),)


@composite(promote=floating, vjp=_mish_vjp, batch="front", numpy_work=15, examples=["mish(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return x * tanh(softplus(x))


@rounded_gradient
def _softsign_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    d = abs_(x) + 1
    if x.dtype.kind == "c":
        return (g / d - sign(x) * (real(g * conj(x)) / (d * d)),)
    return (g / (d * d),)


@composite(promote=floating, vjp=_softsign_vjp, batch="front", examples=["softsign(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (abs_(x) + 1)


@composite(promote=floating, vjp=rounded_gradient(lambda g, y, x: (lambda: (lambda t: g * t * t)(conj(tanh(x))),)),
           batch="front", examples=["tanhshrink(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def tanhshrink(x: Any) -> Any:
    """x - tanh(x)."""
    return x - tanh(x)


# ---------------------------------------------------------------- along an axis

def along_axis_or_number(x: TensorType, axis: Any) -> dict[str, Any]:
    """The one form of an axis, and () for the one axis that a tensor without axes is taken to have."""
    alone = (type(axis) is tuple and not axis) or (x.ndim == 0 and normalize_axis(axis, 1) == 0)
    return {"axis": () if alone else normalize_axis(axis, x.ndim)}


_total: Any = np.add.reduce           # of which NumPy's `sum` and `max` are wrappers in Python
_extreme: Any = np.maximum.reduce


def _softmax_ref(x: Any, axis: int) -> Any:
    e = np.exp(x - _largest(x, axis))
    return e / _total(e, axis, None, None, True)


def _largest(x: Any, axis: int) -> Any:
    """NumPy: the largest element along the axis, kept; minus infinity where there is none."""
    return _extreme(x, axis, None, None, True, -np.inf)


@composite(promote=floating, autocast="wide", canonical=along_axis_or_number, ref=_softmax_ref,
           vjp=rounded_gradient(lambda g, y, x, axis: (y * (g - (g * y).sum(axis=axis, keepdims=True)),)),
           batch="axis",
           examples=["softmax(f32[2, 3], axis=1) -> f32[2, 3]", "softmax(f32[2, 3, 4], axis=-2) -> f32[2, 3, 4]",
                     "softmax(f32, axis=-1) -> f32", "softmax(f32[2, 3], axis=2) -> error"])
@rounded_once
def softmax(x: Any, *, axis: int | tuple[()] = -1) -> Any:
    """exp(x) divided by its sum along an axis, without overflow."""
    e = exp(x - _peak(x, axis))
    return e * (1 / e.sum(axis=axis, keepdims=True))        # one division a row; the sum is at least 1


def _log_softmax_ref(x: Any, axis: int) -> Any:
    shifted = x - _largest(x, axis)
    return shifted - np.log(_total(np.exp(shifted), axis, None, None, True))


@composite(promote=floating, autocast="wide", canonical=along_axis_or_number, ref=_log_softmax_ref,
           vjp=rounded_gradient(lambda g, y, x, axis: (g - exp(y) * g.sum(axis=axis, keepdims=True),)),
           batch="axis", examples=["log_softmax(f32[2, 3], axis=1) -> f32[2, 3]",
                     "log_softmax(f32[2, 3, 4], axis=0) -> f32[2, 3, 4]"])
@rounded_once
def log_softmax(x: Any, *, axis: int | tuple[()] = -1) -> Any:
    """The logarithm of softmax, exact where the softmax is nearly 0."""
    shifted = x - _peak(x, axis)
    return shifted - log(exp(shifted).sum(axis=axis, keepdims=True))


def _peak(x: Any, axis: int | tuple[()]) -> Any:
    """The largest element along the axis; 0 where there is none."""
    return x.max(axis=axis, keepdims=True) if axis == () or x.shape[axis] != 0 else x.sum(axis=axis, keepdims=True)


@function
def softmax_(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    """exp(x) divided by its sum along an axis, without overflow, of the elements as `dtype`.

    >>> tn.softmax(tn.tensor([0.0, 0.0, 1000.0, 1000.0]))
    tensor([0. , 0. , 0.5, 0.5])
    """
    return softmax(_typed(x, dtype), axis=axis)


@function
def log_softmax_(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    """The logarithm of softmax, exact where the softmax is nearly 0."""
    return log_softmax(_typed(x, dtype), axis=axis)


@function
def softmin(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    """The softmax of -x."""
    return softmax(-_typed(x, dtype), axis=axis)


def _typed(x: Any, dtype: Any) -> Any:
    return x if dtype is None else cast(x, dtype=as_dtype(dtype))


@composite(promote=floating, canonical=canonical_axis,
           examples=["glu(f32[2, 6], axis=1) -> f32[2, 3]", "glu(f32[2, 3], axis=1) -> error"])
@rounded_once
def glu(x: Any, *, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second half."""
    size = x.shape[axis]
    if size % 2 != 0:
        raise ShapeError(f"glu: axis {axis} of {x.type} must have an even size")
    before = (slice(None),) * axis
    return x[(*before, slice(0, size // 2))] * sigmoid(x[(*before, slice(size // 2, size))])

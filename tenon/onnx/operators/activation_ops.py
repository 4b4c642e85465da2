"""Activations, in their own formulas where Tenon has no operator of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon.onnx.operator_table import OperatorCall, operator, plain

for name, function in {"Relu": tn.relu, "Sigmoid": tn.sigmoid, "Softsign": tn.softsign, "Mish": tn.mish}.items():
    plain(name, function)


@operator("Softplus")
def softplus(call: OperatorCall, x: Any) -> Any:
    return tn.softplus(x)


@operator("LeakyRelu")
def leaky_relu(call: OperatorCall, x: Any) -> Any:
    return tn.leaky_relu(x, negative_slope=call.get("alpha", 0.01))


@operator("PRelu")
def prelu(call: OperatorCall, x: Any, slope: Any) -> Any:
    if call.opset < 7 and slope.ndim == 1 and slope.size > 1:       # one a channel
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return tn.where(x < 0, x * slope, x)


@operator("Elu")
def elu(call: OperatorCall, x: Any) -> Any:
    return tn.elu(x, alpha=call.get("alpha", 1.0))


@operator("Celu")
def celu(call: OperatorCall, x: Any) -> Any:
    return tn.celu(x, alpha=call.get("alpha", 1.0))


@operator("Selu")
def selu(call: OperatorCall, x: Any) -> Any:
    alpha, gamma = call.get("alpha", 1.67326319217681884765625), call.get("gamma", 1.05070102214813232421875)
    return gamma * tn.elu(x, alpha=alpha)


@operator("ThresholdedRelu")
def thresholded_relu(call: OperatorCall, x: Any) -> Any:
    return tn.where(x > call.get("alpha", 1.0), x, 0.0)


@operator("HardSigmoid")
def hard_sigmoid(call: OperatorCall, x: Any) -> Any:
    return tn.clip(x * call.get("alpha", 0.2) + call.get("beta", 0.5), 0.0, 1.0)


@operator("HardSwish")
def hard_swish(call: OperatorCall, x: Any) -> Any:
    return tn.hardswish(x)


@operator("Swish")
def swish(call: OperatorCall, x: Any) -> Any:
    alpha = call.get("alpha", 1.0)
    return tn.silu(x) if alpha == 1 else x * tn.sigmoid(alpha * x)


@operator("Gelu")
def gelu(call: OperatorCall, x: Any) -> Any:
    return tn.gelu(x, approximate=call.get("approximate", "none"))


@operator("Shrink")
def shrink(call: OperatorCall, x: Any) -> Any:
    bias, limit = call.get("bias", 0.0), call.get("lambd", 0.5)
    zero = tn.zeros_like(x)
    found = tn.where(x < -limit, x + bias, tn.where(x > limit, x - bias, zero))
    return tn.cast(found, x.dtype)


def _flat(x: Any, axis: int) -> tuple[Any, Any]:
    """Rows that begin at an axis, as opsets before 13 take them."""
    rows = 1
    for size in x.shape[:axis % max(x.ndim, 1)]:
        rows *= size
    return x.reshape(rows, -1), x.shape


def _along_rows(call: OperatorCall, x: Any, function: Callable[..., Any]) -> Any:
    """A function along an axis, or along the rows that begin there."""
    if call.opset >= 13:
        return function(x, axis=call.get("axis", -1))
    flat, shape = _flat(x, call.get("axis", 1))
    return function(flat, axis=-1).reshape(*shape)


@operator("Softmax")
def softmax(call: OperatorCall, x: Any) -> Any:
    return _along_rows(call, x, tn.softmax)


@operator("LogSoftmax")
def log_softmax(call: OperatorCall, x: Any) -> Any:
    return _along_rows(call, x, tn.log_softmax)


@operator("Hardmax")
def hardmax(call: OperatorCall, x: Any) -> Any:
    """One at the first largest element, and zeros."""
    flat, shape = (x, x.shape) if call.opset >= 13 else _flat(x, call.get("axis", 1))
    axis = call.get("axis", -1) % x.ndim if call.opset >= 13 else 1
    places = tn.arange(flat.shape[axis]).reshape(*[-1 if k == axis else 1 for k in range(flat.ndim)])
    return tn.cast(places == tn.argmax(flat, axis=axis, keepdims=True), x.dtype).reshape(*shape)

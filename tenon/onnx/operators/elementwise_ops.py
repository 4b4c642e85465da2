"""Element by element: arithmetic, comparisons, logic, functions of one number."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.known_values import Known, as_tensor, host, known_where_possible
from tenon.onnx.operator_table import OperatorCall, operator, plain
from tenon.onnx.operators.cast_ops import numpy_type

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": tn.abs, "Neg": tn.negative, "Floor": tn.floor, "Ceil": tn.ceil, "Round": tn.rint, "Sign": tn.sign,
    "Sqrt": tn.sqrt, "Exp": tn.exp, "Log": tn.log, "Erf": tn.erf, "IsNaN": tn.isnan,
    "Sin": tn.sin, "Cos": tn.cos, "Tan": tn.tan, "Asin": tn.asin, "Acos": tn.acos, "Atan": tn.atan,
    "Sinh": tn.sinh, "Cosh": tn.cosh, "Tanh": tn.tanh, "Asinh": tn.asinh, "Acosh": tn.acosh, "Atanh": tn.atanh,
    "Not": tn.logical_not, "BitwiseNot": tn.bitwise_not,
    "BitwiseAnd": tn.bitwise_and, "BitwiseOr": tn.bitwise_or, "BitwiseXor": tn.bitwise_xor,
}
for name, function in FUNCTIONS.items():
    plain(name, function)

# What broadcasts; before opset 7 an axis says where the second input begins.
BINARY: dict[str, Callable[..., Any]] = {
    "Add": tn.add, "Sub": tn.subtract, "Mul": tn.multiply,
    "And": tn.logical_and, "Or": tn.logical_or, "Xor": tn.logical_xor,
    "Greater": tn.greater, "GreaterOrEqual": tn.greater_equal, "Less": tn.less, "LessOrEqual": tn.less_equal,
}


def beside(call: OperatorCall, x: Any, y: Any) -> Any:
    """The second input with axes of size 1 after it, where an old opset says that it begins at `axis`."""
    axis = call.get("axis")
    if call.opset >= 7 or axis is None or y.ndim == 0:
        return y
    return y.reshape(*y.shape, *[1] * (x.ndim - axis - y.ndim))


def _enter(name: str, function: Callable[..., Any]) -> None:
    @operator(name)
    def run(call: OperatorCall, x: Any, y: Any) -> Any:
        return function(x, beside(call, x, y))


for name, function in BINARY.items():
    _enter(name, function)


@operator("Equal", raw=True)
def equal(call: OperatorCall, x: Any, y: Any) -> Any:
    """Text is compared on the host."""
    if isinstance(x, Known) and not x.is_regular:
        return x.array == host(y)
    return known_where_possible(lambda a, b: tn.equal(as_tensor(a), beside(call, as_tensor(a), as_tensor(b))), x, y)


@operator("Reciprocal")
def reciprocal(call: OperatorCall, x: Any) -> Any:
    return tn.cast(1 / x, x.dtype)


@operator("Div")
def divide(call: OperatorCall, x: Any, y: Any) -> Any:
    """Integers are divided towards zero; by zero is an error, as the least number by -1 is not: that wraps."""
    y = beside(call, x, y)
    if x.dtype.is_floating:
        return x / y
    if x.dtype.kind == "u":
        return x // y
    quotient = x // y
    return quotient + tn.cast((quotient < 0) & (quotient * y != x), x.dtype)


@operator("Mod")
def modulo(call: OperatorCall, x: Any, y: Any) -> Any:
    return tn.fmod(x, y) if call.get("fmod", 0) else tn.remainder(x, y)


@operator("Pow")
def power(call: OperatorCall, x: Any, y: Any) -> Any:
    """The result has the type of the base."""
    y = beside(call, x, y)
    if x.dtype.is_floating and not y.dtype.is_floating:
        y = tn.cast(y, x.dtype)
    elif y.dtype.is_floating and not x.dtype.is_floating:
        return tn.cast(tn.power(tn.cast(x, tn.float64), tn.cast(y, tn.float64)), x.dtype)
    elif not x.dtype.is_floating and x.dtype is not y.dtype:
        return tn.cast(tn.power(tn.cast(x, tn.int64), tn.cast(y, tn.int64)), x.dtype)
    return tn.cast(tn.power(x, y), x.dtype)


@operator("BitShift")
def bit_shift(call: OperatorCall, x: Any, y: Any) -> Any:
    return (tn.left_shift if call.need("direction") == "LEFT" else tn.right_shift)(x, y)


@operator("IsInf")
def is_inf(call: OperatorCall, x: Any) -> Any:
    kept = tn.isinf(x)
    if not call.get("detect_negative", 1):
        kept = kept & (x > 0)
    return kept if call.get("detect_positive", 1) else kept & (x < 0)


@operator("Max")
def maximum(call: OperatorCall, *xs: Any) -> Any:
    return functools.reduce(tn.maximum, xs)


@operator("Min")
def minimum(call: OperatorCall, *xs: Any) -> Any:
    return functools.reduce(tn.minimum, xs)


@operator("Sum")
def total(call: OperatorCall, *xs: Any) -> Any:
    return functools.reduce(tn.add, xs)


@operator("Mean")
def mean(call: OperatorCall, *xs: Any) -> Any:
    return functools.reduce(tn.add, xs) / len(xs)


@operator("Clip")
def clip(call: OperatorCall, x: Any, low: Any = None, high: Any = None) -> Any:
    low = call.get("min") if low is None else low
    high = call.get("max") if high is None else high
    x = x if low is None else tn.maximum(x, low)
    return x if high is None else tn.minimum(x, high)


@operator("Where", moves=True)
def where(call: OperatorCall, condition: Any, x: Any, y: Any) -> Any:
    return tn.where(condition, x, y)


@operator("MatMul")
def matmul(call: OperatorCall, x: Any, y: Any) -> Any:
    return tn.cast(tn.matmul(x, y), x.dtype)


@operator("Gemm")
def gemm(call: OperatorCall, a: Any, b: Any, c: Any = None) -> Any:
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    a = a.mT if call.get("transA", 0) else a
    b = b.mT if call.get("transB", 0) else b
    product = tn.matmul(a, b)
    if alpha != 1:
        product = product * (alpha if a.dtype.is_floating else int(alpha))
    if c is None:
        return product
    return product + (c if beta == 1 else c * (beta if a.dtype.is_floating else int(beta)))


@operator("Einsum")
def einsum(call: OperatorCall, *xs: Any) -> Any:
    return tn.cast(tn.einsum(call.need("equation").replace(" ", ""), *xs), xs[0].dtype)


@operator("Det")
def determinant(call: OperatorCall, x: Any) -> Any:
    return tn.det(x)


@operator("CumSum", known="axis")
def cumulative_sum(call: OperatorCall, x: Any, axis: Any) -> Any:
    return _running(call, x, int(axis.reshape(-1)[0]), tn.cumsum, 0)


@operator("CumProd", known="axis")
def cumulative_product(call: OperatorCall, x: Any, axis: Any) -> Any:
    return _running(call, x, int(axis.reshape(-1)[0]), tn.cumprod, 1)


def _running(call: OperatorCall, x: Any, axis: int, function: Callable[..., Any], first: int) -> Any:
    turned = tn.flip(x, axis) if call.get("reverse", 0) else x
    if call.get("exclusive", 0):
        axis = axis % x.ndim
        sides = [(1 if k == axis else 0, 0) for k in range(x.ndim)]
        padded = tn.pad(turned, sides, constant_values=first)
        turned = padded[tuple(slice(0, -1) if k == axis else slice(None) for k in range(x.ndim))]
    found = tn.cast(function(turned, axis), x.dtype)
    return tn.flip(found, axis) if call.get("reverse", 0) else found


@operator("BitCast", raw=True)
def bit_cast(call: OperatorCall, x: Any) -> Any:
    """The same bits as another type of the same width."""
    array, dtype = host(x), numpy_type(call.need("to"), call)
    if array.dtype.kind in "OUS" or dtype.kind in "OUS":
        raise call.unsupported("text has no bits")
    return np.ascontiguousarray(array).view(dtype).reshape(array.shape)

"""ATen's elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon.torch.aten_call import AtenCall, Rule, as_type, dtype_of, is_value


def _unary(function: Callable[[Any], Any]) -> Rule:
    """In the element type of the result, which for integers may be floating; complex numbers as they are."""
    return lambda at, x, **_: function(x if x.dtype.kind == "c" else as_type(x, at.dtype))


def _asking(function: Callable[[Any], Any]) -> Rule:
    """A question about the elements as they are."""
    return lambda at, x: function(x)


def _binary(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda at, x, y: function(*_pair(x, y, at.dtype))


def _comparison(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda at, x, y: function(*_pair(x, y, at.common))


def _logical(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda at, x, y: function(_true(x), _true(y))


def _pair(x: Any, y: Any, dtype: Any) -> tuple[Any, Any]:
    return as_type(x, dtype), as_type(y, dtype)


def _true(x: Any) -> Any:
    return x if x.dtype.kind == "b" else tn.not_equal(x, 0)


def _add(at: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = _pair(x, y, at.dtype)
    if at.dtype.kind == "b":
        return tn.logical_or(x, y) if alpha else x
    return tn.add(x, y if alpha == 1 else tn.multiply(y, as_type(alpha, at.dtype)))


def _sub(at: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = _pair(x, y, at.dtype)
    return tn.subtract(x, y if alpha == 1 else tn.multiply(y, as_type(alpha, at.dtype)))


def _rsub(at: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sub(at, y, x, alpha)


def _mul(at: AtenCall, x: Any, y: Any) -> Any:
    return (tn.logical_and if at.dtype.kind == "b" else tn.multiply)(*_pair(x, y, at.dtype))


def _multiplied_and_added(at: AtenCall, x: Any, y: Any, z: Any) -> Any:
    """With two roundings, as PyTorch's own kernel of it has."""
    return _add(at, _mul(at, x, y), z)


def _div(at: AtenCall, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    x, y = _pair(x, y, at.dtype)
    if rounding_mode is None:
        return tn.divide(x, y)
    if rounding_mode == "floor":
        return tn.floor_divide(x, y)
    if at.dtype.kind in "ui":
        return tn.multiply(tn.multiply(tn.sign(x), tn.sign(y) if is_value(y) else int(math.copysign(1, y))),
                           tn.floor_divide(tn.abs(x), abs(y)))
    return tn.trunc(tn.divide(x, y))


def _pow(at: AtenCall, x: Any, y: Any) -> Any:
    if not is_value(y) and isinstance(y, (int, float)):
        x = as_type(x, at.dtype)
        if y == 2:
            return tn.multiply(x, x)
        if y == 1:
            return x
        if at.dtype.kind == "f" and y in _POWERS:
            return _POWERS[y](x)
    return tn.power(*_pair(x, y, at.dtype))


_POWERS: dict[Any, Callable[[Any], Any]] = {
    0.5: tn.sqrt, -0.5: tn.rsqrt, -1: tn.reciprocal, 3: lambda x: tn.multiply(tn.multiply(x, x), x)}


def _clamp(at: AtenCall, x: Any, min: Any = None, max: Any = None) -> Any:
    low, high = (None if bound is None else as_type(bound, at.dtype) for bound in (min, max))
    return tn.clip(as_type(x, at.dtype), low, high)


def _where(at: AtenCall, condition: Any, x: Any, y: Any) -> Any:
    return tn.where(_true(condition), *_pair(x, y, at.dtype))


def _gelu(at: AtenCall, x: Any, approximate: str = "none") -> Any:
    return tn.gelu(x, approximate=approximate)


def _elu(at: AtenCall, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    below = tn.multiply(tn.expm1(tn.multiply(tn.minimum(x, 0), input_scale)), alpha)
    return tn.multiply(tn.where(tn.greater(x, 0), x, below), scale)


def _to_copy(at: AtenCall, x: Any, dtype: Any = None, **_: Any) -> Any:
    if x.dtype.kind == "c" and at.dtype.kind not in "cb":
        x = tn.real(x)
    return x if dtype is None else as_type(x, dtype_of(dtype))


def _round(at: AtenCall, x: Any, decimals: int = 0) -> Any:
    if not decimals:
        return tn.round(x)
    power = as_type(10.0 ** abs(decimals), at.dtype)        # as PyTorch does it
    return tn.divide(tn.round(tn.multiply(x, power)), power) if decimals > 0 else \
        tn.multiply(tn.round(tn.divide(x, power)), power)


def _sign(x: Any) -> Any:
    """PyTorch's sign of NaN is 0."""
    return tn.sign(x) if x.dtype.kind != "f" else tn.where(tn.isnan(x), 0, tn.sign(x))


def _logit(at: AtenCall, x: Any, eps: float | None = None) -> Any:
    return tn.logit(as_type(x, at.dtype), eps=eps)


POINTWISE: dict[str, Rule] = {
    **{name: _unary(getattr(tn, name)) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan",
        "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "floor",
        "ceil", "trunc", "abs", "reciprocal", "relu", "lgamma", "digamma", "silu", "mish", "hardsigmoid", "hardswish",
        "square", "frac", "sinc", "relu6", "selu", "positive", "i0", "deg2rad", "rad2deg")},
    "neg": _unary(tn.negative), "sign": _unary(_sign), "sgn": _unary(tn.sign), "special_erfcx": _unary(tn.erfcx),
    "special_ndtri": _unary(tn.ndtri),
    **{f"special_{name}": _unary(getattr(tn, name)) for name in (
        "i0e", "i1", "i1e", "log_ndtr", "entr", "bessel_j0", "bessel_j1")},
    "special_modified_bessel_i0": _unary(tn.i0), "special_modified_bessel_i1": _unary(tn.i1),
    "polygamma": lambda at, n, x: tn.polygamma(n, as_type(x, at.dtype)), "lcm": _binary(tn.lcm),
    "igamma": _binary(tn.gammainc), "igammac": _binary(tn.gammaincc),
    "heaviside": _binary(tn.heaviside), "ldexp": _binary(tn.ldexp), "frexp": lambda at, x: tn.frexp(x),
    "log_sigmoid": _unary(tn.logsigmoid),
    "round": _round, "logit": _logit, "gelu": _gelu, "elu": _elu,
    **{name: _asking(getattr(tn, name)) for name in ("isnan", "isinf", "isfinite", "signbit")},
    "logical_not": lambda at, x: tn.logical_not(_true(x)), "bitwise_not": _asking(tn.bitwise_not),
    "add": _add, "prims.fma": _multiplied_and_added, "sub": _sub, "rsub": _rsub, "mul": _mul, "div": _div, "pow": _pow,
    "floor_divide": lambda at, x, y: _div(at, x, y, "floor"),
    **{name: _binary(getattr(tn, name)) for name in (
        "remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign", "logaddexp",
        "logaddexp2", "xlogy", "nextafter", "gcd", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
        "bitwise_right_shift")},
    "__lshift__": _binary(tn.bitwise_left_shift), "__rshift__": _binary(tn.bitwise_right_shift),
    **{name: _comparison(getattr(tn, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: _logical(getattr(tn, name)) for name in ("logical_and", "logical_or", "logical_xor")},
    "where": _where, "clamp": _clamp, "hardtanh": lambda at, x, low=-1, high=1: _clamp(at, x, low, high),
    "clamp_min": lambda at, x, low: _clamp(at, x, low), "clamp_max": lambda at, x, high: _clamp(at, x, None, high),
    "leaky_relu": lambda at, x, slope=0.01: tn.leaky_relu(x, negative_slope=slope),
    "softplus": lambda at, x, beta=1, threshold=20: tn.softplus(x, beta=float(beta), threshold=float(threshold)),
    "clone": lambda at, x, **_: x, "alias": lambda at, x: x, "detach": lambda at, x: x,
    "lift_fresh_copy": lambda at, x: x, "_to_copy": _to_copy, "prims.convert_element_type": _to_copy,
    "view_of": lambda at, x: x,
    "copy": lambda at, x, source, *_: tn.broadcast_to(as_type(source, at.dtype), shape=at.shape),
    "fill": lambda at, x, value: tn.broadcast_to(as_type(value, at.dtype), shape=at.shape),
}

"""Element by element: error functions, gamma functions, Bessel functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.graph.axis_rule import rows
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops import special_reference as reference
from tenon.ops.arithmetic import abs_, sign
from tenon.ops.bit_exact_math import CENTRAL, DOUBLE, FAR, MIDDLE, SPLIT
from tenon.ops.comparison import clip, equal, isinf, isnan, less_equal, logical_and, where
from tenon.ops.complex_parts import complex_
from tenon.ops.define import check_kind, composite, define, function, unary
from tenon.ops.exponential import call, exp, exp2, log, log1p, sqrt
from tenon.ops.shape import cast
from tenon.ops.trigonometric import cos, sin
from tenon.ops.upcast_narrow import rounded_gradient, rounded_once
from tenon.types import TensorType, int32

SLOPE = 2 / math.sqrt(math.pi)


def _polygamma_type(x: TensorType, *, n: int) -> TensorType:
    check_kind("polygamma", x.dtype, "f")
    if n < 0:
        raise ArgumentError(f"polygamma: n={n} counts derivatives, from 0 on")
    return x


def _normal_cdf_type(x: TensorType) -> TensorType:
    check_kind("normal_cdf", x.dtype, "f")
    return x


erf = unary("erf", reference.erf, call("erf"), lambda g, y, x: (g * (exp(-x * x) * SLOPE),), "The error function.",
            kinds="f", numpy_work=250, operations=10)
erfc = unary("erfc", reference.erfc, call("erfc"), lambda g, y, x: (g * (exp(-x * x) * -SLOPE),),
             "1 - erf(x), exact where x is large.", kinds="f", numpy_work=500)
normal_cdf: Op = define(
    "normal_cdf", public=False, type=_normal_cdf_type, promote=floating, elementwise=True,
    ref=lambda x: (reference.erf(x * math.sqrt(0.5)) + 1) * 0.5, compute=lambda s, i, x: s.call("normal_cdf", x(i)),
    vjp=lambda g, y, x: (g * (exp(x * x * -0.5) / math.sqrt(2 * math.pi)),),
    numpy_work=250,
    doc="The share of a standard normal distribution that lies below x, good to the last digit of 1 and in less time "
        "than `ndtr`, whose tail is exact too.",
    examples=["normal_cdf(f32[2, 3]) -> f32[2, 3]"])
erfinv = unary("erfinv", reference.erfinv, call("erfinv"), lambda g, y, x: (g * (exp(y * y) / SLOPE),),
               "The inverse of the error function.", kinds="f", domain=(-0.9, 0.9), numpy_work=3000)
lgamma = unary("lgamma", reference.lgamma, call("lgamma"), lambda g, y, x: (g * digamma(x),),
               "The logarithm of the absolute value of the gamma function.", kinds="f", domain=(0.3, 4.0),
               numpy_work=1000)
digamma: Op = unary("digamma", reference.digamma, call("digamma"), lambda g, y, x: (g * polygamma_op(x, n=1),),
                "The derivative of lgamma.", kinds="f", domain=(0.3, 4.0), numpy_work=500)
polygamma_op: Op = define(
    "polygamma", public=False, type=_polygamma_type, ref=reference.polygamma, promote=floating, elementwise=True,
    vjp=lambda g, y, x, n: (g * polygamma_op(x, n=n + 1),), doc="The n-th derivative of digamma, n >= 1.",
    domain=(0.5, 4.0), examples=["polygamma(f32[2, 3], n=1) -> f32[2, 3]"])
i0 = unary("i0", reference.i0, None, lambda g, y, x: (g * i1(x),), "The modified Bessel function of order 0.",
           kinds="f")
i1: Op = unary("i1", reference.i1, None, lambda g, y, x: (g * (i0(x) - where(equal(x, 0), 0.5, y / x)),),
           "The modified Bessel function of order 1.", kinds="f")

bessel_j0: Op = unary("bessel_j0", lambda x: reference.bessel_j(x, 0), None, lambda g, y, x: (-(g * bessel_j1(x)),),
                      "Bessel's function of the first kind, of order 0.", kinds="f")
bessel_j1: Op = unary(
    "bessel_j1", lambda x: reference.bessel_j(x, 1), None,
    lambda g, y, x: (g * (bessel_j0(x) - where(equal(x, 0), 0.5, y / where(equal(x, 0), 1, x))),),
    "Bessel's function of the first kind, of order 1.", kinds="f")


def _erfcx_ref(x: Any) -> Any:
    x = np.asarray(x, np.float64)
    large = np.maximum(x, 10)
    square = 1 / (2 * large * large)
    far = (1 - square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))) / (large * math.sqrt(math.pi))
    return np.where(x < 25, np.exp(np.minimum(x, 25) ** 2) * reference.erfc(np.minimum(x, 25)), far)


def _scaled(fn: Any) -> Any:
    """A Bessel function times exp(-|x|); beyond 500, where it would overflow, by its asymptotic series."""
    order = 0 if fn is reference.i0 else 1

    def ref(x: Any) -> Any:
        x = np.asarray(x, np.float64)
        size = np.abs(x)
        near = fn(np.clip(x, -500, 500)) * np.exp(-np.minimum(size, 500))
        m, eighth = 4 * order * order, 1 / (8 * np.maximum(size, 500))
        far = (1 - (m - 1) * eighth * (1 - (m - 9) * eighth / 2 * (1 - (m - 25) * eighth / 3))) / np.sqrt(
            2 * math.pi * np.maximum(size, 500))
        return np.where(size < 500, near, np.copysign(far, x) if order else far)
    return ref


erfcx = unary("erfcx", _erfcx_ref, None, lambda g, y, x: (g * (2 * x * y - SLOPE),), "exp(x * x) * erfc(x).", kinds="f")
i0e: Op = unary("i0e", _scaled(reference.i0), None, lambda g, y, x: (g * (i1e(x) - sign(x) * y),), "i0(x) * exp(-|x|).",
            kinds="f")
i1e: Op = unary("i1e", _scaled(reference.i1), None,
            lambda g, y, x: (g * _i1e_slope(y, x),), "i1(x) * exp(-|x|).", kinds="f")


def _i1e_slope(y: Any, x: Any) -> Any:
    near = less_equal(abs_(x), TOO_SMALL_TO_DIVIDE)
    return where(near, 0.5, i0e(x) - y * (sign(x) + 1 / where(near, 1, x)))


TOO_SMALL_TO_DIVIDE = 1e-30     # 1 / x overflows in float32 below 3e-39


@composite(promote=floating, examples=["ndtr(f32[2, 3]) -> f32[2, 3]"])
def ndtr(x: Any) -> Any:
    """The share of a standard normal distribution that lies below x.

    >>> tn.ndtr(tn.tensor(0.0))
    tensor(0.5)
    """
    return erfc(x * -math.sqrt(0.5)) * 0.5


@composite(promote=floating, batch="front", examples=["log_ndtr(f32[2, 3]) -> f32[2, 3]"],
           vjp=lambda g, y, x: (g * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5))),))
def log_ndtr(x: Any) -> Any:
    """The logarithm of `ndtr`, exact also where that is close to 0."""
    t = x * math.sqrt(0.5)
    low = log(erfcx(-where(x < -1, t, -1.0)) * 0.5) - t * t
    return where(x < -1, low, log1p(erfc(where(x < -1, 0.0, t)) * -0.5))


@composite(promote=floating, domain=(0.1, 0.9), batch="front", examples=["ndtri(f32[2, 3]) -> f32[2, 3]"],
           vjp=rounded_gradient(lambda g, y, x: (g * (exp(y * y * 0.5) * math.sqrt(2 * math.pi)),)))
@rounded_once
def ndtri(x: Any) -> Any:
    """The inverse of `ndtr`: the quantiles of a standard normal distribution, as exact near 0 as x is.

    By Algorithm AS 241 (Wichura, 1988).

    >>> tn.ndtri(tn.tensor([0.5, 1e-30]))
    tensor([  0.     , -11.46402])
    """
    q = x - 0.5
    inner = where(abs_(q) <= CENTRAL, q, 0)
    r = sqrt(-log(where(q < 0, x, 1 - x)))
    near, far = (_quotient(r - begin, parts) for begin, parts in zip((MIDDLE, SPLIT), DOUBLE.tails, strict=True))
    tail = where(isinf(r), math.inf, where(r <= SPLIT, near, far))
    return where(abs_(q) <= CENTRAL, inner * _quotient(FAR - inner * inner, DOUBLE.central), where(q < 0, -tail, tail))


def _quotient(x: Any, parts: tuple[Sequence[float], Sequence[float]]) -> Any:
    """One polynomial by another, highest power first."""
    above, below = (reduce(lambda total, c: total * x + c, coefficients) for coefficients in parts)
    return above / below


@composite(promote=floating, domain=(0.1, 2.0), batch="front", examples=["entr(f32[2, 3]) -> f32[2, 3]"],
           vjp=lambda g, y, x: (g * -(log(x) + 1),))
def entr(x: Any) -> Any:
    """-x * log(x), the entropy of probabilities; 0 at 0, -inf below."""
    return where(x > 0, -x * log(where(x > 0, x, 1)), where(equal(x, 0), 0.0, where(isnan(x), x, -math.inf)))


@composite(promote=floating, domain=((-2.0, 2.0), (-0.5, 2.0)), examples=["xlog1py(f32[2, 3], f32[2, 3]) -> f32[2, 3]"],
           vjp=lambda g, z, x, y: (lambda: g * log1p(y), lambda: g * (x / (y + 1))))
def xlog1py(x: Any, y: Any) -> Any:
    """x * log(1 + y), and 0 where x is 0, whatever y."""
    check_kind("xlog1py", x.dtype, "f")
    return where(logical_and(equal(x, 0), ~isnan(y)), 0.0, x * log1p(y))


def _logit_vjp(g: Any, y: Any, x: Any, eps: float | None) -> tuple[Any]:
    inside = logical_and(x >= (eps or 0), x <= 1 - (eps or 0))
    return (where(inside, g / (x * (1 - x)), math.nan if eps is None else 0),)


@composite(promote=floating, domain=(0.1, 0.9), vjp=_logit_vjp, examples=[
    "logit(f32[2, 3], eps=None) -> f32[2, 3]", "logit(f32[2, 3], eps=0.25) -> f32[2, 3]"])
def logit(x: Any, *, eps: float | None = None) -> Any:
    """log(x / (1 - x)), the inverse of sigmoid; `eps` keeps x that far from 0 and 1.

    >>> tn.logit(tn.tensor(0.5))
    tensor(0.)
    """
    x = x if eps is None else clip(x, eps, 1 - eps)
    return where(logical_and(x >= 0, x <= 1), log(x / (1 - x)), math.nan)


@composite(promote=floating, examples=["polar(f32[2, 3], f32[3]) -> c64[2, 3]"])
def polar(x: Any, angle: Any) -> Any:
    """The complex number of this length and angle."""
    return complex_(x * cos(angle), x * sin(angle))


@composite(promote=floating, domain=(2.0, 4.0), examples=["mvlgamma(f32[2, 3], p=3) -> f32[2, 3]"])
def mvlgamma(x: Any, *, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension p."""
    total = lgamma(x)
    for k in range(1, p):
        total = total + lgamma(x - 0.5 * k)
    return total + 0.25 * p * (p - 1) * math.log(math.pi)


def _frexp_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_kind("frexp", x.dtype, "f")
    return x, x.with_dtype(int32)


frexp = define("frexp", type=_frexp_type, ref=np.frexp, promote=floating,
               axis_rule=lambda x: rows((x,), (x.ndim, x.ndim)),
               vjp=lambda g, y, x: (g[0] * exp2(cast(-y[1], dtype=x.dtype)),),
               batch="front",
               doc="The mantissa (at least 0.5 and below 1) and the exponent: x = mantissa * 2**exponent.",
               examples=["frexp(f32[2, 3]) -> f32[2, 3], i32[2, 3]"])


@function
def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma; n is a Python integer.  Raises ArgumentError where n < 0.

    >>> tn.polygamma(1, tn.tensor(1.0))
    tensor(1.6449)
    """
    if n < 0:
        raise ArgumentError(f"polygamma: n must not be negative, got {n}")
    return polygamma_op(x, n=int(n)) if n else digamma(x)

"""Element by element: exponentials, logarithms and roots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.arithmetic import abs_
from tenon.ops.comparison import equal, isnan, less_equal, logical_and, where
from tenon.ops.complex_parts import conj
from tenon.ops.define import binary, composite, unary

LN2, LN10 = math.log(2.0), math.log(10.0)
POSITIVE = (0.1, 3.0)


def call(name: str) -> Callable[..., Any]:
    """The element rule of a function that the backends have by this name."""
    return lambda s, *xs: s.call(name, *xs)


exp = unary("exp", np.exp, call("exp"), lambda g, y, x: (g * conj(y),), "e to the power x.",
    operations=10,
    nan_hint="an exponent above 88 overflows float32: subtract the largest first, or use tn.softmax, tn.logsumexp")
exp2 = unary("exp2", np.exp2, call("exp2"), lambda g, y, x: (g * (conj(y) * LN2),), "2 to the power x.")


def _expm1_ref(x: Any) -> Any:
    """NumPy's; where parts of complex numbers are infinite or NaN, what the Array API standard asks for."""
    y = np.expm1(x)
    if x.dtype.kind != "c":
        return y
    a, b = x.real, x.imag
    y = np.where(b == 0, _complex(np.expm1(a) + 0.0, b), y)       # the sum makes 0 of -0
    y = np.where(np.isneginf(a) & ~np.isfinite(b), y.dtype.type(-1), y)
    return np.where(np.isposinf(a) & ~np.isfinite(b), y.dtype.type(complex(np.inf, np.nan)), y)


def _complex(real: Any, imaginary: Any) -> Any:
    """The complex numbers of these parts; a sum would make NaN of infinite ones."""
    y = np.empty(np.shape(real), np.result_type(real, np.complex64))
    y.real, y.imag = real, imaginary
    return y


expm1 = unary("expm1", _expm1_ref, call("expm1"), lambda g, y, x: (g * conj(y + 1),),
              "e to the power x, less 1; exact where x is small.")
log = unary("log", np.log, call("log"), lambda g, y, x: (g / conj(x),), "The natural logarithm.", domain=POSITIVE,
    operations=10, nan_hint="a number that may be 0 needs a least value, as in tn.log(tn.maximum(x, 1e-8))")
log2 = unary("log2", np.log2, call("log2"), lambda g, y, x: (g / conj(x * LN2),), "The logarithm to base 2.",
             domain=POSITIVE)
log10 = unary("log10", np.log10, call("log10"), lambda g, y, x: (g / conj(x * LN10),), "The logarithm to base 10.",
              domain=POSITIVE)
log1p = unary("log1p", np.log1p, call("log1p"), lambda g, y, x: (g / conj(x + 1),),
              "The logarithm of 1 + x; exact where x is small.", domain=(-0.8, 2.0))
sqrt = unary("sqrt", np.sqrt, call("sqrt"), lambda g, y, x: (g / conj(2 * y),), "The square root.", domain=POSITIVE,
    operations=10, nan_hint="a number that may be below 0 by rounding needs tn.maximum(x, 0.0)")
rsqrt = unary("rsqrt", lambda x: 1 / np.sqrt(x), call("rsqrt"), lambda g, y, x: (g * conj(y * y * y) * -0.5,),
              "One over the square root.", domain=POSITIVE, operations=10)
cbrt = unary("cbrt", np.cbrt, call("cbrt"), lambda g, y, x: (g / (3 * (y * y)),), "The cube root, also of negatives.",
             kinds="f", domain=POSITIVE)


def _sigmoid_ref(x: Any) -> Any:
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    one = small.dtype.type(1)           # a number of Python's takes as long as a short array
    return np.where(x >= 0, one, small) / (one + small)


sigmoid = unary("sigmoid", _sigmoid_ref, call("sigmoid"), lambda g, y, x: (g * conj(y * (1 - y)),),
                "1 / (1 + exp(-x)).", numpy_work=8, operations=10)

logaddexp = binary("logaddexp", np.logaddexp, call("logaddexp"),
                   lambda g, z, x, y: (lambda: g * sigmoid(x - y), lambda: g * sigmoid(y - x)),
                   "log(exp(x) + exp(y)), without overflow on the way.", promote=floating, kinds="f")


@composite(promote=floating, examples=["logaddexp2(f32[2, 3], f32[2, 3]) -> f32[2, 3]"])
def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2**x + 2**y), without overflow on the way."""
    gap = where(equal(x, y), 0, -abs_(x - y))       # equal infinities have no difference
    return where(isnan(x), x, x.maximum(y)) + log1p(exp2(gap)) * (1 / LN2)


@composite(promote=floating, examples=["ldexp(f32[2, 3], f32[3]) -> f32[2, 3]"])
def ldexp(x: Any, y: Any) -> Any:
    """x times 2 to the power y."""
    return x * exp2(y)


def _xlogy_ref(x: Any, y: Any) -> Any:
    return np.where((x == 0) & ~np.isnan(y), np.zeros_like(x), x * np.log(y))


def _xlogy(s: Any, x: Any, y: Any) -> Any:
    zero = s.const(0, x.dtype)
    return s.select(s.eq(x, zero) & ~s.isnan(y), zero, x * s.call("log", y))


def _xlogy_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, Any]:
    nowhere = logical_and(equal(x, 0), less_equal(y, 0))        # there the logarithm is no number that counts
    return lambda: g * xlogy(where(nowhere, 0.0, 1.0), y), lambda: g * (x / y)


xlogy: Op = binary("xlogy", _xlogy_ref, _xlogy,
               _xlogy_vjp,
               "x * log(y), and 0 where x is 0, whatever y.", promote=floating, kinds="f", domain=POSITIVE)

"""Turns hyperbolic functions and their inverses into exp and log1p, so that nothing cancels or overflows early.

The arrangements are those of fdlibm (Sun Microsystems 1993); sinh near zero is a minimax polynomial (tools/minimax.py
sinh tanh).
"""

import math

from tenon.backends.cpu.mathematics.double_double import (
    exactly,
    nearest_integer,
    power_of_two,
    quick_two_sum,
    quotient,
    two_sum,
)
from tenon.backends.cpu.mathematics.exp_sigmoid import LOG2_E, exp_of_sum, expm1_of_negative, polynomial_part
from tenon.backends.cpu.mathematics.logarithm import Q, log1p, log1p_of_sum
from tenon.backends.cpu.mathematics.notation import Number, copysign, fma, minimum, polynomial, sqrt, where

# sinh(x) = x + x**3 * P(x*x) for |x| < 1
P = {32: (0.1666671633720398, 0.008330270648002625, 0.00020373347797431052),
     64: (0.16666666666666669, 0.008333333333332912, 0.00019841269841593397, 2.7557319106766705e-06,
          2.5052130996070674e-08, 1.6056659463162584e-10, 7.77658837631556e-13)}  # fmt: skip
# tanh(x) = x + x**3 * T(x*x) for |x| < TANH_NEAR, 1 in single precision from TANH_END on
T = (-0.3333317041397095, 0.13328669965267181, -0.053528428077697754, 0.020010337233543396, -0.005064039491117001)
TANH_NEAR, TANH_END = 0.7, 9.1
LN2 = 0.6931471805599453


def tanh(x: Number) -> Number:
    """The hyperbolic tangent, within 2 ulp: -e / (2 + e) with e = exp(-2*|x|) - 1; 1 - 2 / (exp(2*|x|) + 1) if single.

    The difference is exact enough only where its second term is small; a polynomial takes over below.
    """
    if not x.is_double:
        a = minimum(abs(x), TANH_END)
        k, shifted = nearest_integer(a, 2.0 * LOG2_E)
        r, scale = fma(k, -LN2, a + a), power_of_two(shifted)       # LN2 in one part will do for so small a k
        outer = 1.0 - 2.0 / fma(polynomial_part(r), scale, scale + 1.0)
        z = x * x
        return copysign(where(a < TANH_NEAR, fma(x * z, polynomial(z, T), x), outer), x)    # which -0 needs too
    e, lost = expm1_of_negative(-2.0 * abs(x))
    bottom, bottom_low = quick_two_sum(x.constant(2.0), e)
    return copysign(quotient((e, lost), (bottom, bottom_low + lost)), x)


def sinh(x: Number) -> Number:
    """The hyperbolic sine, within 2 ulp."""
    a = abs(x)
    z = x * x
    half = exp_of_sum(a, extra=-1)
    return where(a < 1.0, fma(x * z, polynomial(z, P[x.format.bits]), x), copysign(half - 0.25 / half, x))


def cosh(x: Number) -> Number:
    """The hyperbolic cosine, within 2 ulp."""
    half = exp_of_sum(abs(x), extra=-1)
    return half + 0.25 / half


def asinh(x: Number) -> Number:
    """The inverse hyperbolic sine, within 2 ulp: log(a + sqrt(a*a + 1)) as log1p(a + a*a / (1 + sqrt(a*a + 1)))."""
    a = abs(x)
    square = a * a
    return copysign(log1p_or_log_of_twice(a, *two_sum(a, square / (sqrt(square + 1.0) + 1.0))), x)


def acosh(x: Number) -> Number:
    """The inverse hyperbolic cosine, within 2 ulp: log(x + sqrt(x*x - 1)), as log1p(t + sqrt(2*t + t*t)), t = x - 1."""
    x = where(x < 1.0, math.nan, x)
    t = x - 1.0
    return log1p_or_log_of_twice(x, *quick_two_sum(sqrt(fma(t, t, t + t)), t))


def log1p_or_log_of_twice(a: Number, u: Number, lost: Number) -> Number:
    """log1p(u + lost), or log(2*a) where a is so large that its square might overflow."""
    large = a > 2.0 ** (a.format.mantissa + 3)
    return log1p_of_sum(where(large, a, u), where(large, 0.0, lost)) + where(large, a.constant(LN2), 0.0)


def atanh(x: Number) -> Number:
    """The inverse hyperbolic tangent, within 2 ulp: log1p(2*a / (1 - a)) / 2, or the logarithm's own series."""
    a = abs(x)
    z = x * x
    small = fma(x * z, 0.5 * polynomial(z, Q[x.format.bits]), x)
    outer = 0.5 * log1p(quotient(exactly(a + a), quick_two_sum(x.constant(1.0), -a)))
    return where(a < 0.17, small, copysign(where(a.equals(1.0), math.inf, outer), x))

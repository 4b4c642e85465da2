"""Turns asin, acos, atan and atan2 into polynomials.

asin near 1 goes by way of asin(a) = pi/2 - 2*asin(sqrt((1 - a)/2)), as in fdlibm (Sun Microsystems 1993). Every
arctangent is the angle of a point in the first octant, turned by -pi/4 where it is the steeper half: one division,
whose rounding error is kept. Polynomials: tools/minimax.py asin atan.
"""

import math

from tenon.backends.cpu.mathematics.double_double import Pair, quick_two_sum
from tenon.backends.cpu.mathematics.notation import (
    Mask,
    Number,
    copysign,
    fma,
    maximum,
    minimum,
    polynomial,
    sqrt,
    where,
)

# asin(s) = s + s**3 * P_ASIN(s*s) for |s| <= 1/2
P_ASIN = {
    32: (0.16666752099990845, 0.074953094124794, 0.04546914994716644, 0.02418476715683937, 0.042158342897892),
    64: (0.1666666666666676, 0.07499999999970869, 0.04464285717455643, 0.030381942710144497, 0.02237221492682909,
         0.0173516130304009, 0.013980809073766707, 0.011399001289959656, 0.010779776216210154, 0.003708137255104583,
         0.021703385235503123, -0.020993478040619722, 0.032625209743323974)}  # fmt: skip
# atan(t) = t + t**3 * P_ATAN(t*t) for |t| <= sqrt(2) - 1
P_ATAN = {
    32: (-0.33333316445350647, 0.19998528063297272, -0.14244391024112701, 0.1059916689991951, -0.06090041995048523),
    64: (-0.333333333333332, 0.19999999999953683, -0.14285714280201145, 0.11111110783591367, -0.09090897760724798,
         0.07692060272173376, -0.06663104844497647, 0.0584789648105376, -0.05039344023134275, 0.038065745806995885,
         -0.01790871398291686)}  # fmt: skip
# pi in two parts; its halves and quarters are exact multiples.
PI = {32: (3.1415927410125732421875, -8.742277657347586e-08), 64: (3.141592653589793, 1.2246467991473532e-16)}


def asin(x: Number) -> Number:
    """The arcsine, within 2 ulp; nan outside -1 ... 1."""
    outer, s, s_low, rest = asin_core(x)
    high, low = (part / 2 for part in PI[x.format.bits])
    total, lost = quick_two_sum(x.constant(high), -2.0 * s)
    flipped = total + (lost + (low - 2.0 * (rest + s_low)))
    return copysign(where(outer, flipped, s + rest), x)


def acos(x: Number) -> Number:
    """The arccosine, within 2 ulp; nan outside -1 ... 1."""
    outer, s, s_low, rest = asin_core(x)
    high, low = PI[x.format.bits]
    twice = 2.0 * (s + (rest + s_low))
    inner = high / 2 - (copysign(s, x) - (low / 2 - copysign(rest, x)))
    return where(outer, where(x < 0.0, high - (twice - low), twice), inner)


def asin_core(x: Number) -> tuple[Mask, Number, Number, Number]:
    """(|x| > 1/2, s, s_low, rest): s + s_low is |x| or, there, sqrt((1 - |x|)/2); with rest, its arcsine."""
    a = abs(x)
    outer = a > 0.5
    z = where(outer, fma(a, -0.5, 0.5), a * a)
    root = sqrt(z)
    s = where(outer, root, a)
    s_low = fma(-root, root, z) / maximum(root + root, x.format.smallest_normal)
    return outer, s, s_low, s * z * polynomial(z, P_ASIN[x.format.bits])


def atan(x: Number) -> Number:
    """The arctangent, within 1 ulp."""
    a = minimum(abs(x), 2.0 ** (2 * x.format.mantissa))
    steep = a > 1.0
    high, low = octant_angle(where(steep, 1.0, a), where(steep, a, 1.0))
    pi_high, pi_low = PI[x.format.bits]
    high, low = turned(steep, pi_high / 2, pi_low / 2, (high, low))
    return copysign(high + low, x)


def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), within 2 ulp, in its quadrant; zeros and infinities as in C."""
    kind = x.format
    a, b = abs(x), abs(y)
    steep = b > a
    long, short = where(steep, b, a), where(steep, a, b)
    # Keep 1 / long a normal number, then give the cases without a quotient one.
    scale = where(long < 2.0 ** (10 - kind.bias // 2), x.constant(2.0 ** (kind.bias // 2)), 1.0)
    scale = where(long > 2.0 ** (kind.bias // 2), 2.0 ** (-kind.bias // 2), scale)
    infinite = long.equals(math.inf)
    short = where(infinite, where(short.equals(math.inf), x.constant(1.0), 0.0), short * scale)
    long = where(infinite | long.equals(0.0), 1.0, long * scale)
    high, low = octant_angle(short, long)
    pi_high, pi_low = PI[kind.bits]
    high, low = turned(steep, pi_high / 2, pi_low / 2, (high, low))
    high, low = turned(x.sign_bit(), pi_high, pi_low, (high, low))
    return where(x.is_nan() | y.is_nan(), math.nan, copysign(high + low, y))


def turned(mask: Mask, high: float, low: float, angle: Pair) -> Pair:
    """(high + low) - angle where the mask says so."""
    total, lost = quick_two_sum(angle[0].constant(high), -angle[0])
    return where(mask, total, angle[0]), where(mask, lost + (low - angle[1]), angle[1])


def octant_angle(y: Number, x: Number) -> Pair:
    """atan(y / x) for 0 <= y <= x as (high, low).

    tan(angle - pi/4) = (y - x) / (y + x); either way |t| <= sqrt(2) - 1.
    """
    upper = y > x * 0.41421356237309503
    top, top_low = quick_two_sum(x, -y)
    bottom, bottom_low = quick_two_sum(x, y)
    top, top_low = where(upper, -top, y), where(upper, -top_low, 0.0)
    bottom, bottom_low = where(upper, bottom, x), where(upper, bottom_low, 0.0)
    inverse = 1.0 / bottom
    t = top * inverse
    t_low = (fma(-t, bottom, top) + fma(-t, bottom_low, top_low)) * inverse
    z = t * t
    rest = fma(t * z, polynomial(z, P_ATAN[x.format.bits]), fma(-z, t_low, t_low))
    base_high, base_low = (part / 4 for part in PI[x.format.bits])
    high, low = quick_two_sum(where(upper, x.constant(base_high), 0.0), t)
    return where(upper, high, t), where(upper, low + (rest + base_low), rest)

"""Turns log, log2, log10 and log1p into polynomials.

x = 2**k * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) = f - f*f/2 + rest(f). In single precision the
rest is f**3 * P(f); in double precision s = f / (2 + f) converges faster, as in fdlibm's e_log.c (Sun Microsystems
1993): rest = s * (f*f/2 + s*s*Q(s*s)). Polynomials: tools/minimax.py log log_quotient.
"""

import math

from tenon.backends.cpu.mathematics.double_double import Pair, integer_as_number, quick_two_sum, two_product, two_sum
from tenon.backends.cpu.mathematics.notation import Bits, Number, copysign, fma, polynomial, where

P_SINGLE = (0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.16667994856834412, 0.14219555258750916,
            -0.12405610829591751, 0.11888156086206436, -0.11675497889518738, 0.06746458262205124)  # fmt: skip
# log((1 + s) / (1 - s)) = 2*s + s**3 * Q(s*s)
Q = {32: (0.6666666269302368, 0.40000975131988525, 0.28498485684394836, 0.242862269282341),
     64: (0.6666666666666734, 0.3999999999941707, 0.2857142874188629, 0.2222219862235558, 0.18183561862381797,
          0.15314111691869012, 0.14795353723181462)}  # fmt: skip
# log(2) in two parts, the first one short enough that k times it is exact.
LN2 = {32: (0.693145751953125, 1.428606765330187e-06), 64: (0.6931471803691238, 1.9082149292705877e-10)}
LOG2_E = {32: (1.4426950216293335, 1.925963033500011e-08), 64: (1.4426950408889634, 2.0355273740931033e-17)}
LOG10_E = {32: (0.4342944920063019, -1.0103049952192578e-08), 64: (0.4342944819032518, 1.098319650216765e-17)}
LOG10_2 = {32: (0.301025390625, 4.605039066518657e-06), 64: (0.3010299956640665, -8.532344317057107e-14)}


def log(x: Number) -> Number:
    """The natural logarithm, within 1 ulp."""
    return log_times_power_of_two(x, 0.0)


def log_times_power_of_two(x: Number, extra: Number | float) -> Number:
    """log(x * 2**extra), where the product may be larger than a float can be."""
    k, m = split(x)
    k = k + extra
    f = m - 1.0
    half_square, rest = quadratic_and_rest(f)
    ln2_high, ln2_low = LN2[x.format.bits]
    y = fma(k, ln2_high, f - (half_square - fma(k, ln2_low, rest)))
    return with_special_values(x, y)


def split(x: Number) -> Pair:
    """(k, m) with x = 2**k * m and sqrt(1/2) <= m < sqrt(2), for finite x > 0; denormals are scaled up first."""
    kind = x.format
    denormal = x < kind.smallest_normal
    bits = where(denormal, x * 2.0**kind.mantissa, x).bits()
    k, m = exponent_and_fraction(bits)
    return k - where(denormal, x.constant(float(kind.mantissa)), 0.0), m


def exponent_and_fraction(bits: Bits) -> Pair:
    kind = bits.number().format
    root_half = 0x3F3504F3 if kind.bits == 32 else 0x3FE6A09E667F3BCD
    above = bits + (kind.one - root_half)
    k = integer_as_number((above >> kind.mantissa) - kind.bias)
    return k, ((above & ((1 << kind.mantissa) - 1)) + root_half).number()


def quadratic_and_rest(f: Number) -> Pair:
    """(f*f/2, log(1 + f) - f + f*f/2)."""
    half_square = 0.5 * f * f
    if not f.is_double:
        return half_square, f * (f * f) * polynomial(f, P_SINGLE)
    s = f / (f + 2.0)
    z = s * s
    return half_square, s * fma(z, polynomial(z, Q[64]), half_square)


def with_special_values(x: Number, y: Number) -> Number:
    """The logarithm y of x, also where x is infinite, nan, zero or negative."""
    y = where(x < math.inf, y, x)
    y = where(x < 0.0, math.nan, y)
    return where(x.equals(0.0), -math.inf, y)


def log2(x: Number) -> Number:
    """The logarithm to base 2, within 1 ulp; exact for powers of two."""
    k, m = split(x)
    high, low = times_pair(log_pair(m), LOG2_E[x.format.bits])
    total, error = quick_two_sum(k, high)
    return with_special_values(x, total + (error + low))


def log10(x: Number) -> Number:
    """The logarithm to base 10, within 1 ulp."""
    k, m = split(x)
    log2_high, log2_low = LOG10_2[x.format.bits]
    high, low = times_pair(log_pair(m), LOG10_E[x.format.bits])
    total, error = quick_two_sum(k * log2_high, high)
    return with_special_values(x, total + (error + fma(k, log2_low, low)))


def log_pair(m: Number) -> Pair:
    """log(m) a few bits more precisely than a float, for m near 1."""
    f = m - 1.0
    half_square, rest = quadratic_and_rest(f)
    square_error = fma(0.5 * f, f, -half_square)
    high, low = quick_two_sum(f, -half_square)
    return quick_two_sum(high, low + (rest - square_error))


def times_pair(x: Pair, constant: tuple[float, float]) -> Pair:
    high, low = two_product(x[0], constant[0])
    return high, fma(x[0], constant[1], fma(x[1], constant[0], low))


def log1p(x: Number) -> Number:
    """log(1 + x), within 2 ulp, also where x is tiny."""
    return log1p_of_sum(x, None)


def log1p_of_sum(x: Number, tail: Number | None) -> Number:
    """log(1 + x + tail) for a small tail: 1 + x is rounded, and what was lost is added as lost / (1 + x)."""
    u, lost = two_sum(x, 1.0)
    if tail is not None:
        lost = lost + tail
    k, m = exponent_and_fraction(u.bits())
    f = m - 1.0
    half_square, rest = quadratic_and_rest(f)
    ln2_high, ln2_low = LN2[x.format.bits]
    correction = fma(k, ln2_low, lost / u)
    y = fma(k, ln2_high, f - (half_square - (rest + correction)))
    y = where(x < math.inf, y, x)
    y = where(x < -1.0, math.nan, y)
    return copysign(where(x.equals(-1.0), -math.inf, y), x)

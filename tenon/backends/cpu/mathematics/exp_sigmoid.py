"""Turns exp, exp2, expm1 and sigmoid into polynomials.

x = k*log(2) + r with an integer k and |r| <= log(2)/2; exp(r) = 1 + r + r*r*P(r), and 2**k is put into the exponent
bits. log(2) is subtracted in two parts (Cody and Waite 1980), the first one exactly thanks to fma. P is a minimax
polynomial (tools/minimax.py exp).
"""

from tenon.backends.cpu.mathematics.double_double import (
    Pair,
    nearest_integer,
    power_of_two,
    quick_two_sum,
    times_power_of_two,
)
from tenon.backends.cpu.mathematics.notation import Number, copysign, fma, maximum, minimum, polynomial, where

P = {
    32: (0.5, 0.1666654646396637, 0.04166685789823532, 0.008366287685930729, 0.0013898165198042989),
    64: (0.5, 0.16666666666666677, 0.041666666666666574, 0.008333333333321806, 0.0013888888888944223,
         0.000198412698859625,
         2.4801587196053078e-05, 2.7557244144500053e-06, 2.7557387836454256e-07, 2.510912556497358e-08,
         2.087902207153424e-09)}  # fmt: skip
LOG2_E = 1.4426950408889634
LN2 = {32: (0.6931471824645996, -1.9046542121259336e-09), 64: (0.6931471805599453, 2.3190468138462996e-17)}
# Where exp is infinite or zero for certain; k still fits times_power_of_two.
MIN_NORMAL_ARGUMENT = {32: -87.0, 64: -708.0}  # whose exponential is a normal number
RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}


def exp(x: Number) -> Number:
    """e**x, within 1.1 ulp."""
    return exp_of_sum(x)


def exp_of_sum(x: Number, tail: Number | None = None, factor: Number | None = None, extra: int = 0) -> Number:
    """factor * exp(x + tail) * 2**extra, for a tail that is small and a factor that is not far from 1."""
    low, high = RANGE[x.format.bits]
    shifted, r, _ = reduce(maximum(minimum(x, high + abs(extra)), low))
    if tail is not None:
        r = r + tail
    p = polynomial_part(r)
    return times_power_of_two(p + 1.0 if factor is None else fma(p, factor, factor), shifted, extra)


def polynomial_part(r: Number) -> Number:
    """exp(r) - 1 for |r| <= log(2)/2."""
    return fma(r * r, polynomial(r, P[r.format.bits]), r)


def reduce(x: Number) -> tuple[Number, Number, Number]:
    """(shifted, r, lost) with x = k*log(2) + r + lost; see nearest_integer for `shifted`."""
    ln2_high, ln2_low = LN2[x.format.bits]
    k, shifted = nearest_integer(x, LOG2_E)
    high = fma(k, -ln2_high, x)
    r = fma(k, -ln2_low, high)
    return shifted, r, fma(k, -ln2_low, high - r)


def exp_of_negative(x: Number) -> Number:
    """e**x for x <= 1, within 1.1 ulp where that is a normal number, else 0: processors are slow with denormals."""
    low = MIN_NORMAL_ARGUMENT[x.format.bits]
    shifted, r, _ = reduce(maximum(x, low))
    return where(x < low, 0.0, (polynomial_part(r) + 1.0) * power_of_two(shifted))


def exp2(x: Number) -> Number:
    """2**x, within 1.1 ulp; exact for integers."""
    limit = x.format.bias + x.format.mantissa + 3.0
    clamped = maximum(minimum(x, limit), -limit)
    k, shifted = nearest_integer(clamped)
    r = (clamped - k) * LN2[x.format.bits][0]
    return times_power_of_two(polynomial_part(r) + 1.0, shifted)


def expm1(x: Number) -> Number:
    """e**x - 1, within 2 ulp, also where x is tiny.

    2**k * (exp(r) - 1) + (2**k - 1), computed at half the scale so that 2**k cannot overflow before the result does.
    """
    shifted, r, lost = reduce(maximum(minimum(x, RANGE[x.format.bits][1]), -(x.format.mantissa + 5.0)))
    half_scale = power_of_two(shifted - 1.0)
    curved = fma(r * r, polynomial(r, P[x.format.bits]), lost)
    half = fma(half_scale, curved, fma(half_scale, r, half_scale - 0.5))
    # Near zero half of the result could be a denormal, and would be rounded.
    return copysign(where(abs(x) < 0.25, r + curved, half + half), x)


def expm1_of_negative(x: Number) -> Pair:
    """e**x - 1 for x <= 0 as a pair, without the care for overflow and for the sign of zero."""
    shifted, r, lost = reduce(maximum(x, -(x.format.mantissa + 5.0)))
    scale = power_of_two(shifted)
    p = r + fma(r * r, polynomial(r, P[x.format.bits]), lost)
    return quick_two_sum(scale - 1.0, scale * p)


def sigmoid(x: Number) -> Number:
    """1 / (1 + e**-x), within 2.1 ulp, also where it is tiny: with x = n*log(2) - r, 2**n * (1 / (2**n + e**r))."""
    low, high = RANGE[x.format.bits]
    ln2_high, ln2_low = LN2[x.format.bits]
    x = maximum(minimum(x, 0.5 * high), low)            # 1 / (1 + e**-high) is 1 with room to spare
    n, shifted = nearest_integer(x, LOG2_E)
    r = fma(n, ln2_low, fma(n, ln2_high, -x))
    none = x.format.mantissa + 3.0                      # 2**-none is nothing beside e**r
    scale = power_of_two(maximum(shifted, x.format.to_integer - none))
    return times_power_of_two(1.0 / (scale + polynomial_part(r) + 1.0), shifted)

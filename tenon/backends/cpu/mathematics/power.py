"""Turns pow and logaddexp into logarithms and exponentials.

x**y = exp(y * log(x)) magnifies the logarithm's error by up to 745, so double precision needs log(x) to 64 bits: the
quotient s = (m - 1) / (m + 1), its square and the first terms of the series are pairs (Dekker 1971). Single precision
goes through doubles, where one log and one exp are enough. Polynomial: tools/minimax.py log_pair.
"""

import math

from tenon.backends.cpu.mathematics.double_double import Pair, quick_two_sum, two_product
from tenon.backends.cpu.mathematics.exp_sigmoid import exp, exp_of_sum
from tenon.backends.cpu.mathematics.logarithm import LN2, log, log1p, split
from tenon.backends.cpu.mathematics.notation import Number, fma, intrinsic, narrow, polynomial, where, widen

# log((1 + s) / (1 - s)) = 2*s + 2/3*s**3 + s**5 * P(s*s)
P = (0.3999999999999998, 0.28571428571443835, 0.22222222217791776, 0.181818188436982, 0.15384558450233204,
     0.13336263636030188, 0.11675798401663434, 0.1198160674838963)  # fmt: skip
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def power(x: Number, y: Number) -> Number:
    """x**y, within 1 ulp; zeros, infinities, nans and negative bases as in C and NumPy."""
    size = power_of_size(abs(x), y) if x.is_double else narrow(power_of_size_single(widen(abs(x)), widen(y)))
    whole = y.equals(intrinsic("roundeven", y))
    half = 0.5 * y
    odd = whole & ~half.equals(intrinsic("roundeven", half))
    signed = where(odd & x.sign_bit(), -size, size)
    signed = where((x < 0.0) & x.is_finite() & ~whole, math.nan, signed)
    certain = y.equals(0.0) | x.equals(1.0) | (x.equals(-1.0) & abs(y).equals(math.inf))
    return where(certain, 1.0, signed)


def power_of_size_single(x: Number, y: Number) -> Number:
    """x**y for x >= 0, from doubles to a double good enough for a float."""
    return exp(y * log(x))


def power_of_size(x: Number, y: Number) -> Number:
    """x**y for x >= 0."""
    high, low = long_log(x)
    product, error = two_product(y, high)
    tail = fma(y, low, error)
    return exp_of_sum(product, where(abs(product) < 1000.0, tail, 0.0))


def long_log(x: Number) -> Pair:
    """log(x) for x >= 0 as a pair, to 64 bits."""
    k, m = split(x)
    f = m - 1.0
    bottom, bottom_low = quick_two_sum(x.constant(1.0), m)
    inverse = 1.0 / bottom
    s = f * inverse
    s_low = fma(-s, bottom_low, fma(-s, bottom, f)) * inverse
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    cube, cube_low = two_product(s, z)
    cube_low = fma(s, z_low, fma(s_low, z, cube_low))
    factor, factor_low = quick_two_sum(x.constant(TWO_THIRDS[0]), fma(z, polynomial(z, P), TWO_THIRDS[1]))
    term, term_low = two_product(cube, factor)
    term_low = fma(cube, factor_low, fma(cube_low, factor, term_low))
    ln2_high, ln2_low = LN2[x.format.bits]
    high, low_1 = quick_two_sum(k * ln2_high, s + s)
    high, low_2 = quick_two_sum(high, term)
    low = low_1 + (low_2 + (fma(k, ln2_low, term_low) + (s_low + s_low)))
    high, low = quick_two_sum(high, low)
    high = where(x < math.inf, high, x)
    return where(x.equals(0.0), -math.inf, high), where(x.is_finite() & ~x.equals(0.0), low, 0.0)


def logaddexp(x: Number, y: Number) -> Number:
    """log(exp(x) + exp(y)), within 2 ulp of the largest of |x|, |y| and the result."""
    difference = x - y
    larger = where(x > y, x, y)
    total = larger + log1p(exp(-abs(difference)))
    # Equal infinities have no difference.
    return where(x.equals(y), x + 0.6931471805599453, where(x.is_nan() | y.is_nan(), x + y, total))

"""Turns roots into hardware square roots, and cube roots into Newton's iterations without divisions."""

import math

from tenon.backends.cpu.mathematics.double_double import nearest_integer, times_power_of_two, two_product
from tenon.backends.cpu.mathematics.logarithm import split
from tenon.backends.cpu.mathematics.notation import Number, copysign, fma, polynomial, sqrt, where

__all__ = ["cbrt", "hypot", "rsqrt", "sqrt"]

# m**(-1/3) for sqrt(1/2) <= m < sqrt(2) to 15 bits: tools/minimax.py inverse_cbrt.
INVERSE_CBRT = (1.8745475356190013, -1.8619330354484267, 1.561439083578252, -0.7024620261153034, 0.12838501224860385)
CBRT_2, CBRT_4 = 2.0 ** (1 / 3), 4.0 ** (1 / 3)


def rsqrt(x: Number) -> Number:
    """1 / sqrt(x), within 1.5 ulp.

    A root and a division: Newton's steps from a guess in the bits would cost as much.
    """
    return 1.0 / sqrt(x)


def hypot(x: Number, y: Number) -> Number:
    """sqrt(x*x + y*y), within 1 ulp, without overflow on the way; infinite if either is, even beside a nan."""
    kind = x.format
    a, b = abs(x), abs(y)
    large, small = where(a > b, a, b), where(a > b, b, a)
    step = 2.0 ** (kind.bias // 2 + kind.mantissa)
    above, below = large > 2.0 ** (kind.bias // 2), large < 2.0 ** (kind.mantissa - kind.bias // 2)
    down = where(above, x.constant(1.0 / step), where(below, x.constant(step), 1.0))
    up = where(above, x.constant(step), where(below, x.constant(1.0 / step), 1.0))
    large, small = large * down, small * down
    length = sqrt(fma(large, large, small * small)) * up
    return where(a.equals(math.inf) | b.equals(math.inf), math.inf, length)


def cbrt(x: Number) -> Number:
    """The cube root, within 1 ulp: x = 8**n * v with 1/2 < v < 8.

    Newton's iteration for v**(-1/3) only multiplies; the last step corrects the root itself by its exact residual.
    """
    k, m = split(abs(x))
    n, shifted = nearest_integer(fma(k, 1 / 3, -1 / 3))
    remainder = fma(n, -3.0, k)
    v = m * by_remainder(remainder, 1.0, 2.0, 4.0)
    guess = polynomial(m, INVERSE_CBRT)
    r = guess * by_remainder(remainder, 1.0, 1 / CBRT_2, 1 / CBRT_4)
    for _ in range(2 if x.is_double else 1):
        r = fma(r * (1 / 3), fma(-v * r, r * r, 1.0), r)
    y = v * (r * r)
    square, square_error = two_product(y, y)
    residual = fma(square, y, -v) + square_error * y
    y = fma(residual * (-1 / 3), r * r, y)
    root = times_power_of_two(y, shifted)
    return where(x.is_finite() & ~x.equals(0.0), copysign(root, x), x)


def by_remainder(remainder: Number, zero: float, one: float, two: float) -> Number:
    """One of three constants for a remainder of 0, 1 or 2."""
    later = where(remainder.equals(1.0), remainder.constant(one), two)
    return where(remainder.equals(0.0), zero, later)

"""Turns rounding, signs and neighbours into the instructions that do them."""

from tenon.backends.cpu.mathematics.notation import Number, copysign, intrinsic, where

__all__ = ["ceil", "copysign", "floor", "nextafter", "round_half_even", "trunc"]


def floor(x: Number) -> Number:
    return intrinsic("floor", x)


def ceil(x: Number) -> Number:
    return intrinsic("ceil", x)


def trunc(x: Number) -> Number:
    return intrinsic("trunc", x)


def round_half_even(x: Number) -> Number:
    """To the nearest integer; halves go to the even one, as in NumPy and Python."""
    return intrinsic("roundeven", x)


def nextafter(x: Number, y: Number) -> Number:
    """The neighbour of x on the way to y: bit patterns of one sign are ordered like the numbers."""
    bits = x.bits()
    away_from_zero = (x < y) ^ x.sign_bit()
    moved = where(away_from_zero, (bits + 1).number(), (bits - 1).number())
    smallest = copysign(bits.constant(1).number(), y)
    result = where(x.equals(0.0), smallest, moved)
    result = where(x.equals(y), y, result)
    return where(x.is_nan() | y.is_nan(), x + y, result)

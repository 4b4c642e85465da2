"""Turns roundings into second terms: sums and products as unevaluated pairs, and numbers as powers of two times a rest.

A pair (high, low) stands for high + low, with |low| at most half a unit in the last place of high. Dekker (1971),
Knuth (TAOCP 2, 4.2.2); with a fused multiply-add a product's rounding error is one instruction.
"""

from tenon.backends.cpu.mathematics.notation import Bits, Number, Operand, can_scale, fma, scaled

Pair = tuple[Number, Number]


def two_sum(x: Number, y: Operand) -> Pair:
    """x + y without error, whichever is larger."""
    total = x + y
    y_part = total - x
    return total, (x - (total - y_part)) + (y - y_part)


def quick_two_sum(large: Number, small: Operand) -> Pair:
    """large + small without error, when |large| >= |small| or large == 0."""
    total = large + small
    return total, small - (total - large)


def two_product(x: Number, y: Operand) -> Pair:
    """x * y without error, unless it underflows."""
    product = x * y
    return product, fma(x, y, -product)


def quotient(top: Pair, bottom: Pair) -> Number:
    """top / bottom, within 0.51 ulp for exact pairs, by one division; everything finite, bottom not 0."""
    inverse = 1.0 / bottom[0]
    y = top[0] * inverse
    remainder = fma(-y, bottom[1], fma(-y, bottom[0], top[0]) + top[1])
    return fma(remainder, inverse, y)


def exactly(x: Number) -> Pair:
    """x as a pair; adding -0.0 is nothing at all, so that LLVM removes it."""
    return x, x.constant(-0.0)


def nearest_integer(x: Number, factor: float | None = None) -> Pair:
    """(k, shifted): k is x, or x * factor, rounded to an integer, and the low bits of `shifted` hold k too.

    Its size is below 2**(mantissa - 1).
    """
    shifted = x + x.format.to_integer if factor is None else fma(x, factor, x.format.to_integer)
    return shifted - x.format.to_integer, shifted


def power_of_two(shifted: Number) -> Number:
    """2**k for the `shifted` of nearest_integer; k must be an exponent of a normal number."""
    kind = shifted.format
    return ((shifted.bits() + kind.bias) << kind.mantissa).number()


def times_power_of_two(y: Number, shifted: Number, extra: int = 0) -> Number:
    """y * 2**(k + extra) rounded once, for y near 1; overflows and underflows as it should while |k| < 2 * bias."""
    kind = y.format
    if can_scale(y):
        return scaled(y, shifted.bits() + (extra - kind.to_integer_bits))
    exponents = shifted.bits() + (2 * kind.bias + extra - kind.to_integer_bits)
    half = exponents >> 1
    return y * (half << kind.mantissa).number() * ((exponents - half) << kind.mantissa).number()


def integer_as_number(k: Bits) -> Number:
    """A small integer as a floating-point number; conversions of 64-bit lanes are not instructions everywhere."""
    kind = k.number().format
    return (k + kind.to_integer_bits).number() - kind.to_integer

"""Turns an angle x into quarter turns and a rest: x = n * pi/2 + r with |r| <= pi/4 and n modulo 4, for every x.

Payne and Hanek (1983): x * 2/pi is wanted modulo 4, so the bits of 2/pi that make multiples of 4 with the lowest bit
of x are left out, and as many of the following bits are kept as r needs. Which bits these are depends on the exponent
of x. Single precision works in doubles and selects among four pairs of them; double precision needs four doubles for
every 16 exponents, which it loads from a table of 2 KB.
"""

from fractions import Fraction
from functools import cache

from llvmlite import ir

from tenon.backends.cpu.mathematics.double_double import Pair, nearest_integer, quick_two_sum, two_product, two_sum
from tenon.backends.cpu.mathematics.notation import DOUBLE, Bits, Number, fma, intrinsic, narrow, where, widen
from tenon.records import dataclass

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
HALF_PI_SHORT = (1.5707963267341256, 6.077100506506192e-11, 3.5215598651832e-27)  # of 33, 53 and 53 bits
MAX_CODY_WAITE_ARGUMENT = 2.0**20


@dataclass(frozen=True)
class Angle:
    """r + tail, and the number of quarter turns (its lowest two bits) that were taken away."""

    quarters: Bits
    r: Number
    tail: Number | None = None


def reduce_single(x: Number, near: bool = False) -> Angle:
    """For floats: r to 24 bits."""
    wide = reduce_single_wide(x, near)
    # The number of quarter turns fits 32 bits: it is only wanted modulo 4.
    quarters = wide.quarters
    low = Bits(x.b, x.b.trunc(quarters.value, quarters.type_with(ir.IntType(32))))
    return Angle(low, narrow(wide.r))


def reduce_single_wide(x: Number, near: bool = False) -> Angle:
    """For floats, with r a double, right to about 2**-55."""
    wide = widen(x)
    n, shifted = nearest_integer(wide, 1.0 / HALF_PI[0])
    r = fma(-n, HALF_PI[1], fma(-n, HALF_PI[0], wide))      # the inner one is exact
    if near:
        return Angle(shifted.bits(), r)
    far_shifted, far_r = reduce_far_single(wide)
    inside = abs(wide) <= MAX_CODY_WAITE_ARGUMENT
    return Angle(where(inside, shifted, far_shifted).bits(), where(inside, r, far_r))


def reduce_far_single(wide: Number) -> Pair:
    """(a number whose low bits are the number of quarter turns, r)."""
    size = abs(wide)
    high, low = (wide.constant(part) for part in SINGLE_PARTS[0][1])
    for start, (high_part, low_part) in SINGLE_PARTS[1:]:
        inside = size >= start
        high, low = where(inside, high_part, high), where(inside, low_part, low)
    product, error = two_product(wide, high)
    # The product may be so large that its rounding error is a part of a turn: first drop multiples of 4, then count.
    multiple = (product + 4.0 * DOUBLE.to_integer) - 4.0 * DOUBLE.to_integer
    kept, rest = product - multiple, fma(wide, low, error)
    n, shifted = nearest_integer(kept + rest)
    return shifted, ((kept - n) + rest) * HALF_PI[0]


def reduce_double(x: Number, near: bool = False) -> Angle:
    """For doubles: r + tail to as many bits as the doubles nearest to multiples of pi/2 need."""
    angle = reduce_near_double(x)
    if near:
        return angle
    far, inside = reduce_far_double(x), abs(x) <= MAX_CODY_WAITE_ARGUMENT
    assert angle.tail is not None
    assert far.tail is not None
    return Angle(where(inside, angle.quarters.number(), far.quarters.number()).bits(),
                 where(inside, angle.r, far.r), where(inside, angle.tail, far.tail))


def reduce_near_double(x: Number) -> Angle:
    """n * pi/2 is subtracted in three parts: the first one exactly, of the second what is rounded off is kept."""
    first, second, third = HALF_PI_SHORT
    n, shifted = nearest_integer(x, 1.0 / HALF_PI[0])
    product, product_error = two_product(n, second)
    r, error = two_sum(fma(-n, first, x), -product)
    return Angle(shifted.bits(), r, fma(-n, third, error - product_error))


def reduce_far_double(x: Number) -> Angle:
    """r + tail to 120 bits behind the point, enough for the doubles nearest to multiples of pi/2.

    |x| is written as a * 2**(16 * row - bias) with 1 <= a < 2**16.
    """
    bits = abs(x).bits()
    row = bits >> (DOUBLE.mantissa + 4)
    a = ((bits & ((1 << (DOUBLE.mantissa + 4)) - 1)) + DOUBLE.one).number()
    parts = [load(row, part) for part in range(4)]
    (p0, e0), (p1, e1), (p2, e2) = (two_product(a, part) for part in parts[:3])
    total, error_a = two_sum(modulo_4(p0), modulo_4(e0))
    total, error_b = two_sum(total, modulo_4(p1))
    n, _ = nearest_integer(total)
    # What is left of the total may cancel against the products' lower parts, so each step keeps its error.
    t, error_c = two_sum(total - n, p2)
    t, error_d = two_sum(t, e1)
    t, error_e = two_sum(t, error_a)
    t, error_f = two_sum(t, error_b)
    tail = (error_c + error_d) + (error_e + error_f) + fma(a, parts[3], e2)
    t, tail = quick_two_sum(t, tail)
    r, r_error = two_product(t, HALF_PI[0])
    # x - x is nan where x is infinite, and nothing elsewhere.
    r_tail = fma(t, HALF_PI[1], fma(tail, HALF_PI[0], r_error)) + (x - x)
    negative = x.sign_bit()                                     # such angles turn the other way
    quarters = where(negative, -n, n) + DOUBLE.to_integer
    return Angle(quarters.bits(), where(negative, -r, r), where(negative, -r_tail, r_tail))


def modulo_4(x: Number) -> Number:
    """x less the nearest multiple of 4, exactly."""
    return fma(intrinsic("roundeven", x * 0.25), -4.0, x)


def load(row: Bits, part: int) -> Number:
    """table[row][part] in every lane."""
    b = row.b
    table = b.module.globals.get(TABLE) or define_table(b.module)
    index = ir.IntType(64)
    if not row.lanes:
        place = b.gep(table, [index(0), row.value, index(part)], inbounds=True)
        return Number(b, b.load(place))
    result: ir.Value = ir.Constant(row.type_with(ir.DoubleType()), ir.Undefined)
    for lane in range(row.lanes):
        at = ir.IntType(32)(lane)
        place = b.gep(table, [index(0), b.extract_element(row.value, at), index(part)], inbounds=True)
        result = b.insert_element(result, b.load(place), at)
    return Number(b, result)


TABLE = "tenon.two_over_pi"
ROWS = 128


def define_table(module: ir.Module) -> ir.GlobalVariable:
    row_type = ir.ArrayType(ir.DoubleType(), 4)
    table = ir.GlobalVariable(module, ir.ArrayType(row_type, ROWS), name=TABLE)
    table.linkage = "internal"
    table.global_constant = True
    table.initializer = ir.Constant(table.value_type, [ir.Constant(row_type, parts) for parts in table_of_parts()])
    return table


@cache
def two_over_pi() -> Fraction:
    """2/pi to 1400 bits, by Machin's formula in integers."""
    one = 1 << 1400

    def arctan_of_inverse(n: int) -> int:
        term, total, odd = one // n, 0, 1
        while term:
            total += term // odd if odd % 4 == 1 else -(term // odd)
            term, odd = term // (n * n), odd + 2
        return total

    return Fraction(2 * one, 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239)))


def parts_below(x: Fraction, top: int, count: int) -> list[float]:
    """x modulo 2**top as a sum of doubles."""
    modulus = Fraction(2) ** top
    x %= modulus
    parts = []
    for _ in range(count):
        parts.append(x.numerator / x.denominator)
        x -= Fraction(parts[-1])
    return parts


def single_parts(start: int) -> tuple[float, list[float]]:
    """For floats of at least 2**start, whose lowest bit is at least 2**(start - 23)."""
    return 2.0**start, parts_below(two_over_pi(), 25 - start, 2)


def double_parts(row: int) -> list[float]:
    """For a * 2**(16 * row - bias) with 1 <= a < 2**16, the factor of a; its lowest bit is 2**-52."""
    return parts_below(two_over_pi() * Fraction(2) ** (16 * row - DOUBLE.bias), 54, 4)


@cache
def table_of_parts() -> list[list[float]]:
    """The factors of all rows.  Those below 62 are for angles that are too small to need any."""
    return [double_parts(row) if row >= 62 else [0.0] * 4 for row in range(ROWS)]


SINGLE_PARTS = [(0.0, parts_below(two_over_pi(), 1, 2)), *(single_parts(start) for start in (50, 76, 102))]

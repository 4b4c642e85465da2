"""Turns fmod, remainder and floor_divide into steps of long division that are exact thanks to fma.

The only functions here with a loop: a quotient may have 2100 bits, and a step finds about 50 (20 in single
precision). One step is enough while the quotient fits the mantissa, but the loop keeps LLVM's vectoriser away.
"""

import math

from llvmlite import ir

from tenon.backends.cpu.mathematics.notation import Mask, Number, copysign, fma, intrinsic, where


def fmod(x: Number, y: Number, near: bool = False) -> Number:
    """x - trunc(x / y) * y, exact, with the sign of x, as in C; `near` where the quotient fits the mantissa."""
    size, d = abs(x), abs(y)
    r = less_multiple(size, d) if near else long_division(size, d)
    r = where(y.equals(math.inf) | y.equals(-math.inf), where(x.is_finite(), size, math.nan), r)
    return where(y.is_nan() | x.is_nan(), x + y, copysign(r, x))


def long_division(size: Number, d: Number) -> Number:
    """What is left of a number step by step."""
    b = size.b
    before = b.block
    body = b.append_basic_block("fmod")
    after = b.append_basic_block("fmod.end")
    b.branch(body)
    b.position_at_end(body)
    phi = b.phi(size.value.type)
    phi.add_incoming(size.value, before)
    r = step(Number(b, phi), d)
    phi.add_incoming(r.value, body)
    b.cbranch(any_lane(r >= d), body, after)
    b.position_at_end(after)
    return r


def step(r: Number, d: Number) -> Number:
    """r less a multiple of d: all of them if they fit the mantissa, else those of a power of two times d that does."""
    kind = r.format
    fits = r < d * 2.0**kind.mantissa
    scaled_r = r * 2.0 ** (1 - kind.mantissa)
    fraction = where(d < kind.smallest_normal, d * 2.0**kind.mantissa, d).bits() & ((1 << kind.mantissa) - 1)
    exponent = scaled_r.bits() & ~((1 << kind.mantissa) - 1)
    beside = where(scaled_r < kind.smallest_normal, d * 2.0 ** (kind.mantissa - 2), (fraction | exponent).number())
    return less_multiple(r, where(fits, d, beside))


def less_multiple(r: Number, d: Number) -> Number:
    """r modulo d, where how often d goes into r fits the mantissa."""
    rest = fma(intrinsic("trunc", r / d), -d, r)
    # The quotient may have been rounded up to the next integer.
    return where(rest < 0.0, rest + d, rest)


def any_lane(mask: Mask) -> ir.Value:
    if not mask.lanes:
        return mask.value
    name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
    kind = ir.FunctionType(ir.IntType(1), [mask.value.type])
    function = mask.b.module.globals.get(name) or ir.Function(mask.b.module, kind, name=name)
    return mask.b.call(function, [mask.value])


def remainder(x: Number, y: Number) -> Number:
    """x - floor(x / y) * y with the sign of y, as `%` in Python and NumPy; one rounding where the signs differ."""
    return remainder_with_sign(fmod(x, y), y)


def remainder_with_sign(rest: Number, y: Number) -> Number:
    adjusted = where((y < 0.0) ^ (rest < 0.0), rest + y, rest)
    return where(rest.equals(0.0), copysign(rest, y), adjusted)


def floor_divide(x: Number, y: Number) -> Number:
    """floor(x / y), consistent with `remainder`, as `//` in Python and NumPy."""
    rest = fmod(x, y)
    quotient = (x - rest) / y
    quotient = where(~rest.equals(0.0) & ~rest.is_nan() & ((y < 0.0) ^ (rest < 0.0)), quotient - 1.0, quotient)
    floored = intrinsic("floor", quotient)
    floored = where(quotient - floored > 0.5, floored + 1.0, floored)
    floored = where(quotient.equals(0.0), copysign(quotient * 0.0, x / y), floored)
    return where(y.equals(0.0), x / y, floored)

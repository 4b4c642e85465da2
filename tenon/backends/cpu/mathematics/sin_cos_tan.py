"""Turns sin, cos and tan into polynomials on |r| <= pi/4; `angle` finds r.

sin(r) = r + r**3 * S(r*r) and cos(r) = 1 - r*r/2 + r**4 * C(r*r), with minimax polynomials (tools/minimax.py sin
cos). The lowest two bits of the number of quarter turns say which of the two it is, and with which sign.
"""

from tenon.backends.cpu.mathematics.angle import Angle, reduce_double, reduce_single, reduce_single_wide
from tenon.backends.cpu.mathematics.double_double import Pair, quick_two_sum, quotient, two_product
from tenon.backends.cpu.mathematics.notation import Bits, Mask, Number, fma, narrow, polynomial, where

S = {32: (-0.16666655242443085, 0.008332187309861183, -0.000195179003640078),
     64: (-0.1666666666666663, 0.00833333333332184, -0.00019841269829358376, 2.755731353842411e-06,
          -2.505073437106296e-08, 1.5895432058663214e-10)}  # fmt: skip
C = {32: (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05),
     64: (0.041666666666666595, -0.0013888888888873307, 2.4801587288965362e-05, -2.755731420316948e-07,
          2.0875703159242444e-09, -1.1358618396382678e-11)}  # fmt: skip


def sin(x: Number, near: bool = False) -> Number:
    """The sine, within 1 ulp (single precision: 1.6), for every argument, or those up to NEAR."""
    turn = reduce_double(x, near) if x.is_double else reduce_single(x, near)
    sine, cosine = sin_and_cos(turn)
    y = with_sign_of(where(is_odd(turn.quarters), cosine, sine), turn.quarters)
    return where(x.equals(0.0), x, y)


def cos(x: Number, near: bool = False) -> Number:
    """The cosine, within 1 ulp (single precision: 1.6), for every argument, or those up to NEAR."""
    turn = reduce_double(x, near) if x.is_double else reduce_single(x, near)
    sine, cosine = sin_and_cos(turn)
    return with_sign_of(where(is_odd(turn.quarters), sine, cosine), turn.quarters + 1)


def tan(x: Number, near: bool = False) -> Number:
    """The tangent, within 2 ulp (single precision: 1, by way of doubles), for every argument, or those up to NEAR."""
    turn = reduce_double(x, near) if x.is_double else reduce_single_wide(x, near)
    sine, cosine = sin_and_cos_pairs(turn)
    odd = is_odd(turn.quarters)
    y = quotient((where(odd, -cosine[0], sine[0]), where(odd, -cosine[1], sine[1])),
                 (where(odd, sine[0], cosine[0]), where(odd, sine[1], cosine[1])))  # fmt: skip
    return where(x.equals(0.0), x, y if x.is_double else narrow(y))


def is_odd(quarters: Bits) -> Mask:
    return (quarters & 1).equals(1)


def with_sign_of(y: Number, quarters: Bits) -> Number:
    """Negates y in the second half turn."""
    return (y.bits() ^ ((quarters & 2) << (y.format.bits - 2))).number()


def sin_and_cos(turn: Angle) -> Pair:
    """sin(r + tail), cos(r + tail)."""
    r, tail = turn.r, turn.tail
    z = r * r
    cubic = polynomial(z, S[r.format.bits]) * z
    quartic = polynomial(z, C[r.format.bits]) * (z * z)
    if tail is None:
        return fma(r, cubic, r), fma(z, -0.5, quartic) + 1.0
    one, lost = quick_two_sum(z.constant(1.0), -0.5 * z)
    return r + fma(r, cubic, fma(-0.5 * z, tail, tail)), one + (lost + fma(-r, tail, quartic))


def sin_and_cos_pairs(turn: Angle) -> tuple[Pair, Pair]:
    """sin(r + tail), cos(r + tail), each a few bits more precisely than a float."""
    r, tail = turn.r, turn.tail if turn.tail is not None else turn.r.constant(0.0)
    z, z_error = two_product(r, r)
    sine = quick_two_sum(r, fma(r, polynomial(z, S[r.format.bits]) * z, fma(-0.5 * z, tail, tail)))
    one, lost = quick_two_sum(z.constant(1.0), -0.5 * z)
    low = fma(z_error, -0.5, lost) + fma(-r, tail, polynomial(z, C[r.format.bits]) * (z * z))
    return sine, quick_two_sum(one, low)





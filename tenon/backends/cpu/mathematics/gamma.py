"""Turns lgamma and digamma into Stirling's series, moved up by eight, with a polynomial around their zeros.

Single precision goes through doubles: near the zeros nothing else is precise enough. Negative arguments use the
reflection formulas; close to their zeros only the absolute error is small. Series: Abramowitz and Stegun 6.1.40 and
6.3.18; polynomials: tools/minimax.py lgamma digamma.
"""

import math

from tenon.backends.cpu.mathematics.angle import Angle
from tenon.backends.cpu.mathematics.double_double import Pair, nearest_integer
from tenon.backends.cpu.mathematics.logarithm import log
from tenon.backends.cpu.mathematics.notation import Number, fma, intrinsic, narrow, polynomial, where, widen
from tenon.backends.cpu.mathematics.sin_cos_tan import sin_and_cos

# lgamma(x) = (x - 1) * (x - 2) * LGAMMA(x - 2) for 1 <= x < 3
LGAMMA = (0.42278433509846713, -0.10031730167435426, 0.03296500062115705, -0.0123841921933343, 0.004998641164620326,
          -0.002108130835270184, 0.0009153769241778736, -0.00040570737575808345, 0.00018255261383152017,
          -8.309532835350127e-05, 3.8169087250439546e-05, -1.7660510255874168e-05, 8.22118767368813e-06,
          -3.851755424293888e-06, 1.811528325872062e-06, -8.415099066510048e-07, 3.9561717154835097e-07,
          -2.1201231404447374e-07, 1.0458622673882944e-07, -1.8751459281466508e-08, 5.554962539168421e-09,
          -2.994428661175794e-08, 1.6407731867546276e-08, 7.639928968810002e-09, -4.387010686380847e-09,
          -3.0599919707810407e-09, 1.5861668359616212e-09)  # fmt: skip
# digamma(x) = (x - root) * DIGAMMA(x - 1.5) for 1 <= x < 2
DIGAMMA = (0.9510558760318328, -0.42362742128145703, 0.24054248424077784, -0.14840492305488076, 0.0949887244544856,
           -0.06192213318952219, 0.040760833835834336, -0.02697580006556228, 0.01790725182842244,
           -0.01190814589259886, 0.007926953794158264, -0.005280909390128458, 0.0035189230851551804,
           -0.0023375136178737325, 0.0015571012240826617, -0.001077829584774644, 0.0007217283285788655,
           -0.00035447646178422924, 0.00023024523612638883, -0.00037863283777019615, 0.0002572725986868033)  # fmt: skip
# 1/12, -1/360, ...: B(2n) / (2n * (2n - 1)), and B(2n) / 2n
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
HALF_LOG_TWO_PI = 0.9189385332046728
DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
STEPS = 8
SERIES_START = 12.0


def lgamma(x: Number) -> Number:
    """log(|gamma(x)|), within 2e-14 of itself for x > 0 (single precision: 1 ulp); infinite at 0, -1, -2 ..."""
    return lgamma_double(x) if x.is_double else narrow(lgamma_double(widen(x)))


def lgamma_double(x: Number) -> Number:
    """lgamma(a) = main - log(divisor); lgamma(-a) = log(pi / (a * sin(pi*a))) - lgamma(a)."""
    a = abs(x)
    below_one, middle = a < 1.0, a < 3.0
    first, second = where(below_one, a, a - 1.0), where(below_one, a - 1.0, a - 2.0)
    around_zeros = first * second * polynomial(where(middle, second, 0.0), LGAMMA)

    shifted = a < SERIES_START
    product = a
    for i in range(1, STEPS):
        product = product * (a + float(i))
    y = where(shifted, a + float(STEPS), a)
    inverse = 1.0 / y
    series = fma(inverse, polynomial(inverse * inverse, STIRLING), HALF_LOG_TWO_PI - 0.5)
    stirling = fma(y - 0.5, log(y) - 1.0, series)

    main = where(middle, around_zeros, stirling)
    divisor = where(below_one, a, where(middle, 1.0, where(shifted, product, 1.0)))
    # For a below one the divisor is a, which the reflection formula cancels. Tiny numbers of both signs are alike.
    reflected = x.sign_bit() & (a > 2.0**-100)
    sine, _ = sin_and_cos_of_pi(a)
    scale = where(below_one, x.constant(1.0), divisor) / (where(below_one, 1.0, a) * abs(sine)) * math.pi
    y = where(reflected, log(scale) - main, main - log(divisor))
    # + 0.0: the zeros at 1 and 2 are positive.
    return where(a.equals(math.inf) | (reflected & sine.equals(0.0)), math.inf, y + 0.0)


def sin_and_cos_of_pi(a: Number) -> Pair:
    """sin(pi*a), cos(pi*a) up to their common sign, zero where they should be."""
    k, shifted = nearest_integer(a * 2.0)
    quarters = where(a < 2.0**51, k, 0.0)
    rest = where(a < 2.0**51, fma(k, -0.5, a), 0.0) * math.pi
    sine, cosine = sin_and_cos(Angle(shifted.bits(), rest))
    odd = ~(0.5 * quarters).equals(intrinsic("roundeven", 0.5 * quarters))
    return where(odd, cosine, sine), where(odd, -sine, cosine)


def digamma(x: Number) -> Number:
    """The derivative of lgamma, within 1e-14 of itself for x > 0 (single precision: 1 ulp); nan at -1, -2 ..."""
    return digamma_double(x) if x.is_double else narrow(digamma_double(widen(x)))


def digamma_double(x: Number) -> Number:
    """digamma(-a) = digamma(a) + 1/a + pi / tan(pi*a)."""
    a = abs(x)
    below_one, middle = a < 1.0, a < 2.0
    point = where(below_one, a + 1.0, a)
    around_zero = ((point - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1]) * polynomial(where(middle, point - 1.5, 0.0), DIGAMMA)

    shifted = a < SERIES_START
    top, bottom = a.constant(1.0), a
    for i in range(1, STEPS):
        top, bottom = fma(top, a + float(i), bottom), bottom * (a + float(i))
    y = where(shifted, a + float(STEPS), a)
    inverse = 1.0 / y
    z = inverse * inverse
    series = log(y) - fma(inverse, 0.5, z * polynomial(z, DIGAMMA_SERIES))
    moved = series - where(shifted, top / bottom, 0.0)

    reciprocal, main = 1.0 / a, where(middle, around_zero, moved)
    sine, cosine = sin_and_cos_of_pi(a)
    # Below one the reciprocal would be taken off and added again: not where it is infinite, as of tiny numbers.
    negative = main + where(below_one, 0.0, reciprocal) + math.pi * (cosine / sine)
    y = where(x.sign_bit(), where(sine.equals(0.0), math.nan, negative), main - where(below_one, reciprocal, 0.0))
    return where(x.equals(0.0), -1.0 / x, y)

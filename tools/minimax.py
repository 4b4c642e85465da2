"""Turns a function and an interval into the rounded coefficients of its best polynomial.

    python tools/minimax.py exp            # prints the table that stands in the source

Remez's exchange on a fixed grid of Chebyshev points, in 60 digits. Coefficients are rounded one by one, and what is
left is fitted again after each, so that the others absorb its rounding error: from the lowest upwards, or, where the
variable changes sign, from the highest downwards (powers without the constant have a common zero there, and Remez's
exchange fails).
"""

import bisect
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
from mpmath import mp, mpf

mp.dps = 60

Real = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """`weight(x) * (P(variable(x)) - target(x))` is made small for x in [low, high]."""

    target: Real
    weight: Real
    low: mpf
    high: mpf
    coefficients: dict[int, int]  # bits of the type -> how many
    variable: Real = lambda x: x


def remez(u: list[mpf], target: list[mpf], weight: list[mpf], first: int, count: int) -> tuple[list[mpf], mpf]:
    """The coefficients of u**first ... that make the largest weighted error on the grid smallest, and that error."""
    size = len(u)
    if count == 0:
        return [], max(abs(w * t) for w, t in zip(weight, target, strict=True))
    nodes = [round((size - 1) * i / count) for i in range(count + 1)]
    powers = [[w * x ** (first + j) for j in range(count)] for x, w in zip(u, weight, strict=True)]
    goal = [w * t for w, t in zip(weight, target, strict=True)]
    best: tuple[list[mpf], mpf] = ([], mpf("inf"))
    for _ in range(100):
        rows = mpmath.matrix([[*powers[n], mpf(-1) ** i] for i, n in enumerate(nodes)])
        solution = list(mpmath.lu_solve(rows, mpmath.matrix([goal[n] for n in nodes])))
        error = [mpmath.fdot(p, solution[:count]) - g for p, g in zip(powers, goal, strict=True)]
        largest = max(map(abs, error))
        best = min(best, (solution[:count], largest), key=lambda pair: pair[1])
        if largest <= abs(solution[count]) * mpf("1.001"):
            break
        extrema = alternating_extrema(error, count + 1)
        nodes = extrema if len(extrema) == count + 1 else with_worst(nodes, error)
    return best


def with_worst(nodes: list[int], error: list[mpf]) -> list[int]:
    """The nodes with the grid's worst point in place of a neighbour whose error has the same sign."""
    worst = max(range(len(error)), key=lambda i: abs(error[i]))
    after = bisect.bisect(nodes, worst)
    sign = error[worst] > 0
    if after > 0 and (error[nodes[after - 1]] > 0) == sign:
        return [*nodes[: after - 1], worst, *nodes[after:]]
    if after < len(nodes) and (error[nodes[after]] > 0) == sign:
        return [*nodes[:after], worst, *nodes[after + 1 :]]
    return [worst, *nodes[:-1]] if after == 0 else [*nodes[1:], worst]


def alternating_extrema(error: list[mpf], count: int) -> list[int]:
    """Indices of the largest error of each run of one sign, thinned at the ends to `count`."""
    extrema: list[int] = []
    for i, e in enumerate(error):
        if extrema and (error[extrema[-1]] > 0) == (e > 0):
            if abs(e) > abs(error[extrema[-1]]):
                extrema[-1] = i
        else:
            extrema.append(i)
    while len(extrema) > count:
        extrema.pop(0 if abs(error[extrema[0]]) < abs(error[extrema[-1]]) else -1)
    return extrema


def rounded(x: mpf, bits: int) -> float:
    return float(x) if bits == 64 else float(struct.unpack("f", struct.pack("f", float(x)))[0])


def fit(f: Fit, bits: int) -> tuple[list[float], float]:
    count = f.coefficients[bits]
    size = 24 * (count + 2)
    grid = [f.low + (f.high - f.low) * (1 - mpmath.cos(mpmath.pi * (i + mpf(1) / 2) / size)) / 2 for i in range(size)]
    u = [f.variable(x) for x in grid]
    weight = [abs(f.weight(x)) for x in grid]
    left = [f.target(x) for x in grid]
    result = [0.0] * count
    two_sided = min(u) < 0 < max(u)
    for done in range(count):
        j = count - 1 - done if two_sided else done
        c, _ = remez(u, left, weight, 0 if two_sided else j, count - done)
        result[j] = rounded(c[-1 if two_sided else 0], bits)
        left = [t - result[j] * x**j for t, x in zip(left, u, strict=True)]
    return result, float(max(abs(w * t) for w, t in zip(weight, left, strict=True)))


ln2 = mpmath.log(2)
DIGAMMA_ROOT = mpmath.findroot(mpmath.digamma, mpf("1.4616321449683623"))


def erfcx(a: mpf) -> mpf:
    return mpmath.exp(a * a) * mpmath.erfc(a)


def from_erfcx_variable(t: mpf, k: int) -> mpf:
    """a, when t = (a - k) / (a + k)."""
    return k * (1 + t) / (1 - t)


def erfinv_tail(w: mpf) -> mpf:
    """erfinv(x) / x, when w = -log(1 - x * x)."""
    x = mpmath.sqrt(-mpmath.expm1(-w))
    with mpmath.workdps(90):
        return mpmath.erfinv(x) / x


def erfinv_far(s: mpf) -> mpf:
    with mpmath.workdps(90):
        x = mpmath.sqrt(-mpmath.expm1(-s * s))
        start = s * mpmath.mpf("0.95")
        c = 1 - x
        root = mpmath.findroot(lambda y: mpmath.log(mpmath.erfc(y)) - mpmath.log(c), start)
        return root / x


FITS: dict[str, Fit] = {
    # exp(r) = 1 + r + r*r*(0.5 + r*P(r)), relative to expm1 so that expm1 can share it
    "exp": Fit(lambda r: (mpmath.expm1(r) - r - r * r / 2) / r**3, lambda r: r**3 / mpmath.expm1(r),
               -ln2 * mpf("0.502"), ln2 * mpf("0.502"), {32: 4, 64: 10}),
    # log(1 + f) = f - f*f/2 + f*f*f*P(f)
    "log": Fit(lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3, lambda f: f**3 / mpmath.log1p(f),
               mpmath.sqrt(mpf(1) / 2) - 1, mpmath.sqrt(2) - 1, {32: 9}),
    # log((1 + s) / (1 - s)) = 2*s + s**3 * P(s*s)
    "log_quotient": Fit(lambda s: (2 * mpmath.atanh(s) - 2 * s) / s**3, lambda s: s**3 / (2 * mpmath.atanh(s)),
                        mpf("1e-9"), (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1), {32: 4, 64: 7},
                        lambda s: s * s),
    # log((1 + s) / (1 - s)) = 2*s + 2/3*s**3 + s**5 * P(s*s)
    "log_pair": Fit(lambda s: (2 * mpmath.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5,
                    lambda s: s**5 / (2 * mpmath.atanh(s)),
                    mpf("1e-6"), (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1), {64: 8}, lambda s: s * s),
    # sin(r) = r + r**3 * P(r*r)
    "sin": Fit(lambda r: (mpmath.sin(r) - r) / r**3, lambda r: r**3 / mpmath.sin(r), mpf("1e-6"),
               mpmath.pi / 4 * mpf("1.001"), {32: 3, 64: 6}, lambda r: r * r),
    # cos(r) = 1 - r*r/2 + r**4 * P(r*r)
    "cos": Fit(lambda r: (mpmath.cos(r) - 1 + r * r / 2) / r**4, lambda r: r**4 / mpmath.cos(r), mpf("1e-6"),
               mpmath.pi / 4 * mpf("1.001"), {32: 3, 64: 6}, lambda r: r * r),
    # asin(s) = s + s*z*P(z), z = s*s
    "asin": Fit(lambda s: (mpmath.asin(s) - s) / s**3, lambda s: s**3 / mpmath.asin(s), mpf("1e-6"), mpf("0.5"),
                {32: 5, 64: 13}, lambda s: s * s),
    # atan(t) = t + t*z*P(z), z = t*t
    "atan": Fit(lambda t: (mpmath.atan(t) - t) / t**3, lambda t: t**3 / mpmath.atan(t), mpf("1e-6"),
                mpmath.sqrt(2) - 1, {32: 5, 64: 11}, lambda t: t * t),
    # sinh(x) = x + x*z*P(z), z = x*x
    "sinh": Fit(lambda x: (mpmath.sinh(x) - x) / x**3, lambda x: x**3 / mpmath.sinh(x), mpf("1e-6"), mpf(1),
                {32: 3, 64: 7}, lambda x: x * x),
    # tanh(x) = x + x*z*P(z) for |x| < 0.7, z = x*x
    "tanh": Fit(lambda x: (mpmath.tanh(x) - x) / x**3, lambda x: x**3 / mpmath.tanh(x), mpf("1e-6"), mpf("0.71"),
                {32: 5}, lambda x: x * x),
    # m ** (-1/3) to start Newton's method
    "inverse_cbrt": Fit(lambda m: m ** (-mpf(1) / 3), lambda m: m ** (mpf(1) / 3),
                        mpf("0.707"), mpf("1.4143"), {64: 5}),
    # erf(x) = x + x*P(x*x) for |x| < 1
    "erf": Fit(lambda x: mpmath.erf(x) / x - 1, lambda x: x / mpmath.erf(x), mpf("1e-6"), mpf(1),
               {32: 7, 64: 13}, lambda x: x * x),
    # erfc(a) = P((a - 2.5) * 0.6875) for a >= 1
    "erf_far_32": Fit(mpmath.erfc, lambda a: mpf(1), mpf("0.99"), mpf("3.95"), {32: 13},
                      lambda a: (a - mpf("2.5")) * mpf("0.6875")),
    # erfc(a) = exp(-a * P(a)) for a >= 1, good to the rounding of 1 - erfc(a)
    "erf_far_64": Fit(lambda a: -mpmath.log(mpmath.erfc(a)) / a, lambda a: a * mpmath.erfc(a) / mpmath.erf(a),
                      mpf("0.9"), mpf("6"), {64: 20}),
    # (1 + 2*a) * exp(a*a) * erfc(a) = P(t), t = (a - k) / (a + k)
    "erfc_32": Fit(lambda t: (1 + 2 * from_erfcx_variable(t, 2)) * erfcx(from_erfcx_variable(t, 2)) - 1,
                   lambda t: 1 / ((1 + 2 * from_erfcx_variable(t, 2)) * erfcx(from_erfcx_variable(t, 2))),
                   mpf("-0.7"), mpf("0.68"), {32: 11}),
    "erfc_64": Fit(lambda t: (1 + 2 * from_erfcx_variable(t, 4)) * erfcx(from_erfcx_variable(t, 4)) - 1,
                   lambda t: 1 / ((1 + 2 * from_erfcx_variable(t, 4)) * erfcx(from_erfcx_variable(t, 4))),
                   mpf("-0.81"), mpf("0.75"), {64: 22}),
    # erfinv(x) = x * P(w - 3.125) for w = -log(1 - x*x) < 6.25; x * P(sqrt(w) - 3.25) or x * P(sqrt(w) - 5) beyond
    "erfinv": Fit(erfinv_tail, lambda w: 1 / erfinv_tail(w), mpf("1e-12"), mpf("6.25"), {32: 11, 64: 23},
                  lambda w: w - mpf("3.125")),
    "erfinv_middle": Fit(erfinv_far, lambda s: 1 / erfinv_far(s), mpf("2.5"), mpf(4), {32: 9, 64: 19},
                         lambda s: s - mpf("3.25")),
    "erfinv_far": Fit(erfinv_far, lambda s: 1 / erfinv_far(s), mpf(4), mpf("6.1"), {64: 17}, lambda s: s - 5),
    # lgamma(x) = (x - 1) * (x - 2) * P(x - 2) for 1 <= x < 3
    "lgamma": Fit(lambda x: mpmath.loggamma(x) / ((x - 1) * (x - 2)),
                  lambda x: (x - 1) * (x - 2) / mpmath.loggamma(x), mpf("1.0000000001"), mpf(3), {64: 27},
                  lambda x: x - 2),
    # digamma(x) = (x - root) * P(x - 1.5) for 1 <= x < 2
    "digamma": Fit(lambda x: mpmath.digamma(x) / (x - DIGAMMA_ROOT), lambda x: (x - DIGAMMA_ROOT) / mpmath.digamma(x),
                   mpf(1), mpf(2), {64: 21}, lambda x: x - mpf("1.5")),
}


def main(names: list[str]) -> None:
    for name in names or FITS:
        for bits in FITS[name].coefficients:
            coefficients, error = fit(FITS[name], bits)
            print(f"# {name}: error {error:.2g} = 2**{float(mpmath.log(error, 2)):.1f}")
            print(f"    {bits}: (" + ", ".join(repr(c) for c in coefficients) + "),", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

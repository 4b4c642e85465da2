"""Turns a function and an interval into the rounded coefficients of its best quotient of two polynomials.

    python tools/rational.py normal_cdf    # prints the tables that stand in the source

Remez's exchange as for polynomials (tools/minimax.py). The highest coefficient of the bottom is 1. Beside the error at
a node stands the bottom, which is unknown, so that it is taken from the turn before.
"""

import sys
from dataclasses import dataclass

import mpmath
from minimax import Real, alternating_extrema, rounded, with_worst
from mpmath import mpf

TURNS = 60


@dataclass(frozen=True)
class Ratio:
    """`weight(x) * (P(variable(x)) / Q(variable(x)) - target(x))` is made small for x in [low, high]."""

    target: Real
    weight: Real
    low: mpf
    high: mpf
    degree: int         # of both
    variable: Real = lambda x: x


def fit(f: Ratio) -> tuple[list[mpf], list[mpf], mpf]:
    """The coefficients of top and bottom, the lowest first, and the largest error on a grid."""
    count = 2 * f.degree + 1
    size = 24 * (count + 2)
    grid = [f.low + (f.high - f.low) * (1 - mpmath.cos(mpmath.pi * (i + mpf(1) / 2) / size)) / 2 for i in range(size)]
    u, weight, target = ([of(x) for x in grid] for of in (f.variable, lambda x: abs(f.weight(x)), f.target))
    nodes, below = [round((size - 1) * i / count) for i in range(count + 1)], [mpf(1)] * size
    best: tuple[list[mpf], list[mpf], mpf] = ([], [], mpf("inf"))
    for _ in range(TURNS):
        rows = [[*(u[n] ** j for j in range(f.degree + 1)), *(-target[n] * u[n] ** j for j in range(f.degree)),
                 mpf(-1) ** i * below[n] / weight[n]] for i, n in enumerate(nodes)]
        goal = [target[n] * u[n] ** f.degree for n in nodes]
        *solution, _ = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix(goal))
        top, bottom = solution[:f.degree + 1], [*solution[f.degree + 1:], mpf(1)]
        below = [mpmath.polyval(bottom[::-1], x) for x in u]
        error = [w * (mpmath.polyval(top[::-1], x) / b - t)
                 for w, x, b, t in zip(weight, u, below, target, strict=True)]
        best = min(best, (top, bottom, max(map(abs, error))), key=lambda found: found[2])
        extrema = alternating_extrema(error, count + 1)
        nodes = extrema if len(extrema) == count + 1 else with_worst(nodes, error)
    return best


FITS: dict[str, Ratio] = {
    # 1/2 + x * (7/64 + P(x*x) / Q(x*x)) is the normal distribution's; without 7/64 rounding would weigh more
    "normal_cdf": Ratio(lambda x: mpmath.erf(x / mpmath.sqrt(2)) / x / 2 - mpf(7) / 64, lambda x: x, mpf("1e-6"),
                        mpf("5.6"), 5, lambda x: x * x),
}


def main(names: list[str]) -> None:
    for name in names or FITS:
        top, bottom, error = fit(FITS[name])
        print(f"# {name}: error {float(error):.2g} = 2**{float(mpmath.log(error, 2)):.1f}")
        for coefficients in top, bottom:
            print("    (" + ", ".join(repr(rounded(c, 32)) for c in coefficients) + ")", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The incomplete gamma functions, and how a draw from the gamma distribution moves with its parameter.

Below the mode the area under t ** (a - 1) * exp(-t) is summed as a series.  Elsewhere, and where `a` is large, it is an
integral over the tail that begins at x, which holds a bell or less: Gauss and Legendre's points do for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops import special_reference as reference
from tenon.ops.define import check_kind, define
from tenon.ops.exponential import exp, log
from tenon.ops.special_functions import lgamma
from tenon.types import TensorType, broadcast_shapes

MAX_SERIES_A = 20.0     # from this `a` on there is no series
NEGLIGIBLE = 38.0       # exp(-NEGLIGIBLE) is nothing beside 1
POINTS = 72


def _density(a: Any, x: Any) -> Any:
    """x ** a * exp(-x) / gamma(a + 1), also where its factors are huge."""
    with np.errstate(divide="ignore"):
        small = np.exp(a * np.log(x) - x - reference.lgamma(a + 1.0))
    base = np.maximum(a, MAX_SERIES_A)
    d = x / base
    away = np.where(d > 0, np.log1p(np.maximum(d, 1e-300) - 1.0) - (d - 1.0), -np.inf)
    stirling = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * base ** 2)) / base ** 2) / base ** 2) / base
    return np.where(a < MAX_SERIES_A, small, np.exp(base * away - stirling) / np.sqrt(2 * math.pi * base))


def _series(a: Any, x: Any, weight: Callable[[Any], Any]) -> Any:
    """The sum over n of x ** n / ((a + 1) ... (a + n)) * weight(n)."""
    term, total = np.ones_like(x), weight(0) * np.ones_like(x)
    for n in range(1, 200):
        term = term * (x / (a + n))
        total = total + term * weight(n)
        if not (term > 1e-18).any():
            break
    return total


@lru_cache
def _points() -> tuple[Any, Any]:
    places, weights = np.polynomial.legendre.leggauss(POINTS)
    return (places + 1) / 2, weights / 2


def _tail(a: Any, x: Any, below: Any, weight: Callable[[Any], Any]) -> Any:
    """The integral of (t / x) ** (a - 1) * exp(x - t) * weight(t) over the t below x, or above it."""
    rate = np.where(below, (a - 1) / x - 1, 1 - (a - 1) / x)
    bend = np.maximum(a - 1, 0) / (x * x)
    length = 2 * NEGLIGIBLE / (np.abs(rate) + np.sqrt(rate * rate + 2 * NEGLIGIBLE * bend))
    sign = np.where(below, -1.0, 1.0)

    def exponent(s: Any) -> Any:
        with np.errstate(divide="ignore"):
            return (a - 1) * np.log1p(np.maximum(sign * s / x, -1.0)) - sign * s
    for _ in range(12):
        length = np.where(exponent(length) > -NEGLIGIBLE, length * 1.25, length)
    length = np.where(below, np.minimum(length, x), length)
    total = np.zeros_like(x)
    for place, share in zip(*_points(), strict=True):
        s = place * length
        total = total + share * np.exp(exponent(s)) * weight(x + sign * s)
    return total * length


def _sides(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """Both as numbers in double precision; and where the area below x is the one that is computed."""
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    return a, x, x <= a + 1


def _lower(a: Any, x: Any, upper: bool) -> Any:
    a, x, below = _sides(a, x)
    fine = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    sound_a, sound_x = np.where(fine, a, 1.0), np.where(fine, x, 1.0)
    series, density = below & (a < MAX_SERIES_A), _density(sound_a, sound_x)
    summed = density * _series(sound_a, np.where(series, sound_x, 0.0), lambda n: 1.0)
    near_x = np.where(series & fine, 1.0, sound_x)      # the integral is not taken there
    near_a = np.where(series & fine, 1.0, sound_a)
    area = _density(near_a, near_x) * near_a / near_x * _tail(near_a, near_x, below & ~series, lambda t: 1.0)
    found = np.where(series, summed, area)
    share = np.where(below != upper, found, 1 - found)
    edge = np.where((x == 0) & (a > 0), 0.0, np.where((x == np.inf) & (a >= 0), 1.0, np.where(
        (a == 0) & (x > 0), 1.0, np.where((a == np.inf) & (x >= 0), 0.0, np.nan))))
    return np.where(fine, share, 1 - edge if upper else edge)


def slope_reference(x: Any, a: Any) -> Any:
    """NumPy: how a draw x moves with the parameter a, when the share of the distribution below it stays."""
    a, x, below = _sides(a, x)
    fine = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a, x = np.where(fine, a, 1.0), np.where(fine, x, 1.0)
    series = below & (a < MAX_SERIES_A)
    psi = reference.digamma(a)

    def weights() -> Callable[[int], Any]:
        held = [np.log(x) - psi - 1 / a]

        def weight(n: int) -> Any:
            if n:
                held[0] = held[0] - 1 / (a + n)
            return held[0]
        return weight
    summed = -x / a * _series(a, np.where(series, x, 0.0), weights())
    sound = np.where(series, 2.0, x), np.where(series, 1.0, a)
    sign = np.where(below, -1.0, 1.0)
    moved = sign * _tail(sound[1], sound[0], below & ~series, lambda t: np.log(np.maximum(t, 1e-300)) - psi)
    return np.where(fine, np.where(series, summed, moved), 0.0)


def _both(name: str) -> Callable[[TensorType, TensorType], TensorType]:
    def rule(x: TensorType, y: TensorType) -> TensorType:
        check_kind(name, x.dtype, "f")
        return TensorType(x.dtype, broadcast_shapes(x.shape, y.shape))
    return rule


def _slope_of_area(g: Any, a: Any, x: Any) -> Any:
    return g * exp((a - 1) * log(x) - x - lgamma(a))


gammainc: Op = define(
    "gammainc", type=lambda a, x: _both("gammainc")(a, x), promote=floating, domain=((0.3, 4.0), (0.3, 4.0)),
    ref=lambda a, x: _lower(a, x, False).astype(a.dtype),
    vjp=lambda g, y, a, x: (None, lambda: _slope_of_area(g, a, x)),
    doc="The share of the gamma distribution of parameter a that lies below x; no gradient for a.",
    examples=["gammainc(f32(0.5), f32[2, 3]) -> f32[2, 3]", "gammainc(i64[2], i64[2]) -> f32[2]"])
gammaincc: Op = define(
    "gammaincc", type=lambda a, x: _both("gammaincc")(a, x), promote=floating, domain=((0.3, 4.0), (0.3, 4.0)),
    ref=lambda a, x: _lower(a, x, True).astype(a.dtype),
    vjp=lambda g, y, a, x: (None, lambda: -_slope_of_area(g, a, x)),
    doc="1 - gammainc(a, x), exact where that is close to 0.",
    examples=["gammaincc(f32(0.5), f32[2, 3]) -> f32[2, 3]"])
gamma_slope: Op = define(
    "gamma_slope", public=False, type=lambda x, a: _both("gamma_slope")(x, a), promote=floating, domain=(0.3, 4.0),
    ref=lambda x, a: slope_reference(x, a).astype(x.dtype),
    doc="How a number x, drawn from the gamma distribution of parameter a, moves with a.",
    examples=["gamma_slope(f32[2, 3], f32[2, 3]) -> f32[2, 3]"])

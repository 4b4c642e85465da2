"""NumPy references of special functions, to about 1e-14: what SciPy would give, without SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# B(2k) / (2k): the coefficients of digamma's asymptotic series
_DIGAMMA = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12]
_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


BESSEL_SPLIT, BESSEL_NODES = 30.0, 40      # where one formula ends, and angles in a quarter of a turn before that


def _each(fn: Callable[[float], float]) -> Callable[..., Any]:
    return np.vectorize(fn, otypes=[np.float64])


def _lgamma(x: float) -> float:
    if math.isinf(x) or x > 2.5e305 or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


erfc = _each(math.erfc)
lgamma = _each(_lgamma)


_erf_of_few = _each(math.erf)
MAX_PYTHON_ELEMENTS = 100   # numbers that are sooner done one by one
STEPS, FAR, TERMS = 128, 6, 7           # places from one whole number to the next, and where erf is 1


def erf(x: Any) -> Any:
    """The Taylor series about the nearest of many places, good to two units of the last."""
    x = np.asarray(x, np.float64)
    if x.size < MAX_PYTHON_ELEMENTS:
        return _erf_of_few(x)
    size = np.minimum(np.abs(x), FAR)
    place = np.rint(np.fmin(size, FAR) * STEPS).astype(np.intp)     # fmin: any, where it is no number
    rest = size - place / STEPS
    first, *others = _erf_series()
    total = others[-1][place]
    for terms in others[-2::-1]:
        total = total * rest + terms[place]
    return np.copysign(total * rest + first[place], x)


@cache
def _erf_series() -> list[np.ndarray]:
    """erf(c + h) by powers of h at all places c: the slope u is 2/sqrt(pi) exp(-c*c), and u' = -2 (c + h) u."""
    c = np.arange(FAR * STEPS + 1) / STEPS
    slope = [2 / math.sqrt(math.pi) * np.exp(-c * c)]
    for k in range(TERMS - 2):
        slope.append(-2 * (c * slope[k] + (slope[k - 1] if k else 0)) / (k + 1))
    return [_erf_of_few(c), *[u / (k + 1) for k, u in enumerate(slope)]]


def erfinv(x: Any) -> Any:
    """A rational start (Winitzki), then Halley's steps on erf, or on erfc where erf is close to 1."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    with np.errstate(all="ignore"):
        t = np.log1p(-np.minimum(size * size, 1 - 2.0 ** -53))
        a = 2 / (math.pi * 0.147) + t / 2
        y = np.sqrt(np.sqrt(a * a - t / 0.147) - a)
        for _ in range(4):
            wrong = np.where(size < 0.5, erf(y) - size, (1 - size) - erfc(y))
            step = wrong / (2 / math.sqrt(math.pi) * np.exp(-y * y))
            y = y - step / (1 + y * step)
    y = np.where(size == 1, np.inf, np.where(size > 1, np.nan, y))
    return np.copysign(y, x)


def digamma(x: Any) -> Any:
    """Reflection for negative x, recurrence up to 12, then the asymptotic series."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        far = np.where(x < 0, 1 - x, x)
        total = np.zeros_like(far)
        for _ in range(12):
            small = far < 12
            total = total - np.where(small, 1 / far, 0)
            far = np.where(small, far + 1, far)
        inverse = 1 / (far * far)
        series = sum(c * inverse ** (k + 1) for k, c in enumerate(_DIGAMMA))
        total = total + np.log(far) - 0.5 / far - series
        turned = x - np.rint(x)                 # tan of the fraction keeps the digits of a large x, and of a tiny one
        total = np.where(x < 0, total - math.pi / np.tan(math.pi * turned), total)
        total = np.where((x < 0) & (turned == 0) | (x == -np.inf), np.nan, total)
        return np.where(x == 0, np.copysign(np.inf, -x), np.where(x == np.inf, np.inf, total))


def polygamma(x: Any, n: int) -> Any:
    """(-1)**(n+1) n! zeta(n+1, x): terms summed up to x = 16, then Euler-Maclaurin."""
    x = np.asarray(x, np.float64)
    s = n + 1
    with np.errstate(all="ignore"):
        reflected = (x < 0) & (n == 1)
        far = np.where(reflected, 1 - x, x)
        total = np.zeros_like(far)
        for _ in range(1000):
            small = far < 16
            if not small.any():
                break
            total = total + np.where(small, far ** -s, 0)
            far = np.where(small, far + 1, far)
        total = total + far ** (1 - s) / (s - 1) + 0.5 * far ** -s
        factor, power = float(s), far ** (-s - 1)
        for k, bernoulli in enumerate(_BERNOULLI):
            total = total + bernoulli / math.factorial(2 * k + 2) * factor * power
            factor *= (s + 2 * k + 1) * (s + 2 * k + 2)
            power = power / (far * far)
        value = (-1.0) ** (n + 1) * math.factorial(n) * total
        return np.where(reflected, (math.pi / np.sin(math.pi * x)) ** 2 - value, value)


def i0(x: Any) -> Any:
    """The modified Bessel function of order 0."""
    return np.i0(x)


def bessel_j(x: Any, order: int) -> Any:
    """Bessel's functions of order 0 and 1: his integral for |x| < 30, by a rule that is exact there; Hankel's series
    beyond."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    near, far = np.minimum(size, BESSEL_SPLIT), np.maximum(size, BESSEL_SPLIT)
    total = np.zeros_like(near)
    for angle in (np.arange(BESSEL_NODES) + 0.5) * (math.pi / 2 / BESSEL_NODES):
        height = math.sin(angle)
        total = total + (np.sin(near * height) * height if order else np.cos(near * height))
    part, even, odd = np.ones_like(far), np.ones_like(far), np.zeros_like(far)
    for k in range(1, 24):
        part = part * ((4 * order - (2 * k - 1) ** 2) / (8 * k * far))
        if k % 2:
            odd = odd + part * (1 if k % 4 == 1 else -1)
        else:
            even = even + part * (1 if k % 4 == 0 else -1)
    with np.errstate(all="ignore"):
        turned = far - (2 * order + 1) * (math.pi / 4)
        tail = np.sqrt(2 / (math.pi * far)) * (even * np.cos(turned) - odd * np.sin(turned))
    found = np.where(size < BESSEL_SPLIT, total / BESSEL_NODES, tail)
    return np.where(x < 0, -found, found) if order else found


def i1(x: Any) -> Any:
    """Its power series for |x| < 30, whose terms are all positive; the asymptotic series beyond."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    near, far = np.minimum(size, 30), np.maximum(size, 30)
    term = near / 2
    total = np.array(term)
    for k in range(1, 80):
        term = term * (near * near / 4) / (k * (k + 1))
        total = total + term
    part = np.ones_like(far)
    tail = np.array(part)
    for k in range(1, 20):
        part = part * -(4 - (2 * k - 1) ** 2) / (8 * k * far)
        tail = tail + part
    with np.errstate(all="ignore"):
        tail = np.exp(far) / np.sqrt(2 * math.pi * far) * tail
    return np.copysign(np.where(size < 30, total, np.where(np.isinf(size), np.inf, tail)), x)

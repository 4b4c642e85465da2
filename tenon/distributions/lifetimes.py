"""Distributions of waiting times and of sizes with heavy tails: Weibull, Pareto, GeneralizedPareto, HalfCauchy."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.location_scale import EULER
from tenon.distributions.parameters import a_number, broadcast, positive
from tenon.ops.arithmetic import square
from tenon.ops.comparison import clip, where
from tenon.ops.creation import full_like, zeros_like
from tenon.ops.exponential import exp, expm1, log, log1p
from tenon.ops.special_functions import lgamma
from tenon.ops.trigonometric import atan, tan
from tenon.random import beside, exponential, rand

__all__ = ["GeneralizedPareto", "HalfCauchy", "Pareto", "Weibull"]


class Weibull(Distribution):
    """A time whose power `concentration` is exponential; `scale` is that of the time.

    >>> tn.distributions.Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    support = constraints.positive
    has_rsample = True
    arg_names = ("scale", "concentration")

    def __init__(self, scale: Any, concentration: Any):
        self.scale, self.concentration = broadcast("Weibull", {"scale": positive, "concentration": positive},
                                                  scale=scale, concentration=concentration)
        self.batch_shape = tuple(self.scale.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        waited = exponential(size=shape, dtype=self.scale.dtype, device=beside(self.scale))
        return self.scale * waited ** (1 / self.concentration)

    def log_prob(self, value: Any) -> Any:
        inside = value > 0
        x = log(where(inside, value, 1)) - log(self.scale)
        k = self.concentration
        return where(inside, log(k) - log(self.scale) + (k - 1) * x - exp(k * x), -math.inf)

    def entropy(self) -> Any:
        return EULER * (1 - 1 / self.concentration) + log(self.scale / self.concentration) + 1

    def cdf(self, value: Any) -> Any:
        return -expm1(-((clip(value, 0, None) / self.scale) ** self.concentration))

    def icdf(self, value: Any) -> Any:
        return self.scale * (-log1p(-value)) ** (1 / self.concentration)

    def _moment(self, order: int) -> Any:
        return self.scale ** order * exp(lgamma(1 + order / self.concentration))

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def mode(self) -> Any:
        k = self.concentration
        return where(k > 1, self.scale * (where(k > 1, k - 1, 1) / k) ** (1 / k), 0)

    @property
    def variance(self) -> Any:
        return self._moment(2) - square(self._moment(1))


class Pareto(Distribution):
    """At least `scale`, and above x with probability (scale / x) ** alpha.

    >>> tn.distributions.Pareto(1.0, 2.0).mean
    tensor(2.)
    """

    has_rsample = True
    arg_names = ("scale", "alpha")

    def __init__(self, scale: Any, alpha: Any):
        self.scale, self.alpha = broadcast("Pareto", {"scale": positive, "alpha": positive}, scale=scale, alpha=alpha)
        self.batch_shape = tuple(self.scale.shape)

    @property
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self.scale * exp(exponential(size=shape, dtype=self.scale.dtype, device=beside(self.scale)) / self.alpha)

    def log_prob(self, value: Any) -> Any:
        inside = value >= self.scale
        x = log(where(inside, value, self.scale))
        return where(inside, log(self.alpha) + self.alpha * log(self.scale) - (self.alpha + 1) * x, -math.inf)

    def entropy(self) -> Any:
        return log(self.scale / self.alpha) + 1 + 1 / self.alpha

    def cdf(self, value: Any) -> Any:
        return where(value < self.scale, 0, 1 - (self.scale / value) ** self.alpha)

    def icdf(self, value: Any) -> Any:
        return self.scale * exp(-log1p(-value) / self.alpha)

    @property
    def mean(self) -> Any:
        a = where(self.alpha > 1, self.alpha, 2)
        return where(self.alpha > 1, a * self.scale / (a - 1), math.inf)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        a = where(self.alpha > 2, self.alpha, 3)
        return where(self.alpha > 2, square(self.scale) * a / (square(a - 1) * (a - 2)), math.inf)


class GeneralizedPareto(Distribution):
    """What exceeds a high threshold `loc` (Pickands 1975): tails as a power for a `concentration` above 0.

    For 0 they are exponential, below it they end.

    >>> tn.distributions.GeneralizedPareto(1.0, 2.0, 0.0).mean
    tensor(3.)
    """

    has_rsample = True
    arg_names = ("loc", "scale", "concentration")

    def __init__(self, loc: Any, scale: Any, concentration: Any):
        self.loc, self.scale, self.concentration = broadcast(
            "GeneralizedPareto", {"loc": a_number, "scale": positive}, loc=loc, scale=scale,
            concentration=concentration)
        self.batch_shape = tuple(self.scale.shape)

    @property
    def upper_bound(self) -> Any:
        """Where draws end: infinity, unless the concentration is below 0."""
        ends = self.concentration < 0
        return where(ends, self.loc - self.scale / where(ends, self.concentration, 1), math.inf)

    @property
    def support(self) -> Any:
        return constraints.interval(self.loc, self.upper_bound)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self.icdf(rand(*shape, dtype=self.scale.dtype, device=beside(self.scale)))

    def _tail(self, value: Any) -> tuple[Any, Any]:
        """Whether values are inside, and -log of the probability of what is above them."""
        z, c = (value - self.loc) / self.scale, self.concentration
        inside, exponential_tail = (z >= 0) & (1 + c * z > 0), c == 0
        return inside, where(exponential_tail, z, log1p(where(inside, c * z, 0)) / where(exponential_tail, 1, c))

    def log_prob(self, value: Any) -> Any:
        inside, tail = self._tail(value)
        return where(inside, -(1 + self.concentration) * tail - log(self.scale), -math.inf)

    def entropy(self) -> Any:
        return log(self.scale) + self.concentration + 1

    def cdf(self, value: Any) -> Any:
        inside, tail = self._tail(value)
        return where(inside, -expm1(-tail), where(value > self.loc, 1, 0))

    def icdf(self, value: Any) -> Any:
        c, tail = self.concentration, -log1p(-value)
        return self.loc + self.scale * where(c == 0, tail, expm1(c * tail) / where(c == 0, 1, c))

    @property
    def mean(self) -> Any:
        return where(self.concentration < 1, self.loc + self.scale / (1 - self.concentration), math.inf)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        c = self.concentration
        return where(c < 0.5, square(self.scale / (1 - c)) / (1 - 2 * c), math.inf)


class HalfCauchy(Distribution):
    """What is left of Cauchy's distribution around 0 without its sign.

    >>> tn.distributions.HalfCauchy(1.0).cdf(tn.tensor(1.0))
    tensor(0.5)
    """

    support = constraints.nonnegative
    has_rsample = True
    arg_names = ("scale",)

    def __init__(self, scale: Any):
        self.scale, = broadcast("HalfCauchy", {"scale": positive}, scale=scale)
        self.batch_shape = tuple(self.scale.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self.icdf(rand(*shape, dtype=self.scale.dtype, device=beside(self.scale)))

    def log_prob(self, value: Any) -> Any:
        inside = value >= 0
        found = math.log(2 / math.pi) - log(self.scale) - log1p(square(where(inside, value, 0) / self.scale))
        return where(inside, found, -math.inf)

    def entropy(self) -> Any:
        return log(2 * math.pi * self.scale)

    def cdf(self, value: Any) -> Any:
        return atan(clip(value, 0, None) / self.scale) * (2 / math.pi)

    def icdf(self, value: Any) -> Any:
        return self.scale * tan(value * (math.pi / 2))

    @property
    def mean(self) -> Any:
        return full_like(self.scale, math.inf)

    @property
    def mode(self) -> Any:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return full_like(self.scale, math.inf)

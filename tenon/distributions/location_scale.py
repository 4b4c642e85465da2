"""Distributions on the real line that are one standard draw, moved and stretched: Normal, Laplace, Uniform ..."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import a_number, broadcast, check, positive
from tenon.ops.arithmetic import abs_, sign, square
from tenon.ops.bit_exact_math import portable_log, scaled
from tenon.ops.comparison import clip, where
from tenon.ops.creation import full_like, zeros_like
from tenon.ops.exponential import exp, expm1, log, log1p
from tenon.ops.special_functions import erf, erfinv
from tenon.ops.trigonometric import atan, tan
from tenon.random import beside, exponential, rand, randn

__all__ = ["Cauchy", "Exponential", "Gumbel", "HalfNormal", "Laplace", "LogNormal", "Normal", "Uniform"]

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
EULER = 0.57721566490153286


class _LocationScale(Distribution):
    has_rsample = True
    arg_names = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any):
        self.loc, self.scale = broadcast(self._name(), {"loc": a_number, "scale": positive}, loc=loc, scale=scale)
        self.batch_shape = tuple(self.loc.shape)

    def _standard(self, value: Any) -> Any:
        return (value - self.loc) / self.scale

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc


class Normal(_LocationScale):
    """The normal distribution of mean `loc` and standard deviation `scale`.

    >>> tn.distributions.Normal(0.0, 1.0).log_prob(tn.tensor(0.0))
    tensor(-0.9189)
    """

    support = constraints.real

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return scaled(randn(*shape, dtype=self.loc.dtype, device=beside(self.loc)), self.scale, self.loc)

    def log_prob(self, value: Any) -> Any:
        return square(self._standard(value)) * -0.5 - log(self.scale) - HALF_LOG_TAU

    def entropy(self) -> Any:
        return log(self.scale) + (0.5 + HALF_LOG_TAU)

    def cdf(self, value: Any) -> Any:
        return (erf(self._standard(value) * math.sqrt(0.5)) + 1) * 0.5

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * erfinv(value * 2 - 1) * math.sqrt(2)

    @property
    def variance(self) -> Any:
        return square(self.scale)


class LogNormal(_LocationScale):
    """What has a logarithm that is normal, of mean `loc` and standard deviation `scale`.

    >>> tn.distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    support = constraints.positive

    def _normal(self) -> Normal:
        return Normal(self.loc, self.scale)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return exp(scaled(randn(*shape, dtype=self.loc.dtype, device=beside(self.loc)), self.scale, self.loc))

    def log_prob(self, value: Any) -> Any:
        inside = value > 0
        logarithm = log(where(inside, value, 1))
        return where(inside, self._normal().log_prob(logarithm) - logarithm, -math.inf)

    def entropy(self) -> Any:
        return self._normal().entropy() + self.loc

    def cdf(self, value: Any) -> Any:
        return self._normal().cdf(log(value))

    def icdf(self, value: Any) -> Any:
        return exp(self._normal().icdf(value))

    @property
    def mean(self) -> Any:
        return exp(self.loc + square(self.scale) * 0.5)

    @property
    def mode(self) -> Any:
        return exp(self.loc - square(self.scale))

    @property
    def variance(self) -> Any:
        return expm1(square(self.scale)) * exp(self.loc * 2 + square(self.scale))


class Laplace(_LocationScale):
    """The Laplace distribution: its density falls by a factor e with each `scale` away from `loc`.

    >>> tn.distributions.Laplace(0.0, 1.0).cdf(tn.tensor(0.0))
    tensor(0.5)
    """

    support = constraints.real

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        dtype = self.loc.dtype
        side = where(rand(*shape, dtype=dtype, device=beside(self.loc)) < 0.5, -1.0, 1.0).astype(dtype)
        return scaled(exponential(size=shape, dtype=dtype, device=beside(self.loc)) * side, self.scale, self.loc)

    def log_prob(self, value: Any) -> Any:
        return -log(self.scale * 2) - abs_(self._standard(value))

    def entropy(self) -> Any:
        return log(self.scale * 2) + 1

    def cdf(self, value: Any) -> Any:
        z = self._standard(value)
        return 0.5 - sign(z) * expm1(-abs_(z)) * 0.5

    def icdf(self, value: Any) -> Any:
        away = value - 0.5
        return self.loc - self.scale * sign(away) * log1p(abs_(away) * -2)

    @property
    def variance(self) -> Any:
        return square(self.scale) * 2


class Gumbel(_LocationScale):
    """The Gumbel distribution, which the largest of many draws has.

    >>> tn.distributions.Gumbel(0.0, 1.0).cdf(tn.tensor(0.0))
    tensor(0.3679)
    """

    support = constraints.real

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        drawn = exponential(size=shape, dtype=self.loc.dtype, device=beside(self.loc))
        return scaled(-portable_log(drawn), self.scale, self.loc)

    def log_prob(self, value: Any) -> Any:
        z = self._standard(value)
        return -(z + exp(-z)) - log(self.scale)

    def entropy(self) -> Any:
        return log(self.scale) + (1 + EULER)

    def cdf(self, value: Any) -> Any:
        return exp(-exp(-self._standard(value)))

    def icdf(self, value: Any) -> Any:
        return self.loc - self.scale * log(-log(value))

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Any:
        return square(self.scale) * (math.pi ** 2 / 6)


class Cauchy(_LocationScale):
    """The Cauchy distribution: the ratio of two normal draws; it has no mean.

    >>> tn.distributions.Cauchy(0.0, 1.0).cdf(tn.tensor(1.0))
    tensor(0.75)
    """

    support = constraints.real

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        dtype = self.loc.dtype
        above, below = (randn(*shape, dtype=dtype, device=beside(self.loc)) for _ in range(2))
        return scaled(above / below, self.scale, self.loc)

    def log_prob(self, value: Any) -> Any:
        return -log1p(square(self._standard(value))) - log(self.scale) - math.log(math.pi)

    def entropy(self) -> Any:
        return log(self.scale) + math.log(4 * math.pi)

    def cdf(self, value: Any) -> Any:
        return atan(self._standard(value)) / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return tan((value - 0.5) * math.pi) * self.scale + self.loc

    @property
    def mean(self) -> Any:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Any:
        return full_like(self.loc, math.inf)


class HalfNormal(Distribution):
    """The size of a normal draw of mean 0 and standard deviation `scale`.

    >>> tn.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    support = constraints.nonnegative
    has_rsample = True
    arg_names = ("scale",)

    def __init__(self, scale: Any):
        self.scale, = broadcast(self._name(), {"scale": positive}, scale=scale)
        self.batch_shape = tuple(self.scale.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return abs_(randn(*shape, dtype=self.scale.dtype, device=beside(self.scale))) * self.scale

    def log_prob(self, value: Any) -> Any:
        inside = Normal(zeros_like(self.scale), self.scale).log_prob(value) + math.log(2)
        return where(value >= 0, inside, -math.inf)

    def entropy(self) -> Any:
        return log(self.scale) + (0.5 + HALF_LOG_TAU - math.log(2))

    def cdf(self, value: Any) -> Any:
        return clip(erf(value / self.scale * math.sqrt(0.5)), 0, 1)

    def icdf(self, value: Any) -> Any:
        return self.scale * erfinv(value) * math.sqrt(2)

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Any:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return square(self.scale) * (1 - 2 / math.pi)


class Uniform(Distribution):
    """All numbers in [low, high), equally likely.

    >>> tn.distributions.Uniform(0.0, 2.0).log_prob(tn.tensor([1.0, 3.0]))
    tensor([-0.6931,    -inf])
    """

    has_rsample = True
    arg_names = ("low", "high")

    def __init__(self, low: Any, high: Any):
        self.low, self.high = broadcast("Uniform", {}, low=low, high=high)
        check("Uniform", "high - low", self.high - self.low, positive)
        self.batch_shape = tuple(self.low.shape)

    @property
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return scaled(rand(*shape, dtype=self.low.dtype, device=beside(self.low)), self.high - self.low, self.low)

    def log_prob(self, value: Any) -> Any:
        inside = (value >= self.low) & (value < self.high)
        return where(inside, -log(self.high - self.low), -math.inf)

    def entropy(self) -> Any:
        return log(self.high - self.low)

    def cdf(self, value: Any) -> Any:
        return clip((value - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    @property
    def mean(self) -> Any:
        return (self.low + self.high) * 0.5

    @property
    def mode(self) -> Any:
        return full_like(self.low, math.nan)

    @property
    def variance(self) -> Any:
        return square(self.high - self.low) / 12


class Exponential(Distribution):
    """Waiting times between events that come at `rate`.

    >>> tn.distributions.Exponential(2.0).mean
    tensor(0.5)
    """

    support = constraints.nonnegative
    has_rsample = True
    arg_names = ("rate",)

    def __init__(self, rate: Any):
        self.rate, = broadcast("Exponential", {"rate": positive}, rate=rate)
        self.batch_shape = tuple(self.rate.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return exponential(size=shape, dtype=self.rate.dtype, device=beside(self.rate)) / self.rate

    def log_prob(self, value: Any) -> Any:
        return where(value >= 0, log(self.rate) - self.rate * value, -math.inf)

    def entropy(self) -> Any:
        return 1 - log(self.rate)

    def cdf(self, value: Any) -> Any:
        return -expm1(-self.rate * clip(value, 0, None))

    def icdf(self, value: Any) -> Any:
        return -log1p(-value) / self.rate

    @property
    def mean(self) -> Any:
        return 1 / self.rate

    @property
    def mode(self) -> Any:
        return zeros_like(self.rate)

    @property
    def variance(self) -> Any:
        return 1 / square(self.rate)

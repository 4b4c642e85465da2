"""Distributions made of gamma distributions: InverseGamma, FisherSnedecor; and Kumaraswamy's, which is like Beta."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.gammas import Gamma
from tenon.distributions.location_scale import EULER
from tenon.distributions.parameters import broadcast, positive
from tenon.ops.arithmetic import square
from tenon.ops.comparison import where
from tenon.ops.exponential import exp, log, log1p
from tenon.ops.special_functions import digamma, lgamma
from tenon.random import beside, rand

__all__ = ["FisherSnedecor", "InverseGamma", "Kumaraswamy"]


class InverseGamma(Distribution):
    """What has an inverse that is drawn from Gamma(concentration, rate).

    >>> tn.distributions.InverseGamma(3.0, 1.0).mean
    tensor(0.5)
    """

    support = constraints.positive
    has_rsample = True
    arg_names = ("concentration", "rate")

    def __init__(self, concentration: Any, rate: Any):
        self.concentration, self.rate = broadcast("InverseGamma", {"concentration": positive, "rate": positive},
                                                 concentration=concentration, rate=rate)
        self.batch_shape = tuple(self.rate.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return 1 / Gamma(self.concentration, self.rate)._draw(shape)

    def log_prob(self, value: Any) -> Any:
        inside, a = value > 0, self.concentration
        x = where(inside, value, 1)
        return where(inside, a * log(self.rate) - lgamma(a) - (a + 1) * log(x) - self.rate / x, -math.inf)

    def entropy(self) -> Any:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)

    def cdf(self, value: Any) -> Any:
        return 1 - Gamma(self.concentration, self.rate).cdf(1 / value)

    @property
    def mean(self) -> Any:
        a = where(self.concentration > 1, self.concentration, 2)
        return where(self.concentration > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        a = where(self.concentration > 2, self.concentration, 3)
        return where(self.concentration > 2, square(self.rate) / (square(a - 1) * (a - 2)), math.inf)


class FisherSnedecor(Distribution):
    """The ratio of two mean squares of normal numbers, `df1` above and `df2` below.

    >>> tn.distributions.FisherSnedecor(1.0, 4.0).mean
    tensor(2.)
    """

    support = constraints.positive
    has_rsample = True
    arg_names = ("df1", "df2")

    def __init__(self, df1: Any, df2: Any):
        self.df1, self.df2 = broadcast("FisherSnedecor", {"df1": positive, "df2": positive}, df1=df1, df2=df2)
        self.batch_shape = tuple(self.df1.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        above, below = (Gamma(df / 2, df / 2)._draw(shape) for df in (self.df1, self.df2))
        return above / below

    def log_prob(self, value: Any) -> Any:
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        inside = value > 0
        x = where(inside, value, 1)
        found = lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(ratio) + (a - 1) * log(x) - (a + b) * log1p(ratio * x)
        return where(inside, found, -math.inf)

    @property
    def mean(self) -> Any:
        b = where(self.df2 > 2, self.df2, 3)
        return where(self.df2 > 2, b / (b - 2), math.nan)

    @property
    def mode(self) -> Any:
        return where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan)

    @property
    def variance(self) -> Any:
        b = where(self.df2 > 4, self.df2, 5)
        found = 2 * square(b) * (self.df1 + b - 2) / (self.df1 * square(b - 2) * (b - 4))
        return where(self.df2 > 4, found, math.nan)


class Kumaraswamy(Distribution):
    """Numbers between 0 and 1 that are below x with probability 1 - (1 - x ** concentration1) ** concentration0.

    >>> tn.distributions.Kumaraswamy(1.0, 1.0).mean
    tensor(0.5)
    """

    support = constraints.unit_interval
    has_rsample = True
    arg_names = ("concentration1", "concentration0")

    def __init__(self, concentration1: Any, concentration0: Any):
        self.concentration1, self.concentration0 = broadcast(
            "Kumaraswamy", {"concentration1": positive, "concentration0": positive}, concentration1=concentration1,
            concentration0=concentration0)
        self.batch_shape = tuple(self.concentration1.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self.icdf(rand(*shape, dtype=self.concentration1.dtype, device=beside(self.concentration1)))

    def log_prob(self, value: Any) -> Any:
        a, b, inside = self.concentration1, self.concentration0, (value > 0) & (value < 1)
        x = where(inside, value, 0.5)
        return where(inside, log(a * b) + (a - 1) * log(x) + (b - 1) * log1p(-x ** a), -math.inf)

    def cdf(self, value: Any) -> Any:
        return 1 - (1 - value ** self.concentration1) ** self.concentration0

    def icdf(self, value: Any) -> Any:
        return (1 - (1 - value) ** (1 / self.concentration0)) ** (1 / self.concentration1)

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * (digamma(b + 1) + EULER) - log(a) - log(b)

    def _moment(self, order: int) -> Any:
        a, b = self.concentration1, self.concentration0
        return b * exp(lgamma(1 + order / a) + lgamma(b) - lgamma(1 + b + order / a))

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def mode(self) -> Any:
        """The likeliest value; NaN where there is none inside."""
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & (a * b > 1)
        return where(inside, ((a - 1) / where(inside, a * b - 1, 1)) ** (1 / a), math.nan)

    @property
    def variance(self) -> Any:
        return self._moment(2) - square(self._moment(1))

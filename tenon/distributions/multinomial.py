"""Multinomial: how often each class came; ContinuousBernoulli: numbers from 0 to 1 in the place of Bernoulli's two."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import within
from tenon.distributions.trials import BernoulliTrials, Categorical
from tenon.errors import ArgumentError
from tenon.ops.activations import softplus
from tenon.ops.arithmetic import abs_, square
from tenon.ops.comparison import clip, where
from tenon.ops.creation import arange
from tenon.ops.exponential import exp, log, log1p
from tenon.ops.reduction import sum_
from tenon.ops.special_functions import lgamma
from tenon.random import beside, categorical, rand

__all__ = ["ContinuousBernoulli", "Multinomial"]


class Multinomial(Categorical):
    """How often each class came in `total_count` draws; the classes are along the last axis.

    >>> tn.distributions.Multinomial(4, probs=tn.tensor([1.0, 3.0])).mean
    tensor([1., 3.])
    """

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None):
        if not isinstance(total_count, int) or total_count < 0:
            raise ArgumentError(f"Multinomial: total_count is a number of draws, not {total_count!r}")
        super().__init__(probs, logits)
        self.total_count, self.event_shape = total_count, (self._classes,)

    @property
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        samples = shape[:len(shape) - 1 - len(self.batch_shape)]
        drawn = categorical(self.logits, size=(self.total_count, *samples))
        return (drawn[..., None] == arange(self._classes)).sum(axis=0).astype(self._given.dtype)

    def log_prob(self, value: Any) -> Any:
        value = self._events(value)
        shares = where(value == 0, 0, value * self.logits)
        return lgamma(sum_(value, axis=-1) + 1) + sum_(shares - lgamma(value + 1), axis=-1)

    def entropy(self) -> Any:
        n, p = self.total_count, within(self.probs)
        k = arange(1, n + 1, dtype=p.dtype).reshape(n, *[1] * p.ndim)
        ways = math.lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
        alike = exp(ways + k * log(p) + (n - k) * log1p(-p)) * lgamma(k + 1)        # orders that count as one
        return n * super().entropy() - math.lgamma(n + 1) + sum_(alike, axis=(0, -1))

    def enumerate_support(self, expand: bool = True) -> Any:
        raise self._lacks("enumerate_support")

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def mode(self) -> Any:
        raise self._lacks("mode")

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    expand = Distribution.expand


class ContinuousBernoulli(BernoulliTrials):
    """Numbers x from 0 to 1 with a density as p ** x * (1 - p) ** (1 - x) (Loaiza-Ganem and Cunningham 2019).

    Near p = 1/2, between the `lims`, where formulas cancel, they are replaced by series.

    >>> tn.distributions.ContinuousBernoulli(probs=0.5).mean
    tensor(0.5)
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501)):
        super().__init__(probs, logits)
        self._lims = lims

    def _parts(self) -> tuple[Any, Any, Any]:
        """(whether p is far from 1/2, p where it is, how far it is)"""
        p = self.probs
        far = (p < self._lims[0]) | (p > self._lims[1])
        return far, where(far, p, self._lims[0]), p - 0.5

    def _log_norm(self) -> Any:
        far, p, x = self._parts()
        odds = log(abs_(log1p(-p) - log(p)))
        below = log1p(-2 * where(p <= 0.5, p, 0))
        above = log(2 * where(p > 0.5, p, 1) - 1)
        near = math.log(2) + (4 / 3 + 104 / 45 * square(x)) * square(x)
        return where(far, odds - where(p <= 0.5, below, above), near)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self.icdf(rand(*shape, dtype=self._given.dtype, device=beside(self._given)))

    def log_prob(self, value: Any) -> Any:
        found = value * self.logits - softplus(self.logits) + self._log_norm()
        return where((value >= 0) & (value <= 1), found, -math.inf)

    def cdf(self, value: Any) -> Any:
        far, p, _ = self._parts()
        v = clip(value, 0, 1)
        return where(far, (p ** v * (1 - p) ** (1 - v) + p - 1) / (2 * p - 1), v)

    def icdf(self, value: Any) -> Any:
        far, p, _ = self._parts()
        return where(far, (log1p(-p + value * (2 * p - 1)) - log1p(-p)) / (log(p) - log1p(-p)), value)

    def entropy(self) -> Any:
        none, one = log1p(-self.probs), log(self.probs)
        return self.mean * (none - one) - self._log_norm() - none

    @property
    def mean(self) -> Any:
        far, p, x = self._parts()
        return where(far, p / (2 * p - 1) + 1 / (log1p(-p) - log(p)), 0.5 + (1 / 3 + 16 / 45 * square(x)) * x)

    @property
    def variance(self) -> Any:
        far, p, away = self._parts()
        x = square(away)
        return where(far, p * (p - 1) / square(1 - 2 * p) + 1 / square(log1p(-p) - log(p)),
                     1 / 12 - (1 / 15 - 128 / 945 * x) * x)

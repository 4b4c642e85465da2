"""The negative binomial distribution: a Poisson distribution whose rate is drawn from a Gamma distribution."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.gammas import Gamma
from tenon.distributions.parameters import broadcast, not_negative
from tenon.distributions.trials import BernoulliTrials, Poisson, counts
from tenon.ops.activations import softplus
from tenon.ops.comparison import clip, where
from tenon.ops.exponential import exp
from tenon.ops.special_functions import lgamma


class NegativeBinomial(BernoulliTrials):
    """How many trials succeed before `total_count` have failed, which need be no whole number.

    >>> tn.distributions.NegativeBinomial(4.0, probs=0.5).mean
    tensor(4.)
    """

    support = constraints.nonnegative_integer
    arg_names = ("total_count", "_given")

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None):
        super().__init__(probs, logits)
        self.total_count, self._given = broadcast("NegativeBinomial", {"total_count": not_negative},
                                                 total_count=total_count, probs=self._given)
        self.batch_shape = tuple(self._given.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return Poisson(Gamma(self.total_count, exp(-self.logits))._draw(shape).detach())._draw(shape)

    def log_prob(self, value: Any) -> Any:
        n, inside = self.total_count, counts(value)
        k = where(inside, value, 0)
        never = n + k == 0      # of which there is one way
        ways = where(never, 0, lgamma(where(never, 1, n + k)) - lgamma(1.0 + k) - lgamma(where(never, 1, n)))
        return where(inside, ways - n * softplus(self.logits) - k * softplus(-self.logits), -math.inf)

    @property
    def mean(self) -> Any:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Any:
        return clip(((self.total_count - 1) * exp(self.logits)).floor(), 0, None)

    @property
    def variance(self) -> Any:
        return self.mean * (1 + exp(self.logits))

"""The concrete distribution: classes relaxed to numbers between them, so that draws have gradients.

The lower the temperature, the closer draws are to 0 and 1 (Maddison et al. 2016; Jang et al. 2016).
"""

from __future__ import annotations

from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import broadcast, positive, within
from tenon.distributions.transformed import TransformedDistribution
from tenon.distributions.transforms import ExpTransform, SigmoidTransform
from tenon.distributions.trials import BernoulliTrials, Categorical, OneHotCategorical
from tenon.ops.activations import log_softmax, softplus
from tenon.ops.exponential import log
from tenon.ops.reduction import sum_
from tenon.ops.shape import broadcast_to
from tenon.ops.special_functions import lgamma
from tenon.random import beside, rand

__all__ = ["ExpRelaxedCategorical", "LogitRelaxedBernoulli", "OneHotCategoricalStraightThrough", "RelaxedBernoulli",
           "RelaxedOneHotCategorical"]


def _temperature(owner: str, given: Any, like: Any) -> Any:
    found, = broadcast(owner, {"temperature": positive}, temperature=given)
    return found.astype(like.dtype)


def _uniform(shape: tuple[Any, ...], like: Any) -> Any:
    """Numbers between 0 and 1, neither of them."""
    return within(rand(*shape, dtype=like.dtype, device=beside(like)))


class LogitRelaxedBernoulli(BernoulliTrials):
    """The logit of a relaxed Bernoulli draw."""

    support = constraints.real
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        super().__init__(probs, logits)
        self.temperature = _temperature(self._name(), temperature, self._given)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        u = _uniform(shape, self._given)
        return (log(u) - log(1 - u) + self.logits) / self.temperature

    def log_prob(self, value: Any) -> Any:
        apart = self.logits - value * self.temperature
        return log(self.temperature) + apart - 2 * softplus(apart)


class ExpRelaxedCategorical(Categorical):
    """The logarithm of a relaxed draw of classes, along the last axis."""

    support = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        super().__init__(probs, logits)
        self.event_shape = tuple(self._given.shape[-1:])
        self.temperature = _temperature(self._name(), temperature, self._given)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        gumbel = -log(-log(_uniform(shape, self._given)))
        return log_softmax((self.logits + gumbel) / self.temperature, axis=-1)

    def log_prob(self, value: Any) -> Any:
        score = log_softmax(self.logits - self._events(value) * self.temperature, axis=-1)
        classes, t = self._classes, self.temperature
        return sum_(score, axis=-1) + lgamma(t * 0 + classes) + log(t) * (classes - 1)


class _Relaxed(TransformedDistribution):
    """A function of draws that have a temperature and chances."""

    def _same(self, base: Any) -> Any:
        raise NotImplementedError

    def expand(self, batch_shape: Any) -> Distribution:
        """The same distribution with a larger batch."""
        wide: Distribution = self._same(self.base_dist.expand(batch_shape))
        return wide

    @property
    def temperature(self) -> Any:
        """How far draws are from 0 and 1."""
        return self._chances_of().temperature

    @property
    def probs(self) -> Any:
        """The probabilities that are relaxed."""
        return self._chances_of().probs

    @property
    def logits(self) -> Any:
        """Their logits."""
        return self._chances_of().logits

    def _chances_of(self) -> Any:
        return self.base_dist


class RelaxedBernoulli(_Relaxed):
    """A number between 0 and 1, with a gradient for the probability of 1.

    >>> d = tn.distributions.RelaxedBernoulli(tn.tensor(0.5), probs=tn.tensor([0.25, 0.75]))
    >>> d.rsample().shape, d.log_prob(tn.tensor([0.5, 0.5]))
    ((2,), tensor([-0.9808, -0.9808]))
    """

    support = constraints.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform())

    def _same(self, base: Any) -> Any:
        return RelaxedBernoulli(base.temperature, logits=base.logits)


class RelaxedOneHotCategorical(_Relaxed):
    """Shares of classes that sum to 1, with a gradient for the probabilities.

    >>> tn.distributions.RelaxedOneHotCategorical(tn.tensor(0.5), logits=tn.zeros(3)).rsample().sum().round()
    tensor(1.)
    """

    support = constraints.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits), ExpTransform())

    def _same(self, base: Any) -> Any:
        return RelaxedOneHotCategorical(base.temperature, logits=broadcast_to(
            base.logits, (*base.batch_shape, *base.event_shape)))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot draws whose gradient is that of the probabilities (Bengio et al. 2013).

    >>> p = tn.tensor([0.25, 0.75], requires_grad=True)
    >>> tn.distributions.OneHotCategoricalStraightThrough(probs=p).rsample().sum()
    tensor(1., requires_grad=True)
    """

    has_rsample = True

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        probs = self.probs
        return super()._draw(shape).detach() + (probs - probs.detach())

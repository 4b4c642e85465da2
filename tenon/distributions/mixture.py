"""One of several distributions of a family, chosen by chance for each draw."""

from __future__ import annotations

from typing import Any

from tenon.distributions.distribution import Distribution
from tenon.distributions.trials import Categorical
from tenon.errors import ArgumentError
from tenon.ops.activations import log_softmax
from tenon.ops.arithmetic import square
from tenon.ops.indexing import take_along_axis
from tenon.ops.joining_and_axes import expand_dims, reshape
from tenon.ops.reduction import logsumexp, sum_
from tenon.ops.shape import broadcast_to


class MixtureSameFamily(Distribution):
    """Draws of the distribution that `mixture_distribution` chooses along the last axis of the components' batch.

    >>> d = tn.distributions
    >>> two = d.MixtureSameFamily(d.Categorical(tn.tensor([0.5, 0.5])), d.Normal(tn.tensor([-1.0, 1.0]), 1.0))
    >>> two.mean, two.variance
    (tensor(0.), tensor(2.))
    """

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution):
        mixture, parts = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical):
            raise ArgumentError(f"MixtureSameFamily: a Categorical was expected first, not {type(mixture).__name__}")
        batch = tuple(parts.batch_shape)
        count = mixture.logits.shape[-1]
        if not batch or batch[-1] != count or mixture.batch_shape not in ((), batch[:-1]):
            raise ArgumentError(f"MixtureSameFamily: {count} classes of a batch {list(mixture.batch_shape)} do not "
                                f"choose among components of a batch {list(batch)}")
        self.mixture_distribution, self.component_distribution = mixture, parts
        self.batch_shape, self.event_shape = batch[:-1], tuple(parts.event_shape)

    @property
    def support(self) -> Any:
        return self.component_distribution.support

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        events = len(self.event_shape)
        before = shape[:len(shape) - events]                    # of samples and batch
        chosen = self.mixture_distribution.expand(self.batch_shape)._draw(before)
        parts = self.component_distribution._draw((*before, self.component_distribution.batch_shape[-1],
                                                   *self.event_shape))
        at = broadcast_to(reshape(chosen, (*before, 1, *[1] * events)), (*before, 1, *self.event_shape))
        return reshape(take_along_axis(parts, at, axis=len(before)), shape)

    def _weighted(self, x: Any, events: int) -> Any:
        """The mean over the components, weighted by their probabilities."""
        shares = self.mixture_distribution.probs
        return sum_(x * reshape(shares, (*shares.shape, *[1] * events)), axis=-1 - events)

    def log_prob(self, value: Any) -> Any:
        value = self._spread(value)
        shares = log_softmax(self.mixture_distribution.logits, axis=-1)
        return logsumexp(self.component_distribution.log_prob(value) + shares, axis=-1)

    def cdf(self, value: Any) -> Any:
        return self._weighted(self.component_distribution.cdf(self._spread(value)), 0)

    def _spread(self, value: Any) -> Any:
        """The value beside every component."""
        whole = value if hasattr(value, "dtype") else broadcast_to(value, (*self.batch_shape, *self.event_shape))
        return expand_dims(whole, -1 - len(self.event_shape))

    @property
    def mean(self) -> Any:
        return self._weighted(self.component_distribution.mean, len(self.event_shape))

    @property
    def variance(self) -> Any:
        events, parts = len(self.event_shape), self.component_distribution
        apart = parts.mean - expand_dims(self.mean, -1 - events)
        return self._weighted(parts.variance, events) + self._weighted(square(apart), events)

    def expand(self, batch_shape: Any) -> Distribution:
        mixture, parts = self.mixture_distribution, self.component_distribution
        wide: Any = mixture.expand(batch_shape) if mixture.batch_shape else mixture
        return MixtureSameFamily(wide, parts.expand((*batch_shape, parts.batch_shape[-1])))

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution}, {self.component_distribution})"

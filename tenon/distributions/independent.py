"""The last axes of a distribution's batch as axes of its events."""

from __future__ import annotations

from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.errors import ArgumentError
from tenon.ops.reduction import sum_


class Independent(Distribution):
    """`base` with the last `reinterpreted_batch_ndims` axes of its batch as axes of an event.

    >>> rows = tn.distributions.Independent(tn.distributions.Normal(tn.zeros(2, 3), 1.0), 1)
    >>> rows.log_prob(tn.zeros(2, 3)).shape
    (2,)
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int):
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        batch, moved = base_distribution.batch_shape, reinterpreted_batch_ndims
        if not 0 <= moved <= len(batch):
            raise ArgumentError(f"Independent: {moved} axes of a batch of shape {list(batch)}")
        self.has_rsample = base_distribution.has_rsample
        self.batch_shape = batch[:len(batch) - moved]
        self.event_shape = (*batch[len(batch) - moved:], *base_distribution.event_shape)

    @property
    def support(self) -> Any:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self.base_dist._draw(shape)

    def log_prob(self, value: Any) -> Any:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Any:
        return self._summed(self.base_dist.entropy())

    def _summed(self, x: Any) -> Any:
        count = self.reinterpreted_batch_ndims
        return sum_(x, axis=tuple(range(-count, 0))) if count else x

    def expand(self, batch_shape: Any) -> Distribution:
        moved = self.event_shape[:self.reinterpreted_batch_ndims]
        return Independent(self.base_dist.expand((*batch_shape, *moved)), self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"

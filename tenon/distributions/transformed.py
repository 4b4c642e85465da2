"""Distributions of what transforms make of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.independent import Independent
from tenon.distributions.transform import ComposeTransform, Transform, summed
from tenon.errors import ArgumentError
from tenon.ops.shape import broadcast_to


class TransformedDistribution(Distribution):
    """Draws of a distribution, after one function or several.

    >>> d = tn.distributions
    >>> tail = d.TransformedDistribution(d.Normal(0.0, 1.0), [d.ExpTransform()])
    >>> bool(tn.allclose(tail.log_prob(2.0), d.LogNormal(0.0, 1.0).log_prob(2.0)))
    True
    """

    def __init__(self, base_distribution: Distribution, transforms: Transform | Sequence[Transform]):
        found = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(x, Transform) for x in found):
            raise ArgumentError(f"TransformedDistribution: transforms were expected, not {found!r:.80}",
                                hint="tn.distributions.AffineTransform(loc, scale), ExpTransform(), ...")
        whole, base, own = ComposeTransform(found), base_distribution, len(base_distribution.event_shape)
        shape, taken = (*base.batch_shape, *base.event_shape), whole.domain.event_dim
        if len(shape) < taken:
            raise ArgumentError(f"TransformedDistribution: {taken} axes of an event, draws of shape {list(shape)}")
        given = whole.forward_shape(shape)
        if (wide := whole.inverse_shape(given)) != shape:
            base = base.expand(wide[:len(wide) - own])
        self.base_dist = Independent(base, taken - own) if taken > own else base
        self.transforms, self._whole = found, whole
        batch = len(given) - whole.codomain.event_dim - max(own - taken, 0)
        self.batch_shape, self.event_shape = given[:batch], given[batch:]
        self.has_rsample = base_distribution.has_rsample

    @property
    def support(self) -> Any:
        last = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        return constraints.independent(last, max(len(self.event_shape) - last.event_dim, 0))

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self._whole(self.base_dist._draw(self._whole.inverse_shape(shape)))

    def log_prob(self, value: Any) -> Any:
        y, axes, total = self._lifted(value), len(self.event_shape), 0.0
        for part in reversed(self.transforms):
            x = part.inv(y)
            axes += part.domain.event_dim - part.codomain.event_dim
            total = total - summed(part.log_abs_det_jacobian(x, y), axes - part.domain.event_dim)
            y = x
        return total + summed(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))

    def _lifted(self, value: Any) -> Any:
        """A number as a tensor of the distribution's shape."""
        return value if hasattr(value, "dtype") else broadcast_to(value, (*self.batch_shape, *self.event_shape))

    def cdf(self, value: Any) -> Any:
        below = self.base_dist.cdf(self._whole.inv(self._lifted(value)))
        return 0.5 + self._whole.sign * (below - 0.5)       # 1 - below where it falls

    def icdf(self, value: Any) -> Any:
        return self._whole(self.base_dist.icdf(0.5 + self._whole.sign * (value - 0.5)))

    def expand(self, batch_shape: Any) -> Distribution:
        shape = self._whole.inverse_shape((*batch_shape, *self.event_shape))
        own = len(self.base_dist.event_shape)
        return TransformedDistribution(self.base_dist.expand(shape[:len(shape) - own]), self.transforms)

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.base_dist}, {self.transforms})"

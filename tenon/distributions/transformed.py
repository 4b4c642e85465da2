"""Distributions of what a function makes of draws: TransformedDistribution, and the functions that it takes.

Each function has an inverse, and says how it stretches space: the logarithm of its slope's size at a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.distributions.distribution import Distribution
from tenon.errors import ArgumentError
from tenon.ops.activations import sigmoid, softplus
from tenon.ops.arithmetic import sign
from tenon.ops.exponential import exp, log, log1p
from tenon.ops.reduction import sum_
from tenon.ops.shape import broadcast_to
from tenon.ops.trigonometric import atanh, tanh

__all__ = ["AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform", "TanhTransform",
           "Transform", "TransformedDistribution"]


class Transform:
    """A function of a tensor with an inverse; `event_dim` axes at the end belong together."""

    event_dim = 0

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError

    def inv(self, y: Any) -> Any:
        """The x of which this is the y."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The logarithm of the size of the slope at x, where y is; axes of an event are summed."""
        raise NotImplementedError

    def rises(self, like: Any) -> Any:
        """1 where the function rises, -1 where it falls."""
        return 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ExpTransform(Transform):
    """exp(x)."""

    def __call__(self, x: Any) -> Any:
        return exp(x)

    def inv(self, y: Any) -> Any:
        return log(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """x ** exponent, of positive numbers."""

    def __init__(self, exponent: Any):
        self.exponent = exponent

    def __call__(self, x: Any) -> Any:
        return x ** self.exponent

    def inv(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return log(abs(self.exponent * y / x))

    def rises(self, like: Any) -> Any:
        return sign(like * 0 + self.exponent)


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    def __call__(self, x: Any) -> Any:
        return sigmoid(x)

    def inv(self, y: Any) -> Any:
        return log(y) - log1p(-y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """tanh(x)."""

    def __call__(self, x: Any) -> Any:
        return tanh(x)

    def inv(self, y: Any) -> Any:
        return atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (0.6931471805599453 - x - softplus(-2.0 * x))      # 1 - tanh(x)^2 where tanh(x) is near 1 too


class AffineTransform(Transform):
    """loc + scale * x."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0):
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    def __call__(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def inv(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        stretched = log(abs(self.scale + x * 0))
        return sum_(stretched, axis=tuple(range(-self.event_dim, 0))) if self.event_dim else stretched

    def rises(self, like: Any) -> Any:
        return sign(like * 0 + self.scale)


class ComposeTransform(Transform):
    """Functions one after the other."""

    def __init__(self, parts: Sequence[Transform]):
        self.parts = list(parts)
        self.event_dim = max((part.event_dim for part in self.parts), default=0)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def inv(self, y: Any) -> Any:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        total: Any = 0.0
        for part in self.parts:
            there = part(x)
            stretched = part.log_abs_det_jacobian(x, there)
            more = self.event_dim - part.event_dim
            total = total + (sum_(stretched, axis=tuple(range(-more, 0))) if more else stretched)
            x = there
        return total

    def rises(self, like: Any) -> Any:
        found: Any = 1
        for part in self.parts:
            found = found * part.rises(like)
        return found

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts})"


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
        self.base_dist, self.transforms = base_distribution, found
        self._whole = ComposeTransform(found)
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        own = len(base_distribution.event_shape)
        events = max(own, self._whole.event_dim)
        if len(shape) < events:
            raise ArgumentError(f"TransformedDistribution: {events} axes of an event, draws of shape {list(shape)}")
        self._joined = events - own             # axes of the base's batch that are an event's here
        self.batch_shape, self.event_shape = shape[:len(shape) - events], shape[len(shape) - events:]
        self.has_rsample = base_distribution.has_rsample

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self._whole(self.base_dist._draw(shape))

    def log_prob(self, value: Any) -> Any:
        x = self._whole.inv(self._lifted(value))
        stretched = self._whole.log_abs_det_jacobian(x, value)
        more = len(self.event_shape) - self._whole.event_dim
        return self._summed(self.base_dist.log_prob(x), self._joined) - self._summed(stretched, more)

    def _lifted(self, value: Any) -> Any:
        """A number as a tensor of the distribution's shape."""
        return value if hasattr(value, "dtype") else broadcast_to(value, (*self.batch_shape, *self.event_shape))

    @staticmethod
    def _summed(x: Any, axes: int) -> Any:
        return sum_(x, axis=tuple(range(-axes, 0))) if axes else x

    def cdf(self, value: Any) -> Any:
        below = self.base_dist.cdf(self._whole.inv(self._lifted(value)))
        return 0.5 + self._whole.rises(below) * (below - 0.5)       # 1 - below where it falls

    def icdf(self, value: Any) -> Any:
        return self._whole(self.base_dist.icdf(0.5 + self._whole.rises(value) * (value - 0.5)))

    def expand(self, batch_shape: Any) -> Distribution:
        joined = self.event_shape[:self._joined]
        return TransformedDistribution(self.base_dist.expand((*batch_shape, *joined)), self.transforms)

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.base_dist}, {self.transforms})"

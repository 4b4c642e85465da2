"""Functions with an inverse, by PyTorch's names; `log_abs_det_jacobian` says how they stretch space at a point.

    class Doubled(tn.distributions.transforms.Transform):
        domain = codomain = tn.distributions.constraints.real
        def _call(self, x): return 2 * x
        def _inverse(self, y): return y / 2
        def log_abs_det_jacobian(self, x, y): return tn.full_like(x, math.log(2))
"""

from __future__ import annotations

from typing import Any

from tenon.array_api import finfo
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.joined_transforms import CatTransform, StackTransform
from tenon.distributions.transform import (
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    Transform,
    identity_transform,
    summed,
)
from tenon.ops.activations import logsigmoid, sigmoid, softmax, softplus
from tenon.ops.arithmetic import abs_, sign
from tenon.ops.comparison import clip
from tenon.ops.creation import arange
from tenon.ops.cumulative import cumprod, cumsum
from tenon.ops.diagonal import diag_embed, diagonal, tril
from tenon.ops.exponential import exp, expm1, log, log1p
from tenon.ops.reduction import sum_
from tenon.ops.repeating import pad
from tenon.ops.trigonometric import atanh, tanh
from tenon.types import Shape

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CumulativeDistributionTransform",
           "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PowerTransform", "ReshapeTransform",
           "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform",
           "TanhTransform", "Transform", "identity_transform"]


# ---------------------------------------------------------------- element by element

class ExpTransform(Transform):
    """exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return exp(x)

    def _inverse(self, y: Any) -> Any:
        return log(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """x ** exponent, of positive numbers."""

    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0):
        self.exponent, self.sign = exponent, _sign(exponent)

    def _call(self, x: Any) -> Any:
        return x ** self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return log(abs(self.exponent * y / x))


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        return log(y) - log1p(-y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return log(-expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x)


class TanhTransform(Transform):
    """tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return tanh(x)

    def _inverse(self, y: Any) -> Any:
        return atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (0.6931471805599453 - x - softplus(-2.0 * x))      # 1 - tanh(x)^2 where tanh(x) is near 1 too


class AbsTransform(Transform):
    """|x|, of which x itself is taken for the inverse."""

    bijective = False
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return abs_(x)

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """loc + scale * x."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        self.loc, self.scale, self.sign = loc, scale, _sign(scale)
        self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return summed(log(abs(self.scale + x * 0)), self.event_dim)


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution."""

    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        self.distribution = distribution

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


def _sign(x: Any) -> Any:
    return sign(x) if hasattr(x, "dtype") else (x > 0) - (x < 0)


# ---------------------------------------------------------------- of vectors and matrices

class SoftmaxTransform(Transform):
    """softmax(x) along the last axis, for which log(y) is taken for the inverse."""

    bijective = False
    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Any) -> Any:
        return softmax(x, axis=-1)

    def _inverse(self, y: Any) -> Any:
        return log(y)


class StickBreakingTransform(Transform):
    """n numbers to n + 1 shares of 1: each takes a part of what is left of the stick.

    >>> tn.distributions.StickBreakingTransform()(tn.zeros(2))
    tensor([0.3333, 0.3333, 0.3333])
    """

    domain, codomain = constraints.real_vector, constraints.simplex

    def _moved(self, x: Any) -> Any:
        """x without what makes equal shares of zeros."""
        n = x.shape[-1]
        return x - log((n - arange(n)).astype(x.dtype))

    def _call(self, x: Any) -> Any:
        info, ends = finfo(x.dtype), ((0, 0),) * (x.ndim - 1)
        z = clip(sigmoid(self._moved(x)), info.smallest_normal, 1 - info.eps)
        left = cumprod(1 - z, axis=-1)
        return pad(z, (*ends, (0, 1)), constant_values=1) * pad(left, (*ends, (1, 0)), constant_values=1)

    def _inverse(self, y: Any) -> Any:
        taken = y[..., :-1]
        left = clip(1 - cumsum(taken, axis=-1), finfo(y.dtype).smallest_normal, None)
        return log(taken) - log(left) - self._moved(taken * 0)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = self._moved(x)
        return sum_(logsigmoid(x) - x + log(y[..., :-1]), axis=-1)

    def forward_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """The lower triangle of a matrix, exp of its diagonal."""

    bijective = False       # it takes all of a matrix and gives a triangle
    domain, codomain = constraints.real_matrix, constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return tril(x, -1) + diag_embed(exp(diagonal(x, 0, -2, -1)))

    def _inverse(self, y: Any) -> Any:
        return tril(y, -1) + diag_embed(log(diagonal(y, 0, -2, -1)))

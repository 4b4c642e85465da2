"""The normal distribution of vectors whose covariance is a few directions and a diagonal; and LogisticNormal."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.location_scale import Normal
from tenon.distributions.parameters import a_number, broadcast, positive
from tenon.distributions.transformed import TransformedDistribution
from tenon.distributions.transforms import StickBreakingTransform
from tenon.errors import ShapeError
from tenon.ops.arithmetic import square
from tenon.ops.creation import eye
from tenon.ops.diagonal import diag_embed, diagonal
from tenon.ops.exponential import log, sqrt
from tenon.ops.matrix_factorizations import cholesky
from tenon.ops.matrix_products import matmul
from tenon.ops.reduction import sum_
from tenon.ops.shape import broadcast_to
from tenon.ops.solving import inv, solve_triangular
from tenon.random import beside, randn
from tenon.types import broadcast_shapes

__all__ = ["LogisticNormal", "LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of mean `loc` and covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`.

    Its cost grows with the number of columns of `cov_factor`, not with the cube of the size of a vector.

    >>> d = tn.distributions
    >>> d.LowRankMultivariateNormal(tn.zeros(2), tn.zeros(2, 1), tn.ones(2)).log_prob(tn.zeros(2))
    tensor(-1.8379)
    """

    support = constraints.real_vector
    has_rsample = True
    arg_names = ("loc", "cov_factor", "cov_diag")

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any):
        mean, spread = broadcast(self._name(), {"loc": a_number, "cov_diag": positive}, loc=loc, cov_diag=cov_diag)
        factor, = broadcast(self._name(), {"cov_factor": a_number}, cov_factor=cov_factor)
        if not mean.ndim or factor.ndim < 2 or factor.shape[-2] != mean.shape[-1]:
            raise ShapeError(f"{self._name()}: loc {mean.type} needs a row of cov_factor for each of its elements, "
                             f"which is {factor.type}")
        self.batch_shape = broadcast_shapes(tuple(mean.shape[:-1]), tuple(factor.shape[:-2]))
        self.event_shape = tuple(mean.shape[-1:])
        whole = (*self.batch_shape, *self.event_shape)
        self.loc, self.cov_diag = broadcast_to(mean, whole), broadcast_to(spread, whole)
        self.cov_factor = broadcast_to(factor, (*whole, factor.shape[-1]))

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        options: Any = {"dtype": self.loc.dtype, "device": beside(self.loc)}
        few, every = randn(*shape[:-1], self.cov_factor.shape[-1], **options), randn(*shape, **options)
        return self.loc + matmul(self.cov_factor, few[..., None])[..., 0] + sqrt(self.cov_diag) * every

    def _capacitance(self) -> tuple[Any, Any]:
        """W^T D^-1 and the Cholesky factor of 1 + W^T D^-1 W."""
        scaled = self.cov_factor.mT / self.cov_diag[..., None, :]
        inner = matmul(scaled, self.cov_factor)
        return scaled, cholesky(inner + eye(inner.shape[-1], dtype=inner.dtype))

    def log_prob(self, value: Any) -> Any:
        away = self._events(value) - self.loc
        scaled, factor = self._capacitance()
        inner = matmul(scaled, away[..., None])
        wide = broadcast_to(factor, (*inner.shape[:-1], inner.shape[-2]))
        solved = solve_triangular(wide, inner, upper=False)[..., 0]
        distance = sum_(square(away) / self.cov_diag, axis=-1) - sum_(square(solved), axis=-1)
        return -0.5 * (distance + self._log_det(factor) + self._constant())

    def entropy(self) -> Any:
        return 0.5 * (self._log_det(self._capacitance()[1]) + self._constant() + self.event_shape[0])

    def _log_det(self, factor: Any) -> Any:
        return 2 * sum_(log(diagonal(factor, axis1=-2, axis2=-1)), axis=-1) + sum_(log(self.cov_diag), axis=-1)

    def _constant(self) -> Any:
        return math.log(2 * math.pi) * self.event_shape[0]

    @property
    def covariance_matrix(self) -> Any:
        """The products of the distances from the mean, expected."""
        return matmul(self.cov_factor, self.cov_factor.mT) + diag_embed(self.cov_diag)

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance matrix."""
        return inv(self.covariance_matrix)

    @property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance matrix."""
        return cholesky(self.covariance_matrix)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return sum_(square(self.cov_factor), axis=-1) + self.cov_diag


class LogisticNormal(TransformedDistribution):
    """Shares that sum to 1, by stick breaking of normal numbers of mean `loc` and deviation `scale`.

    >>> tn.distributions.LogisticNormal(tn.zeros(2), tn.ones(2)).sample().shape
    (3,)
    """

    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any):
        base = Normal(loc, scale)
        super().__init__(base.expand((1,)) if not base.batch_shape else base, StickBreakingTransform())

    @property
    def loc(self) -> Any:
        """The mean of the normal numbers."""
        return self._normal().loc

    @property
    def scale(self) -> Any:
        """Their deviation."""
        return self._normal().scale

    def _normal(self) -> Any:
        return getattr(self.base_dist, "base_dist", self.base_dist)

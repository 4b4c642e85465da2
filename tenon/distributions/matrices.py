"""Distributions of matrices: Wishart's of covariances, and that of Lewandowski, Kurowicka and Joe (2009)."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.gammas import Beta, Chi2
from tenon.distributions.multivariate_normal import MultivariateNormal
from tenon.distributions.parameters import broadcast, positive
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.arithmetic import square
from tenon.ops.comparison import clip, where
from tenon.ops.creation import arange, zeros
from tenon.ops.diagonal import diag_embed, diagonal, tril
from tenon.ops.exponential import log, sqrt
from tenon.ops.joining_and_axes import broadcast_arrays, swapaxes
from tenon.ops.matrix_factorizations import cholesky
from tenon.ops.matrix_products import matmul
from tenon.ops.reduction import sum_
from tenon.ops.shape import broadcast_to
from tenon.ops.solving import cholesky_solve
from tenon.ops.special_functions import digamma, lgamma, mvlgamma
from tenon.random import beside, randn

__all__ = ["LKJCholesky", "Wishart"]


def _sum_log_diagonal(factor: Any) -> Any:
    return sum_(log(diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


class Wishart(Distribution):
    """Sums of the outer products of `df` normal vectors (Wishart 1928), drawn by Bartlett's decomposition.

    One of `covariance_matrix`, `precision_matrix` and `scale_tril` says how the vectors spread.

    >>> tn.distributions.Wishart(tn.tensor(3.0), tn.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    arg_names = ("df", "scale_tril")

    def __init__(self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None):
        given = next((x for x in (covariance_matrix, precision_matrix, scale_tril) if x is not None), None)
        size = 0 if given is None else given.shape[-1]
        normal = MultivariateNormal(zeros(size), covariance_matrix, precision_matrix, scale_tril)
        self.event_shape = (size, size)
        degrees, _ = broadcast("Wishart", {"df": (lambda x: x > size - 1, f"must be above {size - 1}")}, df=df,
                              of=zeros(normal.batch_shape, dtype=normal.scale_tril.dtype))
        self.df, self.batch_shape = degrees, tuple(degrees.shape)
        self.scale_tril = broadcast_to(normal.scale_tril, (*self.batch_shape, size, size))

    @property
    def covariance_matrix(self) -> Any:
        """That of the normal vectors."""
        return matmul(self.scale_tril, swapaxes(self.scale_tril, -1, -2))

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        freedom = self.df[..., None] - arange(shape[-1], dtype=self.df.dtype)
        lengths = sqrt(Chi2(freedom)._draw(shape[:-1]))
        below = tril(randn(*shape, dtype=self.df.dtype, device=beside(self.df)), -1)
        factor = matmul(self.scale_tril, below + diag_embed(lengths))
        return matmul(factor, swapaxes(factor, -1, -2))

    def log_prob(self, value: Any) -> Any:
        size, n = self.event_shape[0], self.df
        value, factor = broadcast_arrays(self._events(value), self.scale_tril)
        solved = sum_(diagonal(cholesky_solve(value, factor), axis1=-2, axis2=-1), axis=-1)
        return (n - size - 1) * _sum_log_diagonal(cholesky(value)) - 0.5 * solved - n * self._half_log_det() \
            - mvlgamma(n / 2, p=size)

    def entropy(self) -> Any:
        size, n = self.event_shape[0], self.df
        rates = sum_(digamma(n[..., None] / 2 - arange(size, dtype=n.dtype) / 2), axis=-1)
        return (size + 1) * self._half_log_det() + mvlgamma(n / 2, p=size) - (n - size - 1) / 2 * rates + n * size / 2

    def _half_log_det(self) -> Any:
        return self.event_shape[0] * math.log(2) / 2 + _sum_log_diagonal(self.scale_tril)

    @property
    def mean(self) -> Any:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.event_shape[0] - 1
        return where(factor <= 0, math.nan, factor)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Any:
        matrix = self.covariance_matrix
        own = diagonal(matrix, axis1=-2, axis2=-1)
        return self.df[..., None, None] * (square(matrix) + own[..., :, None] * own[..., None, :])


class LKJCholesky(Distribution):
    """Cholesky factors of matrices of correlations, of density det(matrix) ** (concentration - 1).

    >>> tn.distributions.LKJCholesky(3, 0.5).sample().shape
    (3, 3)
    """

    support = constraints.corr_cholesky
    arg_names = ("concentration",)

    def __init__(self, dim: int, concentration: Any = 1.0):
        if dim < 2:
            raise ArgumentError(f"LKJCholesky: dim must be 2 or more, not {dim}")
        self.concentration, = broadcast("LKJCholesky", {"concentration": positive}, concentration=concentration)
        self.dim, self.batch_shape, self.event_shape = dim, tuple(self.concentration.shape), (dim, dim)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        """Row by row, by the onion method: a direction, and how long the part below the diagonal is."""
        dtype = self.concentration.dtype
        row = clip(arange(self.dim, dtype=dtype) - 1, 0, None)
        share = Beta(row + 0.5, self.concentration[..., None] + 0.5 * (self.dim - 2) - 0.5 * row)
        y = share._draw(shape[:-1])[..., None]
        below = tril(randn(*shape, dtype=dtype, device=beside(self.concentration)), -1)
        length = sqrt(sum_(square(below), axis=-1, keepdims=True))
        part = sqrt(y) * below / where(length > 0, length, 1)
        return part + diag_embed(sqrt(clip(1 - sum_(square(part), axis=-1), 1e-37, None)))

    def log_prob(self, value: Any) -> Any:
        if tuple(value.shape[-2:]) != self.event_shape:
            raise ShapeError(f"LKJCholesky: values end in the axes {list(self.event_shape)}, this one is {value.type}")
        more, alpha = self.dim - 1, self.concentration + 0.5 * (self.dim - 1)
        order = 2 * (self.concentration - 1)[..., None] + self.dim - arange(2, self.dim + 1, dtype=alpha.dtype)
        found = sum_(order * log(diagonal(value, axis1=-2, axis2=-1)[..., 1:]), axis=-1)
        gammas = mvlgamma(alpha - 0.5, p=more) - lgamma(alpha) * more
        return found - 0.5 * more * math.log(math.pi) - gammas

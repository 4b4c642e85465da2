"""The normal distribution of vectors."""

from __future__ import annotations

import math
from typing import Any

from tenon.array_api import result_type
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import a_number, broadcast
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.arithmetic import square
from tenon.ops.diagonal import diagonal
from tenon.ops.exponential import log
from tenon.ops.joining_and_axes import swapaxes
from tenon.ops.matrix_factorizations import cholesky
from tenon.ops.matrix_products import matmul
from tenon.ops.reduction import sum_
from tenon.ops.shape import broadcast_to
from tenon.ops.solving import inv, solve_triangular
from tenon.random import beside, randn
from tenon.types import broadcast_shapes


class MultivariateNormal(Distribution):
    """The normal distribution of vectors along the last axis, of mean `loc`.

    One of `covariance_matrix`, `precision_matrix` (its inverse) and `scale_tril` (its Cholesky factor) says how they
    spread.  Raises LinearAlgebraError for a matrix that is not positive definite.

    >>> tn.distributions.MultivariateNormal(tn.zeros(2), tn.eye(2)).log_prob(tn.zeros(2))
    tensor(-1.8379)
    """

    support = constraints.real_vector
    has_rsample = True
    arg_names = ("loc", "scale_tril")

    def __init__(self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        named = [name for name, matrix in given.items() if matrix is not None]
        if len(named) != 1:
            raise ArgumentError("MultivariateNormal: one of covariance_matrix, precision_matrix and scale_tril is "
                                f"needed, not {' and '.join(named) or 'none'}")
        matrix, = broadcast("MultivariateNormal", {named[0]: a_number}, **{named[0]: given[named[0]]})
        mean, = broadcast("MultivariateNormal", {"loc": a_number}, loc=loc)
        if not mean.ndim or matrix.ndim < 2 or matrix.shape[-2:] != (mean.shape[-1],) * 2:
            raise ShapeError(f"MultivariateNormal: loc {mean.type} needs a square matrix of its size, {named[0]} is "
                             f"{matrix.type}")
        factor = matrix if scale_tril is not None else cholesky(matrix if precision_matrix is None else inv(matrix))
        self.batch_shape = broadcast_shapes(tuple(mean.shape[:-1]), tuple(matrix.shape[:-2]))
        self.event_shape = tuple(mean.shape[-1:])
        dtype = result_type(mean, factor)
        self.loc = broadcast_to(mean, (*self.batch_shape, *self.event_shape)).astype(dtype)
        self.scale_tril = broadcast_to(factor, (*self.batch_shape, *self.event_shape * 2)).astype(dtype)

    @property
    def covariance_matrix(self) -> Any:
        """The products of the distances from the mean, expected."""
        return matmul(self.scale_tril, swapaxes(self.scale_tril, -1, -2))

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance matrix."""
        return inv(self.covariance_matrix)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        standard = randn(*shape, dtype=self.loc.dtype, device=beside(self.loc))
        return self.loc + matmul(self.scale_tril, standard[..., None])[..., 0]

    def log_prob(self, value: Any) -> Any:
        away = self._events(value) - self.loc
        factor = broadcast_to(self.scale_tril, (*away.shape, away.shape[-1]))
        z = solve_triangular(factor, away[..., None], upper=False)[..., 0]
        return sum_(square(z), axis=-1) * -0.5 - self._half_log_det() - self._constant()

    def entropy(self) -> Any:
        return self._half_log_det() + self._constant() + 0.5 * self.event_shape[0]

    def _half_log_det(self) -> Any:
        return sum_(log(diagonal(self.scale_tril, axis1=-2, axis2=-1)), axis=-1)

    def _constant(self) -> Any:
        return 0.5 * math.log(2 * math.pi) * self.event_shape[0]

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return sum_(square(self.scale_tril), axis=-1)

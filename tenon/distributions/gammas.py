"""Distributions made of draws from the gamma distribution: Gamma, Chi2, Beta, Dirichlet, StudentT.

Such a draw is made by accepting and refusing; its gradient is how the draw moves with the parameter while the share of
the distribution below it stays (M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients", 2018).
"""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import a_number, broadcast, positive
from tenon.errors import ShapeError
from tenon.ops.arithmetic import square
from tenon.ops.comparison import clip, where
from tenon.ops.creation import full_like
from tenon.ops.exponential import log, log1p, sqrt, xlogy
from tenon.ops.incomplete_gamma import gamma_slope, gammainc
from tenon.ops.indexing import one_hot
from tenon.ops.joining_and_axes import stack
from tenon.ops.reduction import argmax, sum_
from tenon.ops.rejection_sampling import random_gamma
from tenon.ops.shape import broadcast_to
from tenon.ops.special_functions import digamma, lgamma
from tenon.random import beside, default_generator, randn
from tenon.transforms.custom_gradient import custom_vjp

__all__ = ["Beta", "Chi2", "Dirichlet", "Gamma", "StudentT"]


@custom_vjp
def _moving(concentration: Any, drawn: Any) -> Any:
    """A draw, which moves with its parameter."""
    return drawn * 1


_moving.defvjp(lambda concentration, drawn: (drawn * 1, (concentration, drawn)),
               lambda kept, g: (g * gamma_slope(kept[1], kept[0]), None))


def standard_gamma(concentration: Any, shape: Any) -> Any:
    """Draws of rate 1, with a gradient for the concentration; they are never 0."""
    wide = broadcast_to(concentration, shape)
    return _moving(wide, default_generator.draw(lambda state: random_gamma(state, wide.detach(), shape=shape),
                                                beside(wide)))


class Gamma(Distribution):
    """The gamma distribution: the sum of `concentration` waiting times at `rate`.

    >>> tn.distributions.Gamma(2.0, 4.0).mean
    tensor(0.5)
    """

    support = constraints.nonnegative
    has_rsample = True
    arg_names: tuple[str, ...] = ("concentration", "rate")

    def __init__(self, concentration: Any, rate: Any):
        self.concentration, self.rate = broadcast(self._name(), {"concentration": positive, "rate": positive},
                                                 concentration=concentration, rate=rate)
        self.batch_shape = tuple(self.rate.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return standard_gamma(self.concentration, shape) / self.rate

    def log_prob(self, value: Any) -> Any:
        a, b = self.concentration, self.rate
        inside = xlogy(a, b) + xlogy(a - 1, where(value >= 0, value, 1)) - b * value - lgamma(a)
        return where(value >= 0, inside, -math.inf)

    def entropy(self) -> Any:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)

    def cdf(self, value: Any) -> Any:
        return gammainc(self.concentration, where(value > 0, self.rate * value, 0))

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return where(self.concentration > 1, self.concentration - 1, 0) / self.rate

    @property
    def variance(self) -> Any:
        return self.concentration / square(self.rate)


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal draws.

    >>> tn.distributions.Chi2(3.0).variance
    tensor(6.)
    """

    def __init__(self, df: Any):
        self.df, = broadcast("Chi2", {"df": positive}, df=df)
        super().__init__(self.df * 0.5, 0.5)


class Dirichlet(Distribution):
    """Shares that sum to 1, along the last axis, where `concentration` has an axis of classes.

    >>> tn.distributions.Dirichlet(tn.tensor([1.0, 3.0])).mean
    tensor([0.25, 0.75])
    """

    support = constraints.simplex
    has_rsample = True
    arg_names = ("concentration",)

    def __init__(self, concentration: Any):
        self.concentration, = broadcast("Dirichlet", {"concentration": positive}, concentration=concentration)
        if not self.concentration.ndim:
            raise ShapeError("Dirichlet: the concentration needs an axis of classes, it is a single number")
        self.batch_shape, self.event_shape = tuple(self.concentration.shape[:-1]), tuple(self.concentration.shape[-1:])

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        parts = standard_gamma(self.concentration, shape)
        return parts / sum_(parts, axis=-1, keepdims=True)

    def log_prob(self, value: Any) -> Any:
        a = self.concentration
        return sum_(xlogy(a - 1, self._events(value)), axis=-1) + lgamma(sum_(a, axis=-1)) - sum_(lgamma(a), axis=-1)

    def entropy(self) -> Any:
        a = self.concentration
        total = sum_(a, axis=-1)
        normal = sum_(lgamma(a), axis=-1) - lgamma(total)
        return normal - (a.shape[-1] - total) * digamma(total) - sum_((a - 1) * digamma(a), axis=-1)

    @property
    def mean(self) -> Any:
        return self.concentration / sum_(self.concentration, axis=-1, keepdims=True)

    @property
    def mode(self) -> Any:
        """The likeliest value; where several classes are the corners of the density, that of the largest parameter."""
        above = clip(self.concentration - 1, 0, None)
        total = sum_(above, axis=-1, keepdims=True)
        corner = one_hot(argmax(self.concentration, axis=-1), self.event_shape[0]).astype(above.dtype)
        return where(total > 0, above / where(total > 0, total, 1), corner)

    @property
    def variance(self) -> Any:
        total = sum_(self.concentration, axis=-1, keepdims=True)
        return self.mean * (1 - self.mean) / (total + 1)


class Beta(Distribution):
    """Shares between 0 and 1: a draw from Gamma(concentration1), divided by it and one from Gamma(concentration0).

    >>> tn.distributions.Beta(1.0, 3.0).mean
    tensor(0.25)
    """

    support = constraints.unit_interval
    has_rsample = True
    arg_names = ("concentration1", "concentration0")

    def __init__(self, concentration1: Any, concentration0: Any):
        self.concentration1, self.concentration0 = broadcast(
            "Beta", {"concentration1": positive, "concentration0": positive},
            concentration1=concentration1, concentration0=concentration0)
        self.batch_shape = tuple(self.concentration1.shape)

    def _both(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], axis=-1))

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return self._both()._draw((*shape, 2))[..., 0]

    def log_prob(self, value: Any) -> Any:
        a, b = self.concentration1, self.concentration0
        inside = (value >= 0) & (value <= 1)
        x = where(inside, value, 0.5)
        found = xlogy(a - 1, x) + xlogy(b - 1, 1 - x) + lgamma(a + b) - lgamma(a) - lgamma(b)
        return where(inside, found, -math.inf)

    def entropy(self) -> Any:
        return self._both().entropy()

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._both().mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (square(total) * (total + 1))


class StudentT(Distribution):
    """Student's distribution of `df` degrees of freedom, moved by `loc` and stretched by `scale`.

    >>> tn.distributions.StudentT(4.0).variance
    tensor(2.)
    """

    support = constraints.real
    has_rsample = True
    arg_names = ("df", "loc", "scale")

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0):
        self.df, self.loc, self.scale = broadcast("StudentT", {"df": positive, "loc": a_number, "scale": positive},
                                                 df=df, loc=loc, scale=scale)
        self.batch_shape = tuple(self.df.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        squares = standard_gamma(self.df * 0.5, shape) * 2
        standard = randn(*shape, dtype=self.df.dtype, device=beside(self.df))
        return self.loc + self.scale * standard * sqrt(self.df / squares)

    def log_prob(self, value: Any) -> Any:
        half, z = self.df * 0.5, (value - self.loc) / self.scale
        normal = log(self.scale) + log(self.df) * 0.5 + 0.5 * math.log(math.pi) + lgamma(half) - lgamma(half + 0.5)
        return log1p(square(z) / self.df) * -(half + 0.5) - normal

    def entropy(self) -> Any:
        half = self.df * 0.5
        logarithm = lgamma(half) + lgamma(full_like(half, 0.5)) - lgamma(half + 0.5)
        return log(self.scale) + (half + 0.5) * (digamma(half + 0.5) - digamma(half)) + log(self.df) * 0.5 + logarithm

    @property
    def mean(self) -> Any:
        return where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = square(self.scale) * self.df / where(self.df > 2, self.df - 2, 1)
        return where(self.df > 2, finite, where(self.df > 1, math.inf, math.nan))

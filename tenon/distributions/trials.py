"""Distributions of counts and classes: Bernoulli, Binomial, Geometric, Poisson, Categorical, OneHotCategorical."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import (
    Chances,
    Check,
    Shares,
    a_number,
    a_probability,
    broadcast,
    check,
    not_negative,
    one_of,
)
from tenon.errors import ShapeError
from tenon.ops.activations import softplus
from tenon.ops.comparison import clip, where
from tenon.ops.creation import arange, full_like, zeros_like
from tenon.ops.exponential import exp, log, xlogy
from tenon.ops.indexing import one_hot, take_along_axis
from tenon.ops.reduction import argmax, sum_
from tenon.ops.rejection_sampling import random_binomial, random_poisson
from tenon.ops.shape import broadcast_to
from tenon.ops.special_functions import lgamma
from tenon.random import bernoulli, beside, categorical, default_generator, rand
from tenon.types import broadcast_shapes, int64

__all__ = ["Bernoulli", "Binomial", "Categorical", "Geometric", "OneHotCategorical", "Poisson"]

whole: Check = (lambda x: (x >= 0) & (x == x // 1), "must be whole numbers, none below 0")


def counts(value: Any, most: Any = math.inf) -> Any:
    """Where a value is a whole number from 0 to `most`."""
    return (value >= 0) & (value <= most) & (value == value.floor() if value.dtype.kind == "f" else True)


class BernoulliTrials(Distribution):
    """A distribution of the probability of success, given as `probs` or `logits`."""

    arg_names: tuple[str, ...] = ("_given",)

    def __init__(self, probs: Any = None, logits: Any = None):
        self._as_logits, given = one_of(self._name(), probs, logits)
        self._given, = broadcast(self._name(), self._checks(), **{self._parameter: given})
        self.batch_shape = tuple(self._given.shape)

    @property
    def _parameter(self) -> str:
        return "logits" if self._as_logits else "probs"

    def _checks(self) -> dict[str, Check]:
        return {"logits": a_number, "probs": a_probability}

    def _chances(self) -> Chances:
        return Chances(self._given, self._as_logits)

    @property
    def probs(self) -> Any:
        """The probability of success."""
        return self._chances().probs()

    @property
    def logits(self) -> Any:
        """log(p / (1 - p))."""
        return self._chances().logits()

    def __repr__(self) -> str:
        return super().__repr__().replace("_given", self._parameter)


class Bernoulli(BernoulliTrials):
    """1 with probability `probs`, else 0.

    >>> tn.distributions.Bernoulli(probs=0.25).log_prob(tn.tensor(1.0))
    tensor(-1.3863)
    """

    support = constraints.boolean

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return bernoulli(self.probs, size=shape, dtype=self._given.dtype)

    def log_prob(self, value: Any) -> Any:
        found = value * self.logits - softplus(self.logits)
        return where(counts(value, 1), found, -math.inf)

    def entropy(self) -> Any:
        return softplus(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 and 1 along a new first axis."""
        values = arange(2, dtype=self._given.dtype).reshape(2, *[1] * len(self.batch_shape))
        return broadcast_to(values, (2, *self.batch_shape)) if expand else values

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        """The likeliest value; NaN where both are as likely."""
        return where(self.probs == 0.5, math.nan, (self.probs > 0.5).astype(self._given.dtype))

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)


class Geometric(BernoulliTrials):
    """How many trials fail before the first succeeds.

    >>> tn.distributions.Geometric(probs=0.25).mean
    tensor(3.)
    """

    support = constraints.nonnegative_integer

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        fails = 1 - rand(*shape, dtype=self._given.dtype, device=beside(self._given))       # in (0, 1]
        return (log(fails) / self._chances().log_none()).floor()

    def log_prob(self, value: Any) -> Any:
        found = value * self._chances().log_none() + log(self.probs)
        return where(counts(value), found, -math.inf)

    def entropy(self) -> Any:
        return (softplus(self.logits) - self.probs * self.logits) / self.probs

    @property
    def mean(self) -> Any:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Any:
        return zeros_like(self._given)

    @property
    def variance(self) -> Any:
        return (1 / self.probs - 1) / self.probs


class Binomial(BernoulliTrials):
    """How many of `total_count` trials succeed.

    >>> tn.distributions.Binomial(4, probs=0.5).mean
    tensor(2.)
    """

    arg_names = ("total_count", "_given")

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None):
        super().__init__(probs, logits)
        self.total_count, self._given = broadcast("Binomial", {"total_count": whole}, total_count=total_count,
                                                 probs=self._given)
        self.batch_shape = tuple(self._given.shape)

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        count, p = self.total_count.detach(), self.probs.detach()
        return default_generator.draw(lambda state: random_binomial(state, count, p, shape=shape), beside(p))

    def log_prob(self, value: Any) -> Any:
        n, inside = self.total_count, counts(value, self.total_count)
        k = where(inside, value, 0)
        ways = lgamma(n + 1) - lgamma(k + 1.0) - lgamma(n - k + 1)
        return where(inside, ways + k * self.logits - n * softplus(self.logits), -math.inf)

    def entropy(self) -> Any:
        at = self.enumerate_support(expand=False)
        each = self.log_prob(at)
        probability = where(each > -math.inf, exp(each), 0)
        return -sum_(probability * where(each > -math.inf, each, 0), axis=0)

    def enumerate_support(self, expand: bool = True) -> Any:
        """0, 1 ... the largest `total_count`, along a new first axis; not in captured functions."""
        most = int(self.total_count.max())
        values = arange(most + 1, dtype=self._given.dtype).reshape(most + 1, *[1] * len(self.batch_shape))
        return broadcast_to(values, (most + 1, *self.batch_shape)) if expand else values

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return clip(((self.total_count + 1) * self.probs).floor(), None, self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)


class Poisson(Distribution):
    """How many events there are, of those that come at `rate`.

    >>> tn.distributions.Poisson(2.0).log_prob(tn.tensor(0.0))
    tensor(-2.)
    """

    support = constraints.nonnegative_integer
    arg_names = ("rate",)

    def __init__(self, rate: Any):
        self.rate, = broadcast("Poisson", {"rate": not_negative}, rate=rate)
        self.batch_shape = tuple(self.rate.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        rate = self.rate.detach()
        return default_generator.draw(lambda state: random_poisson(state, rate, shape=shape), beside(rate))

    def log_prob(self, value: Any) -> Any:
        inside = counts(value)
        k = where(inside, value, 0)
        return where(inside, xlogy(k, self.rate) - self.rate - lgamma(k + 1.0), -math.inf)

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate


# ---------------------------------------------------------------- classes

class Categorical(BernoulliTrials):
    """The number of a class, with the probabilities that stand along the last axis of `probs`, or softmax(logits).

    >>> policy = tn.distributions.Categorical(probs=tn.tensor([1.0, 3.0]))
    >>> policy.log_prob(tn.tensor([0, 1]))
    tensor([-1.3863, -0.2877])
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        super().__init__(probs, logits)
        if not self._given.ndim:
            raise ShapeError(f"{self._name()}: {self._parameter} need an axis of classes, it is a single number")
        self.batch_shape = tuple(self._given.shape[:-1])
        if not self._as_logits:
            check(self._name(), "probs along the last axis", sum_(self._given, axis=-1),
                  (lambda x: x > 0, "must have a sum above 0"))

    def _checks(self) -> dict[str, Check]:
        return {"logits": a_number, "probs": not_negative}

    def _chances(self) -> Any:
        return Shares(self._given, self._as_logits)

    @property
    def _classes(self) -> Any:
        return self._given.shape[-1]

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self._classes - 1)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        return categorical(self.logits, size=shape[:len(shape) - len(self.batch_shape)])

    def log_prob(self, value: Any) -> Any:
        shape = broadcast_shapes(tuple(value.shape), self.batch_shape)
        classes = broadcast_to(value.astype(int64), shape)[..., None]
        inside = (classes >= 0) & (classes < self._classes)
        chosen = take_along_axis(broadcast_to(self.logits, (*shape, self._classes)), where(inside, classes, 0), axis=-1)
        return where(inside, chosen, -math.inf)[..., 0]

    def entropy(self) -> Any:
        logits = self.logits
        return -sum_(self.probs * where(logits > -math.inf, logits, 0), axis=-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        """The numbers of the classes along a new first axis."""
        values = arange(self._classes).reshape(self._classes, *[1] * len(self.batch_shape))
        return broadcast_to(values, (self._classes, *self.batch_shape)) if expand else values

    @property
    def mean(self) -> Any:
        return full_like(self._given[..., 0], math.nan)

    @property
    def mode(self) -> Any:
        """The likeliest class."""
        return argmax(self._given, axis=-1)

    @property
    def variance(self) -> Any:
        return full_like(self._given[..., 0], math.nan)


class OneHotCategorical(Categorical):
    """The same, a class as a row of zeros with a 1 in its place.

    >>> tn.distributions.OneHotCategorical(logits=tn.zeros(3)).sample().sum()
    tensor(1.)
    """

    support = constraints.one_hot

    def __init__(self, probs: Any = None, logits: Any = None):
        super().__init__(probs, logits)
        self.event_shape = tuple(self._given.shape[-1:])

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        chosen = categorical(self.logits, size=shape[:len(shape) - 1 - len(self.batch_shape)])
        return one_hot(chosen, self._classes).astype(self._given.dtype)

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(argmax(self._events(value), axis=-1))

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        """The row of the likeliest class."""
        return one_hot(argmax(self._given, axis=-1), self._classes).astype(self._given.dtype)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

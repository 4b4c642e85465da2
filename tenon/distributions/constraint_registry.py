"""A set of values -> a transform from all real numbers onto it: `transform_to`, and `biject_to`, which is one to one.

    scale = transform_to(constraints.positive)(unconstrained)       # exp: a parameter that any optimizer may move
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.constraints import Constraint
from tenon.distributions.transform import ComposeTransform, IndependentTransform, Transform
from tenon.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    LowerCholeskyTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from tenon.errors import ArgumentError

Factory = Callable[[Constraint], Transform]


class ConstraintRegistry:
    """The transform of each set; `register(constraint, factory)` adds one, or takes the place of one.

    >>> tn.distributions.transform_to(tn.distributions.constraints.interval(1.0, 3.0))(tn.tensor([0.0]))
    tensor([2.])
    """

    def __init__(self, factories: dict[Constraint, Factory]):
        self._factories = factories

    def register(self, constraint: Constraint, factory: Factory | None = None) -> Any:
        """Let this function make the transform of a set; without one, decorates it."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        self._factories[constraint] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform; raises ArgumentError for a set that has none."""
        if constraint in self._factories:
            return self._factories[constraint](constraint)
        if (base := constraint.base_constraint) is not None:
            return IndependentTransform(self(base), constraint.event_dim - base.event_dim)
        if constraint.lower_bound is None and constraint.upper_bound is None:
            raise ArgumentError(f"no transform onto {constraint} is known", hint="transform_to.register(constraint, f)")
        return _between(constraint.lower_bound, constraint.upper_bound)


def _between(low: Any, high: Any) -> Transform:
    """Onto the numbers between bounds, of which one may be None."""
    if high is None:
        return ExpTransform() if _is(low, 0) else ComposeTransform([ExpTransform(), AffineTransform(low, 1)])
    if low is None:
        return ComposeTransform([ExpTransform(), AffineTransform(high, -1)])
    if _is(low, 0) and _is(high, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _is(bound: Any, number: float) -> bool:
    return isinstance(bound, (int, float)) and bound == number


def _factories(simplex: Factory) -> dict[Constraint, Factory]:
    return {constraints.real: lambda _: ComposeTransform([]), constraints.simplex: simplex,
            constraints.lower_cholesky: lambda _: LowerCholeskyTransform()}


biject_to = ConstraintRegistry(_factories(lambda _: StickBreakingTransform()))
transform_to = ConstraintRegistry(_factories(lambda _: SoftmaxTransform()))

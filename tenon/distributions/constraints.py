"""Sets of values, by PyTorch's names: what a transform takes and gives; `check(x)` says which events are among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.ops.arithmetic import abs_
from tenon.ops.diagonal import diagonal, tril
from tenon.ops.reduction import all_, sum_

__all__ = ["Constraint", "greater_than", "independent", "interval", "lower_cholesky", "nonnegative", "positive", "real",
           "real_matrix", "real_vector", "simplex", "unit_interval"]


class Constraint:
    """A set of tensors of `event_dim` axes.

    >>> tn.distributions.constraints.positive.check(tn.tensor([1.0, -1.0]))
    tensor([ True, False])
    """

    def __init__(self, name: str, holds: Callable[[Any], Any], event_dim: int = 0):
        self.name, self.check, self.event_dim = name, holds, event_dim

    def __repr__(self) -> str:
        return self.name


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """The set of tensors whose elements along so many more axes are all in another one."""
    axes = tuple(range(-reinterpreted_batch_ndims, 0))
    return base if not axes else Constraint(
        f"independent({base}, {len(axes)})", lambda x: all_(base.check(x), axis=axes), base.event_dim + len(axes))


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one to another."""
    return Constraint(f"interval({lower_bound}, {upper_bound})", lambda x: (x >= lower_bound) & (x <= upper_bound))


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above one."""
    return Constraint(f"greater_than({lower_bound})", lambda x: x > lower_bound)


def _is_simplex(x: Any) -> Any:
    return all_(x >= 0, axis=-1) & (abs_(sum_(x, axis=-1) - 1) < 1e-6)


def _is_lower_cholesky(x: Any) -> Any:
    return all_(tril(x) == x, axis=(-2, -1)) & all_(diagonal(x, 0, -2, -1) > 0, axis=-1)


real = Constraint("real", lambda x: x == x)
positive = Constraint("positive", lambda x: x > 0)
nonnegative = Constraint("nonnegative", lambda x: x >= 0)
unit_interval = Constraint("unit_interval", lambda x: (x >= 0) & (x <= 1))
real_vector, real_matrix = independent(real, 1), independent(real, 2)
simplex = Constraint("simplex", _is_simplex, 1)
lower_cholesky = Constraint("lower_cholesky", _is_lower_cholesky, 2)

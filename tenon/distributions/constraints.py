"""Sets of values, by PyTorch's names: what a transform takes and gives; `check(x)` says which events are among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.ops.arithmetic import abs_
from tenon.ops.creation import full
from tenon.ops.decompositions import eigvalsh
from tenon.ops.diagonal import diagonal, tril
from tenon.ops.reduction import all_, sum_

__all__ = ["Constraint", "boolean", "corr_cholesky", "dependent", "greater_than", "greater_than_eq",
           "half_open_interval", "independent", "integer_interval", "interval", "less_than", "lower_cholesky",
           "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
           "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_matrix", "real_vector",
           "simplex", "square", "symmetric", "unit_interval"]


class Constraint:
    """A set of tensors of `event_dim` axes.

    >>> tn.distributions.constraints.positive.check(tn.tensor([1.0, -1.0]))
    tensor([ True, False])
    """

    def __init__(self, name: str, holds: Callable[[Any], Any], event_dim: int = 0, lower_bound: Any = None,
                 upper_bound: Any = None, base_constraint: Constraint | None = None):
        self.name, self.check, self.event_dim = name, holds, event_dim
        self.lower_bound, self.upper_bound = lower_bound, upper_bound       # of intervals: None is no bound
        self.base_constraint = base_constraint                              # of the elements along more axes

    def __repr__(self) -> str:
        return self.name


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """The set of tensors whose elements along so many more axes are all in another one."""
    axes = tuple(range(-reinterpreted_batch_ndims, 0))
    return base if not axes else Constraint(
        f"independent({base}, {len(axes)})", lambda x: all_(base.check(x), axis=axes), base.event_dim + len(axes),
        base_constraint=base)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one to another."""
    return Constraint(f"interval({lower_bound}, {upper_bound})", lambda x: (x >= lower_bound) & (x <= upper_bound), 0,
                      lower_bound, upper_bound)


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above one."""
    return Constraint(f"greater_than({lower_bound})", lambda x: x > lower_bound, 0, lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """One number, and those above."""
    return Constraint(f"greater_than_eq({lower_bound})", lambda x: x >= lower_bound, 0, lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Numbers below one."""
    return Constraint(f"less_than({upper_bound})", lambda x: x < upper_bound, 0, None, upper_bound)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers from one up to, and not including, another."""
    return Constraint(f"half_open_interval({lower_bound}, {upper_bound})",
                      lambda x: (x >= lower_bound) & (x < upper_bound), 0, lower_bound, upper_bound)


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers from one to another."""
    return Constraint(f"integer_interval({lower_bound}, {upper_bound})",
                      lambda x: (x % 1 == 0) & (x >= lower_bound) & (x <= upper_bound))


def multinomial(upper_bound: Any) -> Constraint:
    """Counts along the last axis that sum to one at most."""
    return Constraint(f"multinomial({upper_bound})",
                      lambda x: all_(x >= 0, axis=-1) & (sum_(x, axis=-1) <= upper_bound), 1)


def _is_symmetric(x: Any) -> Any:
    return all_(abs_(x - x.mT) <= 1e-6, axis=(-2, -1))


def _has_eigenvalues(holds: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: _is_symmetric(x) & all_(holds(eigvalsh(x)), axis=-1)


def _is_simplex(x: Any) -> Any:
    return all_(x >= 0, axis=-1) & (abs_(sum_(x, axis=-1) - 1) < 1e-6)


def _is_lower_cholesky(x: Any) -> Any:
    return all_(tril(x) == x, axis=(-2, -1)) & all_(diagonal(x, 0, -2, -1) > 0, axis=-1)


real = Constraint("real", lambda x: x == x)
positive = Constraint("positive", lambda x: x > 0, 0, 0.0)
nonnegative = Constraint("nonnegative", lambda x: x >= 0, 0, 0.0)
unit_interval = Constraint("unit_interval", lambda x: (x >= 0) & (x <= 1), 0, 0.0, 1.0)
real_vector, real_matrix = independent(real, 1), independent(real, 2)
simplex = Constraint("simplex", _is_simplex, 1)
lower_cholesky = Constraint("lower_cholesky", _is_lower_cholesky, 2)
corr_cholesky = Constraint("corr_cholesky", lambda x: _is_lower_cholesky(x) & all_(
    abs_(sum_(x * x, axis=-1) - 1) < 1e-4, axis=-1), 2)
boolean = Constraint("boolean", lambda x: (x == 0) | (x == 1))
nonnegative_integer = Constraint("nonnegative_integer", lambda x: (x % 1 == 0) & (x >= 0))
positive_integer = Constraint("positive_integer", lambda x: (x % 1 == 0) & (x >= 1))
one_hot = Constraint("one_hot", lambda x: all_((x == 0) | (x == 1), axis=-1) & (sum_(x, axis=-1) == 1), 1)
lower_triangular = Constraint("lower_triangular", lambda x: all_(tril(x) == x, axis=(-2, -1)), 2)
square = Constraint("square", lambda x: full(x.shape[:-2], x.shape[-2] == x.shape[-1]), 2)
symmetric = Constraint("symmetric", _is_symmetric, 2)
positive_definite = Constraint("positive_definite", _has_eigenvalues(lambda values: values > 0), 2)
positive_semidefinite = Constraint("positive_semidefinite", _has_eigenvalues(lambda values: values >= 0), 2)
dependent = Constraint("dependent", lambda x: x == x)       # of what other parameters say

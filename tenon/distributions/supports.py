"""A distribution -> the set of its draws, as `distribution.support`: a constraint, or what parameters say of it."""

from __future__ import annotations

from typing import Any

from tenon.distributions import constraints
from tenon.distributions.constraints import Constraint

BY_NAME: dict[str, Any] = dict.fromkeys(
    ("Cauchy", "Gumbel", "Laplace", "Normal", "StudentT", "VonMises"), constraints.real) | dict.fromkeys(
    ("Exponential", "Gamma", "HalfCauchy", "HalfNormal"), constraints.nonnegative) | dict.fromkeys(
    ("FisherSnedecor", "InverseGamma", "LogNormal", "Weibull"), constraints.positive) | dict.fromkeys(
    ("Beta", "ContinuousBernoulli", "Kumaraswamy", "RelaxedBernoulli"), constraints.unit_interval) | dict.fromkeys(
    ("Geometric", "NegativeBinomial", "Poisson"), constraints.nonnegative_integer) | dict.fromkeys(
    ("Dirichlet", "LogisticNormal", "RelaxedOneHotCategorical"), constraints.simplex) | dict.fromkeys(
    ("LowRankMultivariateNormal", "MultivariateNormal"), constraints.real_vector) | {
    "Bernoulli": constraints.boolean, "OneHotCategorical": constraints.one_hot,
    "Wishart": constraints.positive_definite, "LKJCholesky": constraints.corr_cholesky,
    "Binomial": lambda d: constraints.integer_interval(0, d.total_count),
    "Categorical": lambda d: constraints.integer_interval(0, d._classes - 1),
    "Multinomial": lambda d: constraints.multinomial(d.total_count),
    "Uniform": lambda d: constraints.interval(d.low, d.high),
    "Pareto": lambda d: constraints.greater_than_eq(d.scale),
    "GeneralizedPareto": lambda d: constraints.interval(d.loc, d.upper_bound),
    "MixtureSameFamily": lambda d: d.component_distribution.support,
    "Independent": lambda d: constraints.independent(d.base_dist.support, d.reinterpreted_batch_ndims),
    "TransformedDistribution": lambda d: _transformed(d)}


def support_of(distribution: Any) -> Constraint | None:
    """The set of the draws of a distribution; None of one of the user's that does not say."""
    found = next((BY_NAME[kind.__name__] for kind in type(distribution).__mro__ if kind.__name__ in BY_NAME), None)
    known: Constraint | None = found if found is None or isinstance(found, Constraint) else found(distribution)
    return known


def _transformed(distribution: Any) -> Constraint:
    last = distribution.transforms[-1].codomain if distribution.transforms else distribution.base_dist.support
    return constraints.independent(last, max(len(distribution.event_shape) - last.event_dim, 0))

"""`kl_divergence`: how far one distribution is from another, by formulas for pairs of kinds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenon.distributions.distribution import Distribution
from tenon.distributions.gamma_ratios import InverseGamma
from tenon.distributions.gammas import Beta, Dirichlet, Gamma
from tenon.distributions.independent import Independent
from tenon.distributions.lifetimes import HalfCauchy, Pareto, Weibull
from tenon.distributions.location_scale import (
    EULER,
    Cauchy,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from tenon.distributions.multinomial import ContinuousBernoulli
from tenon.distributions.multivariate_normal import MultivariateNormal
from tenon.distributions.trials import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from tenon.errors import ArgumentError
from tenon.ops.activations import softplus
from tenon.ops.arithmetic import abs_, square
from tenon.ops.comparison import where
from tenon.ops.exponential import exp, log
from tenon.ops.reduction import sum_
from tenon.ops.shape import broadcast_to
from tenon.ops.solving import solve_triangular
from tenon.ops.special_functions import digamma, lgamma
from tenon.types import broadcast_shapes

Formula = Callable[[Any, Any], Any]
FORMULAS: dict[tuple[type, type], Formula] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Formula], Formula]:
    """A decorator for the formula of a pair of kinds, of theirs and of kinds derived from them."""
    def decorate(formula: Formula) -> Formula:
        FORMULAS[type_p, type_q] = formula
        return formula
    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """The Kullback-Leibler divergence of q from p: the expectation under p of log p - log q.

    Raises ArgumentError for a pair without a formula.

    >>> D = tn.distributions
    >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0))
    tensor(0.5)
    """
    for left in type(p).__mro__:
        for right in type(q).__mro__:
            if (left, right) in FORMULAS:
                return FORMULAS[left, right](p, q)
    raise ArgumentError(f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}",
                        hint="the mean of p.log_prob(x) - q.log_prob(x), over x = p.sample((n,))")


@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> Any:
    ratio = square(p.scale / q.scale)
    return (ratio + square((p.loc - q.loc) / q.scale) - 1 - log(ratio)) * 0.5


@register_kl(LogNormal, LogNormal)
def _log_normals(p: LogNormal, q: LogNormal) -> Any:
    return _normals(p._normal(), q._normal())


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p: HalfNormal, q: HalfNormal) -> Any:
    ratio = square(p.scale / q.scale)
    return (ratio - 1 - log(ratio)) * 0.5


@register_kl(Laplace, Laplace)
def _laplaces(p: Laplace, q: Laplace) -> Any:
    ratio, away = p.scale / q.scale, abs_(p.loc - q.loc)
    return -log(ratio) + away / q.scale + ratio * exp(-away / p.scale) - 1


@register_kl(Gumbel, Gumbel)
def _gumbels(p: Gumbel, q: Gumbel) -> Any:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -log(ratio) + EULER * (ratio - 1) + exp(away + lgamma(ratio + 1)) - away - 1


@register_kl(Cauchy, Cauchy)
def _cauchys(p: Cauchy, q: Cauchy) -> Any:
    """Chyzak and Nielsen 2019, arXiv:1905.10965."""
    return log((square(p.scale + q.scale) + square(p.loc - q.loc)) / (4 * p.scale * q.scale))


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchys(p: HalfCauchy, q: HalfCauchy) -> Any:
    return log(square(p.scale + q.scale) / (4 * p.scale * q.scale))


@register_kl(Weibull, Weibull)
def _weibulls(p: Weibull, q: Weibull) -> Any:
    """Bauckhage 2013, arXiv:1310.3713."""
    a, b, ratio = p.concentration, q.concentration, log(p.scale) - log(q.scale)
    return log(a / b) - b * ratio - EULER * (a - b) / a + exp(b * ratio + lgamma(b / a + 1)) - 1


@register_kl(Pareto, Pareto)
def _paretos(p: Pareto, q: Pareto) -> Any:
    """Infinite where p has values below the least of q."""
    ratio = q.alpha / p.alpha
    return where(p.scale < q.scale, math.inf, q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1)


@register_kl(Uniform, Uniform)
def _uniforms(p: Uniform, q: Uniform) -> Any:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return where(inside, log((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(Exponential, Exponential)
def _exponentials(p: Exponential, q: Exponential) -> Any:
    ratio = q.rate / p.rate
    return ratio - log(ratio) - 1


@register_kl(Gamma, Gamma)
@register_kl(InverseGamma, InverseGamma)
def _gammas(p: Gamma | InverseGamma, q: Gamma | InverseGamma) -> Any:
    a, b = p.concentration, q.concentration
    return (b * log(p.rate / q.rate) + lgamma(b) - lgamma(a) + (a - b) * digamma(a)
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Beta, Beta)
def _betas(p: Beta, q: Beta) -> Any:
    return _dirichlets(p._both(), q._both())


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p: Dirichlet, q: Dirichlet) -> Any:
    a, b = p.concentration, q.concentration
    total = sum_(a, axis=-1)
    normal = lgamma(total) - lgamma(sum_(b, axis=-1)) - sum_(lgamma(a) - lgamma(b), axis=-1)
    return normal + sum_((a - b) * (digamma(a) - digamma(total)[..., None]), axis=-1)


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> Any:
    return p.probs * (p.logits - q.logits) + softplus(q.logits) - softplus(p.logits)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoullis(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Any:
    return (p.mean * (p.logits - q.logits) + softplus(q.logits) - softplus(p.logits)
            + p._log_norm() - q._log_norm())


@register_kl(Geometric, Geometric)
def _geometrics(p: Geometric, q: Geometric) -> Any:
    return _bernoullis(p, q) / p.probs


@register_kl(Binomial, Binomial)
def _binomials(p: Binomial, q: Binomial) -> Any:
    """Of as many trials: of more it is infinite, and of fewer there is no formula: NaN."""
    same = p.total_count * _bernoullis(p, q)
    return where(p.total_count == q.total_count, same, where(p.total_count > q.total_count, math.inf, math.nan))


@register_kl(Poisson, Poisson)
def _poissons(p: Poisson, q: Poisson) -> Any:
    return p.rate * log(p.rate / q.rate) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _categoricals(p: Categorical, q: Categorical) -> Any:
    each = where(p.probs > 0, p.logits - q.logits, 0)
    return sum_(p.probs * each, axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _vectors(p: MultivariateNormal, q: MultivariateNormal) -> Any:
    batch, size = broadcast_shapes(p.batch_shape, q.batch_shape), p.event_shape[0]
    ours, theirs = (broadcast_to(d.scale_tril, (*batch, size, size)) for d in (p, q))
    away = broadcast_to(q.loc - p.loc, (*batch, size))
    spread = sum_(square(solve_triangular(theirs, ours, upper=False)), axis=(-2, -1))
    distance = sum_(square(solve_triangular(theirs, away[..., None], upper=False)), axis=(-2, -1))
    return q._half_log_det() - p._half_log_det() + (spread + distance - size) * 0.5


@register_kl(Independent, Independent)
def _independents(p: Independent, q: Independent) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError(f"kl_divergence: events of {p.reinterpreted_batch_ndims} axes of a batch, and of "
                            f"{q.reinterpreted_batch_ndims}")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))

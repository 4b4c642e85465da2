"""`tn.distributions`: draws have the moments and the shares that formulas say, captured as without, and gradients."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.distributions.concrete import ExpRelaxedCategorical, LogitRelaxedBernoulli
from tenon.distributions.gammas import standard_gamma
from tenon.errors import ArgumentError, LinearAlgebraError, ShapeError
from tenon.ops.incomplete_gamma import gamma_slope

D = tn.distributions
MANY = 40_000

DRAWN: dict[str, Any] = {
    "Normal": lambda: D.Normal(1.0, 2.0), "LogNormal": lambda: D.LogNormal(0.0, 0.5), "Laplace": lambda: D.Laplace(1.0, 2.0),
    "Gumbel": lambda: D.Gumbel(1.0, 2.0), "HalfNormal": lambda: D.HalfNormal(2.0), "Uniform": lambda: D.Uniform(-1.0, 3.0),
    "Exponential": lambda: D.Exponential(0.5), "Gamma": lambda: D.Gamma(2.5, 0.5), "small Gamma": lambda: D.Gamma(0.25, 1.0),
    "Chi2": lambda: D.Chi2(3.0), "Beta": lambda: D.Beta(0.5, 2.0), "StudentT": lambda: D.StudentT(8.0, 1.0, 2.0),
    "Weibull": lambda: D.Weibull(2.0, 1.5), "Pareto": lambda: D.Pareto(2.0, 9.0),
    "NegativeBinomial": lambda: D.NegativeBinomial(2.5, probs=0.4),
    "Poisson": lambda: D.Poisson(4.0), "Bernoulli": lambda: D.Bernoulli(probs=0.3), "Geometric": lambda: D.Geometric(probs=0.3),
    "Binomial": lambda: D.Binomial(7, probs=0.3), "Dirichlet": lambda: D.Dirichlet(tn.tensor([0.5, 2.0, 3.0])),
    "OneHotCategorical": lambda: D.OneHotCategorical(logits=tn.tensor([0.5, 2.0, 0.0])),
    "MultivariateNormal": lambda: D.MultivariateNormal(tn.tensor([1.0, -1.0]), tn.tensor([[2.0, 0.5], [0.5, 1.0]]))}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_have_the_moments(name: str) -> None:
    drawn = DRAWN[name]().sample((MANY,)).numpy().astype(np.float64)
    mean, variance = (np.asarray(x, np.float64) for x in (DRAWN[name]().mean, DRAWN[name]().variance))
    assert (np.abs(drawn.mean(0) - mean) < 5 * np.sqrt(variance / MANY)).all()
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.15)


@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Laplace", "Gumbel", "HalfNormal", "Uniform", "Exponential",
                                  "Gamma", "small Gamma", "Chi2", "Weibull", "Pareto"])
def test_shares_of_draws_are_uniform(name: str) -> None:
    shares = np.sort(DRAWN[name]().cdf(DRAWN[name]().sample((MANY,))).numpy())
    assert np.abs(shares - np.arange(MANY) / MANY).max() < 1.95 / np.sqrt(MANY)         # Kolmogorov and Smirnov, 0.001


def test_classes_come_as_often_as_they_should() -> None:
    p = np.array([0.1, 0.2, 0.0, 0.7])
    drawn = D.Categorical(probs=tn.tensor(p)).sample((MANY,)).numpy()
    counts = np.bincount(drawn, minlength=4)
    assert counts[2] == 0 and (np.abs(counts - p * MANY) <= 5 * np.sqrt(p * (1 - p) * MANY)).all()


@pytest.mark.parametrize("name", DRAWN)
def test_captured_as_without(name: str) -> None:
    def draws() -> Any:
        distribution = DRAWN[name]()
        x = distribution.sample((3,))
        return x, distribution.log_prob(x)
    captured = tn.jit(draws)
    for seed in (0, 1):
        tn.manual_seed(seed)
        eager = [draws(), draws()]
        tn.manual_seed(seed)
        for wanted, found in zip(eager, [captured(), captured()], strict=True):
            np.testing.assert_allclose(found[0].numpy(), wanted[0].numpy(), rtol=3e-7)      # the last bit of exp
            np.testing.assert_allclose(found[1].numpy(), wanted[1].numpy(), rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- gradients

SMOOTH: dict[str, Any] = {
    "Normal": (lambda a, b: D.Normal(a, b)), "Laplace": (lambda a, b: D.Laplace(a, b)), "Gumbel": (lambda a, b: D.Gumbel(a, b)),
    "LogNormal": (lambda a, b: D.LogNormal(a * 0.25, b * 0.25)), "Uniform": (lambda a, b: D.Uniform(-a, b)),
    "Gamma": (lambda a, b: D.Gamma(a, b)), "StudentT": (lambda a, b: D.StudentT(a + 4, 1.0, b)),
    "Exponential": (lambda a, b: D.Exponential(a * b))}


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_of_draws_is_that_of_their_mean(name: str) -> None:
    def moment(a: Any, b: Any) -> Any:
        return SMOOTH[name](a, b).rsample((MANY,)).mean()

    def formula(a: Any, b: Any) -> Any:
        return SMOOTH[name](a, b).mean
    at = tn.tensor(1.5, dtype="f64"), tn.tensor(2.0, dtype="f64")
    spread = float(SMOOTH[name](*at).stddev)
    for argument in (0, 1):
        found, wanted = tn.grad(moment, argument)(*at), tn.grad(formula, argument)(*at)
        assert abs(float(found) - float(wanted)) < 6 * max(spread, 1) * 2 / np.sqrt(MANY)
    tn.manual_seed(3)
    eager = tn.grad(moment)(*at)
    tn.manual_seed(3)
    np.testing.assert_allclose(float(tn.jit(tn.grad(moment))(*at)), float(eager), rtol=1e-9)


def test_a_gamma_draw_moves_so_that_its_share_stays() -> None:
    a = np.array([0.01, 0.5, 1.0, 3.0, 19.5, 21.0, 100.0, 1e4])[:, None]
    x = a * np.array([0.05, 0.5, 0.95, 1.0, 1.05, 1.5]) + 0.01 * (a < 1)
    slope = gamma_slope(tn.tensor(x), tn.tensor(a)).numpy()
    h = 1e-6 * a
    change = tn.gammainc(tn.tensor(a + h), tn.tensor(x + h * slope)) - tn.gammainc(tn.tensor(a - h), tn.tensor(x - h * slope))
    alone = np.abs((tn.gammainc(tn.tensor(a + h), tn.tensor(x)) - tn.gammainc(tn.tensor(a - h), tn.tensor(x))).numpy())
    assert (np.abs(change.numpy()) <= 1e-6 * alone + 2e-14).all() and (alone > 1e-12).any()


def test_incomplete_gamma_functions() -> None:
    """Beside sums of densities: for whole a the share above x is that of Poisson counts below a."""
    a, x = np.array([1, 2, 5, 30, 80])[:, None], np.array([0.5, 3.0, 5.0, 28.0, 31.0, 79.0, 85.0])
    terms = np.exp(-x + np.arange(80)[:, None] * np.log(x) - np.array([np.log(np.arange(1, k + 1)).sum() for k in range(80)])[:, None])
    wanted = np.stack([terms[:n].sum(0) for n in a[:, 0]])
    np.testing.assert_allclose(tn.gammaincc(tn.tensor(a.astype(float)), tn.tensor(x)).numpy(), wanted, rtol=1e-11)
    np.testing.assert_allclose(tn.gammainc(tn.tensor(a.astype(float)), tn.tensor(x)).numpy(), 1 - wanted, atol=1e-13)
    edges = tn.gammainc(tn.tensor([1.0, 1.0, 0.0, -1.0, np.nan, 2.0]), tn.tensor([0.0, np.inf, 1.0, 1.0, 1.0, -1.0])).numpy()
    np.testing.assert_array_equal(edges, [0, 1, 1, np.nan, np.nan, np.nan])


def test_policy_gradient_in_a_captured_step() -> None:
    logits = tn.nn.Parameter(tn.zeros(3))
    optimizer = tn.optim.SGD([logits], lr=0.5)

    @tn.jit
    def step() -> Any:
        policy = D.Categorical(logits=logits)
        action = policy.sample((64,))
        loss = -(policy.log_prob(action) * (action == 1).astype("f32")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(60):
        step()
    assert D.Categorical(logits=logits).probs[1].item() > 0.8


# ---------------------------------------------------------------- mistakes

@pytest.mark.parametrize(("make", "message"), [
    (lambda: D.Normal(0.0, -1.0), "Normal: scale must be above 0, got -1.0"),
    (tn.jit(lambda: D.Normal(0.0, -1.0)), "Normal: scale must be above 0, got -1.0"),
    (lambda: D.Normal(tn.tensor([0.0, np.nan]), 1.0), "Normal: loc must be numbers, not NaN"),
    (lambda: D.Uniform(2.0, 1.0), "Uniform: high - low must be above 0"),
    (lambda: D.Gamma(0.0, 1.0), "Gamma: concentration must be above 0"),
    (lambda: D.Bernoulli(probs=1.5), "Bernoulli: probs must lie between 0 and 1"),
    (lambda: D.Bernoulli(), "Bernoulli: one of probs and logits is needed, not none"),
    (lambda: D.Bernoulli(tn.tensor(0.5), tn.tensor(0.5)), "not both"),
    (lambda: D.Categorical(probs=tn.tensor([-1.0, 2.0])), "Categorical: probs must not be below 0"),
    (lambda: D.Categorical(probs=tn.tensor([0.0, 0.0])), "must have a sum above 0"),
    (lambda: D.Poisson(-1.0), "Poisson: rate must not be below 0"),
    (lambda: D.Binomial(2.5, probs=0.5), "Binomial: total_count must be whole numbers"),
    (lambda: D.MultivariateNormal(tn.zeros(2)), "one of covariance_matrix, precision_matrix and scale_tril is needed, not none"),
    (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "Independent: 1 axes of a batch of shape"),
    (lambda: D.Bernoulli(probs=0.5).rsample(), "Bernoulli: draws have no gradient"),
    (lambda: D.Bernoulli(probs=0.5).cdf(tn.tensor(1.0)), "Bernoulli has no cdf"),
    (lambda: D.kl_divergence(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0)), "no formula for Cauchy and Normal")])
def test_mistakes_are_told(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_logits_of_relaxed_draws_are_real() -> None:
    """Not the 0 or 1, or the class, of what these derive from."""
    x = tn.tensor([-1.5, 2.0])
    assert LogitRelaxedBernoulli(tn.tensor(0.5), x.sigmoid()).support.check(x).all()
    assert ExpRelaxedCategorical(tn.tensor(0.5), x.softmax()).support.check(x)


def test_a_divergence_of_weibulls_is_its_integral() -> None:
    p, q = (D.Weibull(*map(tn.tensor, map(np.float64, given))) for given in ((1.5, 2.0), (2.25, 1.25)))
    x = tn.linspace(1e-6, 30.0, 400_001, dtype="float64")
    integral = tn.trapezoid(p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x)), x)
    assert D.kl_divergence(p, q).item() == pytest.approx(integral.item(), rel=1e-6)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError):
        D.Normal(tn.zeros(2), tn.ones(3))
    with pytest.raises(ShapeError, match="axis of classes"):
        D.Categorical(logits=tn.tensor(0.5))
    with pytest.raises(ShapeError, match=r"values end in the axes \[2\], this one is f32\[3\]"):
        D.Dirichlet(tn.ones(2)).log_prob(tn.ones(3))
    with pytest.raises(ShapeError, match="square matrix"):
        D.MultivariateNormal(tn.zeros(2), tn.eye(3))
    with pytest.raises(LinearAlgebraError):
        D.MultivariateNormal(tn.zeros(2), -tn.eye(2))


def test_outside_the_support() -> None:
    nothing = -np.inf
    assert D.Exponential(1.0).log_prob(tn.tensor(-1.0)) == nothing and D.Gamma(2.0, 1.0).log_prob(tn.tensor(-1.0)) == nothing
    assert D.LogNormal(0.0, 1.0).log_prob(tn.tensor(-1.0)) == nothing and D.Beta(2.0, 2.0).log_prob(tn.tensor(2.0)) == nothing
    assert D.Poisson(1.0).log_prob(tn.tensor(0.5)) == nothing and D.Bernoulli(0.5).log_prob(tn.tensor(2.0)) == nothing
    assert D.Binomial(2, 0.5).log_prob(tn.tensor(3.0)) == nothing
    assert D.Categorical(tn.ones(3)).log_prob(tn.tensor(3)) == nothing
    x = tn.tensor(-1.0, requires_grad=True)
    D.LogNormal(0.0, 1.0).log_prob(x).backward()
    assert np.isfinite(x.grad.numpy())


def test_repr_and_types() -> None:
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(D.Bernoulli(probs=tn.zeros(2))) == "Bernoulli(probs: f32[2])"
    assert D.Normal(0, 1).sample().dtype is tn.float32
    for dtype in ("f64", "f16", "bf16"):
        given = tn.ones(2, dtype=dtype)
        assert D.Normal(given, 1).sample().dtype is D.Gamma(given, 2).sample().dtype is given.dtype
    assert (standard_gamma(tn.full((1000,), 1e-4), (1000,)) > 0).all()


def test_draws_under_vmap() -> None:
    tn.manual_seed(0)
    drawn = tn.vmap(lambda rate: D.Poisson(rate).sample((50,)))(tn.tensor([1.0, 100.0]))
    assert drawn.shape == (2, 50) and drawn[0].max() < 20 < drawn[1].min()

"""`tn.distributions` beside `torch.distributions`, in double precision: every formula, every gradient of it."""

from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn

pytestmark = pytest.mark.filterwarnings("ignore:Singular sample")
# name -> parameters, values of the support and outside it
KINDS: dict[str, tuple[dict[str, Any], Any]] = {
    "Normal": ({"loc": [0.5, -1.0, 2.0], "scale": [[0.5], [2.0]]}, [[-1.0, 0.0, 3.0], [0.5, 10.0, -4.0]]),
    "LogNormal": ({"loc": [0.5, -1.0], "scale": [0.5, 2.0]}, [0.5, 3.0]),
    "Laplace": ({"loc": [0.5, -1.0], "scale": [0.5, 2.0]}, [0.25, 3.0]),
    "Gumbel": ({"loc": [0.5, -1.0], "scale": [0.5, 2.0]}, [0.25, 3.0]),
    "Cauchy": ({"loc": [0.5, -1.0], "scale": [0.5, 2.0]}, [0.25, 3.0]),
    "HalfNormal": ({"scale": [0.5, 2.0]}, [0.25, 3.0]),
    "Uniform": ({"low": [-1.0, 0.0], "high": [2.0, 4.0]}, [0.25, 3.0]),
    "Exponential": ({"rate": [0.5, 2.0]}, [0.25, 3.0]),
    "Gamma": ({"concentration": [0.5, 30.0], "rate": [2.0, 3.0]}, [0.25, 11.0]),
    "Chi2": ({"df": [0.5, 30.0]}, [0.25, 11.0]),
    "Beta": ({"concentration1": [0.5, 3.0], "concentration0": [2.0, 0.75]}, [0.25, 0.875]),
    "Dirichlet": ({"concentration": [[0.5, 3.0, 1.0], [2.0, 4.0, 0.25]]}, [[0.25, 0.5, 0.25], [0.125, 0.5, 0.375]]),
    "StudentT": ({"df": [0.75, 1.5, 5.0], "loc": [0.5, -1.0, 0.0], "scale": [0.5, 2.0, 3.0]}, [0.25, 3.0, -2.0]),
    "Weibull": ({"scale": [0.5, 2.0], "concentration": [1.25, 3.0]}, [0.25, 3.0]),
    "Pareto": ({"scale": [0.125, 2.0, 1.0], "alpha": [0.75, 1.5, 3.0]}, [0.25, 3.0, 1.0]),
    "HalfCauchy": ({"scale": [0.5, 2.0]}, [0.25, 3.0]),
    "NegativeBinomial": ({"total_count": [5.0, 2.5], "probs": [0.25, 0.875]}, [0.0, 4.0]),
    "NegativeBinomial logits": ({"total_count": [1.0, 7.5], "logits": [-2.0, 0.5]}, [3.0, 0.0]),
    "Poisson": ({"rate": [0.5, 6.0]}, [0.0, 4.0]),
    "Bernoulli": ({"probs": [0.25, 0.875]}, [0.0, 1.0]),
    "Bernoulli logits": ({"logits": [-30.0, 0.5]}, [1.0, 0.0]),
    "Geometric": ({"probs": [0.25, 0.875]}, [0.0, 3.0]),
    "Binomial": ({"total_count": [5.0, 5.0], "probs": [0.25, 0.875]}, [0.0, 4.0]),
    "Categorical": ({"probs": [[0.25, 0.5, 0.25], [3.0, 2.0, 1.0]]}, [0, 2]),
    "Categorical logits": ({"logits": [[0.25, -2.0, 0.5], [3.0, 2.0, 1.0]]}, [1, 0]),
    "OneHotCategorical": ({"logits": [[0.25, -2.0, 0.5], [3.0, 2.0, 1.0]]}, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "OneHotCategoricalStraightThrough": ({"logits": [[0.25, -2.0, 0.5], [3.0, 2.0, 1.0]]}, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "RelaxedBernoulli": ({"temperature": 0.75, "probs": [0.25, 0.875]}, [0.25, 0.75]),
    "RelaxedBernoulli logits": ({"temperature": 1.5, "logits": [-2.0, 0.5]}, [0.25, 0.75]),
    "RelaxedOneHotCategorical": ({"temperature": 0.75, "probs": [[0.25, 0.5, 0.25], [3.0, 2.0, 1.0]]}, [[0.25, 0.5, 0.25], [0.125, 0.5, 0.375]]),
    "RelaxedOneHotCategorical logits": ({"temperature": 0.75, "logits": [0.25, -2.0, 0.5]}, [[0.25, 0.5, 0.25]]),
    "MultivariateNormal": ({"loc": [[0.5, -1.0], [0.0, 1.0]], "covariance_matrix": [[2.0, 0.5], [0.5, 1.0]]},
                           [[0.25, 1.0], [0.0, 0.5]]),
    "MultivariateNormal factor": ({"loc": [0.5, -1.0], "scale_tril": [[2.0, 0.0], [0.5, 1.0]]}, [[0.25, 1.0]]),
    "MultivariateNormal precision": ({"loc": [0.5, -1.0], "precision_matrix": [[2.0, 0.5], [0.5, 1.0]]}, [[0.25, 1.0]]),
}
KINDS |= {
    "InverseGamma": ({"concentration": [0.5, 3.0], "rate": [2.0, 3.0]}, [0.25, 3.0]),
    "Kumaraswamy": ({"concentration1": [0.5, 3.0], "concentration0": [2.0, 0.75]}, [0.25, 0.875]),
    "FisherSnedecor": ({"df1": [1.5, 6.0], "df2": [3.0, 5.0]}, [0.25, 3.0]),
    "Multinomial": ({"probs": [[0.25, 0.5, 0.25], [3.0, 2.0, 1.0]]}, [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "ContinuousBernoulli": ({"probs": [0.25, 0.875, 0.5]}, [0.25, 0.875, 0.75]),
    "LogisticNormal": ({"loc": [[0.5, -1.0]], "scale": [[0.5, 2.0]]}, [[0.25, 0.5, 0.25]]),
    "LowRankMultivariateNormal": ({"loc": [[0.5, -1.0, 0.0]], "cov_factor": [[[2.0, 0.5], [0.5, 1.0], [0.0, 1.0]]],
                                   "cov_diag": [[0.5, 1.0, 2.0]]}, [[0.25, 1.0, 0.5]]),
    "Wishart": ({"df": [3.5, 5.0], "covariance_matrix": [[2.0, 0.5], [0.5, 1.0]]}, [[[3.0, 0.5], [0.5, 1.0]]]),
    "Wishart precision": ({"df": 2.5, "precision_matrix": [[2.0, 0.5], [0.5, 1.0]]}, [[3.0, 0.5], [0.5, 1.0]]),
}
SECOND = {"Uniform": {"low": [-2.0, 1.0], "high": [3.0, 5.0]}, "Binomial": {"total_count": [5.0, 5.0], "probs": [0.5, 0.5]}}
WITHOUT_KL = {"StudentT", "Chi2", "Weibull", "NegativeBinomial", "RelaxedBernoulli", "RelaxedOneHotCategorical",
              "OneHotCategoricalStraightThrough", "Kumaraswamy", "FisherSnedecor", "Multinomial", "LogisticNormal",
              "LowRankMultivariateNormal", "Wishart"}


def made(library: Any, name: str, parameters: dict[str, Any], array: Any) -> tuple[Any, dict[str, Any]]:
    given = {key: array(np.array(value)) for key, value in parameters.items()}
    return getattr(library.distributions, name.split()[0])(**given), given


def torch_made(name: str, parameters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return made(torch, name, parameters, lambda x: torch.tensor(x, requires_grad=x.dtype.kind == "f"))


def tenon_made(name: str, parameters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return made(tn, name, parameters, lambda x: tn.tensor(x, requires_grad=x.dtype.kind == "f"))


def compared(name: str, ask: Any, parameters: dict[str, Any], value: Any) -> None:
    """What is asked of both, and its gradient for all parameters."""
    theirs, their_inputs = torch_made(name, parameters)
    ours, our_inputs = tenon_made(name, parameters)
    value = np.array(value)
    try:
        wanted = ask(theirs, torch.tensor(value))
    except (NotImplementedError, AttributeError):
        pytest.skip("PyTorch has none")
    found = ask(ours, tn.tensor(value))
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    if wanted.requires_grad and wanted.grad_fn is not None and torch.isfinite(wanted).all():
        try:
            wanted.sum().backward()
        except NotImplementedError:         # the gradient of gammainc for its parameter
            return
        found.sum().backward()
        for key, x in their_inputs.items():
            if x.grad is not None and our_inputs[key].grad is not None:
                np.testing.assert_allclose(our_inputs[key].grad.numpy(), x.grad.numpy(), rtol=1e-7, atol=1e-10, err_msg=key)
            else:
                assert x.grad is None or not x.grad.any(), key


@pytest.mark.parametrize("what", ["log_prob", "cdf", "entropy", "mean", "variance", "stddev", "mode"])
@pytest.mark.parametrize("name", KINDS)
def test_formulas(name: str, what: str) -> None:
    asked = {"log_prob": lambda d, x: d.log_prob(x), "cdf": lambda d, x: d.cdf(x), "entropy": lambda d, x: d.entropy()}
    compared(name, asked.get(what, lambda d, x: getattr(d, what)), *KINDS[name])


@pytest.mark.parametrize("name", KINDS)
def test_quantiles(name: str) -> None:
    parameters, value = KINDS[name]
    if name.split()[0] not in ("HalfNormal",):
        compared(name, lambda d, x: d.icdf(x), parameters, np.full(np.shape(value), 0.375))


@pytest.mark.parametrize("name", [name for name in KINDS if name.split()[0] not in WITHOUT_KL])
def test_divergences(name: str) -> None:
    first = KINDS[name][0]
    other = SECOND.get(name, {key: (np.array(value) * 0.5 + (0.125 if key != "scale_tril" else 0)).tolist()
                              for key, value in first.items()})
    if name.startswith("MultivariateNormal f"):
        other["scale_tril"] = [[1.0, 0.0], [-0.5, 3.0]]
    theirs = [torch_made(name, p)[0] for p in (first, other)]
    ours = [tenon_made(name, p)[0] for p in (first, other)]
    wanted, found = torch.distributions.kl_divergence(*theirs), tn.distributions.kl_divergence(*ours)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_supports(name: str) -> None:
    parameters, value = KINDS[name]
    theirs, ours = torch_made(name, parameters)[0], tenon_made(name, parameters)[0]
    assert ours.support.event_dim == theirs.support.event_dim
    for x in (np.array(value), -np.array(value), np.array(value) * 0.5, np.array(value) + 1, np.array(value) * 1e3):
        try:
            wanted = theirs.support.check(torch.tensor(x))
        except RuntimeError:        # PyTorch's of Pareto and the like do not broadcast
            continue
        assert (ours.support.check(tn.tensor(x)).numpy() == wanted.numpy()).all()


def test_correlations() -> None:
    for dim, concentration in ((2, 0.5), (4, [1.0, 3.0])):
        theirs = torch.distributions.LKJCholesky(dim, torch.tensor(np.array(concentration)))
        ours = tn.distributions.LKJCholesky(dim, tn.tensor(np.array(concentration)))
        tn.manual_seed(0)
        drawn = ours.sample((2000,))
        assert drawn.shape == (2000, *theirs.batch_shape, dim, dim) and bool(ours.support.check(drawn).all())
        np.testing.assert_allclose(ours.log_prob(drawn).numpy(), theirs.log_prob(torch.tensor(drawn.numpy())).numpy(), rtol=1e-9)
        spread = (drawn @ drawn.mT)[..., 1, 0].square().mean(axis=0).numpy()        # of a correlation: Beta(a, a) on (-1, 1)
        np.testing.assert_allclose(spread, 1 / (2 * np.array(concentration) + dim - 1), rtol=0.1)


def test_what_exceeds_a_threshold() -> None:        # PyTorch's takes no float64
    given = [0.5, -1.0, 0.0, 0.0], [0.5, 2.0, 1.0, 1.0], [0.25, -0.25, 0.0, 0.75]
    ours, theirs = tn.distributions.GeneralizedPareto(*map(tn.tensor, given)), torch.distributions.GeneralizedPareto(*map(torch.tensor, given))
    for x in ([0.75, 1.0, 3.0, 0.5], [2.0, 6.5, 0.0, 90.0]):
        for what in ("log_prob", "cdf"):
            np.testing.assert_allclose(getattr(ours, what)(tn.tensor(x)).numpy(), getattr(theirs, what)(torch.tensor(x)).numpy(), rtol=1e-4)
    below, above = tn.tensor([0.25, -1.5, -0.5, -0.5]), tn.tensor([0.75, 7.5, 1.0, 1.0])
    assert (ours.log_prob(below) == -np.inf).all() and ours.cdf(below).sum() == 0 and ours.cdf(above)[1] == 1
    assert ours.support.check(below).sum() == 0 and ours.support.check(above).tolist() == [True, False, True, True]
    np.testing.assert_allclose(ours.cdf(ours.icdf(tn.full((4,), 0.375))).numpy(), 0.375, rtol=1e-5)
    for what in ("mean", "variance"):
        np.testing.assert_allclose(getattr(ours, what)[:3].numpy(), getattr(theirs, what)[:3].numpy(), rtol=1e-6)
    tn.manual_seed(0)
    np.testing.assert_allclose(ours.rsample((40000,)).mean(axis=0)[:3].numpy(), ours.mean[:3].numpy(), atol=0.03)


def test_draws_of_covariances() -> None:
    tn.manual_seed(0)
    ours = tn.distributions.Wishart(tn.tensor(4.5), tn.tensor([[2.0, 0.5], [0.5, 1.0]]))
    drawn = ours.sample((20000,))
    np.testing.assert_allclose(drawn.mean(axis=0).numpy(), ours.mean.numpy(), rtol=0.05)
    np.testing.assert_allclose(drawn.var(axis=0).numpy(), ours.variance.numpy(), rtol=0.1)


def test_independent() -> None:
    loc, scale, value = np.zeros((2, 3, 4)), np.full((2, 3, 4), 0.5), np.linspace(-1, 1, 24).reshape(2, 3, 4)
    for count in range(4):
        theirs = torch.distributions.Independent(torch.distributions.Normal(torch.tensor(loc), torch.tensor(scale)), count)
        ours = tn.distributions.Independent(tn.distributions.Normal(tn.tensor(loc), tn.tensor(scale)), count)
        assert ours.batch_shape == tuple(theirs.batch_shape) and ours.event_shape == tuple(theirs.event_shape)
        np.testing.assert_allclose(ours.log_prob(tn.tensor(value)).numpy(), theirs.log_prob(torch.tensor(value)).numpy())
        np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy().numpy())


@pytest.mark.parametrize("name", KINDS)
def test_shapes(name: str) -> None:
    theirs, ours = torch_made(name, KINDS[name][0])[0], tenon_made(name, KINDS[name][0])[0]
    assert ours.batch_shape == tuple(theirs.batch_shape) and ours.event_shape == tuple(theirs.event_shape)
    for sizes in ((), (4,), (0,), (2, 3)):
        drawn = ours.sample(sizes)
        assert drawn.shape == (*sizes, *theirs.batch_shape, *theirs.event_shape) and not drawn.requires_grad
        assert ours.log_prob(drawn).shape == (*sizes, *ours.batch_shape)
    assert ours.has_rsample == theirs.has_rsample
    wide = ours.expand((5, *ours.batch_shape))
    assert wide.sample().shape == tuple(theirs.expand((5, *theirs.batch_shape)).sample().shape)


def chained(library: Any, kind: str, loc: Any, scale: Any) -> Any:
    d = library.distributions
    base = d.Normal(loc, scale)
    return {
        "exp": lambda: d.TransformedDistribution(base, [d.ExpTransform()]),
        "falling sigmoid": lambda: d.TransformedDistribution(base, [d.AffineTransform(0.5, -scale), d.SigmoidTransform()]),
        "tanh": lambda: d.TransformedDistribution(base, d.TanhTransform()),
        "event": lambda: d.TransformedDistribution(d.Independent(base, 1), [d.AffineTransform(loc, scale, event_dim=1),
                                                                            d.ExpTransform()]),
        "joined": lambda: d.TransformedDistribution(base, [d.ComposeTransform([d.AffineTransform(loc, scale, 1)])]),
        "power": lambda: d.TransformedDistribution(d.Exponential(scale), [d.PowerTransform(2.0)]),
    }[kind]()


@pytest.mark.parametrize("kind", ["exp", "falling sigmoid", "tanh", "event", "joined", "power"])
def test_functions_of_draws(kind: str) -> None:
    parameters, values = ([0.25, -0.5], [0.5, 2.0]), np.array([[0.25, 0.5], [0.75, 0.125]])
    ours = [tn.tensor(np.array(x), requires_grad=True) for x in parameters]
    theirs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in parameters]
    mine, other = chained(tn, kind, *ours), chained(torch, kind, *theirs)
    assert (mine.batch_shape, mine.event_shape) == (tuple(other.batch_shape), tuple(other.event_shape))
    found, wanted = mine.log_prob(tn.tensor(values)), other.log_prob(torch.tensor(values))
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9)
    found.sum().backward(), wanted.sum().backward()
    for x, y in zip(ours, theirs, strict=True):
        if y.grad is not None:
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert mine.rsample((5,)).shape == tuple(other.rsample((5,)).shape)
    if kind not in ("event", "joined"):
        np.testing.assert_allclose(mine.cdf(tn.tensor(values)).detach().numpy(),
                                   other.cdf(torch.tensor(values)).detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(mine.icdf(tn.tensor(values)).detach().numpy(),
                                   other.icdf(torch.tensor(values)).detach().numpy(), rtol=1e-7)


TRANSFORMS: dict[str, tuple[Any, Any]] = {        # how it is made, what it takes
    "ExpTransform": (lambda d, t: d.ExpTransform(), [[0.5, -1.0]]),
    "PowerTransform": (lambda d, t: d.PowerTransform(t(3.0)), [[0.5, 1.5]]),
    "SigmoidTransform": (lambda d, t: d.SigmoidTransform(), [[0.5, -1.0]]),
    "SoftplusTransform": (lambda d, t: d.SoftplusTransform(), [[0.5, -1.0]]),
    "TanhTransform": (lambda d, t: d.TanhTransform(), [[0.5, -1.0]]),
    "AffineTransform": (lambda d, t: d.AffineTransform(t(0.5), t([2.0, -3.0]), event_dim=1), [[0.5, -1.0]]),
    "AbsTransform": (lambda d, t: d.AbsTransform(), [[0.5, -1.0]]),
    "SoftmaxTransform": (lambda d, t: d.SoftmaxTransform(), [[0.5, -1.0, 2.0]]),
    "StickBreakingTransform": (lambda d, t: d.StickBreakingTransform(), [[0.5, -1.0, 2.0], [0.25, 0.0, -2.0]]),
    "LowerCholeskyTransform": (lambda d, t: d.LowerCholeskyTransform(), [[0.5, -1.0], [0.25, 2.0]]),
    "CumulativeDistributionTransform": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(0.5), t(2.0))), [[0.5, -1.0]]),
    "IndependentTransform": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), [[0.5, -1.0]]),
    "ReshapeTransform": (lambda d, t: d.ReshapeTransform((2, 2), (4,)), [[0.5, -1.0], [0.25, 2.0]]),
    "ComposeTransform": (lambda d, t: d.ComposeTransform([d.AffineTransform(t(0.5), t(2.0)), d.StickBreakingTransform()]),
                         [[0.5, -1.0, 2.0]]),
    "inverse": (lambda d, t: d.ExpTransform().inv, [[0.5, 1.5]]),
    "CatTransform": (lambda d, t: d.CatTransform([d.ExpTransform(), d.AffineTransform(t(0.5), t(2.0))], dim=-1, lengths=[1, 2]), [[0.5, -1.0, 2.0]]),
    "CatTransform of vectors": (lambda d, t: d.CatTransform([d.IndependentTransform(d.ExpTransform(), 1), d.SigmoidTransform()], lengths=[2, 1]),
                                [[0.5, 0.25, -0.25]] * 3),
    "StackTransform": (lambda d, t: d.StackTransform([d.ExpTransform(), d.AffineTransform(t(0.5), t(2.0))]), [[0.5, -1.0], [0.25, 2.0]]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    make, values = TRANSFORMS[name]
    ours = make(tn.distributions.transforms, lambda x: tn.tensor(x, dtype=tn.float64)) if name[:2] != "Cu" else make(
        tn.distributions, lambda x: tn.tensor(x, dtype=tn.float64))
    theirs = make(torch.distributions.transforms if name[:2] != "Cu" else torch.distributions, lambda x: torch.tensor(x, dtype=torch.float64))
    x, a = tn.tensor(np.array(values)), torch.tensor(np.array(values))
    y, b = ours(x), theirs(a)
    np.testing.assert_allclose(y.numpy(), b.numpy(), rtol=1e-12)
    np.testing.assert_allclose(ours.inv(y).numpy(), theirs.inv(b).numpy(), rtol=1e-9)
    assert (ours.domain.event_dim, ours.codomain.event_dim, ours.bijective) == (
        theirs.domain.event_dim, theirs.codomain.event_dim, theirs.bijective)
    assert ours.forward_shape((5, *x.shape)) == tuple(theirs.forward_shape((5, *a.shape)))
    assert ours.inverse_shape(y.shape) == tuple(theirs.inverse_shape(b.shape))
    assert bool(ours.codomain.check(y).all()) and bool(ours.domain.check(x).all())
    if theirs.bijective:
        np.testing.assert_allclose(ours.log_abs_det_jacobian(x, y).numpy(), theirs.log_abs_det_jacobian(a, b).numpy(), rtol=1e-9)
        np.testing.assert_allclose(ours.inv.log_abs_det_jacobian(y, x).numpy(), theirs.inv.log_abs_det_jacobian(b, a).numpy(), rtol=1e-9)


def test_transforms_side_by_side_along_the_last_axis() -> None:
    """Whose events PyTorch takes for vectors, and then does not sum their slopes."""
    d = tn.distributions
    both = d.TransformedDistribution(d.Normal(tn.zeros(2), 1.0), d.StackTransform([d.ExpTransform(), d.TanhTransform()], -1))
    value = tn.tensor([[0.5, 0.25], [2.0, -0.5]])
    apart = [d.TransformedDistribution(d.Normal(0.0, 1.0), kind()).log_prob(value[:, k]) for k, kind in enumerate([d.ExpTransform, d.TanhTransform])]
    np.testing.assert_allclose(both.log_prob(value).numpy(), tn.stack(apart, 1).numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="the axis -1 lies in the 1 last ones"):
        d.StackTransform([d.SoftmaxTransform()], -1)
    with pytest.raises(ValueError, match=r"an axis 0 of length 3 was expected, not f32\[2\]"):
        d.CatTransform([d.ExpTransform()] * 3)(tn.zeros(2))


def test_a_transform_of_ones_own_with_parameters() -> None:
    def flow(library: Any, kind: Any, constraint: Any) -> Any:
        class Doubled(kind.Transform, library.nn.Module):
            domain = codomain = constraint.real_vector
            bijective = True

            def __init__(self) -> None:
                library.nn.Module.__init__(self)
                kind.Transform.__init__(self)
                self.log_scale = library.nn.Parameter(library.tensor([0.5, -0.25], dtype=library.float64))

            def _call(self, x: Any) -> Any:
                return x * library.exp(self.log_scale)

            def _inverse(self, y: Any) -> Any:
                return y * library.exp(-self.log_scale)

            def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
                return self.log_scale.sum().expand(x.shape[:-1])
        return Doubled()
    results = []
    for library in (tn, torch):
        d = library.distributions
        part = flow(library, d.transforms, d.constraints)
        zeros, ones = (library.tensor([x, x], dtype=library.float64) for x in (0.0, 1.0))
        whole = d.TransformedDistribution(d.Independent(d.Normal(zeros, ones), 1), [part, d.TanhTransform()])
        loss = -whole.log_prob(library.tensor([[0.25, 0.5], [-0.5, 0.125]], dtype=library.float64)).mean()
        loss.backward()
        assert whole.rsample((3,)).shape == (3, 2)
        results.append((loss.item(), part.log_scale.grad.numpy()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-9)


@pytest.mark.parametrize("events", [0, 1])
def test_mixtures(events: int) -> None:
    loc, scale = np.array([[0.5, -1.0, 2.0], [0.0, 1.0, 3.0]]), np.array([[0.5, 2.0, 1.0], [1.0, 0.25, 2.0]])
    results = []
    for library, array in ((tn, tn.tensor), (torch, torch.tensor)):
        d, logits, m, s = library.distributions, array(np.array([[0.1, -0.5, 1.0], [0.0, 2.0, 1.0]])), array(loc), array(scale)
        parts = d.Normal(m, s) if not events else d.Independent(d.Normal(m[..., None] + array(np.zeros(2)), s[..., None]), 1)
        logits.requires_grad_(True)
        mixed = d.MixtureSameFamily(d.Categorical(logits=logits), parts)
        value = array(np.array([0.25, -1.0])) if not events else array(np.array([[0.25, 1.0], [-1.0, 0.5]]))
        found = mixed.log_prob(value)
        found.sum().backward()
        assert mixed.sample((5, 4)).shape == (5, 4, *mixed.batch_shape, *mixed.event_shape)
        assert tuple(mixed.expand((3, 2)).sample().shape) == (3, 2, *mixed.event_shape)
        results.append([x.detach().numpy() for x in (found, logits.grad, mixed.mean, mixed.variance)]
                       + ([] if events else [mixed.cdf(value).detach().numpy()]))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    tn.manual_seed(0)
    d = tn.distributions
    drawn = d.MixtureSameFamily(d.Categorical(tn.tensor([0.25, 0.75])), d.Normal(tn.tensor([-5.0, 5.0]), 0.1)).sample((4000,))
    np.testing.assert_allclose((drawn > 0).double().mean().item(), 0.75, atol=0.03)
    with pytest.raises(ValueError, match=r"2 classes of a batch .* do not choose"):
        d.MixtureSameFamily(d.Categorical(tn.tensor([0.25, 0.75])), d.Normal(tn.zeros(3), 1.0))


def test_von_mises() -> None:
    """PyTorch's Bessel functions have seven digits."""
    loc, concentration, value = [0.5, -1.0], [0.5, 20.0], [0.25, -2.0]
    ours = tn.distributions.VonMises(tn.tensor(np.array(loc)), tn.tensor(np.array(concentration)), validate_args=False)
    theirs = torch.distributions.VonMises(torch.tensor(loc, dtype=torch.float64), torch.tensor(concentration, dtype=torch.float64))
    np.testing.assert_allclose(ours.log_prob(tn.tensor(np.array(value))).numpy(), theirs.log_prob(torch.tensor(value, dtype=torch.float64)).numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours.variance.numpy(), theirs.variance.numpy(), rtol=1e-5)
    tn.manual_seed(0)
    drawn = ours.sample((4000,)).numpy()
    assert drawn.shape == (4000, 2) and abs(drawn).max() <= np.pi
    np.testing.assert_allclose(1 - abs(np.exp(1j * drawn).mean(0)), ours.variance.numpy(), atol=0.03)
    np.testing.assert_allclose(np.angle(np.exp(1j * drawn).mean(0)), loc, atol=0.1)


def test_the_entropy_of_several_draws() -> None:
    probs = np.array([[0.25, 0.5, 0.25], [3.0, 2.0, 1.0]])
    for count in (1, 4):
        ours, theirs = tn.distributions.Multinomial(count, probs=tn.tensor(probs)), torch.distributions.Multinomial(count, probs=torch.tensor(probs))
        np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy().numpy(), rtol=1e-6)       # float32 there
        value = np.array([[count, 0, 0], [0, count, 0]], float)
        np.testing.assert_allclose(ours.log_prob(tn.tensor(value)).numpy(), theirs.log_prob(torch.tensor(value)).numpy(), rtol=1e-9)
        assert ours.sample((7,)).sum(-1).tolist() == [[count] * 2] * 7


def test_a_distribution_of_ones_own() -> None:
    class Point(tn.distributions.Distribution):
        def __init__(self, at: Any, validate_args: Any = None):
            self.at = at
            super().__init__(at.shape, validate_args=validate_args)

        def sample(self, sample_shape: Any = ()) -> Any:
            return self.at.expand((*sample_shape, *self.batch_shape))
    assert Point(tn.ones(2), validate_args=False).sample((3,)).shape == (3, 2)
    assert tn.distributions.Normal(0.0, 1.0, validate_args=False).batch_shape == ()


@pytest.mark.parametrize(("name", "values"), [
    ("boolean", [0.0, 1.0, 0.5]), ("nonnegative_integer", [0.0, 2.0, -1.0, 0.5]), ("positive_integer", [0.0, 2.0]),
    ("one_hot", [[0.0, 1.0], [1.0, 1.0]]), ("lower_triangular", [[1.0, 0.0], [2.0, 3.0]]), ("square", [[1.0, 0.0], [2.0, 3.0]]),
    ("symmetric", [[1.0, 2.0], [2.0, 3.0]]), ("positive_definite", [[2.0, 1.0], [1.0, 3.0]]),
    ("positive_definite", [[1.0, 2.0], [2.0, 3.0]]), ("positive_semidefinite", [[1.0, 1.0], [1.0, 1.0]])])
def test_sets(name: str, values: Any) -> None:
    found = getattr(tn.distributions.constraints, name).check(tn.tensor(values))
    assert found.tolist() == getattr(torch.distributions.constraints, name).check(torch.tensor(values)).tolist()

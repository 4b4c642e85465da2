"""Slopes where a function has an edge, or a formula of it divides by nothing: PyTorch's, and finite."""

import math

import numpy as np
import pytest

import tenon as tn
from tenon.nn import functional as F


def slopes(f, *arrays, dtype="float32"):
    xs = [tn.tensor(x, dtype=dtype) for x in arrays]
    whole = tn.grad(lambda *xs: f(*xs).sum(), argnums=tuple(range(len(xs))))
    eager, compiled = whole(*xs), tn.jit(whole)(*xs)
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    return [x.numpy().tolist() for x in eager]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_of_certain_probabilities(dtype):
    x, target = [0.0, 1.0, 1.0, 0.25], [0.0, 1.0, 0.0, 1.0]
    slope, _ = slopes(lambda x, y: F.binary_cross_entropy(x, y, reduction="sum"), x, target, dtype=dtype)
    np.testing.assert_allclose(slope, [0, 0, 1e12, -4], rtol=1e-6)


def test_cross_entropy_of_saturated_sigmoids_trains_on():
    found, = slopes(lambda x: F.binary_cross_entropy(tn.sigmoid(x), tn.tensor([1.0, 0.0, 1.0, 1.0])),
                    [-110.0, 110.0, 60.0, 0.0])
    np.testing.assert_allclose(found, [0, 0, 0, -0.125], atol=1e-6)


def test_weights_and_targets_of_cross_entropy_have_slopes():
    x, target, weight = [[0.3, 0.8], [0.5, 0.9]], [[0.2, 1.0], [0.0, 0.7]], [0.5, 2.0]
    h = 1e-6
    def value(x, y, w):
        return F.binary_cross_entropy(x, y, w)
    found = slopes(value, x, target, weight, dtype="float64")
    arrays = [np.array(a) for a in (x, target, weight)]
    for k, a in enumerate(arrays):
        for place in np.ndindex(a.shape):
            moved = []
            for step in (h, -h):
                other = [b.copy() for b in arrays]
                other[k][place] += step
                moved.append(float(value(*(tn.tensor(b) for b in other))))
            assert np.array(found[k])[place] == pytest.approx((moved[0] - moved[1]) / (2 * h), rel=1e-6)


def test_a_variance_below_its_least_still_has_a_slope():
    found, = slopes(lambda v: F.gaussian_nll_loss(tn.tensor([1.0]), tn.tensor([1.0]), v, reduction="sum"), [0.0])
    assert found == pytest.approx([0.5e6])


def test_margins_that_are_just_met():
    assert slopes(lambda x: F.hinge_embedding_loss(x, tn.tensor([-1.0]), reduction="sum"), [1.0]) == [[-1.0]]
    found, = slopes(lambda x: F.multi_margin_loss(x, tn.tensor([0]), reduction="sum"), [[2.0, 1.0]])
    assert found == [[0.0, 0.0]]


@pytest.mark.parametrize("x", [0.0, 1e-42, 1e-12, 1e-8, 1e-4, 1.9e-3, 2.1e-3, 0.3])
def test_sinc_near_zero(x):
    found, = slopes(tn.sinc, [x], dtype="float64")
    angle = math.pi * x
    wanted = -math.pi * angle / 3 * (1 - angle ** 2 / 10 + angle ** 4 / 280) if x < 0.01 else \
        (math.cos(angle) - math.sin(angle) / angle) / x
    assert found[0] == pytest.approx(wanted, rel=1e-9, abs=1e-40)
    assert np.isfinite(slopes(tn.sinc, [x])[0]).all()


def test_scaled_bessel_functions_of_the_smallest_numbers():
    assert slopes(tn.special.i1e, [1e-42, 0.0, -1e-42]) == [[0.5, 0.5, 0.5]]


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_stands_at_an_ignored_target_does_not_count(loss, compiled):
    scores, target = [[math.nan, 1.0], [0.0, math.inf], [0.5, 0.0]], [-1, -1, 1]
    def value(x, y, w):
        return loss(x, y, ignore_index=-1), loss(x, y, w, ignore_index=-1)
    plain, weighted = (tn.jit(value) if compiled else value)(
        tn.tensor(scores), tn.tensor(target), tn.tensor([math.inf, 2.0]))
    expected = F.cross_entropy(tn.tensor([[0.5, 0.0]]), tn.tensor([1])) if loss is F.cross_entropy else 0.0
    assert float(plain) == float(weighted) == pytest.approx(float(expected))


@pytest.mark.parametrize(("loss", "slope"), [(F.huber_loss, 2.0), (F.smooth_l1_loss, 1.0)])
def test_an_infinite_difference_has_the_slope_of_a_large_one(loss, slope):
    edge = {"delta" if loss is F.huber_loss else "beta": 2.0}
    found, = slopes(lambda x: loss(x, tn.zeros(5), reduction="sum", **edge), [math.inf, -math.inf, 9.0, 2.0, -2.0])
    assert found == [slope, -slope, slope, slope, -slope]


@pytest.mark.parametrize("pos_weight", [None, 3.0])
def test_logits_that_are_certain(pos_weight):
    weight = None if pos_weight is None else tn.tensor(pos_weight)
    def loss(x, target):
        return F.binary_cross_entropy_with_logits(x, target, pos_weight=weight, reduction="none")
    wrong = loss(tn.tensor([math.inf, -math.inf]), tn.tensor([0.0, 1.0]))
    assert wrong.tolist() == [math.inf, math.inf]
    x, target = [20.0, -20.0], [1.0, 0.0]
    scale = np.array([pos_weight or 1.0, 1.0]) * math.exp(-20)
    np.testing.assert_allclose(loss(tn.tensor(x), tn.tensor(target)).numpy(), scale, rtol=1e-6)
    found, = slopes(lambda x: loss(x, tn.tensor(target)), x)
    np.testing.assert_allclose(found, scale * [-1, 1], rtol=1e-6)


def test_the_loss_of_a_small_probability_is_not_rounded_away():
    x = [1e-8, 3e-7]
    found = F.binary_cross_entropy(tn.tensor(x), tn.zeros(2), reduction="none")
    np.testing.assert_allclose(found.numpy(), -np.log1p(-np.array(x)), rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_the_slope_of_acosh_is_that_of_the_side_of_its_cut(wrap):
    z = np.array([complex(x, y) for x in (-2.0, -0.5, 0.5) for y in (0.0, -0.0)])
    slope = wrap(lambda z: tn.vjp(tn.acosh, z)[1](tn.ones_like(z))[0])(tn.tensor(z)).numpy()
    beside = z + np.copysign(1e-12, z.imag) * 1j
    np.testing.assert_allclose(slope, np.conj(1 / (np.sqrt(beside - 1) * np.sqrt(beside + 1))), rtol=1e-9, atol=1e-9)

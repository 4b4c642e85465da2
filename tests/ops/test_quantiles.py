"""Quantiles of the normal distribution keep their digits where probabilities are small."""

from statistics import NormalDist

import numpy as np
import pytest

import tenon as tn

PLACES = [1e-300, 1e-30, 1e-9, 1e-4, 0.075, 0.3, 0.5, 0.9, 0.999999]


@pytest.mark.parametrize("run", [lambda f: f, tn.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype, rtol", [(tn.float64, 1e-14), (tn.float32, 1e-6)])
def test_digits_of_small_probabilities(run, dtype, rtol):
    x = tn.tensor([p for p in PLACES if p > float(tn.finfo(dtype).tiny)], dtype=dtype)
    found = run(tn.ndtri)(x).numpy()
    expected = [NormalDist().inv_cdf(float(p)) for p in x.numpy()]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-7 if dtype is tn.float32 else 0)


@pytest.mark.parametrize("run", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_ends_and_what_lies_outside(run):
    found = run(tn.ndtri)(tn.tensor([0.0, 1.0, -0.1, 1.1, float("nan")])).numpy()
    np.testing.assert_array_equal(found, [-np.inf, np.inf, np.nan, np.nan, np.nan])
    (slope,) = run(tn.grad(lambda x: tn.ndtri(x).sum(), (0,)))(tn.tensor([1e-20, 0.5], dtype=tn.float64))
    np.testing.assert_allclose(slope.numpy(), [np.sqrt(2 * np.pi) * np.exp(9.262340089798408 ** 2 / 2), np.sqrt(2 * np.pi)])

"""A sum of scaled elements scales each of them: the sum of the elements alone may overflow."""

import numpy as np
import pytest

import tenon as tn

SUMS = {
    "sum": lambda x, s: (x * s).sum(-1),
    "mean": lambda x, s: (x * s).mean(-1),
    "product": lambda x, s: x @ s.expand(x.shape[-1]),
    "matrix": lambda x, s: x @ s.expand(x.shape[-1], 3),
    "shared": lambda x, s: (x * s).cumsum(-1).sum(-1) / x.shape[-1],
    "divided": lambda x, s: (x / (1 / s)).sum(-1),
    "negative": lambda x, s: (s * x - s * x[..., ::-1]).sum(-1),
}


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("name", SUMS)
def test_sums_do_not_overflow_before_they_are_scaled(name, size):
    f = SUMS[name]
    x = np.full((5, size), 3e38, np.float32)
    for scale in (1e-3, 0.0):
        args = tn.tensor(x), tn.tensor(scale, dtype=tn.float32)
        found, expected = tn.jit(f)(*args).numpy(), f(*args).numpy()
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16, 33])
def test_sums_of_zeros_have_their_sign(size):
    def f(x, s):
        return (x * s).sum(-1)
    x = np.resize(np.array([-2.0, 1.0], np.float32), (5, size))
    for scale in (0.0, -0.0):
        args = tn.tensor(x), tn.tensor(scale)
        assert not np.signbit(tn.jit(f)(*args).numpy()).any()
        assert not np.signbit(f(*args).numpy()).any()


@pytest.mark.parametrize("shape", [(2,), (40,), (2, 3), (3, 700)])
def test_a_sum_of_negative_zeros_is_zero(shape):
    def f(x):
        return x.sum(), x.mean(), x.sum(-1) if x.ndim else x.sum()
    x = tn.tensor(np.full(shape, -0.0, np.float32))
    for values in (f(x), tn.jit(f)(x)):
        assert not any(np.signbit(y.numpy()).any() for y in values)

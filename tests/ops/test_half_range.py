"""Elements that float16 holds, whose steps on the way it does not: no rule overflows, or divides by what became 0."""

import numpy as np
import pytest

import tenon as tn

CASES = {
    "atan2": (tn.atan2, [1e-3, -1e-3, 2e-4, 300, 6e4], [1e-3, 2e-3, -1e-4, 0.5, 6e4]),
    "asinh": (tn.asinh, [300, -1000, 5e4, 0.1]),
    "hardswish": (tn.hardswish, [2e4, 6e4, -2, 1]),
    "sinc": (tn.sinc, [4e4, 0.0075, 0.02, -0.5]),
    "ndtri": (tn.ndtri, [1e-4, 0.001, 0.5, 0.999]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_float64_rounded(name):
    function, *columns = CASES[name]
    half = [tn.tensor(c, dtype=tn.float16) for c in columns]
    wide = [x.to(tn.float64) for x in half]
    places = tuple(range(len(columns)))

    def run(*xs):
        return function(*xs), *tn.grad(lambda *xs: function(*xs).astype(tn.float64).sum(), places)(*xs)
    for found in (run(*half), tn.jit(run)(*half)):
        for one, other in zip(found, run(*wide), strict=True):
            assert one.dtype is tn.float16
            np.testing.assert_allclose(one.to(tn.float64).numpy(), other.numpy(), rtol=4e-3, atol=1e-4)


@pytest.mark.parametrize("x", [(0.0, 0.0), (np.inf, 1.0), (1.0, -np.inf), (np.inf, np.inf)])
def test_the_angle_of_a_point_that_has_none_nearby_does_not_change(x):
    for run in (lambda f: f, tn.jit):
        found = run(tn.grad(lambda a, b: tn.atan2(a, b), (0, 1)))(tn.tensor(x[0]), tn.tensor(x[1]))
        assert [float(g) for g in found] == [0.0, 0.0]

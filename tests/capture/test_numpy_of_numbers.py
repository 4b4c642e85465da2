"""NumPy and the numbers that a graph computes: what it makes of them are its own numbers, as eagerly."""

import numpy as np
import pytest

import tenon as tn
from tests.capture.both import check, outcome

GIVEN = ([1.5, 0.75], [2.0, 1.0], [-2.0, -0.5], [0.0, 0.0])
MADE = {
    "a function": lambda n: np.sqrt(abs(n)), "of several": lambda n: np.maximum(n, 2), "of a list": lambda n: np.mean([n, 1]),
    "rounded": lambda n: np.round(n, 1), "in a row": lambda n: np.linspace(0, n, 3), "chosen": lambda n: np.where(n > 1, n, 0),
    "float64 times": lambda n: np.float64(2) * n, "times float64": lambda n: n * np.float64(2),
    "float32 times": lambda n: np.float32(2) * n, "plus int32": lambda n: n + np.int32(2), "int64 plus": lambda n: np.int64(2) + n,
    "an array": lambda n: np.arange(3) * n, "plus an array": lambda n: n + np.ones(2), "a test": np.isnan,
    "a test in a list": lambda n: [np.isfinite(n)], "both": lambda n: np.isfinite(n) & np.isnan(n),
    "a sum of tests": lambda n: sum([np.isnan(n), np.isfinite(n)]), "text": lambda n: f"{np.sqrt(abs(n)):.3f} {np.float32(2) * n}",
    "among halves": lambda n: tn.ones(2, dtype=tn.float16) * (np.float64(2) * n), "plus a bool": lambda n: +(n > 1),
}


def exact(x):
    return type(x), repr(x), x.type if isinstance(x, tn.Tensor) else None


@pytest.mark.parametrize("number", [float, int])
@pytest.mark.parametrize("name", MADE)
def test_what_numpy_makes_of_a_number_is_its_own(name, number):
    def function(x):
        n = number(x.sum())
        return MADE[name](n)
    jitted = tn.jit(function)
    for values in (*GIVEN, *GIVEN):
        want, got = (outcome(lambda f=f, v=values: exact(f(tn.tensor(v)))) for f in (function, jitted))
        assert got == want


def test_a_test_of_numpy_is_a_condition_of_the_graph():
    def function(x):
        v = x.sum().item()
        if np.isnan(v) or not np.isfinite(v):
            return None
        if ~np.isinf(v) and v > 1:
            x = x * 2
        return x if np.isfinite(v) else -x
    check(function, (*GIVEN, [float("nan"), 1.0], [float("inf"), 1.0]))


def test_operators_of_tensors_and_numbers_are_none_that_eager_code_has_not():
    check(lambda x: divmod(x, float(x.sum()) + 10), GIVEN, fullgraph=False)
    check(lambda x: np.maximum(x, float(x.sum())) + np.multiply(float(x.sum()), x), GIVEN)

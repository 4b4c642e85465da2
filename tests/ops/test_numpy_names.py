"""NumPy's names that are compositions of operators: equal to NumPy's, eager and compiled."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, ShapeError

EXPRESSIONS = """
L.ptp(a, axis=0)
L.percentile(a, 30, axis=0)
L.percentile(a, [10, 50], axis=1, method='lower')
L.nanstd(n)
L.nanvar(n, ddof=1)
L.nanmax(n, axis=1)
L.nanmin(n)
L.nanargmax(n, axis=1)
L.nanprod(n)
L.nancumsum(n, axis=0)
L.nanpercentile(n, 50)
L.lexsort((b, a[0]))
L.digitize(b, np.array([-1.0, 0.0, 1.0]))
L.digitize(b, np.array([-1.0, 0.0, 1.0]), right=True)
L.append(a, a, axis=0)
L.append(b, 3.0)
L.insert(b, 1, 5.0)
L.delete(b, 1)
L.delete(a, 0, axis=1)
L.ediff1d(b)
L.interp(np.array([0.5]), np.array([0.0, 1.0]), np.array([2.0, 4.0]))
L.convolve(b, np.array([1.0, 2.0]), mode='same')
L.convolve(b, np.array([1.0, 2.0]))
L.correlate(b, np.array([1.0, 2.0]), mode='valid')
L.identity(3)
L.geomspace(1, 8, 4)
L.intersect1d(i, np.array([1, 2]))
L.union1d(i, np.array([9]))
L.setdiff1d(i, np.array([1]))
L.around(a, decimals=1)
L.unwrap(b * 5)
L.modf(a)[0]
L.average(a, axis=0, weights=np.array([1.0, 2.0, 3.0]))
L.average(a)
L.nanargmin(n, axis=0)
L.block([[a, a], [a, a]])
L.nancumprod(n, axis=1)
L.nanmax(i)
L.nanmax(n * np.nan, axis=0)
L.nanstd(n, axis=0, keepdims=True)
L.average(a, axis=1, weights=np.array([1.0, 2.0, 0.5, 3.0]))
L.average(a, weights=np.abs(np.arange(12.0).reshape(3, 4)))
L.insert(a, 2, 5.0, axis=1)
L.insert(a, -1, np.ones(4), axis=0)
L.insert(b, 4, 7.0)
L.delete(a, [0, -1], axis=1)
L.delete(b, -1)
L.interp(b, np.array([-1.0, 0.0, 2.0]), np.array([1.0, 3.0, 0.0]))
L.interp(b, np.array([-1.0, 0.0]), np.array([1.0, 3.0]), left=9.0, right=8.0)
L.convolve(np.array([1.0, 2.0]), b, mode='same')
L.convolve(b, np.array([1.0, 2.0, 3.0]), mode='same')
L.convolve(b, np.array([1.0, 2.0, 3.0]), mode='valid')
L.correlate(b, np.array([1.0, 2.0, 4.0]), mode='same')
L.correlate(b, np.array([1.0, 2.0, 4.0]), mode='full')
L.correlate(np.array([1.0, 2.0]), b, mode='full')
L.correlate(np.array([1.0, 2.0, 4.0]), b, mode='valid')
L.correlate(np.array([1.0, 2.0]), b, mode='same')
L.unwrap(np.array([0.0, 3.0, 7.0, 1.0, -4.0]))
L.unwrap(a * 9, axis=0)
L.unwrap(b * 3, period=2.0)
L.modf(np.array([-0.0, 2.0, -3.5, np.inf]))[1]
L.modf(np.array([-0.0, 2.0, -3.5]))[0]
L.percentile(b, np.array([0.0, 50.0, 100.0]))
L.block([a, a])
L.geomspace(-1, -8, 4)
L.digitize(b, np.array([-1.0, 0.0]), right=True)
""".strip().splitlines()
BY_DATA = ("union1d", "intersect1d", "setdiff1d")       # whose sizes the data decide


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {"a": rng.standard_normal((3, 4)), "b": rng.standard_normal(4), "i": np.array([3, 1, 1, 0])}
    missing = found["a"].copy()
    missing[0, 1] = np.nan
    return found | {"n": missing}


def checked(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_equal_to_numpy(expression: str) -> None:
    given = arrays()
    expected = eval(expression, {"L": np, "np": np, **given})
    tensors = [tn.tensor(x) for x in given.values()]

    def run(*values: Any) -> Any:
        return eval(expression, {"L": tn, "np": np, **dict(zip(given, values, strict=True))})
    checked(run(*tensors), expected)
    if not any(name in expression for name in BY_DATA):
        checked(tn.jit(run)(*tensors), expected)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ArgumentError, match="index 4 is outside of axis 0 with size 4"):
        tn.delete(tn.ones(4), 4)
    with pytest.raises(ArgumentError, match="convolve: two vectors with elements and a mode"):
        tn.convolve(tn.ones(4), tn.ones(2), mode="most")
    with pytest.raises(ArgumentError, match="geomspace: -1 and 1 must have the same sign"):
        tn.geomspace(-1, 1)
    with pytest.raises(ShapeError, match="interp: points"):
        tn.interp(tn.ones(2), tn.ones(3), tn.ones(2))

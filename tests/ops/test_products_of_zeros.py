"""Derivatives of products, of any order, where factors are zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn

FACTORS = [[0.0, 0.0, 2.0], [0.0, 3.0, 2.0], [1.5, 3.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 3.0, 0.0], [5.0]]
WEIGHTS = tn.tensor([1.0, 2.0, 3.0, 4.0], dtype="float64")


def total(x: Any) -> Any:
    return tn.prod(x, axis=0)


def running(x: Any) -> Any:
    return (tn.cumprod(x, axis=0) * WEIGHTS[:x.shape[0]]).sum()


def second(x: list[float], ends: list[tuple[int, float]]) -> np.ndarray:
    """The second derivatives of a weighted sum of products of the first factors, one by one."""
    count = len(x)
    return np.array([[sum(w * np.prod([x[j] for j in range(n) if j not in (i, k)]) for n, w in ends if i < n and k < n)
                      if i != k else 0.0 for k in range(count)] for i in range(count)])


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("x", FACTORS, ids=str)
def test_second_derivatives_where_factors_are_zero(x: list[float], wrap: Any) -> None:
    at = tn.tensor(x, dtype="float64")
    np.testing.assert_allclose(wrap(tn.hessian(total))(at), second(x, [(len(x), 1.0)]), atol=1e-12)
    ends = [(n + 1, float(WEIGHTS[n])) for n in range(len(x))]
    np.testing.assert_allclose(wrap(tn.hessian(running))(at), second(x, ends), atol=1e-12)


@pytest.mark.parametrize("f", [total, running])
def test_third_derivatives_are_differences_of_second_ones(f: Any) -> None:
    squares = tn.jit(lambda x: (tn.hessian(f)(x) ** 2).sum())
    x = np.array([0.5, 0.0, -2.0])
    differences = [float(squares(tn.asarray(x + e)) - squares(tn.asarray(x - e))) / 2e-5 for e in np.eye(3) * 1e-5]
    np.testing.assert_allclose(tn.grad(squares)(tn.asarray(x)), differences, rtol=1e-6, atol=1e-6)


def test_several_axes_complex_factors_and_other_directions() -> None:
    rng = np.random.default_rng(0)
    x = tn.asarray(rng.normal(size=(2, 3, 4)))
    z = tn.asarray(rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3)))
    assert tn.debug.gradgradcheck(lambda x: tn.prod(x, axis=(0, 2)), (x,))
    assert tn.debug.gradgradcheck(lambda x: tn.sin(tn.cumprod(tn.flip(x, 1), axis=1)), (x,))
    assert tn.debug.gradgradcheck(lambda z: tn.cumprod(z, axis=1), (z,))
    assert tn.debug.gradgradcheck(lambda z: tn.prod(z, axis=1), (z,))

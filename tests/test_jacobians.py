"""Jacobians and Hessians against closed forms, in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import GradientError

A = np.random.default_rng(0).standard_normal((2, 3))
X = np.array([0.5, -1.0, 2.0])


def layer(x: Any) -> Any:
    return tn.sin(tn.tensor(A) @ x)


def expected() -> np.ndarray:
    return np.cos(A @ X)[:, None] * A


@pytest.mark.parametrize("mode", [tn.jacrev, tn.jacfwd, tn.jacobian])
@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_a_layer(mode: Any, wrap: Any) -> None:
    np.testing.assert_allclose(wrap(mode(layer))(tn.tensor(X)).numpy(), expected(), rtol=1e-12)
    np.testing.assert_allclose(mode(wrap(layer))(tn.tensor(X)).numpy(), expected(), rtol=1e-12)


@pytest.mark.parametrize("mode", [tn.jacrev, tn.jacfwd])
def test_nests_and_several_arguments(mode: Any) -> None:
    def f(p: Any, y: Any) -> Any:
        return {"product": p["w"] @ y, "scale": p["s"] * p["s"], "count": 3}
    w, s, y = tn.tensor(A), tn.tensor(np.array(3.0)), tn.tensor(X)
    found = mode(f, argnums=(0, 1))({"w": w, "s": s}, y)
    by_w, by_y = found["product"]
    np.testing.assert_allclose(by_w["w"].numpy(), np.einsum("ik,j->ikj", np.eye(2), X))
    np.testing.assert_allclose(by_w["s"].numpy(), np.zeros(2))
    np.testing.assert_allclose(by_y.numpy(), A)
    by_w, by_y = found["scale"]
    np.testing.assert_allclose(by_w["s"].numpy(), 6)
    assert by_w["w"].shape == (2, 3) and by_y.shape == (3,) and found["count"] is None


def test_aux_comes_along() -> None:
    for mode in (tn.jacrev, tn.jacfwd):
        found, aux = mode(lambda x: (x * x, "aux"), has_aux=True)(tn.tensor(X))
        np.testing.assert_allclose(found.numpy(), np.diag(2 * X))
        assert aux == "aux"


def test_the_jacobian_of_a_scalar_is_its_gradient() -> None:
    f = lambda x: (x ** 3).sum()
    np.testing.assert_allclose(tn.jacobian(f)(tn.tensor(X)).numpy(), tn.grad(f)(tn.tensor(X)).numpy())


@pytest.mark.parametrize("make", [tn.hessian, lambda f: tn.jacfwd(tn.grad(f)), lambda f: tn.jacfwd(tn.jacfwd(f)),
                                  lambda f: tn.jit(tn.hessian(f)), lambda f: tn.hessian(tn.jit(f)),
                                  lambda f: tn.jacrev(tn.jacrev(f))])
def test_hessians_in_all_combinations_of_modes(make: Any) -> None:
    found = make(lambda x: tn.sin(x[0] * x[1]) + x[2] ** 3)(tn.tensor(X)).numpy()
    a, b, c = X
    s, k = np.sin(a * b), np.cos(a * b)
    np.testing.assert_allclose(found, [[-b * b * s, k - a * b * s, 0], [k - a * b * s, -a * a * s, 0], [0, 0, 6 * c]],
                               rtol=1e-10, atol=1e-12)


def test_a_hessian_of_several_arguments() -> None:
    found = tn.hessian(lambda x, y: x * x * y, argnums=(0, 1))(3.0, 5.0)
    assert [[float(v) for v in row] for row in found] == [[10, 6], [6, 0]]


def test_a_hessian_times_a_vector() -> None:
    f = lambda x: tn.sin(x[0] * x[1]) + x[2] ** 3
    v = np.array([1.0, -2.0, 0.5])
    found, = tn.hvp(f, (tn.tensor(X),), (tn.tensor(v),))
    np.testing.assert_allclose(found.numpy(), tn.hessian(f)(tn.tensor(X)).numpy() @ v, rtol=1e-10)


def test_jacobians_can_be_batched_and_differentiated() -> None:
    batch = tn.tensor(np.stack([X, 2 * X]))
    found = tn.vmap(tn.jacrev(layer))(batch)
    np.testing.assert_allclose(found[0].numpy(), expected(), rtol=1e-10)
    slope = tn.grad(lambda x: (tn.jacrev(lambda x: x * x)(x) ** 2).sum())(tn.tensor(X))     # the sum of (2 x)^2
    np.testing.assert_allclose(slope.numpy(), 8 * X, rtol=1e-10)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(GradientError, match="no floating elements"):
        tn.jacobian(layer)(tn.tensor([1, 2, 3]))
    with pytest.raises(GradientError, match="returned nothing with floating elements"):
        tn.jacobian(lambda x: x > 0)(tn.tensor(X))

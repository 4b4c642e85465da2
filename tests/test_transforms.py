"""Derivatives as functions of functions: closed forms, every order, inside and outside jit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, GradientError

FACTOR = 2.0


def near(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


def weighted(x: Any) -> Any:
    return (tn.sin(x) * x).sum()


def vector() -> tn.Tensor:
    return tn.tensor([1.0, 2.0, 3.0])


SLOPE = np.cos(np.array([1.0, 2, 3])) * np.array([1.0, 2, 3]) + np.sin(np.array([1.0, 2, 3]))
CURVE = 2 * np.cos(np.array([1.0, 2, 3])) - np.sin(np.array([1.0, 2, 3])) * np.array([1.0, 2, 3])


# ---------------------------------------------------------------- grad

def test_the_gradient_of_a_scalar_function() -> None:
    near(tn.grad(weighted)(vector()), SLOPE)


def test_value_and_gradient_come_together() -> None:
    value, gradient = tn.value_and_grad(weighted)(vector())
    near(value, weighted(vector()))
    near(gradient, SLOPE)


def test_a_gradient_leaves_the_argument_and_the_result_off_the_tape() -> None:
    x = vector()
    value, gradient = tn.value_and_grad(weighted)(x)
    assert not (x.requires_grad or value.requires_grad or gradient.requires_grad) and x.grad is None


def test_requirement_39_the_two_layer_product() -> None:
    rng = np.random.default_rng(0)
    shapes = [(4, 3), (3, 5), (5, 2), (4, 2)]
    x, w, w1, label = (tn.tensor(rng.integers(-3, 4, shape).astype(np.float64)) for shape in shapes)

    def loss(w: Any, w1: Any) -> Any:
        error = x @ w @ w1 - label
        return (error * error).sum() * 0.5
    found_w, found_w1 = tn.grad(loss, argnums=(0, 1))(w, w1)
    x_, w_, w1_, label_ = (t.numpy() for t in (x, w, w1, label))
    difference = x_ @ w_ @ w1_ - label_
    np.testing.assert_array_equal(found_w.numpy(), x_.T @ difference @ w1_.T)
    np.testing.assert_array_equal(found_w1.numpy(), (x_ @ w_).T @ difference)


def test_argnums_choose_arguments() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y * y
    near(tn.grad(f, argnums=1)(2.0, 3.0), 12)
    near(tn.grad(f, argnums=-1)(2.0, 3.0), 12)
    both = tn.grad(f, argnums=(1, 0))(2.0, 3.0)
    assert isinstance(both, tuple)
    near(both[0], 12)
    near(both[1], 9)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_arguments_and_gradients_are_nests_of_one_form() -> None:
    tree = {"a": [vector(), 2.0], "b": Pair(tn.tensor(3.0), tn.tensor([1, 2])), "c": "text"}
    found = tn.grad(lambda t: (t["a"][0] * t["a"][1]).sum() * t["b"].left)(tree)
    near(found["a"][0], [6, 6, 6])
    near(found["a"][1], 18)
    near(found["b"].left, 12)
    assert isinstance(found["b"], Pair) and found["b"].right is None and found["c"] is None


def test_aux_comes_along_unchanged() -> None:
    gradient, aux = tn.grad(lambda x: (x * x, {"twice": 2 * x, "name": "n"}), has_aux=True)(3.0)
    near(gradient, 6)
    near(aux["twice"], 6)
    assert aux["name"] == "n" and not aux["twice"].requires_grad


def test_what_does_not_depend_on_the_argument_has_gradient_zero() -> None:
    near(tn.grad(lambda x: tn.tensor(4.0))(vector()), [0, 0, 0])
    near(tn.grad(lambda x: 4.0)(vector()), [0, 0, 0])
    near(tn.grad(lambda x: x.detach().sum())(vector()), [0, 0, 0])


def test_a_function_that_changes_its_argument_in_place() -> None:
    def f(x: Any) -> Any:
        y = x * x
        x += 1.0
        return (y * x).sum()
    x = vector()
    near(tn.grad(f)(x), 3 * x.numpy() ** 2 + 2 * x.numpy())
    near(x, [1, 2, 3])


def test_complex_arguments_follow_the_direction_of_ascent() -> None:
    z = tn.tensor([1 + 2j, 3 - 1j])
    near(tn.grad(lambda z: tn.real((z * tn.conj(z)).sum()))(z), 2 * z.numpy())


@pytest.mark.parametrize(("call", "message"), [
    (lambda: tn.grad(lambda x: x)(vector()), "grad: the function returned f32[3], it must return a floating scalar"),
    (lambda: tn.grad(lambda x: (x.sum(), x))(vector()), "has_aux=True"),
    (lambda: tn.grad(lambda x: None)(vector()), "returned NoneType"),
    (lambda: tn.grad(lambda x: x.sum())(tn.tensor([1, 2])),
     "argument 0 has no floating elements to differentiate by, it is i64[2]"),
    (lambda: tn.grad(lambda x: x)("text"), "it is str"),
    (lambda: tn.grad(weighted, argnums=1)(vector()), "argnums names argument 1, and 1 positional arguments were given"),
    (lambda: tn.grad(weighted, argnums=(0, -1))(vector()), "names an argument twice"),
    (lambda: tn.grad(vector()), "takes a function, not Tensor"),
    (lambda: tn.value_and_grad(weighted, has_aux=True)(vector()), "must return a pair"),
    (lambda: tn.jvp(weighted, vector(), vector()), "are tuples"),
    (lambda: tn.jvp(weighted, (vector(),), (tn.tensor([1.0]),)), "a tensor of type f32[3] is needed, not f32[1]"),
    (lambda: tn.vjp(lambda x: (x, x), vector())[1](vector()), "a nest of the form (*, *) is needed, not *"),
])
def test_errors_say_what_to_do(call: Any, message: str) -> None:
    with pytest.raises((GradientError, ArgumentError)) as caught:
        call()
    assert message in str(caught.value)


# ---------------------------------------------------------------- higher orders

def test_every_order_of_derivative() -> None:
    f = lambda x: tn.exp(2 * x)
    for order in range(5):
        near(f(0.5) if order else tn.exp(tn.tensor(1.0)), 2.0 ** order * np.e, 1e-4)
        f = tn.grad(f)


def test_perturbations_are_not_confused() -> None:
    near(tn.grad(lambda x: x * tn.grad(lambda y: x + y)(1.0))(1.0), 1)
    near(tn.grad(lambda x: x * tn.grad(lambda y: x * y)(2.0))(3.0), 6)
    near(tn.jvp(lambda x: x * tn.jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1], 1)
    near(tn.grad(lambda x: tn.jvp(lambda y: x * x * y, (1.0,), (1.0,))[1])(3.0), 6)
    near(tn.jvp(lambda x: tn.grad(lambda y: x * x * y)(1.0), (3.0,), (1.0,))[1], 6)


def test_a_closure_that_requires_a_gradient_gets_one_through_a_gradient() -> None:
    w = tn.tensor(2.0, requires_grad=True)
    tn.grad(lambda x: x * x * w)(3.0).backward()
    near(w.grad, 6)
    x = tn.tensor(3.0, requires_grad=True)
    tn.grad(lambda x: x * x * x)(x).backward()
    near(x.grad, 18)


def test_a_gradient_that_does_not_depend_on_the_closure_is_off_the_tape() -> None:
    w = tn.tensor(2.0, requires_grad=True)
    value, gradient = tn.value_and_grad(lambda x: x * x + w)(3.0)
    assert value.requires_grad and not gradient.requires_grad


def test_no_grad_outside_stops_at_the_gradient() -> None:
    w = tn.tensor(2.0, requires_grad=True)
    with tn.no_grad():
        found = tn.grad(lambda x: x * x * w)(3.0)
    near(found, 12)
    assert not found.requires_grad


def test_backward_inside_the_function_and_grad_outside() -> None:
    w = tn.tensor(2.0, requires_grad=True)

    def f(x: Any) -> Any:
        (w * 3.0).backward()
        return x * x
    near(tn.grad(f)(3.0), 6)
    near(w.grad, 3)


# ---------------------------------------------------------------- vjp and jvp

def matrix_function(x: Any, y: Any) -> Any:
    return {"product": tn.sin(x) @ y, "sum": (x * x).sum(axis=0)}


def test_vjp_and_jvp_are_transposes() -> None:
    rng = np.random.default_rng(0)
    x, y, tx, ty = (tn.tensor(rng.standard_normal(s)) for s in [(2, 3), (3, 4), (2, 3), (3, 4)])
    out, pullback = tn.vjp(matrix_function, x, y)
    seed = {k: tn.tensor(rng.standard_normal(v.shape)) for k, v in out.items()}
    gx, gy = pullback(seed)
    same, tangent = tn.jvp(matrix_function, (x, y), (tx, ty))
    near(same["product"], out["product"])
    left = sum((seed[k] * tangent[k]).sum() for k in out)
    near(left, (gx * tx).sum() + (gy * ty).sum(), 1e-10)


def test_jvp_of_complex_functions() -> None:
    z, t = tn.tensor(np.array([1 + 2j, 3 - 1j])), tn.tensor(np.array([0.5 - 1j, 2j]))
    near(tn.jvp(lambda z: z * z, (z,), (t,))[1], 2 * z.numpy() * t.numpy())
    near(tn.jvp(lambda z: tn.abs(z) ** 2, (z,), (t,))[1], 2 * (z.numpy().conj() * t.numpy()).real)


def test_jvp_is_the_limit_of_differences() -> None:
    x, t = vector().astype("float64"), tn.tensor(np.array([0.3, -1.0, 2.0]))
    _, tangent = tn.jvp(lambda x: tn.exp(x) / (1 + x * x), (x,), (t,))
    step = 1e-6
    f = lambda x: np.exp(x) / (1 + x * x)
    near(tangent, (f(x.numpy() + step * t.numpy()) - f(x.numpy() - step * t.numpy())) / (2 * step), 1e-7)


def test_a_pullback_may_be_used_again() -> None:
    _, pullback = tn.vjp(tn.sin, vector())
    near(pullback(tn.tensor([1.0, 0, 0]))[0], [np.cos(1), 0, 0])
    near(pullback(tn.tensor([0, 1.0, 0]))[0], [0, np.cos(2), 0])


def test_results_without_a_derivative_are_left_out() -> None:
    _, pullback = tn.vjp(lambda x: (x * 2, x > 1.5), vector())
    near(pullback((vector(), None))[0], [2, 4, 6])
    _, tangent = tn.jvp(lambda x: (x * 2, x > 1.5), (vector(),), (vector(),))
    near(tangent[0], [2, 4, 6])
    assert tangent[1] is None


# ---------------------------------------------------------------- with jit

@pytest.mark.parametrize("make", [
    lambda f: tn.jit(tn.grad(f)), lambda f: tn.grad(tn.jit(f)), lambda f: tn.jit(tn.grad(tn.jit(f))),
    lambda f: tn.jit(lambda x: tn.vjp(f, x)[1](1.0)[0]), lambda f: lambda x: tn.vjp(tn.jit(f), x)[1](1.0)[0],
], ids=["jit(grad)", "grad(jit)", "jit(grad(jit))", "jit(vjp)", "vjp(jit)"])
def test_gradients_and_jit_compose(make: Any) -> None:
    found = make(weighted)
    for _ in range(2):
        near(found(vector()), SLOPE)


@pytest.mark.parametrize("make", [
    lambda f: tn.jit(tn.grad(lambda x: tn.grad(f)(x).sum())), lambda f: tn.grad(tn.jit(lambda x: tn.grad(f)(x).sum())),
    lambda f: tn.grad(lambda x: tn.jit(tn.grad(f))(x).sum()), lambda f: tn.grad(lambda x: tn.grad(tn.jit(f))(x).sum()),
], ids=["jit(grad(grad))", "grad(jit(grad))", "grad(jit(grad)) inside", "grad(grad(jit))"])
def test_second_derivatives_and_jit_compose(make: Any) -> None:
    near(make(weighted)(vector()), CURVE, 1e-4)


def test_jvp_and_jit_compose() -> None:
    expected = (SLOPE * [1, 0, 2]).sum()
    tangent = tn.tensor([1.0, 0.0, 2.0])
    near(tn.jit(lambda x, t: tn.jvp(weighted, (x,), (t,))[1])(vector(), tangent), expected)
    near(tn.jvp(tn.jit(weighted), (vector(),), (tangent,))[1], expected)


def uses_a_global(x: Any) -> Any:
    return (x * x * FACTOR).sum()


def test_a_jitted_gradient_sees_globals_change(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tn.jit(tn.grad(uses_a_global))
    near(compiled(vector()), [4, 8, 12])
    monkeypatch.setitem(globals(), "FACTOR", 10.0)
    near(compiled(vector()), [20, 40, 60])


def test_a_jitted_gradient_gives_closures_theirs() -> None:
    w = tn.tensor(2.0, requires_grad=True)
    tn.jit(tn.grad(lambda x: x * x * w))(3.0 * tn.tensor(1.0)).backward()
    near(w.grad, 6)


# ---------------------------------------------------------------- tn.autograd

def test_autograd_grad_is_the_gradient_of_tensors() -> None:
    x, y = tn.tensor([1.0, 2.0], requires_grad=True), tn.tensor(3.0, requires_grad=True)
    z = x * x * y
    near(tn.autograd.grad(z.sum(), (x, z), retain_graph=True)[0], [6, 12])
    by_z, by_y = tn.autograd.grad([z, z.sum()], [z, y], grad_outputs=[tn.tensor([1.0, 10.0]), tn.tensor(1.0)])
    near(by_z, [2, 11])
    near(by_y, [2 * 1 + 11 * 4])
    assert x.grad is None and y.grad is None


def test_autograd_grad_of_higher_order_and_unused_inputs() -> None:
    x, unused = tn.tensor(2.0, requires_grad=True), tn.tensor(1.0, requires_grad=True)
    slope, none = tn.autograd.grad(x * x * x, [x, unused], create_graph=True, allow_unused=True)
    assert none is None
    near(tn.autograd.grad(slope, x)[0], 12)
    with pytest.raises(GradientError, match="do not depend on input 0"):
        tn.autograd.grad(x * x, unused)
    with pytest.raises(GradientError, match="input 0 does not require"):
        tn.autograd.grad(x * x, tn.tensor(1.0))
    with pytest.raises(GradientError, match="no scalar"):
        tn.autograd.grad(x * tn.ones(2), x)

"""Gradients within a function: tensors that are one edge of the graph keep places of their own on the tape."""

import numpy as np
import pytest

import tenon as tn
from capture.both import check
from tenon import nn


def the_point_itself_in_an_arm(x):
    def f(y):
        return (y * x).sum() if y.sum() > 0 else (y * y).sum()
    return tn.grad(f)(x)


def the_point_itself_in_a_loop(x):
    def f(y):
        while y.sum() < 10:
            y = y * x.abs() + 4
        return y.sum()
    return tn.grad(f)(x)


def two_gradients_at_one_point(x):
    def f(y):
        return (y ** 3).sum() if y.sum() > 0 else (y ** 2).sum()
    return tn.grad(f)(x), tn.grad(lambda y: (tn.grad(f)(y) ** 2).sum())(x)


def a_leaf_beside_what_it_was_made_from(x):
    y = x.detach().requires_grad_()
    loss = (y * x).sum() if x.sum() > 0 else y.sum()
    loss.backward()
    return y.grad


def a_leaf_beside_itself_detached(x):
    y = x.detach().requires_grad_()
    z = y * 2
    for _ in range(2):
        if z.sum() > 0:
            z = z * x + y.detach()
    z.sum().backward()
    return y.grad


def test_gradients_are_those_of_eager_code():
    for function in (the_point_itself_in_an_arm, the_point_itself_in_a_loop, two_gradients_at_one_point,
                     a_leaf_beside_what_it_was_made_from, a_leaf_beside_itself_detached):
        check(function, ([1.0, 2.0], [-1.0, -2.0], [3.0, 0.5]))


def test_a_leaf_made_inside_ends_a_gradient():
    def f(x):
        return x * 2, (x * 3).detach().requires_grad_(), nn.Parameter(x * 4)
    for function in (f, tn.jit(f, fullgraph=True)):
        for _ in range(3):
            x = tn.tensor([1.0, 2.0], requires_grad=True)
            a, b, c = function(x)
            assert (a.is_leaf, b.is_leaf, c.is_leaf, type(c)) == (False, True, True, nn.Parameter)
            (b * c).sum().backward()
            assert x.grad is None
            np.testing.assert_allclose(b.grad.numpy(), [4.0, 8.0])
            np.testing.assert_allclose(c.grad.numpy(), [3.0, 6.0])


def test_a_layer_made_at_its_first_call_has_parameters():
    class Lazy(nn.Module):
        def __init__(self):
            self.weight = None

        def forward(self, x):
            if self.weight is None:
                self.weight = nn.Parameter(tn.ones(x.shape[-1], 2))
            return x @ self.weight
    layer = Lazy()
    f = tn.jit(lambda x: layer(x))
    for k in range(3):
        f(tn.tensor([1.0, 2.0]) * k).sum().backward()
        assert [name for name, _ in layer.named_parameters()] == ["weight"]
    np.testing.assert_allclose(layer.weight.grad.numpy(), [[3.0, 3.0], [6.0, 6.0]])
    assert f.capture(tn.tensor([1.0, 2.0]))


def test_backward_goes_on_through_what_was_computed_outside():
    w = tn.nn.Parameter([1.0, 2.0])
    outside: list = [None]

    def of_loss(loss):
        loss.backward()

    def of_product(x):
        (x * 3).sum().backward()

    def of_closure(x):
        (outside[0] * 3).sum().backward()
    for function in (of_loss, of_product, of_closure):
        jitted = tn.jit(function)
        for make in (lambda: w, lambda: w * 2, lambda: w, lambda: w * w, lambda: w * 2):
            found = []
            for called in (function, jitted):
                w.grad = None
                outside[0] = make()
                called(outside[0].sum() if function is of_loss else outside[0])
                found.append(w.grad.tolist())
            assert found[0] == found[1]


W, U = nn.Parameter([1.0, 2.0]), nn.Parameter([3.0, 4.0])


def recorded_in_no_grad(x):
    with tn.enable_grad():
        y = x * W
    return y, x * W


def recorded_in_one_arm(x):
    if x.sum() > 0:
        with tn.enable_grad():
            y = (x * W).sum()
    else:
        y = (x * U).sum()
    return y


def recorded_in_a_loop(x):
    y = x.sum()
    while y < 5:
        with tn.enable_grad():
            y = y + (W * W).sum()
    return y


def chosen_in_no_grad(x):
    with tn.enable_grad():
        y = (x * W).sum()
    with tn.no_grad():
        return y if y > 0 else y * 2


def best_of_two(x):
    best = None
    for p in (W, U):
        with tn.enable_grad():
            score = (p * x).sum()
        if best is None or score > best:
            best = score
    return best


def kept_on_an_object(x):
    with tn.enable_grad():
        KEPT.loss = (x * U).sum()


KEPT = nn.Module()


@pytest.mark.parametrize("function", [recorded_in_no_grad, recorded_in_one_arm, recorded_in_a_loop, chosen_in_no_grad,
                                      best_of_two, kept_on_an_object])
def test_what_enable_grad_records_within_no_grad_has_gradients(function):
    jitted = tn.jit(function, fullgraph=True)
    for values in ([1.0, 2.0], [-1.0, -2.0], [4.0, 5.0]) * 2:
        for around in (tn.no_grad, tn.enable_grad):
            seen = []
            for called in (function, jitted):
                with around():
                    out = called(tn.tensor(values))
                ends = out if isinstance(out, tuple) else (KEPT.loss if out is None else out,)
                W.grad = U.grad = None
                for end in ends:
                    if end.requires_grad:
                        end.sum().backward()
                seen.append([end.tolist() for end in ends] + [end.requires_grad for end in ends] +
                            [None if p.grad is None else p.grad.tolist() for p in (W, U)])
            assert seen[0] == seen[1], around

"""A parameter that a call assigns, and goes on with: the gradient of what it returns goes to the parameter."""

import pytest

import tenon as tn
from tenon import optim


def assigned(w, x):
    with tn.no_grad():
        w.mul_(2)
    return w * x


def assigned_by_its_data(w, x):
    w.data = x + 1
    return w * x


def before_and_after(w, x):
    y = w * x
    with tn.no_grad():
        w.mul_(0.5)
    return y + w * w


def twice(w, x):
    with tn.no_grad():
        w.mul_(2)
    y = w * x
    with tn.no_grad():
        w[0] = 3.0
    return y + w * w


def by_an_optimizer(w, x):
    opt = optim.SGD([w], lr=0.1, weight_decay=0.5)
    (w * x).sum().backward()
    opt.step()
    opt.zero_grad()
    return w * x * x


def under_a_condition(w, x):
    if x.sum() > 2.5:
        with tn.no_grad():
            w.mul_(2)
    return w * x


def read_under_a_condition(w, x):
    with tn.no_grad():
        w.mul_(2)
    y = w * x
    return y * w if x.sum() > 2.5 else y


def within_an_arm(w, x):
    y = w * x
    if x.sum() > 2.5:
        y = y * w
        with tn.no_grad():
            w.mul_(0.5)
        y = y * w
    return y + w


def in_a_loop(w, x):
    with tn.no_grad():
        w.mul_(0.5)
    y, turns = w * x, 0
    while y.sum() < 20 and turns < 4:
        y, turns = y * w + 1, turns + 1
    return y


def a_gradient_of_the_gradient(w, x):
    with tn.no_grad():
        w.mul_(2)
    y = (w.reshape(1, 2) @ x.reshape(2, 1)).sum() ** 2
    g, = tn.autograd.grad(y, [w], create_graph=True)
    return (g * w).sum() + y


@pytest.mark.parametrize("function", [
    assigned, assigned_by_its_data, before_and_after, twice, by_an_optimizer, under_a_condition, read_under_a_condition,
    within_an_arm, in_a_loop, a_gradient_of_the_gradient], ids=lambda f: f.__name__)
def test_the_gradient_goes_to_what_was_assigned(function):
    found = []
    for called in (function, tn.jit(function, fullgraph=True)):
        w = tn.tensor([1.0, 2.0], requires_grad=True)
        for k in range(4):
            y = called(w, tn.tensor([k + 1.0, 1.0]))
            y.sum().backward()
            found.append((y.tolist(), w.grad.tolist(), w.tolist()))
            w.grad = None
    assert [tn.tree.map(lambda x: round(x, 3), x) for x in found[:4]] == \
        [tn.tree.map(lambda x: round(x, 3), x) for x in found[4:]]


def test_a_result_of_leaves_that_the_call_made_requires_a_gradient():
    def attack(x, rate):
        x = x.detach().requires_grad_()
        (x ** 3).sum().backward()
        return x + rate * x.grad.sign()

    def layer(x):
        return (x * tn.ones(2, requires_grad=True)).sum()
    for function, given in ((attack, (0.5,)), (layer, ())):
        for called in (function, tn.jit(function, fullgraph=True)):
            for _ in range(3):
                y = called(tn.tensor([1.0, -2.0]), *given)
                assert y.requires_grad and not y.is_leaf
                y.sum().backward()
                with pytest.raises(tn.errors.GradientError):
                    y.sum().backward() if function is attack else y.backward()

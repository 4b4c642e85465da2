"""Gradients that are there for some data only: in eager code a parameter that no taken arm reads keeps `.grad` None."""

import numpy as np
import pytest

import tenon as tn
from capture.both import vector
from tenon import nn, optim


def grads(*tensors):
    return [None if x.grad is None else x.grad.numpy().tolist() for x in tensors]


def in_arms(w, v, x):
    return (x * w if x.sum() > 0 else x * v).sum()


def in_one_arm(w, v, x):
    y = x * v
    if x.sum() > 0:
        y = y * w
    return y.sum()


def beside_each_other(w, v, x):
    if x.sum() > 0:
        y, _ = x * w, x * v
    else:
        y, _ = x * v, x * w
    return y.sum()


def in_a_loop(w, v, x):
    y = x * v
    while y.sum() > 0:
        y = y * 0.5 - w.abs()
    return y.sum()


def in_an_arm_within_an_arm(w, v, x):
    if x.sum() > 0:
        x = x * w if x[0] > 2 else x + 1
    return (x * v).sum()


def in_an_arm_within_a_loop(w, v, x):
    y = x * v
    for k in x:
        if k > 1.5:
            y = y * w
    return y.sum()


def in_an_arm_within_a_loop_by_data(w, v, x):
    y = x * v
    while y.sum() > 1:
        y = y * 0.5 if y.sum() > 2 else y * 0.5 - w.abs()
    return y.sum()


def first_of_three(w, v, x):
    k = int((x > 0).sum())
    return ((x * w) if k == 0 else (x * v) if k == 1 else x * w * v).sum()


def beside_a_number(w, v, x):
    return (x * v).sum() + (w[0] if x.sum() > 0 else 0)


def a_leaf_beside_a_number(w, v, x):
    scale = x.sum() * 0 + v.sum()
    for one in (w.sum(), 1):
        scale = scale * (one if x.sum() > 0 else 2.0)
    return scale


def of_cond(w, v, x):
    return tn.cond(x.sum() > 0, lambda: (x * w).sum(), lambda: (x * v).sum())


def of_switch(w, v, x):
    arms = [lambda: x @ w, lambda: x @ v, lambda: x @ (w * v)]
    return tn.switch((x > 0).sum(), arms)


LOSSES = [in_arms, beside_a_number, a_leaf_beside_a_number, in_one_arm, beside_each_other, in_a_loop,
          in_an_arm_within_an_arm, in_an_arm_within_a_loop, in_an_arm_within_a_loop_by_data, first_of_three, of_cond,
          of_switch]


@pytest.mark.parametrize("loss", LOSSES)
def test_backward_leaves_none_where_eager_code_does(loss):
    seen = []
    for jit in (lambda f: f, lambda f: tn.jit(f, fullgraph=True)):
        w, v = (tn.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))

        @jit
        def step(x, w=w, v=v):
            found = loss(w, v, x)
            found.backward()
            return found.detach()
        steps = []
        for k, x in enumerate(([1.0, 2.0], [-1.0, -2.0], [-2.0, 1.0], [3.0, 4.0]) * 2):
            step(vector(*x))
            steps.append(grads(w, v))
            if k != 2:
                w.grad = v.grad = None
        seen.append(steps)
    for want, got in zip(*seen, strict=True):
        assert [x is None for x in want] == [x is None for x in got]
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(a or 0, b or 0, rtol=1e-5)


@pytest.mark.parametrize("around", [tn.enable_grad, tn.no_grad])
@pytest.mark.parametrize("loss", LOSSES)
def test_backward_behind_a_call_leaves_none_where_eager_code_does(loss, around):
    seen = []
    for jit in (lambda f: f, lambda f: tn.jit(f, fullgraph=True)):
        w, v = (tn.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))

        @jit
        @tn.enable_grad()
        def f(x, w=w, v=v):
            return loss(w, v, x)
        for x in ([1.0, 2.0], [-1.0, -2.0], [-2.0, 1.0], [3.0, 4.0]) * 2:
            with around():
                out = f(vector(*x))
            w.grad = v.grad = None
            out.backward()
            seen.append([float(out), grads(w, v)])
    assert seen[:8] == seen[8:]


def test_a_parameter_that_a_number_stands_for_has_no_gradient():
    seen = []
    for jit in (lambda f: f, lambda f: tn.jit(f, fullgraph=True)):
        w, b = (tn.tensor(0.5, requires_grad=True) for _ in range(2))

        @jit
        def step(x, w=w, b=b):
            b.grad = None
            ((w * x).sum() + (b if x[0] > 0 else 0)).backward()
            return b.grad is None
        seen.append([(step(vector(k, 2.0)), b.grad is None) for k in (1.0, -1.0, 1.0, -1.0)])
    assert seen[0] == seen[1]


def test_backward_twice_before_a_step():
    for jit in (lambda f: f, tn.jit):
        w, v = (tn.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))

        @jit
        def step(x, w=w, v=v):
            in_arms(w, v, x).backward()
            in_arms(w, v, x - 2.0).backward()
        step(vector(1.0, 2.0))
        assert grads(w, v) == [[1.0, 2.0], [-1.0, 0.0]]
        w.grad = v.grad = None
        step(vector(-1.0, -2.0))
        assert grads(w, v) == [None, [-4.0, -6.0]]


def layered(layers, make=optim.Adam):
    """Two experts of so many layers, and a step of an optimizer for the one that is chosen."""
    tn.manual_seed(0)
    experts = [nn.Sequential(*(nn.Linear(3, 3) for _ in range(layers))) for _ in range(2)]
    opt = make([p for expert in experts for p in expert.parameters()], lr=0.1)

    def step(x):
        y = experts[0](x) if x.sum() > 0 else experts[1](x)
        loss = (y ** 2).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()
    return step, opt


@pytest.mark.parametrize("make", [optim.Adam, optim.AdamW, lambda p, lr: optim.SGD(p, lr=lr, momentum=0.9)])
def test_an_optimizer_passes_over_an_expert_that_was_not_chosen(make):
    seen, moved = [], []
    for jit in (lambda f: f, lambda f: tn.jit(f, fullgraph=True)):
        step, opt = layered(1, make)
        step, parameters = jit(step), opt.param_groups[0]["params"]
        for sign in (1.0, 1.0, -1.0, -1.0, 1.0, -1.0):
            before = [p.detach().numpy().copy() for p in parameters]
            step(tn.tensor([[1.0, 2.0, 3.0]]) * sign)
            moved.append(max(abs(p.detach().numpy() - b).max() for p, b in zip(parameters, before, strict=True)))
        seen.append([p.detach().numpy() for p in parameters])
    # A layer's sums of products have not eager code's bits: each step is off by units of what it moved a parameter by,
    # which stay where the steps leave a parameter near 0.  An expert that is not passed over moves by far more.
    rounding = sum(moved) * np.finfo(np.float32).eps
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=rounding)


def test_a_result_that_is_cut_off_gives_no_gradient():
    for jit in (lambda f: f, tn.jit):
        w, v = (tn.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        jit(lambda x, w=w, v=v: (x * w.detach() + v).sum())(vector(1.0, 2.0)).backward()
        assert grads(w, v) == [None, [1.0, 1.0]]


@pytest.mark.parametrize("loss", [in_arms, beside_a_number, a_leaf_beside_a_number, in_one_arm, in_a_loop])
def test_backward_around_the_call_leaves_none_too(loss):
    seen = []
    for jit in (lambda f: f, tn.jit):
        w, v = (tn.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        step, steps = jit(lambda x, w=w, v=v: loss(w, v, x)), []
        for x in ([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0]):
            step(vector(*x)).backward()
            steps.append(grads(w, v))
            w.grad = v.grad = None
        seen.append(steps)
    assert seen[0] == seen[1]


def test_parameters_that_share_a_flag_share_a_condition():
    x = tn.ones((1, 3))
    conditions = []
    for layers in (1, 4):
        graph = tn.jit(layered(layers)[0], fullgraph=True).graph(x)
        conditions.append(sum(node.op.name == "cond" for node in graph.nodes))
    assert conditions[0] == conditions[1]


def test_moments_of_parameters_without_a_gradient_stay_as_they_are():
    (step, opt), (plain, other) = layered(2), layered(2)
    jitted, x = tn.jit(step, fullgraph=True), tn.ones((1, 3))
    for sign in (1.0, 1.0, -1.0, 1.0, -1.0):
        before = [m.numpy().copy() for m in opt.param_groups[0].slots["exp_avg"]]
        jitted(x * sign)
        plain(x * sign)
        after = [m.numpy() for m in opt.param_groups[0].slots["exp_avg"]]
        untaken = slice(4, None) if sign > 0 else slice(0, 4)
        for a, b in zip(before[untaken], after[untaken], strict=True):
            np.testing.assert_array_equal(a, b)
    for name, slots in opt.param_groups[0].slots.items():
        for a, b in zip(slots, other.param_groups[0].slots[name], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7)


FACTOR = 1.0


class Damped(nn.Parameter):
    """A parameter of a user's class, whose operators read what a graph has to guard."""

    def __sub__(self, other):
        return super().__sub__(other * FACTOR)


def test_operators_of_a_users_parameters_are_watched_in_an_optimizers_step(monkeypatch):
    w = Damped([1.0, 2.0])
    opt = optim.SGD([w], lr=0.5)

    @tn.jit
    def step(x):
        (w * x).sum().backward()
        opt.step()
        opt.zero_grad()
    for factor, expected in ((1.0, [0.5, 1.5]), (1.0, [0.0, 1.0]), (3.0, [-1.5, -0.5])):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        step(vector(1.0, 1.0))
        np.testing.assert_allclose(w.numpy(), expected)


def test_the_gradient_by_a_tensor_of_one_of_several_shapes():
    def f(x, y):
        t = x if x.sum() > 1 else x[:2]
        u = y if y.sum() > 1 else y[1:]
        return tn.value_and_grad(lambda z, w: (z * z).sum() * w.exp().sum(), argnums=(0, 1))(t, u)
    jitted = tn.jit(f, fullgraph=True)
    for a, b in [(-1.0, -1.0), (2.0, -1.0), (-1.0, 2.0), (2.0, 2.0)]:
        x, y = tn.tensor([a, a, 1.0]), tn.tensor([b, 1.0, 0.5])
        (value, gradients), (expected, eager) = jitted(x, y), f(x, y)
        np.testing.assert_allclose(value.numpy(), expected.numpy(), rtol=1e-6)
        for one, other in zip(gradients, eager, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)

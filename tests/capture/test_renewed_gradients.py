"""A step that sets gradients before it asks for them is one capture, whether or not there were any before."""

import copy

import pytest

import tenon as tn
from capture.both import vector
from tenon import nn, optim


def made():
    return [tn.tensor([1.0, 2.0], requires_grad=True), tn.tensor([0.5, -1.0], requires_grad=True)]


def zeroed_first(w, v, x):
    w.grad = v.grad = None
    ((w * x).sum() + (v * v).sum()).backward()


def zeroed_after_the_loss(w, v, x):
    loss = (w * x * v).sum()
    w.grad = v.grad = None
    loss.backward()


def set_by_hand(w, v, x):
    w.grad, v.grad = tn.autograd.grad((w * x * v).sum(), [w, v])


RENEWING = [zeroed_first, zeroed_after_the_loss, set_by_hand]


def one_of_them(w, v, x):
    w.grad = v.grad = None
    (w * x).sum().backward()


def asked_first(w, v, x):
    known = w.grad is None
    w.grad = None
    (w * x).sum().backward()
    return known


def added(w, v, x):
    (w * x).sum().backward()


def copied_first(w, v, x):
    other = copy.deepcopy(w)
    w.grad = None
    (w * x).sum().backward()
    return other.grad is None


def zeroed_under_a_condition(w, v, x):
    if x.sum() > 0:
        w.grad = None
    (w * x).sum().backward()


def zeroed_in_a_loop(w, v, x):
    for k in x:
        if k > 0.5:
            w.grad = None
    (w * x).sum().backward()


def backward_under_a_condition(w, v, x):
    w.grad = v.grad = None
    if x.sum() > 0:
        (w * x).sum().backward()
    return w.grad is None


def of_one_by_the_data(w, v, x):
    w.grad = v.grad = None
    (w * x if x.sum() > 0 else v * x).sum().backward()


def zeroed_in_cond(w, v, x):
    def forget(y):
        w.grad = None
        return y
    tn.cond(x.sum() > 0, forget, lambda y: y, x)
    (w * x).sum().backward()


def raises_in_the_middle(w, v, x):
    w.grad = None
    if x.sum() > 4:
        raise ValueError("too large")
    (w * x).sum().backward()


def zeroed_at_the_end(w, v, x):
    (w * x).sum().backward()
    w.grad = None


def outside(k, w, v):
    """What happens between calls."""
    if k % 4 == 1:
        w.grad = v.grad = None
    if k % 4 == 3:
        w.grad, v.grad = vector(5.0, 6.0), vector(7.0, 8.0)


def seen(step, jit):
    w, v = made()
    run = jit(lambda x: step(w, v, x))
    found = []
    for k in range(12):
        outside(k, w, v)
        before = w.grad, None if w.grad is None else w.grad.tolist()
        try:
            result = run(vector(*([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0])[k % 3]))
        except ValueError as error:
            result = str(error)
        kept = before[0] is None or before[0].tolist() == before[1]
        found.append((result, kept, *(None if p.grad is None else p.grad.tolist() for p in (w, v))))
    return found, run


@pytest.mark.parametrize("step", [*RENEWING, one_of_them, asked_first, added, copied_first, zeroed_under_a_condition,
                                  zeroed_in_a_loop, backward_under_a_condition, of_one_by_the_data, zeroed_in_cond,
                                  raises_in_the_middle, zeroed_at_the_end])
def test_gradients_are_as_eagerly(step):
    (want, _), (got, run) = seen(step, lambda f: f), seen(step, tn.jit)
    assert want == got
    if step in RENEWING:
        assert sum(len(record.captures) for record in run.records.values()) == 1, tn.explain(run)


@pytest.mark.parametrize("make", [optim.Adam, lambda p, lr: optim.SGD(p, lr, momentum=0.9)])
def test_a_training_step_is_one_capture(make):
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    opt = make(net.parameters(), lr=0.1)

    @tn.jit
    def step(x):
        opt.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    for _ in range(6):
        step(tn.ones(2, 3))
    assert sum(len(record.captures) for record in step.records.values()) == 1, tn.explain(step)

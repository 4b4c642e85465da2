"""`jit(..., background=True)`: calls run eagerly until another thread has compiled, with the same results."""

from threading import Event, enumerate

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.capture import background_compile


@pytest.fixture
def held(monkeypatch):
    """Nothing is compiled in the background before this is set."""
    may_go_on, make = Event(), background_compile._make

    def waits(*given):
        may_go_on.wait()
        make(*given)
    monkeypatch.setattr(background_compile, "_make", waits)
    yield may_go_on
    finish(may_go_on)


def finish(may_go_on):
    may_go_on.set()
    for thread in enumerate():
        if thread.name == "tenon-background":
            thread.join()


def test_calls_run_eagerly_until_the_code_is_there(held):
    f, x = tn.jit(lambda x: tn.exp(x) * 2.0, background=True), tn.tensor([0.0, 1.0])
    expected = [tn.exp(x) * 2.0] * 3
    found = [f(x), f(x)]
    captured = f.capture(x)
    assert "program" not in vars(captured) and captured.calls == 0
    finish(held)
    assert "program" in vars(captured)
    found.append(f(x))
    assert captured.succeeded
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


def test_a_call_that_finds_the_code_compiles_nothing(held):
    f, x = tn.jit(lambda x: tn.exp(x) * 3.0 + x.sum(axis=1, keepdims=True), background=True), tn.ones((7, 11))
    f(x)
    finish(held)
    made = []
    stop = tn.observe.subscribe(lambda event: made.append(event.name))
    try:
        f(x)
    finally:
        stop()
    assert not {"compile", "machine_code"} & set(made)


def trained(jitted, between=lambda: None):
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    optimizer = optim.Adam(net.parameters(), lr=1e-2)
    x = tn.asarray(np.random.default_rng(0).normal(size=(6, 5)).astype("float32"))

    def step(x):
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    step = tn.jit(step, **jitted) if jitted is not None else step
    losses = []
    for k in range(6):
        if k == 3:
            between()
        losses.append(float(step(x)))
    return losses


def test_training_goes_on_where_eager_code_left_it(held):
    found = trained({"background": True}, lambda: finish(held))
    np.testing.assert_allclose(found, trained(None), rtol=1e-5)


def test_gradients_of_a_function_in_the_background(held):
    f = tn.jit(lambda x: (x * x).sum(), background=True)
    for wait in (False, True, True):
        if wait:
            finish(held)
        x = tn.tensor([1.0, 2.0], requires_grad=True)
        f(x).backward()
        np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


def test_weights_in_use_are_packed_in_the_background(held):
    net, x = nn.Linear(8, 4), tn.ones((3, 8))
    f = tn.jit(net, background=True)
    with tn.no_grad():
        expected, first = net(x), f(x)
        finish(held)
        for found in (first, f(x), f(x)):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def test_what_goes_wrong_in_the_background_is_told_by_the_next_call(held, monkeypatch):
    def broken(graph, *given, **options):
        raise RuntimeError("no such processor")
    f, x = tn.jit(lambda x: x * 5.0 - 1.0, background=True), tn.ones(3)
    monkeypatch.setattr("tenon.pipeline.compile", broken)
    f(x)
    finish(held)
    np.testing.assert_array_equal(f(x).numpy(), [4.0, 4.0, 4.0])
    record, _ = f.look(x)
    assert "compiling its graph raised RuntimeError: no such processor" in str(record.eager)

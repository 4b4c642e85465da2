"""Functions that one graph cannot hold: graphs of their parts, Python in between, the numbers and effects of eager code."""

import gc
import threading

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.capture.lazy_tensors import FunctionParts
from tenon.errors import OutOfRange

SHAPE = (400, 300)


def data(seed=0, shape=SHAPE):
    return tn.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def value(x):
    """The number, asked for in a way that no graph holds."""
    return float(np.asarray(x))


@pytest.fixture(autouse=True)
def runs_with_graph_breaks(monkeypatch):
    """Every test here is one of functions that run with graph breaks: none is split, as where there is no source."""
    monkeypatch.setattr("tenon.capture.split.breaks.split_of", lambda function, compile: None)
    calls, run = [], FunctionParts.run
    monkeypatch.setattr(FunctionParts, "run", lambda self, function: (calls.append(self), run(self, function))[1])
    yield
    assert calls


def compare(program, calls=4):
    """The program, called several times as it is and jitted; both give generators of tensors."""
    for eager, jitted in zip(program(lambda f: f), program(tn.jit), strict=True):
        np.testing.assert_allclose(jitted.numpy(), eager.numpy(), rtol=1e-4, atol=1e-4)


def parts_of(function):
    (record,) = function.records.values()
    return record.parts


def test_a_condition_in_the_middle_splits_the_function_in_two():
    log = []

    @tn.jit
    def f(x):
        y = tn.tanh(x) * 2
        if value(y.sum()) > 0:
            log.append("positive")
            return tn.exp(-y) + 1
        log.append("negative")
        return y - 1
    x = data()
    for sign in (1, -1, 1, -1):
        y = np.tanh(sign * x.numpy()) * 2
        np.testing.assert_allclose(f(x * sign).numpy(), np.exp(-y) + 1 if y.sum() > 0 else y - 1, rtol=1e-4, atol=1e-4)
    assert log[:2] == log[2:] and set(log) == {"positive", "negative"}
    assert len(parts_of(f).graphs) == 3 and not parts_of(f).eager


def test_training_with_graph_breaks_is_training():
    def program(decorate):
        tn.manual_seed(0)
        net = nn.Sequential(nn.Linear(300, 400), nn.Tanh(), nn.Linear(400, 300))
        opt = optim.Adam(net.parameters(), lr=1e-3)

        @decorate
        def step(x):
            loss = ((net(x) - x) ** 2).mean()
            loss.backward()
            if value(loss) > 1e6:
                raise ArithmeticError("diverged")
            opt.step()
            opt.zero_grad()
            return loss
        for k in range(4):
            yield step(data(k))
        yield from net.parameters()
    compare(program)


def test_gradients_flow_out_of_a_part():
    def program(decorate):
        w = data(3).requires_grad_()

        @decorate
        def f(x):
            y = tn.tanh(x * w)
            return y * 2 if value(y.sum()) > 0 else y * 3
        for k in range(3):
            x = data(k).requires_grad_()
            f(x).sum().backward()
            yield x.grad
            yield w.grad
    compare(program)


def test_assignment_in_place_and_detached_tensors():
    def program(decorate):
        running = tn.zeros(SHAPE)

        @decorate
        def f(x):
            kept = running.detach()
            running.assign(running * 0.9 + x)
            if value(x.sum()) < 1e9:
                running.__iadd__(1.0)
            return kept + running
        for k in range(4):
            yield f(data(k))
            yield running
    compare(program)


def test_what_may_fail_fails_at_its_place():
    seen = []

    @tn.jit
    def f(x, at):
        y = x * 2
        if value(y.sum()) > 1e9:
            return y
        seen.append("before")
        z = y[at]
        seen.append("after")
        return z
    good, bad = tn.tensor([1, 2]), tn.tensor([1, 4000])
    for _ in range(3):
        f(data(), good)
    seen.clear()
    with pytest.raises(OutOfRange):
        f(data(), bad)
    assert seen == ["before"]
    np.testing.assert_allclose(f(data(), good).numpy(), data().numpy()[[1, 2]] * 2)


def test_an_exception_leaves_what_was_done_before_it():
    total = tn.zeros(SHAPE)

    @tn.jit
    def f(x):
        total.assign(total + x)
        if value(x.sum()) > 0:
            raise ValueError("mine")
    ones = tn.ones(SHAPE)
    for k in range(4):
        with pytest.raises(ValueError, match="mine"):
            f(ones)
        assert total.numpy()[0, 0] == k + 1


def test_an_array_that_is_written_to_after_it_was_read():
    array = np.ones(SHAPE, np.float32)
    x = tn.asarray(array)

    @tn.jit
    def f(y):
        z = x * 2 + y
        array[:] = 5        # the tensor shares this memory
        if value(z.sum()) > 0:
            return z + x
        return z
    for _ in range(3):
        array[:] = 1
        assert f(tn.zeros(SHAPE)).numpy()[0, 0] == 7


def test_tensors_are_ordinary_ones_afterwards():
    kept = []

    @tn.jit
    def f(x):
        y = tn.exp(x)
        kept.append((y, y.detach()))
        return value(y.sum()), y + 1
    for _ in range(3):
        f(data())
    for pair in kept:
        for y in pair:
            assert type(y.own.payload) is np.ndarray
    y = tn.jit(lambda a: a * 2)(kept[-1][0])
    np.testing.assert_allclose(y.numpy(), np.exp(data().numpy()) * 2, rtol=1e-5)


def test_sizes_that_never_repeat_end_in_eager_code():
    @tn.jit
    def f(x):
        return tn.tanh(x) + 1 if value(x.sum()) > -1e9 else x
    for n in range(400, 440):
        assert f(data(0, (n, 400))).shape == (n, 400)
    assert sum(len(record.parts.graphs) for record in f.records.values() if record.parts) <= 32


def test_another_thread_may_ask_for_the_elements():
    found = []

    @tn.jit
    def f(x):
        y = tn.tanh(x) + 1
        thread = threading.Thread(target=lambda: found.append(y.numpy().sum()))
        thread.start()
        thread.join()
        return y
    for _ in range(3):
        y = f(data())
        np.testing.assert_allclose(found[-1], y.numpy().sum(), rtol=1e-5)


def test_what_nobody_holds_is_not_computed():
    @tn.jit
    def f(x):
        tn.exp(x)
        y = x * 2
        return y if value(y.sum()) > -1e9 else x
    for _ in range(3):
        f(data())
        gc.collect()
    (graph,) = parts_of(f).graphs.values()
    assert len(graph.results) == 2

"""One fast path serves calls whose symbolic sizes differ: it sees every size, and what does not fit takes the slow path."""

import sys
import threading

import numpy as np
import pytest

import tenon as tn
from capture.both import same
from tenon import nn
from tenon.cpython import object_layout

jit_module = sys.modules["tenon.capture.jitted"]
pytestmark = pytest.mark.skipif(not object_layout.READABLE, reason="this Python's objects cannot be read natively")


def long_calls(f, monkeypatch):
    """A list that grows with every call of `f` by the slow path."""
    seen, inner = [], f._find_and_run
    monkeypatch.setattr(f, "_find_and_run", lambda args, keywords: seen.append(1) or inner(args, keywords))
    return seen


def warmed(function, calls):
    """The jitted function after calls of growing sizes, which all had the eager result."""
    jitted = tn.jit(function)
    for args in calls:
        same(function(*args), jitted(*args), str(args))
    return jitted


X, SQUARE, LAYER = tn.arange(120.0).reshape(3, 40), tn.arange(64.0).reshape(8, 8) / 64, nn.Linear(8, 8)
FUNCTIONS = {       # of a number and a length
    "a slice": lambda n, x: X[:, :n] * 2,
    "two sizes": lambda n, x: X[:, :n] @ tn.ones(n, 2) + x.sum(),
    "a length": lambda n, x: (x @ SQUARE).softmax(-1),
    "memory between": lambda n, x: (x @ SQUARE) @ (x @ SQUARE).T + n,
    "a size that is asked": lambda n, x: x.sum(0) if x.shape[0] < 30 else x.sum(1),
    "several results": lambda n, x: (x * 2, {"sum": x.sum(0), "n": n, "rows": x.shape[0]}),
    "a loop in the graph": lambda n, x: tn.scan(lambda h, row: (h * 0.5 + row, h.sum()), tn.zeros(8), x)[1],
    "a result with a gradient": lambda n, x: LAYER(x).sum(1),
    "a layer": lambda n, x: tn.stop_gradient(LAYER(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_of_other_sizes_are_short(name, monkeypatch):
    function, sizes = FUNCTIONS[name], [5, 7, 9, 21, 33, 34, 35, 36]
    calls = [(n, tn.arange(8.0 * n).reshape(n, 8) / 100) for n in sizes]
    jitted = warmed(function, [*calls, *calls])
    long = long_calls(jitted, monkeypatch)
    for args in calls:
        same(function(*args), jitted(*args), str(args))
    asked = name == "a size that is asked"      # a capture for each answer
    assert len(long) <= (3 if asked else 0), tn.explain(jitted)


def test_sizes_that_do_not_fit(monkeypatch):
    def product(x, y):
        return x[1:] @ y
    jitted = warmed(product, [(tn.ones(k + 1, k), tn.ones(k, 2)) for k in (3, 5, 6, 7, 8)])
    long = long_calls(jitted, monkeypatch)
    assert jitted(tn.ones(5, 4), tn.ones(4, 2)).shape == (4, 2) and not long
    with pytest.raises(Exception, match="matmul"):
        jitted(tn.ones(5, 4), tn.ones(6, 2))
    assert jitted(tn.ones(9, 4), tn.ones(4, 2)).shape == (8, 2)     # what the capture takes for one size are two
    assert long


def test_a_cache_outgrows_the_memory(monkeypatch):
    class Cache:
        rows = tn.ones(1, 4)

    def step_of(cache):
        def step(x):
            cache.rows = tn.cat([cache.rows, x], 0)
            scores = (cache.rows @ cache.rows.T).softmax(-1)
            return (scores @ cache.rows).sum()
        return step
    cache = Cache()
    eager, jitted = step_of(Cache()), tn.jit(step_of(cache))
    long = long_calls(jitted, monkeypatch)
    for k in range(100):
        x = tn.full((1, 4), k / 100)
        assert jitted(x).item() == pytest.approx(eager(x).item(), rel=1e-4)
    assert len(long) <= 3 + 7           # it has memory for twice as much each time
    assert cache.rows.shape == (101, 4)


def test_threads_with_different_sizes():
    def function(x, n):
        return (x[:n] * 2).sum(0) + n
    jitted, wrong = tn.jit(function), []
    x = tn.ones(50, 3)
    for n in (3, 4, 5, 40, 50):
        jitted(x, n)

    def work(first):
        for k in range(400):
            n = 2 + (first * 7 + k) % 48
            if jitted(x, n).tolist() != [3.0 * n] * 3:
                wrong.append(n)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_state_updated_in_place_with_a_changing_batch(monkeypatch):
    def step(w, x):
        w.assign(w - 0.1 * x.mean(0))
        return (w * x).sum()
    jitted, a, b = tn.jit(step), tn.ones(4), tn.ones(4)
    inputs = [tn.arange(4.0 * n).reshape(n, 4) / n for n in (5, 6, 7, 12, 12, 4, 9, 11)]
    for x in inputs[:5]:
        same([step(b, x), b], [jitted(a, x), a], str(x))
    long = long_calls(jitted, monkeypatch)
    for x in inputs[5:]:
        same([step(b, x), b], [jitted(a, x), a], str(x))
    assert not long


def test_a_budget_too_small_for_larger_sizes_leaves_a_way_for_these() -> None:
    f = tn.jit(lambda x: tn.softmax(tn.cumsum(x, 1) @ tn.ones((x.shape[1], 64)), 1).sum(0), memory_budget=40_000)
    for rows in range(60, 65):
        f(tn.ones((rows, 64)))
    (record,) = f.records.values()
    assert record.captures[-1].sized


def test_layers_that_are_trained_and_evaluated_in_turn(monkeypatch):
    """`train()` goes through whole dictionaries, which it then stores in: no fast path ever held."""
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    step = tn.jit(lambda x, training: net.train(training)(x))
    turns = [(tn.rand(4 + k % 2, 3), k % 3 > 0) for k in range(6)]
    for _ in range(8):
        for args in turns:
            step(*args)
    seen = long_calls(step, monkeypatch)
    for args in turns:
        step(*args)
    assert not seen


def test_several_captures_of_one_number(monkeypatch):
    """Those with equal plain arguments took each other's place."""
    counts, w = {"n": 0}, tn.zeros(2)

    def step(x, rate):
        counts["n"] += 1
        if counts["n"] % 3 == 0:
            w.assign(x)
        return x * rate if counts["n"] % 2 else x + rate
    f, x = tn.jit(step), tn.ones(2)
    for _ in range(96):
        f(x, 0.5)
    seen = long_calls(f, monkeypatch)
    for _ in range(12):
        f(x, 0.5)
    assert len(seen) <= 1


def test_it_comes_behind_that_of_the_capture_for_certain_sizes() -> None:
    """As captures do: a call takes the same program, whatever was called before it."""
    f = tn.jit(lambda x: (x * x).sum())
    for rows in (4, 4, 4, 2, 2, 2, 5, 5, 4, 4):
        f(tn.rand(rows, 3))
    exact, symbolic = next(iter(f.records.values())).captures
    assert symbolic.sized and [call for _, call in f._fast_calls] == [exact.fast_call, symbolic.fast_call]


@pytest.mark.parametrize("function", [
    lambda x: tn.tanh(x).sum(0), lambda x: x[:, :2] + COLUMN, lambda x: (x[0] * tn.tril_indices(2, 2)[0], x * 2)])
def test_arrays_that_do_not_lie_in_rows_have_a_fast_path(function, monkeypatch):
    x = tn.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2).T)
    jitted = tn.jit(function)
    wanted = [repr(jitted(x)) for _ in range(3)][-1]
    monkeypatch.setattr("tenon.capture.jitted.run", None)
    assert repr(jitted(x)) == wanted


COLUMN = tn.from_numpy(np.arange(4, dtype=np.float32).reshape(2, 2)[:, 1])

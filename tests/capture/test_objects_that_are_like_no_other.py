"""What stands in a place is swapped for another object of the same class, which does something else: calls see it."""

import collections
import dataclasses
import functools
import math
import types

import numpy as np
import pytest

import tenon as tn
from tenon import nn

F = nn.functional
X = tn.asarray(np.array([0.5, -1.25, 2.0], np.float32))
TANH = nn.Tanh()


class Holder:
    pass


def of_class(body):
    made = type("Made", (), {"__call__": body})()
    made.k = 2.0
    return made


def applying(op):
    return lambda v: op(v)


def call(a, x):
    return a(x)


def number(a, x):
    return x * float(a(1.0))


def add(a, b):
    return a + b


SWAPS = {
    "operators": (call, tn.relu, tn.tanh),
    "functions of a library": (call, F.relu, F.gelu),
    "layers": (call, nn.ReLU(), nn.GELU()),
    "partials": (call, functools.partial(tn.add, 2.0), functools.partial(tn.multiply, 2.0)),
    "classes of equal attributes": (call, of_class(lambda s, x: x * s.k), of_class(lambda s, x: x + s.k)),
    "lambdas that keep operators": (call, applying(tn.exp), applying(tn.sin)),
    "functions of NumPy": (number, np.sin, np.cos),
    "functions in C": (number, math.sin, math.cos),
    "dictionaries of operators": (lambda a, x: a["f"](x), {"f": tn.exp}, {"f": tn.sin}),
    "lists of operators": (lambda a, x: a[0](x), [tn.exp], [tn.sin]),
    "bound operators": (lambda a, x: a(), types.MethodType(tn.exp, X), types.MethodType(tn.sin, X)),
    "gradients": (call, tn.grad(lambda v: (v * v).sum()), tn.grad(lambda v: (v * v * v).sum())),
    "caches": (number, functools.lru_cache(lambda v: v * 2), functools.lru_cache(lambda v: v + 2)),
    "vectorized": (number, np.vectorize(lambda v: v * 2), np.vectorize(lambda v: v + 2)),
    "queues": (lambda a, x: x * a.maxlen, collections.deque([1.0], 3), collections.deque([1.0], 5)),
    "names of functions": (lambda a, x: x * len(a.__name__), call, add),
    "code that does not run": (lambda a, x: x * a.__code__.co_argcount, lambda: 0, lambda v: 0),
}


def agree(jitted, eager, *args):
    for _ in range(3):
        np.testing.assert_allclose(jitted(*args).numpy(), eager(*args).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SWAPS)
def test_in_an_attribute(name):
    use, *objects = SWAPS[name]
    holder = Holder()

    def function(x):
        return use(holder.a, x)
    f = tn.jit(function)
    for holder.a in (*objects, objects[0]):
        agree(f, function, X)


@pytest.mark.parametrize("name", SWAPS)
def test_among_the_arguments(name):
    use, *objects = SWAPS[name]
    f = tn.jit(use)
    for a in (*objects, objects[0]):
        agree(f, use, a, X)
    assert not any(record.eager for record in f.records.values())


@pytest.mark.parametrize("name", SWAPS)
def test_in_an_object_among_the_arguments(name):
    use, *objects = SWAPS[name]

    def function(holder, x):
        return use(holder.a, x)
    f = tn.jit(function)
    for a in (*objects, objects[0]):
        holder = Holder()
        holder.a = a
        agree(f, function, holder, X)


@pytest.mark.parametrize(("owner", "name", "other", "use"), [
    (tn, "exp", tn.sin, lambda x: tn.exp(x)),
    (F, "relu", F.gelu, lambda x: F.relu(x)),
    (np, "sin", np.cos, lambda x: x * float(np.sin(1.0))),
    (math, "sin", math.cos, lambda x: x * math.sin(1.0)),
    (nn.Tanh, "forward", nn.Sigmoid.forward, lambda x: TANH(x)),
], ids=["tenon", "functional", "numpy", "math", "layer"])
def test_in_a_library(owner, name, other, use, monkeypatch):
    f = tn.jit(use)
    agree(f, use, X)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, other)
        agree(f, use, X)
    agree(f, use, X)


def test_an_argument_that_is_found_outside_too_is_not_taken_for_another():
    first = Holder()
    first.w = tn.full((3,), 5.0)

    def function(s, x):
        return x * first.w + s.w
    f = tn.jit(function)
    for k in range(3):
        agree(f, function, first, X)
        other = Holder()
        other.w = tn.full((3,), float(k))
        agree(f, function, other, X)


def test_one_object_in_two_places_that_is_another_at_every_call_is_left_to_python():
    @dataclasses.dataclass
    class State:
        x: object
        n: int

    states = [types.SimpleNamespace(a=None, b=None) for _ in range(2)]

    def step(state, x, n):
        same = state.a is not None and state.a is state.b
        state.a = State(x * 2, n)
        state.b = state.a if n % 2 else State(x, n)
        return same
    jitted = tn.jit(step)
    for n in range(120):
        expected, found = step(states[0], tn.ones(2), n // 40), jitted(states[1], tn.ones(2), n // 40)
        assert expected == found and (states[1].a is states[1].b) == (states[0].a is states[0].b)
    assert any(record.eager is not None for record in jitted.records.values())

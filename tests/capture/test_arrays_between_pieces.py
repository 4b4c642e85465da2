"""Arrays of NumPy in the variables of a function that is split stay arrays, and NumPy computes with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim


def method_of_an_array(x):
    d = x.numpy()
    time.time()
    e = d * 2.0
    for _ in range(2):
        e = e - 0.5 * d
    time.time()
    return type(e).__name__, e.max(initial=9.0), e.strides


def kind_of_a_sum(x):
    d = x.numpy()
    total = d.sum()
    time.time()
    return type(total).__name__, type(d @ d).__name__, float(total)


def changed_in_place(x):
    z = np.zeros(3)
    z[:] = x.numpy()
    time.time()
    z *= 2
    z[0] = 5.0
    return x + tn.tensor(z, dtype="float32"), z.flags.writeable, z


def handed_to_a_function(x):
    def double(a):
        return a * 2
    d = x.numpy()
    e = double(d)
    time.time()
    return type(e).__name__, e.nbytes


def made_a_tensor(x):
    d = x.numpy()
    time.time()
    y = tn.tensor(d) * x
    for _ in range(3):
        y = tn.tanh(y) + x
    return y


@pytest.mark.parametrize("f", [method_of_an_array, kind_of_a_sum, changed_in_place, handed_to_a_function, made_a_tensor])
def test_arrays_stay_arrays(f: Callable[[Any], Any]) -> None:
    jitted = tn.jit(f)
    for k in range(4):
        x = tn.tensor([1.0, -2.0 * k, 3.0])
        assert repr(jitted(x)) == repr(f(x))


def test_a_tensor_made_of_an_array_leaves_the_rest_compiled() -> None:
    jitted = tn.jit(made_a_tensor)
    for _ in range(4):
        jitted(tn.ones(3))
    assert any("capture" in line and not line.endswith(": 0 captures") for line in str(tn.explain(jitted)).splitlines()[1:])


class Running:
    def __init__(self) -> None:
        self.mean, self.count, self.seen = np.zeros(3), 0, np.zeros(3)

    def update(self, x: Any) -> None:
        d, n = x - self.mean, self.count + 1
        self.mean = self.mean + d / n
        self.count = n

    def keep(self, *seen: Any, **named: Any) -> None:
        self.seen = sum(seen) + named["more"]


def test_functions_that_are_handed_arrays_leave_arrays() -> None:
    found = []
    for wrap in (tn.jit, lambda f: f):
        running = Running()

        def normalized(x: Any, running: Running = running) -> Any:
            running.update(x.numpy())
            running.keep(x.numpy(), x.numpy(), more=x.numpy())
            return x - tn.tensor(running.mean, dtype=tn.float32)
        step = wrap(normalized)
        found.append([(step(tn.arange(3.0) * k).tolist(), repr(running.mean), repr(running.seen)) for k in range(5)])
    assert found[0] == found[1]


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_in_a_jitted_function(search: str | None) -> None:
    found = []
    for wrap in (tn.jit, lambda f: f):
        w = nn.Parameter([-1.0, 1.5])
        opt = optim.LBFGS([w], lr=0.5, max_iter=4, line_search_fn=search)

        def closure(w=w, opt=opt):
            opt.zero_grad()
            loss = (1 - w[0]) ** 2 + 10 * (w[1] - w[0] ** 2) ** 2
            loss.backward()
            return loss
        step = wrap(lambda opt=opt, closure=closure: opt.step(closure))
        found.append([*(float(step()) for _ in range(3)), *w.tolist()])
    assert found[0] == pytest.approx(found[1], rel=1e-4)

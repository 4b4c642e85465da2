"""Numbers of NumPy's that change from call to call, and NumPy's functions of numbers: as schedules have them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tenon as tn

RATES = np.linspace(0.1, 1, 20)
CALLS = len(RATES)


def x_of(k: int) -> tn.Tensor:
    return tn.tensor(np.arange(4, dtype=np.float32) + k)


def captures(function) -> int:
    return sum(len(record.captures) for record in function.records.values())


def agree(function, values, most=3):
    """The function jitted gives what it gives eagerly, types included, in a few captures."""
    compiled = tn.jit(function)
    for k, v in enumerate(values):
        found, expected = compiled(x_of(k), v), function(x_of(k), v)
        assert type(found) is type(expected), k
        if isinstance(found, tn.Tensor):
            assert found.dtype == expected.dtype, k
            np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-5, 1e-6)
        else:
            assert found == expected, k
    assert captures(compiled) <= most


FUNCTIONS = {
    "product": lambda x, v: v * x + x * v,
    "power": lambda x, v: x ** v,
    "arithmetic": lambda x, v: x * (1 - v ** 2) / (v + 1e-8) - v % 3,
    "comparison": lambda x, v: x > v,
    "branch": lambda x, v: x * v if v > 0.5 else x - v,
    "math": lambda x, v: x * math.sqrt(v),
    "function of NumPy's": lambda x, v: x * (0.5 * (1 + np.cos(np.pi * v / 20))),
    "exponential": lambda x, v: x * np.exp(-v),
    "float": lambda x, v: x * float(v),
    "item": lambda x, v: x * v.item(),
    "kind": lambda x, v: x * v.dtype.itemsize * v,
    "cast": lambda x, v: x * v.astype(np.float32),
    "isinstance": lambda x, v: x * (2 if isinstance(v, float) else 3) * v,
    "full": lambda x, v: tn.full((4,), v) + x,
    "tensor": lambda x, v: tn.tensor(v) * x,
    "wide": lambda x, v: tn.ones(3, dtype=tn.float64) * v,
    "integers": lambda x, v: tn.arange(3) * v,
    "mixed": lambda x, v: x * (np.float64(2) * v + np.float32(1)),
    "itself": lambda x, v: v * 2,
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_of_numpy_is_an_input(name, dtype):
    agree(FUNCTIONS[name], (RATES * 20).astype(dtype) if np.dtype(dtype).kind == "i" else RATES.astype(dtype), 4)


OF_INTEGERS = {
    "index": lambda x, v: x[v % 4] * v,
    "slice": lambda x, v: x[:v % 4].sum(),
    "size": lambda x, v: tn.zeros(v + 1).sum() + x,
    "loop": lambda x, v: sum((x * i for i in range(v % 5)), x),
    "item of a list": lambda x, v: x * [1, 2, 3][v % 3],
    "roll": tn.roll,
    "shift": lambda x, v: x * (1 << v % 4) + (v & 3) + (v ^ 1),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_an_integer_of_numpy(name):
    agree(OF_INTEGERS[name], np.arange(CALLS), 8)


@pytest.mark.parametrize("name", ["function of NumPy's", "exponential", "product", "branch"])
def test_functions_of_numpy_of_a_number_of_python(name):
    agree(FUNCTIONS[name], RATES.tolist())


def test_a_schedule_within_the_step():
    def run(wrap):
        w = tn.tensor(np.ones(4, np.float32), requires_grad=True)
        optimizer = tn.optim.SGD([w], lr=0.1)
        state = {"step": 0}

        @wrap
        def step(x):
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * (1 + np.cos(np.pi * state["step"] / CALLS))
            optimizer.zero_grad()
            loss = ((w * x) ** 2).mean()
            loss.backward()
            optimizer.step()
            state["step"] += 1
            return loss
        losses = [step(x_of(k % 3)).item() for k in range(CALLS)]
        return losses, w.tolist(), optimizer.param_groups[0]["lr"], step
    *found, step = run(tn.jit)
    *expected, _ = run(lambda f: f)
    np.testing.assert_allclose(found[0], expected[0], 1e-5)
    np.testing.assert_allclose(found[1], expected[1], 1e-5)
    assert found[2] == expected[2] and captures(step) <= 3

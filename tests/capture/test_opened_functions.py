"""Functions among the arguments that are made anew for each call: their cells and defaults are inputs."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError

CALLS = 12


def x_of(k: int) -> tn.Tensor:
    return tn.tensor(np.arange(4, dtype=np.float32) + k)


def captures(function) -> int:
    return sum(len(record.captures) for record in function.records.values())


def once(f, x):
    return f(x)


def twice(f, x):
    return f(x) + f(x)


def scaled_by(k):
    weight, count = x_of(k), k

    def scaled(v):
        return v * weight + count
    return scaled


def counting(k):
    n = k

    def bump(v):
        nonlocal n
        n += 1
        return v * n

    def look():
        return n
    return bump, look


MADE = {
    "of equal code": lambda k: lambda v: v * 2,
    "default": lambda k: lambda v, s=k: v * s,
    "named default": lambda k: lambda v, *, s=k: v * s,
    "cells": scaled_by,
    "in cells": lambda k: (lambda f: lambda v: f(v) * 2)(scaled_by(k)),
    "nonlocal": lambda k: counting(k)[0],
}


@pytest.mark.parametrize("name", MADE)
def test_functions_made_anew_for_each_call_need_few_captures(name):
    compiled, make = tn.jit(twice), MADE[name]
    for k in range(CALLS):
        np.testing.assert_array_equal(compiled(make(k), x_of(k)).numpy(), twice(make(k), x_of(k)).numpy(), str(k))
    assert captures(compiled) <= 3


def of_two_that_share_a_cell(f):
    found = []
    for k in range(CALLS):
        bump, look = counting(k)
        found += [f(bump, look, x_of(k)).tolist(), look()]
    return found


def of_the_callers_variables(f):
    found, n = [], 0

    def bump(v):
        nonlocal n
        n += 1
        return v + n
    for k in range(CALLS):
        found += [f(bump if k % 3 else lambda v: v - n, x_of(k)).tolist(), n]
    return found


def of_a_list(f):
    found = []
    for k in range(CALLS):
        seen = []

        def note(v):
            seen.append(v.sum())        # noqa: B023
            return v * len(seen)        # noqa: B023
        found += [f(note, x_of(k)).tolist(), [float(s) for s in seen]]
    return found


def of_attributes(f):
    found = []
    for k in range(CALLS):
        def called(v):
            called.calls = getattr(called, "calls", 0) + 1
            return v * called.calls
        found += [f(called, x_of(k)).tolist(), called.calls]
    return found


def of_recursion(f):
    found = []
    for k in range(CALLS):
        def doubled(v, depth=0):
            return v if depth > 2 else doubled(v * 2, depth + 1)
        found.append(f(doubled, x_of(k)).tolist())
    return found


KEPT = scaled_by(2)


def of_one_that_a_module_keeps(f):
    return [f(scaled_by(k) if k % 3 else KEPT, x_of(k)).tolist() for k in range(CALLS)]


def of_arrays_of_numpy(f):
    found = []
    for k in range(CALLS):
        array = np.arange(4, dtype=np.float32) + k
        found.append(f(lambda v: v * array.mean(), x_of(k)).tolist())      # noqa: B023
    return found


def of_generators(f):
    found = []
    for k in range(CALLS):
        def steps(v):
            for i in range(3):
                yield v * i + k         # noqa: B023
        found.append(f(steps, x_of(k)).tolist())
    return found


def of_signatures(f):
    found = []
    for k in range(CALLS):
        def weighed(v: "tn.Tensor", *, w: float = k) -> "tn.Tensor":        # noqa: UP037
            """With a text."""
            return v * w
        found.append(f(weighed, x_of(k)).tolist())
    return found


def signature_of(f, x):
    return f(x) * len(inspect.signature(f).parameters) + len(f.__doc__) + len(f.__annotations__) + len(f.__qualname__)


@pytest.mark.parametrize(("program", "function"), [
    (of_two_that_share_a_cell, lambda f, g, x: f(x) + g() + f(x)), (of_the_callers_variables, twice), (of_a_list, twice),
    (of_attributes, twice), (of_recursion, twice), (of_arrays_of_numpy, once),
    (of_one_that_a_module_keeps, lambda f, x: f(x) * (2 if f is KEPT else 1)),
    (of_generators, lambda f, x: sum(f(x))), (of_signatures, signature_of)])
def test_what_functions_keep_is_as_eager(program, function):
    assert program(tn.jit(function)) == program(function)


def test_a_closure_that_steps_as_optimizers_call_it():
    def run(f):
        found = []
        for k in range(CALLS):
            w = tn.tensor(np.ones(4, np.float32) * k, requires_grad=True)

            def closure():
                loss = (w ** 2).sum()       # noqa: B023
                loss.backward()
                return loss
            found += [f(closure).item(), w.grad.tolist()]
        return found

    def call(f):
        return f()
    assert run(tn.jit(call)) == run(call)


def test_save_says_that_no_file_holds_a_function(tmp_path):
    compiled = tn.jit(once)
    for k in range(4):
        compiled(scaled_by(k), x_of(k))
    with pytest.raises(ArgumentError, match="function"):
        tn.save(tmp_path / "m", compiled, (scaled_by(1), x_of(0)))

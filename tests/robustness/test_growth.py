"""What is called often stays small: few programs, few records, no memory that grows."""

import collections
import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest

import tenon as tn
from tenon.backends import llvm
from tenon.eager.native import FEW
from tenon.jit import MOST_CAPTURES, MOST_RECORDS


def captures(f):
    return sum(len(r.captures) for r in f.records.values())


def test_a_thousand_lengths_are_at_most_three_programs():
    f = tn.jit(lambda x: (x * 2).sum())
    for n in range(1, 1001):
        assert float(f(tn.ones(n))) == 2 * n
    assert captures(f) <= 3


def test_a_counter_that_changes_at_every_call_ends_in_eager():
    class Trainer:
        step = 0
    trainer = Trainer()
    f = tn.jit(lambda x: x * trainer.step)
    for k in range(MOST_CAPTURES + 8):
        trainer.step = k
        assert f(tn.ones(2)).tolist() == [k, k]
    (record,) = f.records.values()
    assert captures(f) == MOST_CAPTURES
    assert "trainer" in str(record.eager) and f"step is {MOST_CAPTURES}, and was {MOST_CAPTURES - 1}" in str(record.eager)


def test_a_number_that_changes_at_every_call_ends_in_eager():
    f = tn.jit(lambda x, k: x * k)
    for k in range(2 * MOST_RECORDS):
        assert f(tn.ones(2), k).tolist() == [k, k]
    assert captures(f) <= MOST_CAPTURES and len(f.records) <= MOST_RECORDS + 1
    assert "combinations" in str(f.records[None].eager)


def grown(step, calls):
    """How many blocks of memory Python holds more after many calls, once machine code for eager calls is there.

    The lesser of two stretches: a leak grows in both, what a library makes once is in one.
    """
    for _ in range(FEW):
        step()
    for thread in threading.enumerate():
        if thread.name == "tenon-compile":
            thread.join()
    return min(stretch(step, calls), stretch(step, calls))


def stretch(step, calls):
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(calls):
        step()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_memory_stays_over_thousands_of_steps():
    w = tn.asarray(np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)).requires_grad_()
    x, log = tn.ones((20, 20)), {}

    def loss(x):
        value = tn.tanh(x @ w).sum()
        log["last"] = value.detach()
        return value
    jitted = tn.jit(loss)

    @tn.jit
    def step(x):
        value = loss(x)
        value.backward()
        with tn.no_grad():
            w.assign(w - 0.001 * w.grad)
        w.grad = None
        return value

    def eager():
        w.grad = None
        loss(x).backward()

    def mixed():
        w.grad = None
        jitted(x).backward()
    assert grown(eager, 2000) < 300
    w.grad = None
    assert grown(lambda: step(x), 2000) < 300
    assert grown(mixed, 1000) < 300


class Logging:
    def __init__(self):
        self.history, self.recent = [], collections.deque(maxlen=3)


LOG: list = []


def appending(run):
    LOG.clear()
    noted, own = [], Logging()

    def step(x):
        y = x * 2
        LOG.append(y)
        noted.extend([y, 1])
        own.history.append((y, "step"))
        own.recent.append(y)
        return y
    return run(step), lambda: [*LOG, *noted, *(y for y, _ in own.history), *own.recent]


def test_lists_that_a_function_only_appends_to_are_captured_once():
    seen = []
    for run in (lambda f: f, tn.jit):
        step, held = appending(run)
        for k in range(50):
            step(tn.full((2,), float(k)))
        seen.append([x if isinstance(x, int) else x.tolist() for x in held()])
    assert seen[0] == seen[1] and len(seen[0]) == 4 * 50 + 3
    assert [len(r.captures) for r in step.records.values()] == [1]


@pytest.mark.parametrize("body", [
    lambda log, x: log.append(x * len(log)),
    lambda log, x: log.append(x + log[-1] if log else x),
    lambda log, x: log.append(sum(log, x)),
    lambda log, x: [log.append(x), log.pop(0)] if len(log) > 2 else log.append(x * 2),
], ids=["length", "last", "sum", "pop"])
def test_lists_that_are_read_too_are_read_at_every_call(body):
    seen = []
    for run in (lambda f: f, tn.jit):
        log: list = []

        def step(x, log=log):
            body(log, x)
        alias = {"log": log}

        def through_a_closure(x, log=log, alias=alias):
            alias["log"].append(x)
            return x * len(alias["log"])
        step, reading = run(step), run(through_a_closure)
        values = []
        for k in range(1, 8):
            step(tn.full((2,), float(k)))
            values.append(reading(tn.ones(2)).tolist())
            values.append([x.tolist() for x in log])
        seen.append(values)
    assert seen[0] == seen[1]


def two_names(log):
    same = log

    def step(x):
        log.append(x)
        return x * len(same)
    return step


def test_a_list_that_has_two_names():
    seen = []
    for run in (lambda f: f, tn.jit):
        step = run(two_names([]))
        seen.append([step(tn.ones(1)).item() for _ in range(6)])
    assert seen[0] == seen[1] == [1, 2, 3, 4, 5, 6]


def test_a_program_goes_with_its_function():
    f = tn.jit(lambda x: tn.exp(x) * 1.25)
    f(tn.ones(3))
    program = weakref.ref(f.capture(tn.ones(3)).program)
    assert program() is not None
    del f
    gc.collect()
    assert program() is None


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not say how much memory is used")
def test_the_compiler_leaves_nothing_behind():
    text = "define float @twice(float %x) {\n  %y = fadd float %x, %x\n  ret float %y\n}"

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    for _ in range(30):
        llvm.compile_object(text)
    before = resident()
    for _ in range(150):
        llvm.compile_object(text)
    assert resident() - before < 150 * 30_000       # the passes alone were 70 kB each

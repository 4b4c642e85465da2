"""What is called often stays small: few programs, few records, no memory that grows."""

import collections
import functools
import gc
import math
import os
import sys
import weakref

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.capture.capture_lookup import MAX_RECORDS
from tenon.capture.capturing import MAX_CAPTURES
from tenon.eager.native_fast_path import give_python
from tenon.eager.ufunc_fast_path import PRODUCT, SHORTS
from tenon.graph.promotion import floating
from tenon.llvm import machine_code


def captures(f):
    return sum(len(r.captures) for r in f.records.values())


def test_a_thousand_lengths_are_at_most_three_programs():
    f = tn.jit(lambda x: (x * 2).sum())
    for n in range(1, 1001):
        assert float(f(tn.ones(n))) == 2 * n
    assert captures(f) <= 3


class Trainer:
    step = 0
    name = ""


def test_a_thousand_steps_of_a_counter_are_two_captures():
    trainer = Trainer()
    f = tn.jit(lambda x, k: x * trainer.step + k)
    for k in range(1000):
        trainer.step = k
        assert f(tn.ones(2), -k).tolist() == [0, 0]
    assert captures(f) <= 3 and len(f.records) == 1


def test_text_that_changes_at_every_call_ends_with_graph_breaks_and_keeps_the_captures_there_are():
    trainer = Trainer()
    f = tn.jit(lambda x: x * sum(1 for _ in range(len(trainer.name))))      # a loop of Python's, turn by turn
    for k in [k for each in range(MAX_CAPTURES + 8) for k in (each, each)]:
        trainer.name = "x" * k
        assert f(tn.ones(2)).tolist() == [k, k]
    (record,) = f.records.values()
    assert captures(f) == MAX_CAPTURES and record.eager is None
    assert "trainer" in str(record.full) and "name" in str(record.full)
    trainer.name = "xxx"
    calls = record.captures[3].calls
    assert f(tn.ones(2)).tolist() == [3, 3]
    assert record.captures[3].calls == calls + 1


def test_arguments_of_a_thousand_texts_are_a_limited_number_of_captures():
    f = tn.jit(lambda x, text: x * len(text))
    for k in range(2 * MAX_RECORDS):
        assert f(tn.ones(2), "x" * k).tolist() == [k, k]
    assert captures(f) <= MAX_CAPTURES and len(f.records) == 1


def test_little_is_kept_of_calls_like_none_before():
    f = tn.jit(lambda x, n: x * math.comb(n, 2))
    for n in range(1000):
        f(tn.ones(2), n if n % 2 else 4)
    (record,) = f.records.values()
    assert captures(f) < MAX_CAPTURES and len(record.seen) <= MAX_CAPTURES


def grown(step, calls):
    """How many blocks of memory Python holds more after many calls.

    The lesser of two stretches: a leak grows in both, what a library makes once is in one.
    """
    for _ in range(100):
        step()
    return min(stretch(step, calls), stretch(step, calls))


def stretch(step, calls):
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(calls):
        step()
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.parametrize("native", [True, False])
def test_memory_stays_over_thousands_of_steps(native):
    if not native:
        give_python(SHORTS, PRODUCT)
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


METRICS: dict = {}


def storing(run):
    METRICS.clear()
    closed, own, lists = {"loss": 0.0, "steps": 7}, Logging(), {"loss": [], "other": ()}
    own.last = {}

    def step(x):
        y = x * 2
        METRICS["loss"] = y
        METRICS["twice"] = (y, y + 1)
        closed["loss"] = y.detach()
        own.last["x"] = x + 1
        own.last["kind"] = "step"
        lists["loss"].append(y)
        return y
    return run(step), lambda: [METRICS, closed, own.last, lists]


def held_by_parameters(run):
    """What grows has another name in the code that reads it."""
    log, table, args = [], {"log": []}, {"log": []}

    def step(x, log, *, more):
        args["log"].append(x)
        log.append(x)
        more.append(x)
        return x * (len(log) + len(more))
    return run(functools.partial(step, log=log, more=table["log"])), lambda: [log, table, args]


def held_by_a_list_of_a_library(run):
    """Whose code reads it, under a name that the user's code has for something else."""
    rows, other = collections.UserList(), Logging()
    other.data = []

    def step(x):
        other.data.append(x)
        rows.append(x)
        return x * len(rows)
    return run(step), lambda: [list(rows), other.data]


def held_by_a_dictionary_of_a_library(run):
    table, other = collections.UserDict(), Logging()
    other.data = {}

    def step(x):
        other.data["calls"] = x
        table["calls"] = table.get("calls", 0) + 1
        return x * table["calls"]
    return run(step), lambda: [dict(table), other.data]


def plain(x):
    kind = type(x)
    return x.tolist() if kind is tn.Tensor else {k: plain(v) for k, v in x.items()} if kind is dict else \
        [plain(v) for v in x] if kind in (list, tuple) else x


@pytest.mark.parametrize("make", [held_by_parameters, held_by_a_list_of_a_library, held_by_a_dictionary_of_a_library])
def test_lists_that_have_other_names_in_the_code_that_reads_them(make):
    seen = []
    for run in (lambda f: f, tn.jit):
        step, held = make(run)
        seen.append([(step(tn.ones(1)).tolist(), plain(held())) for _ in range(6)])
    assert seen[0] == seen[1]


def test_dictionaries_whose_items_a_function_only_sets_are_captured_once():
    seen = []
    for run in (lambda f: f, tn.jit):
        step, held = storing(run)
        seen.append([])
        for k in range(50):
            step(tn.full((2,), float(k)))
            seen[-1].append(str(plain(held())))     # with the order of the keys
    assert seen[0] == seen[1]
    assert [len(r.captures) for r in step.records.values()] == [1]


@pytest.mark.parametrize("body", [
    lambda log, x: log.__setitem__("a", x * len(log)),
    lambda log, x: log.update(a=x + log["a"] if "a" in log else x),
    lambda log, x: [log.pop("a", None), log.update(b=x, a=x)],
], ids=["length", "last", "pop"])
def test_dictionaries_that_are_read_too_are_read_at_every_call(body):
    seen = []
    for run in (lambda f: f, tn.jit):
        log: dict = {}
        alias = {"log": log}

        def through_another_name(x, log=log, alias=alias):
            log["b"] = x
            return x * sum(alias["log"]["b"]) + len(alias["log"])

        def step(x, log=log):
            log["c"] = x
            body(log, x)
        step, reading = run(step), run(through_another_name)
        values = []
        for k in range(1, 8):
            step(tn.full((2,), float(k)))
            values.append(reading(tn.full((2,), float(k))).tolist())
            values.append(str(plain(log)))
        seen.append(values)
    assert seen[0] == seen[1]


STORED = {"cleared": {}, "turned": {"b": 1, "a": 2}, "of other values": {"a": 5, "b": 5, "c": 5, "d": 5}, "of these": None}


def test_items_that_are_set_stand_in_the_order_and_with_the_values_of_eager_code():
    seen = []
    for run in (lambda f: f, tn.jit):
        log: dict = {"b": 1}

        def step(x, log=log):
            log["a"] = x
            log["b"] = x * 2
            log["c"] = 7
        step, values = run(step), []
        for name in [*STORED, *STORED, *reversed(STORED), "of these", "of these"]:
            if STORED[name] is not None:
                log.clear()
                log.update(STORED[name])
            step(tn.ones(1))
            values.append(str(plain(log)))
        seen.append(values)
    assert seen[0] == seen[1]


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

    def grown():
        before = resident()
        for _ in range(100):
            machine_code.compile_object(text)
        return resident() - before
    assert min(grown() for _ in range(3)) < 100 * 30_000        # the passes alone were 70 kB each


def test_what_tenon_keeps_of_other_calls_makes_no_capture():
    """Layers read the table of all operators, and these remember how types are promoted."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2))
    jitted, x = tn.jit(lambda x: net(x)), tn.rand(1, 3, 8, 8)
    jitted(x)
    floating((tn.float32,) * 37)        # which nobody asked yet
    jitted(x)
    assert sum(len(record.captures) for record in jitted.records.values()) == 1

"""What is called often stays small: few programs, few records, no memory that grows."""

import gc
import sys

import numpy as np

import tenon as tn
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
    """How many blocks of memory Python holds more after many calls than after a few."""
    for _ in range(50):
        step()
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
    eager()
    w.grad = None
    assert grown(lambda: step(x), 2000) < 300
    assert grown(eager, 2000) < 300
    assert grown(mixed, 1000) < 300

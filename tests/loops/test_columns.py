"""Sums of columns, line by line over a tile of them: legal where the loops of a sum run as far for every column."""

import random

import numpy as np

from tenon.loops import column_reductions
from tenon.loops.column_reductions import column_nest, may_be_interchanged
from tenon.loops.evaluate_targets import evaluate_targets
from tenon.loops.expressions import Binary, Buffer, Index, Load, Reduce, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Kernel
from tenon.loops.store_target import StoreTarget
from tenon.types import TensorType, int64

X = Buffer("x", TensorType(int64, (400,)), "input")
OUT = Buffer("out", TensorType(int64, (3, 11)), "output")
I, J = Index("i", 3), Index("j", 11)


def any_target(choose):
    """Sums of columns, which may depend on other sums, of more or fewer lines for some columns."""
    def total(name, body):
        k = Index(name, 9)
        last = choose.choice([size(9)] * 4 + [size(7), I + 4, Binary("min", size(9), J + 1)])
        step = choose.choice([11, 11, 12])
        return Reduce(choose.choice(["add", "max", "mul"]), (k,), body(Load(X, k * size(step) + I * size(100) + J, None), k), (last,))
    first = total("k", lambda read, k: read)
    found = choose.choice([
        first, first + total("m", lambda read, k: read * first), total("m", lambda read, k: read + first),
        total("m", lambda read, k: read * total("n", lambda other, n: other + k))])
    return StoreTarget(OUT, (I, J), I * size(11) + J, found)


def test_what_is_interchanged_is_what_it_was(monkeypatch):
    """Random sums, in tiles of four columns: what the predicate allows is the same, and nothing else is touched."""
    monkeypatch.setattr(column_reductions, "TILE_RESULTS", 4)
    choose, seen = random.Random(0), {True: 0, False: 0}
    data = np.random.default_rng(0).integers(-3, 4, 400)
    for _ in range(200):
        target = any_target(choose)
        nest = column_nest([target])
        seen[nest is not None] += 1
        if nest is None:
            continue
        memory = {X: data.copy(), OUT: np.zeros(33, np.int64)}
        evaluate_targets([target], memory, {})
        found, = interpret(Kernel("k", (X,), (OUT,), (), (), (nest,)), [data])
        np.testing.assert_array_equal(np.ravel(found), memory[OUT])
    assert min(seen.values()) > 40


def test_sums_that_end_elsewhere_for_each_column_keep_their_order():
    k = Index("k", 9)
    read = Load(X, k * size(11) + J, None)
    assert may_be_interchanged(Reduce("add", (k,), read, (size(7),)), J)
    assert not may_be_interchanged(Reduce("add", (k,), read, (Binary("min", size(9), J + 1),)), J)
    assert not may_be_interchanged(Reduce("add", (k,), Load(X, k, None), (size(9),)), J)

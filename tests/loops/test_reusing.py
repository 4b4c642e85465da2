"""Rows in local memory that take the place of others: right, and only where nobody reads what is overwritten."""

import random

import numpy as np
import pytest

import tenon as tn
from loops.compiled import check
from loops.test_maps import data, type_of
from tenon.graph.build import trace
from tenon.loops.expressions import Binary, Buffer, Index, Load, Local, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Accumulator, Kernel, Let, Loop, Nest, Store, Update
from tenon.loops.reuse_local_buffers import is_injective, with_fewer_rows
from tenon.passes.expand import expand
from tenon.types import TensorType, float32

ROW = TensorType(float32, (64,))
OLD, NEW, X, OUT = (Buffer(name, ROW, role) for name, role in (
    ("old", "local"), ("new", "local"), ("x", "input"), ("out", "output")))
K, TOTAL = Index("k", 64), Local("total", float32)


def over(*body):
    return Loop(K, size(64), body)


def read(buffer, place=K):
    return Load(buffer, place, None)


def doubled(x):
    return Binary("+", x, x)


FILL = over(Store(OLD, K, read(X)))
PASS_ON = over(Store(NEW, K, doubled(read(OLD))))
WRITE = over(Store(OUT, K, read(NEW)))


def rows_of(*body):
    return with_fewer_rows(body, [OLD, NEW])[1]


def test_a_row_takes_the_place_of_one_that_is_read_for_the_last_time():
    body, rows = with_fewer_rows((FILL, PASS_ON, WRITE), [OLD, NEW])
    assert rows == [OLD]
    assert [x.buffer for loop in body for x in loop.body] == [OLD, OLD, OUT]
    assert rows_of(Loop(Index("i", 3), size(3), (FILL, PASS_ON, WRITE))) == [OLD]


@pytest.mark.parametrize("body", [
    (FILL, PASS_ON, over(Store(OUT, K, Binary("+", read(NEW), read(OLD))))),                    # read later
    (FILL, over(Store(NEW, K, read(OLD, size(63) - K))), WRITE),                                # read elsewhere
    (FILL, Accumulator(TOTAL, "add"), over(Store(NEW, K, read(OLD)), Update(TOTAL, "add", read(OLD))), WRITE),
    (FILL, Loop(Index("j", 2), size(2), (PASS_ON, WRITE))),                                     # read in another turn
    (FILL, over(Store(NEW, K // size(2), doubled(read(OLD, K // size(2))))), over(Store(OUT, K, read(NEW, K // size(2))))),
    (FILL, PASS_ON, Loop(Index("j", 2), size(2), (Store(OUT, size(0), read(OLD, size(0))), WRITE))),
])
def test_a_row_that_is_needed_stays(body):
    assert rows_of(*body) == [OLD, NEW]


def test_a_value_that_was_read_before_may_be_used_behind_the_store():
    value = Local("value", float32)
    inside = over(Let(value, read(OLD)), Store(NEW, K, doubled(value)), Update(TOTAL, "add", value))
    assert rows_of(FILL, Accumulator(TOTAL, "add"), inside, WRITE) == [OLD]


PLACES = (K, K, K, size(7) - K, K // size(2), K * size(2), K * size(3) % size(8), size(0), size(5))


def any_loops(choose):
    """Loops of eight turns that store, at all kinds of places, what they read of others."""
    def reads():
        value = read(X)
        for buffer in choose.sample((OLD, OLD, NEW), choose.choice((0, 1, 1, 2))):
            value = value + read(buffer, choose.choice(PLACES))
        return value

    def line():
        stores = [Store(choose.choice((OLD, NEW, NEW, OUT)), choose.choice(PLACES), reads()) for _ in range(choose.choice((1, 1, 2)))]
        return Loop(K, size(8), tuple(stores))
    first = Loop(K, size(8), (Store(OLD, K, read(X)),))
    return (first, *(line() for _ in range(choose.randint(1, 3))), Loop(K, size(8), (Store(OUT, K, read(NEW)),)))


def test_loops_with_fewer_rows_store_what_they_did():
    """On random loops, all dependences of which the interpreter meets one by one."""
    choose, data, seen = random.Random(0), np.arange(64, dtype=np.float32), {1: 0, 2: 0}
    for _ in range(4000):
        body = any_loops(choose)
        try:
            want = stored_by(body, [OLD, NEW], data)
        except AssertionError:      # reads what was never written, so it is no program
            continue
        made, rows = with_fewer_rows(body, [OLD, NEW])
        seen[len(rows)] += 1
        if len(rows) == 1:
            np.testing.assert_array_equal(stored_by(made, rows, data), want)
    assert min(seen.values()) > 20, seen


def stored_by(body, rows, data):
    out = Loop(Index("o", 64), size(64), (Store(OUT, Index("o", 64), read(X, Index("o", 64))),))
    return interpret(Kernel("k", (X,), (OUT,), (), (), (Nest((out, *body), tuple(rows)),)), [data])[0]


@pytest.mark.parametrize("place", PLACES)
def test_places_that_are_taken_for_injective_are_other_ones_each_turn(place):
    row = Loop(K, size(8), (Store(OUT, place, read(X)),))
    where = stored_by((row,), [], np.arange(64, dtype=np.float32))
    distinct = len({int(n) for n in np.flatnonzero(where != np.arange(64))} | {0}) >= 7     # by what is left of 0..63
    assert not is_injective(place, K) or distinct or place is K


@pytest.mark.parametrize("shape", [(5, 130), (3, 7), (40, 1024)])
def test_softmax_of_what_takes_work_keeps_one_row(shape):
    t = type_of("f32", *shape)
    graph = trace(lambda x: tn.softmax(tn.gelu(x), axis=-1), t)
    kernel = check(expand(graph), data(t), interpreted=False)
    assert len(kernel.nests[-1].locals) == 1

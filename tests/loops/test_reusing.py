"""Rows in local memory that take the place of others: right, and only where nobody reads what is overwritten."""

import pytest

import tenon as tn
from loops.compiled import check
from loops.test_maps import data, type_of
from tenon.graph.build import trace
from tenon.loops.expressions import Binary, Buffer, Index, Load, Local, size
from tenon.loops.ir import Accumulator, Let, Loop, Store, Update
from tenon.loops.reusing import with_fewer_rows
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
    (FILL, PASS_ON, Loop(Index("j", 2), size(2), (Store(OUT, size(0), read(OLD, size(0))), WRITE))),
])
def test_a_row_that_is_needed_stays(body):
    assert rows_of(*body) == [OLD, NEW]


def test_a_value_that_was_read_before_may_be_used_behind_the_store():
    value = Local("value", float32)
    inside = over(Let(value, read(OLD)), Store(NEW, K, doubled(value)), Update(TOTAL, "add", value))
    assert rows_of(FILL, Accumulator(TOTAL, "add"), inside, WRITE) == [OLD]


@pytest.mark.parametrize("shape", [(5, 130), (3, 7), (40, 1024)])
def test_softmax_of_what_takes_work_keeps_one_row(shape):
    t = type_of("f32", *shape)
    graph = trace(lambda x: tn.softmax(tn.gelu(x), axis=-1), t)
    kernel = check(expand(graph), data(t), interpreted=False)
    assert len(kernel.nests[-1].locals) == 1

"""Rows that several loops need are computed once, where that is worth a store and a load."""

import random

import numpy as np
import pytest

from loops import toy
from loops.compiled import check
from loops.test_maps import data, type_of
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.loops.evaluate_targets import evaluate_targets
from tenon.loops.expressions import Buffer, Call, Index, Load, Reduce, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Kernel
from tenon.loops.loop_pipeline import schedule
from tenon.loops.loop_printer import print_kernel
from tenon.loops.store_target import StoreTarget
from tenon.types import TensorType, float64


def activated_softmax(x, axis):
    return toy.softmax(toy.mul(toy.exp(toy.neg(x)), x), axis)


def times(kernel, word):
    return print_kernel(kernel).count(word)


def test_softmax_computes_every_exponential_once():
    t = type_of("f32", 5, 37)
    kernel = check(trace(lambda x: toy.softmax(x, 1), t), data(t))
    assert times(kernel, "exp(") == 1 and [b.elements for b in kernel.nests[0].locals] == [37]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("shape", [(3, 37), (1, 4), (0, 3), (2, 3, 4)])
def test_a_chain_in_front_of_a_softmax_is_computed_once(dtype, shape):
    t = type_of(dtype, *shape)
    kernel = check(trace(lambda x: activated_softmax(x, len(shape) - 1), t), data(t, -1, 1))
    if 0 not in shape and shape[0] > 1:
        assert times(kernel, "exp(") == 2 and len(kernel.nests[0].locals) == 1      # the second row is the first again


def test_rows_of_a_symbolic_length():
    t = type_of("f32", symbol("B"), symbol("N"))
    kernel = check(trace(lambda x: activated_softmax(x, 1), t), data(type_of("f32", 7, 13), -1, 1))
    assert times(kernel, "exp(") == 2


@pytest.mark.parametrize("rows", [9, symbol("N")])
def test_a_product_is_looked_for_where_it_was_computed(rows):
    """Of a symbolic number of rows, positions are 64 bits; in another loop the factors may have another order."""
    t = type_of("f32", rows, 4)

    def body(x):
        return toy.argmax(toy.mul(toy.spread(toy.prod(x, axis=1), axis=1, n=4), x), axis=0)
    kernel = check(trace(body, t), data(type_of("f32", 9, 4)))
    assert times(kernel, "mul()") == 1 and len(kernel.nests[0].locals) == 1


def test_what_costs_less_than_memory_is_computed_again():
    t = type_of("f32", 4, 9)
    centred = check(trace(lambda x: toy.sub(x, toy.spread(toy.max_(x, axis=1), axis=1, n=9)), t), data(t))
    assert not centred.nests[0].locals


def test_a_few_sums_and_products_are_computed_again_since_rows_crowd_in_the_first_cache():
    t, u = type_of("f32", 6, 40), type_of("f32", 40)

    def body(x, w, b):
        w, b = (toy.spread(z, axis=0, n=6) for z in (w, b))
        y = toy.sub(toy.mul(toy.add(toy.mul(x, w), b), w), b)
        return toy.sub(y, toy.spread(toy.max_(y, axis=1), axis=1, n=40))
    kernel = check(trace(body, t, u, u), data(t), data(u), data(u))
    assert not kernel.nests[0].locals


def test_rows_without_a_loop_around_them_are_not_local():
    t = type_of("f32", 5000)
    kernel = check(trace(lambda x: toy.softmax(x, 0), t), data(t))
    assert not any(nest.locals for nest in kernel.nests)


def test_a_row_of_another_loop_is_not_read_before_it_is_filled():
    """The maximum of each matrix comes before the loop over its rows, in which the same exponentials are summed."""
    t = type_of("f32", 2, 3, 5)

    def body(x):
        e = toy.exp(toy.mul(x, x))
        rows = toy.sum_(e, axis=2)
        return toy.div(e, toy.spread(toy.mul(rows, toy.spread(toy.max_(rows, axis=1), axis=1, n=3)), axis=2, n=5))

    check(trace(body, t), data(t, -1, 1))


X, Y, OUT = (Buffer(name, TensorType(float64, shape), role) for name, shape, role in (
    ("x", (3, 5), "input"), ("y", (3, 2, 5), "input"), ("out", (3, 2, 5), "output")))
I, R, J = Index("i", 3), Index("r", 2), Index("j", 5)


def any_rows(choose):
    """Sums over rows of what takes work, some of them up to the middle of the row, some once more for each line inside."""
    def total(depth):
        k = Index(choose.choice("km"), 5)
        parts = [Call("exp", (Load(X, I * size(5) + k, None),))]
        if choose.random() < 0.4:
            parts.append(Load(Y, (I * size(2) + R) * size(5) + k, None))
        if depth and choose.random() < 0.6:
            parts.append(total(depth - 1))
        body = parts[0]
        for part in parts[1:]:
            body = body * part
        return Reduce(choose.choice(("add", "max")), (k,), body, (size(choose.choice((5, 5, 5, 3))),))
    found = total(2)
    for _ in range(choose.randint(1, 3)):
        found = choose.choice((found + total(1), total(1) + found))
    return found + Call("exp", (Load(X, I * size(5) + J, None),))


def test_a_row_is_read_where_it_is_available_and_nowhere_else():
    """Random sums: the interpreter knows which elements of local memory were written."""
    choose, kept = random.Random(0), 0
    data = [np.random.default_rng(k).uniform(-1, 1, b.elements) for k, b in enumerate((X, Y))]
    for _ in range(300):
        target = StoreTarget(OUT, (I, R, J), (I * size(2) + R) * size(5) + J, any_rows(choose))
        nest = schedule([target])
        kept += bool(nest.locals)
        memory = {X: data[0], Y: data[1], OUT: np.zeros(30)}
        evaluate_targets([target], memory, {})
        found, = interpret(Kernel("k", (X, Y), (OUT,), (), (), (nest,)), data)
        np.testing.assert_allclose(np.ravel(found), memory[OUT], rtol=1e-12)
    assert kept > 100


def test_a_loop_that_ends_early_fills_no_row():
    k, q = Index("k", 5), Index("q", 5)

    def total(kind, index, last, times):
        return Reduce(kind, (index,), Call("exp", (Load(X, I * size(5) + index, None),)) * times, (size(last),))
    value = total("add", k, 3, 1.0) + total("add", k, 5, 2.0) + total("max", q, 5, 1.0)
    target = StoreTarget(OUT, (I, R, J), (I * size(2) + R) * size(5) + J, value)
    data = np.linspace(0, 1, 15)
    found, = interpret(Kernel("k", (X,), (OUT,), (), (), (schedule([target]),)), [data])
    e = np.exp(data.reshape(3, 5))
    np.testing.assert_allclose(np.reshape(found, (3, 10))[:, 0], e[:, :3].sum(1) + 2 * e.sum(1) + e.max(1))

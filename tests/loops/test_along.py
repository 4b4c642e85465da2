"""Sums over rows, computed in the loops of what is computed row by row."""

import pytest

from loops import toy
from loops.compiled import check
from loops.test_maps import data, type_of
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.loops.loop_printer import print_kernel


def centred(x):
    return toy.sub(x, toy.spread(toy.max_(x, axis=1), axis=1, n=x.shape[1]))


def rows_and_columns(x):
    y = centred(x)
    return toy.exp(y), toy.sum_(y, axis=0), toy.max_(toy.neg(y), axis=0)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("shape", [(32, 5), (37, 5), (160, 3), (1040, 1)])
def test_rows_and_sums_over_them_are_one_pass(shape, dtype):
    t = type_of(dtype, *shape)
    kernel = check(trace(rows_and_columns, t), data(t, -1, 1), tolerance=1e-1 if dtype.endswith("16") else 1e-4)
    if shape[1] > 1:
        assert sum(b.role == "temporary" for b in kernel.temporaries) == 2 and len(kernel.nests) == 2


def test_few_rows_are_not_cut():
    t = type_of("f32", 20, 5)
    assert "chunk" not in print_kernel(check(trace(rows_and_columns, t), data(t, -1, 1)))


def test_symbolic_rows():
    graph = trace(rows_and_columns, type_of("f32", symbol("B"), symbol("N")))
    for shape in [(2, 3), (64, 2), (131, 7)]:
        check(graph, data(type_of("f32", *shape), -1, 1))


def test_integers_and_conditions():
    t = type_of("i32", 40, 6)
    check(trace(lambda x: (toy.add(x, x), toy.prod(x, axis=0), toy.min_(x, axis=0)), t), data(t, -1, 3))
    b = type_of("bool", 40, 6)
    check(trace(lambda x: (toy.maximum(x, x), toy.any_(x, axis=0), toy.all_(x, axis=0)), b), data(b, 0, 1))


def test_rows_of_a_square_are_not_taken_for_columns():
    t = type_of("f32", 48, 48)
    check(trace(lambda x: (toy.exp(x), toy.sum_(x, axis=0), toy.sum_(x, axis=1)), t), data(t, -1, 1))


def test_what_the_sums_become_is_computed_of_their_parts():
    t = type_of("f32", 64, 6)

    def body(x):
        y = toy.exp(x)
        total = toy.sum_(y, axis=0)
        return y, toy.div(total, toy.add(total, toy.sum_(toy.mul(y, x), axis=0)))

    check(trace(body, t), data(t, -1, 1))


def test_rows_of_matrices():
    t = type_of("f32", 4, 16, 5)

    def body(x):
        y = toy.sub(x, toy.spread(toy.max_(x, axis=2), axis=2, n=5))
        return y, toy.sum_(toy.reshape(y, shape=(64, 5)), axis=0), toy.sum_(toy.sum_(y, axis=0), axis=0)

    check(trace(body, t), data(t, -1, 1))


def test_a_sum_that_the_rows_read_comes_before_them():
    t = type_of("f32", 64, 6)
    check(trace(lambda x: (toy.exp(x), toy.sub(x, toy.spread(toy.sum_(x, axis=0), axis=0, n=64))), t), data(t, -1, 1))

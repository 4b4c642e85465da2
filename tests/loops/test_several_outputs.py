"""Kernels of several outputs: which of them may share loops, and that each is what it is alone."""

import numpy as np
import pytest

import tenon as tn
from loops.compiled import check
from loops.test_maps import data, type_of
from tenon.graph.build import trace
from tenon.loops.expression_builder import GraphExpressions, offset
from tenon.loops.expressions import Buffer
from tenon.loops.fuse_row_reductions import may_go_along
from tenon.loops.lower import loop_indices
from tenon.loops.store_target import StoreTarget
from tenon.passes.expand import expand

REDUCTIONS = {
    "sum": tn.sum, "amax": tn.amax, "amin": tn.amin, "mean": tn.mean, "argmax": tn.argmax, "argmin": tn.argmin,
    "any": lambda x, axis: tn.any(x > 0.9, axis=axis), "all": lambda x, axis: tn.all(x > -2.5, axis=axis),
    "var": tn.var, "logsumexp": tn.logsumexp}
ROWS = {
    "scaled": lambda x, axis: x * 2.0 + 1.0, "softmax": lambda x, axis: tn.softmax(x, axis=axis),
    "centred": lambda x, axis: x - tn.mean(x, axis=axis, keepdims=True),
    "beside a total": lambda x, axis: tn.sum(x) * 0.01 + x,
    "is largest": lambda x, axis: tn.equal(x, tn.amax(x, axis=axis, keepdims=True))}


def several(names, axes):
    """The outputs of these names, of one value, along these axes."""
    return lambda x: tuple({**REDUCTIONS, **ROWS}[name](x * x, axis=axis)
                           for name, axis in zip(names, axes, strict=True))


ELEMENTS = {         # of which sums over rows are made: does one depend on other rows?
    "of its row": (lambda x: tn.sum(tn.softmax(x, axis=1), axis=0), False),
    "beside a scalar": (lambda x: tn.sum(x * tn.sum(x), axis=0), False),
    "around a mean": (lambda x: tn.sum(x - tn.mean(x, axis=0), axis=0), True),
    "that is the least": (lambda x: tn.argmin(x, axis=0), True),
    "after all are counted": (lambda x: tn.sum(tn.exp(x) / tn.sum(x, axis=0), axis=0), True)}


@pytest.mark.parametrize("name", ELEMENTS)
def test_sums_that_wait_for_all_rows_do_not_go_along_with_them(name):
    definition, waits = ELEMENTS[name]
    graph = expand(trace(definition, type_of("f32", 37, 6)))
    (result,) = graph.results
    build = GraphExpressions(graph, {p: Buffer("x", p.type, "input") for p in graph.params})
    index, indices = loop_indices(result.type)
    target = StoreTarget(Buffer("out", result.type, "output"), indices, offset(result.shape, index),
                    build.to_store(result, index))
    assert may_go_along(target) == (not waits)


def test_argmin_beside_another_use_of_its_rows():
    t = type_of("f32", 64, 4, 5)
    check(expand(trace(lambda x: (tn.argmin(x * x, axis=0), tn.sum(x) * 0.01 + x * x), t)), data(t, -1, 1),
          tolerance=1e-4)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("row", ROWS)
def test_a_reduction_of_columns_beside_rows(name, row):
    t = type_of("f32", 37, 6)
    check(expand(trace(several((name, row), (0, 1)), t)), data(t, -1, 1), tolerance=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_outputs_are_what_they_are_alone(seed):
    choose = np.random.default_rng(seed)
    shape = [(33, 5), (64, 4, 5), (40, 16), (7, 3, 34), (128, 2)][choose.integers(5)]
    count = choose.integers(2, 5)
    names = [str(name) for name in choose.choice([*REDUCTIONS, *ROWS], count)]
    axes = [int(axis) for axis in choose.integers(len(shape), size=count)]
    t = type_of("f32", *shape)
    check(expand(trace(several(names, axes), t)), data(t, -1, 1), interpreted=False, tolerance=1e-4)

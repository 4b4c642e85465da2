"""Loops inside of each other keep names of their own, however often they are cut: tiles, shuffles, windows of norms."""

import numpy as np
import pytest

import tenon as tn
from loops.compiled import check
from tenon.graph.build import trace
from tenon.loops import peeling
from tenon.loops.binders import binders_are_distinct, fresh, loops_are_distinct
from tenon.loops.expressions import Binary, Buffer, Index, Load, Reduce, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Kernel, Let, Loop, Nest, Store, TransposeTile, statements
from tenon.loops.loop_pipeline import schedule
from tenon.loops.store_target import StoreTarget
from tenon.types import TensorType, float32

X = Buffer("x", TensorType(float32, (64,)), "input")


def test_a_fresh_index_has_no_name_that_is_taken():
    assert fresh("i", 4, ()) is Index("i", 4)
    assert fresh("i", 4, ("i", "i_2")).name not in ("i", "i_2")


def total(index, body):
    return Reduce("add", (index,), body, (size(index.extent),))


def test_loops_around_one_another_have_names_of_their_own():
    i, j, k = Index("i", 4), Index("j", 4), Index("k", 4)
    plain = Load(X, i * size(4) + j, None)
    assert binders_are_distinct((i, j), plain)
    assert not binders_are_distinct((i, i), plain)
    assert not binders_are_distinct((i, Index("i", 2)), plain)          # another extent makes another index
    assert not binders_are_distinct((i,), total(i, Load(X, i, None)))
    inside = total(k, Load(X, k * size(4) + j, None))
    assert binders_are_distinct((i,), total(j, inside))
    assert not binders_are_distinct((i,), total(Index("k", 2), inside.rebuilt((inside.body * Load(X, Index("k", 2), None),
                                                                               *inside.extents))))


def test_a_sum_that_a_loop_does_not_change_may_have_the_name_of_that_loop():
    i, k = Index("i", 4), Index("k", 4)
    of_row = total(k, Load(X, i * size(4) + k, None))
    assert binders_are_distinct((i,), total(k, Load(X, i * size(4) + k, None) - of_row))


def test_a_target_with_two_loops_of_one_name_is_refused():
    i = Index("i", 4)
    with pytest.raises(AssertionError, match="loops"):
        StoreTarget(X, (i, Index("i", 2)), i, Load(X, i, None))


def test_loops_of_statements_are_not_those_around_them():
    i, j = Index("i", 4), Index("j", 4)
    store = Store(X, i, Load(X, i, None))
    assert loops_are_distinct((Loop(i, size(4), (store,)), Loop(i, size(4), (store,))))      # beside each other
    assert not loops_are_distinct((Loop(i, size(4), (Loop(j, size(4), (Loop(i, size(4), (store,)),)),)),))
    assert not loops_are_distinct((Loop(i, size(4), (Let(i, size(0)), store)),))
    assert loops_are_distinct((Let(i, size(0)), store, Let(i, size(0)), store))              # fused loops say it twice
    assert not loops_are_distinct((Let(i, size(0)), store, Let(i, size(1)), store))


def test_squares_that_are_turned_are_apart_from_a_loop_that_was_cut():
    """Its name is that of a loop inside of a square, and its extent may be so too."""
    line, cut, column = Index("i", 8), Index("i_in", 32), Index("j", 16)
    x, out = (Buffer(name, TensorType(float32, (4096,)), role) for name, role in (("x", "input"), ("out", "output")))
    target = StoreTarget(out, (line, cut, column), line * size(512) + cut * size(16) + column,
                    Load(x, column * size(256) + cut * size(8) + line, None) * 2.0)
    nest = schedule([target])
    assert any(isinstance(y, TransposeTile) for y in statements(nest.body)) and loops_are_distinct(nest.body)
    data = np.arange(4096, dtype=np.float32)
    found, = interpret(Kernel("k", (x,), (out,), (), (), (nest,)), [data])
    np.testing.assert_array_equal(found, 2 * data.reshape(16, 32, 8).T.ravel())


@pytest.mark.parametrize("cut", [2, 3])
def test_a_loop_that_is_peeled_in_tiles_is_apart_from_those_inside(monkeypatch, cut):
    monkeypatch.setattr(peeling, "MIN_PEELED_WORK", 1)
    i, inside = Index("i", 24), Index("i_in", cut)
    x, out = (Buffer(name, TensorType(float32, (24 * cut,)), role) for name, role in (("x", "input"), ("out", "output")))
    store = Store(out, i * size(cut) + inside, Load(x, Binary("//", i, size(cut)) * size(cut) + inside, None))
    kernel = Kernel("k", (x,), (out,), (), (), (Nest((Loop(i, size(24), (Loop(inside, size(cut), (store,)),)),)),))
    changed = peeling.peeled(kernel)
    assert changed.nests != kernel.nests and loops_are_distinct(changed.nests[0].body)
    data = np.arange(24 * cut, dtype=np.float32)
    np.testing.assert_array_equal(interpret(changed, [data])[0], interpret(kernel, [data])[0])


def flat_tiles(n):
    return lambda x: tn.tile(x, (n, n)).reshape(-1) * 2.0


def blocks(x):
    return tn.tanh(tn.kron(x, tn.ones((1, 1, 4, 4))).reshape(-1))


def shares(x):
    return x / x.sum()


def repeated(x):
    return shares(tn.repeat_interleave(tn.repeat_interleave(x, 2, axis=0), 2, axis=1).reshape(-1))


@pytest.mark.parametrize(("shuffled", "shape"), [
    (flat_tiles(2), (2, 2)), (flat_tiles(3), (3, 3)), (flat_tiles(4), (4, 4)), (blocks, (2, 2, 4, 4)),
    (repeated, (2, 2)),
    (lambda x: tn.tile(x, (1, 1, 3, 2)).sum(axis=-1), (1, 2, 4, 2)),
])
def test_a_shuffle_of_axes_read_in_a_row_meets_every_element(shuffled, shape):
    check(trace(shuffled, TensorType(float32, shape)), np.random.default_rng(0).normal(size=shape).astype(np.float32))


def norm_over_places(x):
    return tn.softmax(x.reshape(*x.shape[:2], -1), axis=-1).reshape(x.shape)


@pytest.mark.parametrize(("norm", "shuffle", "shape"), [
    (tn.instance_norm, lambda x: tn.pixel_shuffle(x, 2), (1, 4, 2, 2)),
    (tn.instance_norm, lambda x: tn.tile(x, (1, 1, 2, 2)), (1, 4, 2, 2)),
    (lambda x: tn.group_norm(x, 1), lambda x: tn.tile(x, (1, 1, 2, 2)), (2, 4, 8, 4)),
    (norm_over_places, lambda x: tn.repeat_interleave(x, 2, axis=2), (1, 4, 3, 3)),
    (norm_over_places, lambda x: tn.interpolate(x, scale_factor=2, mode="nearest"), (1, 1, 2, 2)),
])
def test_the_norm_of_shuffled_places_is_that_of_the_definition(norm, shuffle, shape):
    x = tn.tensor(np.random.default_rng(0).normal(size=shape))
    for f in (lambda h: norm(shuffle(h)), tn.grad(lambda h: tn.square(norm(shuffle(h))[..., 1:]).sum())):
        np.testing.assert_allclose(tn.jit(f)(x).numpy(), f(x).numpy(), rtol=1e-9, atol=1e-9)


WINDOWS = {
    "max_pool 3 3 1": lambda x: tn.max_pool2d(x, 3, 3, 1),
    "avg_pool 3 2 1": lambda x: tn.avg_pool2d(x, 3, 2, 1),
    "avg_pool 4 2 2": lambda x: tn.avg_pool2d(x, 4, 2, 2),
    "every other": lambda x: tn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))[:, :, ::2, ::2],
    "unfold 2 2": lambda x: tn.unfold(x, 2, stride=2),
}


@pytest.mark.parametrize(("norm", "window", "shape"), [
    (tn.instance_norm, "max_pool 3 3 1", (1, 2, 9, 9)), (tn.instance_norm, "avg_pool 3 2 1", (2, 2, 8, 4)),
    (norm_over_places, "every other", (1, 2, 6, 4)), (norm_over_places, "avg_pool 4 2 2", (1, 2, 6, 4)),
    (norm_over_places, "unfold 2 2", (1, 2, 8, 4)),
])
def test_the_gradient_of_windows_after_a_norm_is_that_of_the_definition(norm, window, shape):
    x = tn.tensor(np.random.default_rng(0).normal(size=shape))
    gradient = tn.grad(lambda h: tn.square(WINDOWS[window](norm(h))).sum())
    np.testing.assert_allclose(tn.jit(gradient)(x).numpy(), gradient(x).numpy(), rtol=1e-9, atol=1e-9)

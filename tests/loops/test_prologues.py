"""Factors that are computed as they are packed, or read: in vectors, where all that they are made of lies side by side."""

import numpy as np
import pytest

from loops import toy
from loops.compiled import check
from loops.test_contraction import LAYOUTS, is_contraction
from loops.test_maps import data, type_of
from tenon.backends.cpu.products import template_of
from tenon.graph.build import trace
from tenon.loops.expressions import Load
from tenon.loops.ir import Contraction
from tenon.types import BY_SHORT


def spread(x, axis, shape):
    return toy.spread(x, axis=axis, n=shape[axis])


def relu(x, *_):
    return toy.maximum(x, toy.sub(x, x))


def affine(x, row, column):
    return toy.add(toy.mul(x, spread(row, 0, x.shape)), spread(column, 1, x.shape))


def masked(x, *_):
    return toy.where(toy.less(x, toy.neg(x)), x, toy.mul(x, x))


def inverse(x, row, _):
    """What lies beyond the last element must not be made 1 / 0."""
    return toy.div(spread(row, 0, x.shape), x)


MAPS = {f.__name__: f for f in (relu, affine, masked, inverse)}
SIZES = [(1, 70, 65), (2, 40, 130), (3, 129, 131), (7, 200, 33), (16, 33, 300), (17, 40, 50), (45, 70, 300), (90, 5, 70),
         (64, 16, 33), (33, 64, 64)]


def statement_of(kernel):
    return next(s for nest in kernel.nests for s in nest.body if isinstance(s, Contraction))


def mapped(kernel):
    """How left and right are made of vectors, if they are."""
    places = {buffer: place for place, buffer in enumerate(kernel.buffers)}
    template = template_of(statement_of(kernel), places, len(kernel.buffers))
    return [x.contiguous if x.mapped else None for x in (template.left, template.right)]


@pytest.mark.parametrize("letters", ["ik,kj->ij", "ik,jk->ij", "ki,kj->ij"])
@pytest.mark.parametrize("name", MAPS)
def test_both_factors_are_computed(name, letters):
    for m, n, k in SIZES:
        size = {"i": m, "j": n, "k": k}
        shapes = [tuple(size[c] for c in part) for part in letters.split("->")[0].split(",")]
        types = [type_of("f32", *s) for shape in shapes for s in (shape, shape[1:], shape[:1])]

        def product(*x):
            return LAYOUTS[letters](MAPS[name](*x[:3]), MAPS[name](*x[3:]))
        kernel = check(trace(product, *types), *(data(t, 1, 2) for t in types), interpreted=False, tolerance=1e-3)
        if m > 2 and n > 2 and k > 2:
            assert is_contraction(kernel)
            left, right = mapped(kernel)
            before = letters[0] == "k" or isinstance(statement_of(kernel).left, Load)   # of which few are computed before
            assert right == ("depth" if letters[3:5] == "jk" else "outer") and (before or left == "depth")


@pytest.mark.parametrize("source, dtype", [("i8", "f32"), ("u8", "f32"), ("bool", "f32"), ("i32", "f32"), ("f16", "f32"),
                                           ("bf16", "f32"), ("i8", "f64"), ("f32", "f64"), ("f64", "f32"), ("i64", "f64")])
@pytest.mark.parametrize("letters", ["ik,kj->ij", "ik,jk->ij"])
def test_numbers_of_other_types_are_converted_and_scaled(source, dtype, letters):
    for m, n, k in [(1, 70, 65), (2, 70, 65), (5, 130, 47), (21, 66, 35)]:
        shape = (k, n) if letters[3:5] == "kj" else (n, k)
        types = type_of(dtype, m, k), type_of(source, *shape), type_of(dtype, shape[1]), type_of(dtype, shape[0])

        def product(x, q, row, column):
            return LAYOUTS[letters](x, affine(toy.cast(q, dtype=BY_SHORT[dtype]), row, column))
        high = 1 if source == "bool" else 9
        given = [data(t, 0, high) if t is types[1] else data(t, 1, 2) for t in types]
        kernel = check(trace(product, *types), *given, interpreted=False, tolerance=1e-4)
        if m > 1:
            assert mapped(kernel) == [None, "outer" if letters[3:5] == "kj" else "depth"]


def test_every_product_of_a_batch_has_scales_of_its_own():
    types = type_of("f32", 3, 20, 33), type_of("f32", 3, 33, 40), type_of("f32", 3, 40)
    kernel = check(trace(lambda x, w, s: LAYOUTS["bik,bkj->bij"](relu(x), toy.mul(w, toy.spread(s, axis=1, n=33))), *types),
                   *map(data, types), interpreted=False, tolerance=1e-4)
    assert mapped(kernel) == ["depth", "outer"]


def test_not_a_number_stays_one_and_touches_no_other_row():
    x = type_of("f32", 20, 35)
    w = type_of("f32", 35, 33)
    values = data(x)
    values[3, 5], values[7, 2] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        check(trace(lambda x, w: LAYOUTS["ik,kj->ij"](relu(x), w), x, w), values, np.abs(data(w)) + 1, interpreted=False,
              tolerance=1e-4)


@pytest.mark.parametrize("what", ["exp", "reversed", "integers"])
def test_what_is_no_simple_vector_is_computed_one_by_one(what):
    dtype = "i32" if what == "integers" else "f32"
    types = type_of(dtype, 20, 35), type_of(dtype, 35, 40)
    change = {"exp": toy.exp, "integers": toy.neg, "reversed": lambda w: toy.mul(w, toy.transpose(toy.transpose(w)))}[what]
    kernel = check(trace(lambda x, w: LAYOUTS["ik,kj->ij"](x, change(w)), *types), *(data(t, -1, 2) for t in types),
                   interpreted=False, tolerance=1e-4)
    assert mapped(kernel) == [None, "outer" if what == "reversed" else None]

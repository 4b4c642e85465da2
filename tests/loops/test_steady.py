"""Masks that a line does not change: the line asks nothing, and everywhere stand the same elements."""

import itertools

import numpy as np
import pytest

from loops.test_peeling import KINDS, check, lowered, pooling, square
from tenon.graph.text import parse_graph
from tenon.loops.affine import affine
from tenon.loops.expressions import Buffer, Index, Load, Local, Select, constant, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Kernel, Let, Loop, Nest, Store, roots, statements
from tenon.loops.traversal import walk
from tenon.loops.unswitch_masks import is_speculable, read_elsewhere
from tenon.types import TensorType, bool_, float32


def lines(kernel):
    """The innermost long loops that store."""
    def is_long(x):
        return isinstance(x, Loop) and x.extent.value >= 9 and any(isinstance(s, Store) for s in statements(x.body))
    return [x for nest in kernel.nests for x in statements(nest.body)
            if is_long(x) and not any(map(is_long, statements(x.body)))]


def masks(body):
    return [e for s in statements(body) for e in walk(*roots(s)) if isinstance(e, Load) and e.mask is not None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [(57, 3, 2, 1), (56, 3, 2, 1), (57, 2, 2, 0), (60, 5, 3, 2)])
def test_rows_that_windows_reach_over_are_one_line(kind, window):
    for line in lines(lowered(pooling(kind, 64, *square(*window)), "k")):
        assert not masks(line.body)


def test_both_ends_are_one_piece():
    """A padded pool's kernel stores in two places: for the ends of a row, and for what is between."""
    kernel = lowered(pooling("max", 64, *square(57, 3, 2, 1)), "k")
    assert len([x for nest in kernel.nests for x in statements(nest.body) if isinstance(x, Store)]) == 2


@pytest.mark.parametrize("shape", [(1, 11), (3, 1), (5, 13), (2, 40), (0, 12), (4, 0)])
@pytest.mark.parametrize(("low", "high"), [((2, 0), (1, 0)), ((0, 1), (3, 0)), ((1, 2), (1, 2))])
def test_memory_that_is_small_or_empty(shape, low, high):
    after = [n + a + b for n, a, b in zip(shape, low, high, strict=True)]
    graph = parse_graph(f"def f(x: f32{list(shape)}):\n"
                        f"    v0: f32{after} = pad(x, 2.0, low={low}, high={high}, interior=(0, 0))\n"
                        f"    y: f32{after} = add(v0, 1.0)\n    return y\n")
    check(graph, np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def line_of(columns, offset, mask, value=None):
    """for j in range(3): for i in range(columns): out[j, i] = x[offset] if mask else 7"""
    x, out = (Buffer(n, TensorType(float32, s), r) for n, s, r in (("x", (5,), "input"), ("o", (3, columns), "output")))
    j, i, there = Index("j", 3), Index("i", columns), Local("there", bool_)
    read = Load(x, offset(j, i), there)
    body = (Let(there, mask(j, i)), Store(out, j * size(columns) + i, Select(there, read, constant(7.0, float32))))
    line = Loop(i, size(columns), body)
    return line, lambda made: Kernel("k", (x,), (out,), (), (), (Nest((Loop(j, size(3), (made,)),)),))


@pytest.mark.parametrize(("columns", "offset", "mask", "asks"), [
    (5, lambda j, i: (j - size(1)) * size(5) + i, lambda j, i: (j - size(1)) * (j - size(1)) < size(1), False),
    (5, lambda j, i: size(9) - j * size(5) - i, lambda j, i: (j - size(1)) * (j - size(1)) < size(1), False),
    (5, lambda j, i: j * size(2), lambda j, i: j < size(2), False),
    (9, lambda j, i: j * size(99) + i // size(2), lambda j, i: j < size(1), True),    # not by so much every turn
    (5, lambda j, i: i - j, lambda j, i: i >= j, True)])
def test_places_that_are_not_there(columns, offset, mask, asks):
    """Backwards, or not at all along the memory; what cannot be moved, or changes its answer, is left as it is."""
    line, kernel = line_of(columns, offset, mask)
    made = read_elsewhere(line)
    assert bool(masks(made.body)) is asks
    x = np.arange(5, dtype=np.float32)
    for found, want in zip(interpret(kernel(made), [x], {}), interpret(kernel(line), [x], {}), strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("elements", [0, 1, 5, 8])
def test_a_line_is_speculable_exactly_where_it_fits_somewhere(elements):
    i, k = Index("i", 3), Index("k", 2)
    for a, b in itertools.product(range(-3, 4), repeat=2):
        places = [a * x + b * y for x in range(3) for y in range(2)]
        somewhere = any(all(0 <= start + p < elements for p in places) for start in range(-20, 20))
        assert is_speculable(affine(i * size(a) + k * size(b)), elements) is somewhere


def test_random_lines_are_what_they_were():
    choose = np.random.default_rng(0)
    moved = 0
    for _ in range(300):
        a, b, c, n = (int(x) for x in choose.integers((-3, -6, -3, 1), (4, 7, 7, 6)))
        below = int(choose.integers(0, 4))

        def offset(j, i, a=a, b=b, c=c):
            return i * size(a) + j * size(b) + size(c)

        def mask(j, i, below=below):
            return j < size(below)
        if not all(0 <= a * i + b * j + c < 5 for j in range(min(below, 3)) for i in range(n)):
            continue                # what the mask lets through is there
        line, kernel = line_of(n, offset, mask)
        made = read_elsewhere(line)
        moved += not masks(made.body)
        x = np.arange(5, dtype=np.float32)
        np.testing.assert_array_equal(*(interpret(kernel(body), [x], {})[0] for body in (made, line)))
    assert moved > 30

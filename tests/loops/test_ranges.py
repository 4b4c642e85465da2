"""Intervals of index expressions hold for every value that the loops give them, and proofs are of what is true."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon.dims.symbolic_dim import evaluate, maximum, symbol
from tenon.loops.expressions import Binary, Index, Select, binary, size
from tenon.loops.loop_interpreter import _Run
from tenon.loops.ranges import Ranges
from tenon.loops.size_order import never_negative

B, C, D = symbol("B"), symbol("C"), symbol("D")
i, j, k = Index("i", 7), Index("j", B), Index("k", 3)
SIZES = [{"B": b, "C": c} for b, c in [(2, 2), (2, 5), (3, 2), (7, 4)]]
LOOPS = {i: size(7), j: size(B), k: Binary("min", size(3), size(8) - i)}

dims = st.recursive(
    st.integers(-4, 9) | st.sampled_from([B, C]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda x: x[0] + x[1]), st.tuples(inner, inner).map(lambda x: x[0] - x[1]),
        st.tuples(inner, inner).map(lambda x: x[0] * x[1]), st.tuples(inner, st.integers(1, 5)).map(lambda x: x[0] // x[1]),
        st.tuples(inner, inner).map(lambda x: maximum(*x))), max_leaves=6)
numbers = st.integers(-6, 6).map(size) | st.sampled_from([size(B), size(C)])
divisors = st.integers(1, 5).map(size) | st.just(size(B))


def combined(inner):
    conditions = st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner, inner).map(lambda x: binary(*x))
    return st.one_of(
        st.tuples(st.sampled_from("+-"), inner, inner).map(lambda x: binary(*x)),
        st.tuples(inner, numbers).map(lambda x: x[0] * x[1]),
        st.tuples(st.sampled_from(["//", "%"]), inner, divisors).map(lambda x: Binary(*x)),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda x: Binary(*x)),
        st.tuples(conditions, inner, inner).map(lambda x: Select(*x)))


positions = st.recursive(st.sampled_from([i, j, k]) | numbers, combined, max_leaves=7)
guards = st.none() | st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), positions, positions).map(
    lambda x: binary(*x))


def values_of(x, guard, sizes):
    """Every value of x in the loops, where the guard holds."""
    run = _Run({}, sizes)
    for a, b, c in itertools.product(range(7), range(sizes["B"]), range(3)):
        env = {i: np.int64(a), j: np.int64(b), k: np.int64(c)}
        if c < run.value(LOOPS[k])(env) and (guard is None or run.value(guard)(env)):
            yield int(run.value(x)(env))


def in_loops():
    known = Ranges()
    for index, extent in LOOPS.items():
        known = known.inside(index, extent)
    return known


@given(dims)
def test_what_is_never_negative_is_never_negative(dim):
    if never_negative(dim):
        assert all(evaluate(dim, {"B": b, "C": c}) >= 0 for b in range(2, 12) for c in range(2, 12))


@given(positions, guards)
def test_an_interval_holds_every_value(x, guard):
    low, high = in_loops().where(guard).interval(x)
    for sizes in SIZES:
        found = list(values_of(x, guard, sizes))
        assert low is None or all(evaluate(low, sizes) <= value for value in found)
        assert high is None or all(value <= evaluate(high, sizes) for value in found)


@given(positions, guards, st.integers(1, 40) | dims)
def test_what_is_proved_is_true(x, guard, count):
    known = in_loops().where(guard)
    if known.is_within(x, count):
        for sizes in SIZES:
            assert all(0 <= value < evaluate(count, sizes) for value in values_of(x, guard, sizes))


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9))
def test_the_interval_of_an_affine_form_of_numbers_is_the_tightest(a, b, c):
    known = Ranges().inside(i, size(7)).inside(Index("m", 5), size(5))
    found = [a * x + b * y + c for x in range(7) for y in range(5)]
    assert known.interval(i * size(a) + Index("m", 5) * size(b) + size(c)) == (min(found), max(found))


def loops(*pairs):
    known = Ranges()
    for index, extent in pairs:
        known = known.inside(index, size(extent))
    return known


HALF = (C - 1) // 2 + 1     # elements of a row of C, by a stride of 2
few = Index("few", 68)
tile, lane, row = Index("tile", 4), Index("lane", 256), Index("row", 64)
half = Index("half", 2)
pair, part = row * 2 + half, row * 64 + few


@pytest.mark.parametrize(("position", "count", "known"), [
    (j * size(C) + Index("c", C), B * C, loops((j, B), (Index("c", C), C))),
    (tile * 256 + lane, B, loops((tile, (B + 255) // 256)).inside(lane, Binary("min", size(256), size(B) - tile * 256))),
    (row // size(8) * 8 + row % size(8), 64, loops((row, 64))),
    (row // size(B) * size(B) + row % size(B), 7 * B, loops((row, 7 * B))),
    (i * 3 + k - 1, 20, loops((i, 7), (k, 3)).where(i * 3 + k >= 1)),
    ((i + k - 1) * size(B) + j, 7 * B, loops((i, 7), (j, B), (k, 3)).where((i + k >= 1) & (i + k < 8))),
    (row // size(4) * size(4) + Index("left", 4), 64,
     loops((row, 64)).inside(Index("left", 4), Binary("%", row, size(4)))),
    (Binary("min", size(256), size(B) - tile * 256) // size(4) * size(4), 257, loops((tile, (B + 255) // 256))),
    (row * 15 + k - 60, 90, loops((row, 9), (k, 3)).where(row * 3 + k >= 12)),
    (Binary("max", Binary("min", i * 2 - 3, size(4)), size(0)), 5, loops((i, 7))),
    (Select(i > 3, i - 4, i), 4, loops((i, 7))),
    ((row + size(3)) // size(4), 17, loops((row, 64))),
    (row // 2 * size(2 * C) + Index("c", 2 * C), B * C,
     loops((row, B), (Index("c", 2 * C), 2 * C)).where(row < size(B // 2 * 2))),        # whole pairs of rows
    (row + size(C - D), B * C,
     Ranges(given=(C - D,)).inside(row, size(B // 2 * 2 * C)).where(row % size(C) < size(D))),
    (row * size(C) + k, B * C, loops((row, B), (k, 4)).where(row < size(B // 2 * 2)).where(
        row % size(2) * size(C) + k < size(2 * C))),
    (i * 23 + row, 192, loops((i, 16), (row, 23)).where((i * 23 + row) // size(32) < 6)),
    (row // 2 + 2 * (size(2 * B) // size(4)), B, Ranges().inside(row, size(2 * B) % size(4))),      # what unrolling leaves
    (few // size(HALF) * size(C) + few % size(HALF) * 2, 5 * B * C,
     Ranges(given=(5 * B * HALF - 68,)).inside(few, size(68))),
    (pair + 1, 3 * (2 * B // 3), loops((row, B), (half, 2)).where(pair < size(3 * (2 * B // 3))).where(
        pair % size(2 * B // 3) < size(2 * B // 3 - 1))),       # a roll of what is even
    (part % size(HALF - 1), HALF - 1,
     loops((row, (B * (HALF - 1) + 63) // 64), (few, 68)).where(part < size(B * (HALF - 1)))),     # HALF - 1 may be 0
    ((row // 3 * 3 + half) // size(HALF), B,
     loops((row, HALF * B), (half, 2)).where(row // 3 < size((HALF * B - 2) // 3 + 1))),        # windows of every other
], ids=str)
def test_what_kernels_are_made_of_is_proved(position, count, known):
    assert known.is_within(position, count)


def test_many_conditions_do_not_use_up_the_steps():
    """Of a gradient of a pooling, the windows 3 wide and 2 apart: masks in both directions, row and column split."""
    plane = Index("plane", 32)
    y, x, y_in, x_in, ky, kx = (Index(name, n) for name, n in zip(("y", "x", "y_in", "x_in", "ky", "kx"), (4, 4, 2, 2, 2, 2)))
    known, at = loops(*((index, index.extent) for index in (plane, y, x, y_in, x_in, ky, kx))), []
    for place, inner, tap in ((y, y_in, ky), (x, x_in, kx)):
        at.append((inner + 1) // 2 + place - tap)
        known = known.where((at[-1] >= 0) & (at[-1] < 4) & (tap * 2 + (inner + 1) % 2 < 3))
    row, column = at
    assert known.is_within(plane // 8 * 128 + plane % 8 * 16 + row * 4 + column, 512)


def test_a_bound_that_is_too_small_by_one_is_not_proved():
    known = loops((i, 7), (j, B), (k, 3))
    assert known.is_within(i * size(B) + j, 7 * B)
    assert not known.is_within(i * size(B) + j, 7 * B - 1)
    assert not known.is_within(i + k - 1, 9)                # -1 where nothing guards it
    assert not known.where(i + k >= 1).is_within(i + k, 8)      # 8 where nothing guards the other end


def test_a_name_given_anew_is_another_scalar():
    known = loops((i, 7)).let(j, i + 1)
    assert known.is_within(j, 8) and known.interval(j) == (1, 7)
    assert not known.changing(j).is_within(j, 8)

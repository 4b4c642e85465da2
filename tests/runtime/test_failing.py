"""What can only fail as something before it would have does not keep arguments from being overwritten."""

from __future__ import annotations

import numpy as np
import pytest

from tenon.errors import OutOfRange
from tenon.graph.text import parse_graph
from tenon.pipeline import compile
from tenon.runtime.failure_points import last_failing
from tests.graphs import assert_close

# An embedding, a step of w, and then the embedding's gradient, at the same indices or at others.
EMBEDDING = """
def f(table: f32[40, 8], i: i64[6], j: i64[6], w: f32[8, 8]):
    x: f32[6, 8] = take(table, i, axis=0)
    y: f32[6, 8] = matmul(x, w)
    t: f32[8, 6] = permute(x, axes=(1, 0))
    g: f32[8, 8] = matmul(t, y)
    n: f32[8, 8] = subtract(w, g)
    z: f32[40, 8] = full_op(f32(0.0), shape=(40, 8))
    d: f32[40, 8] = put(z, AT, y, axis=0, reduce='add')
    return n, d
"""


def arrays():
    random = np.random.default_rng(0)
    table, w = random.standard_normal((40, 8), np.float32), random.standard_normal((8, 8), np.float32)
    return [table, np.array([1, -2, 3, 3, 39, 0]), np.array([2, 2, 1, 0, 5, 7]), w]


def test_the_same_indices_fail_once():
    program = compile(parse_graph(EMBEDDING.replace("AT", "i")), backend="cpu")
    given = arrays()
    expected = program.run([x.copy() for x in given])
    results = program.run(given, {3})
    assert results[0] is given[3]
    assert_close(results, expected, 0)
    assert last_failing(program.parts.steps) < len(program.parts.steps) - 1


def test_other_indices_may_fail_late_and_leave_arguments_as_they_were():
    program = compile(parse_graph(EMBEDDING.replace("AT", "j")), backend="cpu")
    given = arrays()
    given[2][3] = 40
    before = given[3].copy()
    with pytest.raises(OutOfRange):
        program.run(given, {3})
    np.testing.assert_array_equal(given[3], before)


def test_an_index_out_of_range_leaves_arguments_as_they_were():
    program = compile(parse_graph(EMBEDDING.replace("AT", "i")), backend="cpu")
    given = arrays()
    given[1][5] = -41
    before = given[3].copy()
    with pytest.raises(OutOfRange):
        program.run(given, {3})
    np.testing.assert_array_equal(given[3], before)


def test_what_is_cut_was_not_looked_at_in_full():
    text = EMBEDDING.replace("AT", "i").replace("""\
    x: f32[6, 8] = take(table, i, axis=0)
""", """\
    a: f32[6, 8] = take(table, i, axis=0)
    b: f32[3, 8] = slice(a, start=(0, 0), stop=(3, 8), step=(1, 1))
    x: f32[6, 8] = concat(b, b, axis=0)
""")
    program = compile(parse_graph(text), backend="cpu")
    given = arrays()
    given[1][5] = 40
    before = given[3].copy()
    with pytest.raises(OutOfRange):
        program.run(given, {3})
    np.testing.assert_array_equal(given[3], before)


def test_a_piece_of_the_indices_is_not_all_of_them():
    text = EMBEDDING.replace("i: i64[6], j: i64[6]", "i: i64[12]").replace("""\
    x: f32[6, 8] = take(table, i, axis=0)
""", """\
    a: i64[6] = slice(i, start=(0,), stop=(6,), step=(1,))
    b: i64[6] = slice(i, start=(6,), stop=(12,), step=(1,))
    x: f32[6, 8] = take(table, a, axis=0)
""").replace("AT", "b")
    program = compile(parse_graph(text), backend="cpu")
    table, i, j, w = arrays()
    j[3] = 40
    before = w.copy()
    with pytest.raises(OutOfRange):
        program.run([table, np.concatenate([i, j]), w], {2})
    np.testing.assert_array_equal(w, before)

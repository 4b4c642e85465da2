"""Operators that are filled in an order: compiled == interpreted == NumPy, the same bits on any number of threads."""

import numpy as np
import pytest

from loops.compiled import check, run
from tenon.graph.text import parse_graph
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower

random = np.random.default_rng(0)


def graph_of(params, line, result):
    return parse_graph(f"def f({params}):\n    v0: {result} = {line}\n    return v0\n")


def numbers(*shape, dtype=np.float32):
    return (random.uniform(-2, 3, shape)).astype(dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape, axis", [((1,), 0), ((9,), 0), ((3, 7), 1), ((19, 5), 1), ((5, 19), 0), ((2, 6, 3), 1),
                                         ((2, 4, 600), 1), ((4, 1), 1), ((0, 3), 1), ((3, 0), 0)])
def test_running_totals(shape, axis, reverse):
    t = f"f32{list(shape)}"
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        x = numbers(*shape)
        check(graph_of(f"x: {t}", f"{name}(x, axis={axis}, reverse={reverse})", t), x, tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8", "f64", "f16", "bf16"])
def test_running_totals_of_every_type(dtype):
    graph = graph_of(f"x: {dtype}[11, 6]", "cumsum(x, axis=0, reverse=False)", f"{dtype}[11, 6]")
    x = np.abs(numbers(11, 6)).astype(graph.params[0].dtype.numpy)
    check(graph, x, tolerance=5e-2 if dtype.endswith("16") else None)


def test_running_totals_of_symbolic_sizes():
    for axis in (0, 1):
        graph = graph_of("x: f32[B, N]", f"cumsum(x, axis={axis}, reverse=False)", "f32[B, N]")
        for shape in [(2, 3), (13, 700), (9, 2)]:
            check(graph, numbers(*shape), interpreted=shape[1] < 10, tolerance=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_running_extremes_and_their_places(axis):
    x = numbers(6, 9).round()
    x[2, 3] = x[2, 5] = np.nan
    for name in ("cummax", "cummin"):
        check(parse_graph(f"def f(x: f32[6, 9]):\n    v0: tuple[f32[6, 9], i64[6, 9]] = {name}(x, axis={axis})\n"
                          "    return v0[0], v0[1]\n"), x)


@pytest.mark.parametrize("reduce", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("shape, axis, at", [((5, 3), 0, (4,)), ((5,), 0, (2, 2)), ((2, 5, 7), 1, (3,)), ((5, 700), 0, (9,)),
                                             ((4, 3), 1, (0,)), ((4, 0), 0, (2,)), ((3, 7), 1, (1030,))])
def test_rows_are_written_in_order(shape, axis, at, reduce):
    places = random.integers(-shape[axis], shape[axis], at)
    new = (*shape[:axis], *at, *shape[axis + 1:])
    graph = graph_of(f"x: f32{list(shape)}, at: i64{list(at)}, u: f32{list(new)}",
                     f"put(x, at, u, axis={axis}, reduce={reduce!r})", f"f32{list(shape)}")
    check(graph, numbers(*shape), places, numbers(*new), tolerance=1e-5)


@pytest.mark.parametrize("reduce", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("shape, axis, at", [((5, 3), 0, (4, 2)), ((2, 5), 1, (2, 9)), ((7,), 0, (20,)),
                                             ((5, 300), 0, (9, 299)), ((2, 5, 4, 3), 1, (2, 20, 4, 3)),
                                             ((2, 5), 1, (2, 1025)), ((2, 5), 1, (2, 0))])
def test_elements_are_written_in_order(shape, axis, at, reduce):
    graph = graph_of(f"x: f32{list(shape)}, at: i32{list(at)}, u: f32{list(at)}",
                     f"scatter(x, at, u, axis={axis}, reduce={reduce!r})", f"f32{list(shape)}")
    check(graph, numbers(*shape), random.integers(-shape[axis], shape[axis], at).astype(np.int32), numbers(*at),
          tolerance=1e-5)


def test_a_place_outside_is_an_error():
    graph = graph_of("x: f32[5, 3], at: i64[2], u: f32[2, 3]", "put(x, at, u, axis=0, reduce='add')", "f32[5, 3]")
    kernel = lower(graph, "k")
    for bad in (5, -6):
        with pytest.raises(IndexError, match=f"index {bad} is out of range"):
            run(kernel, [numbers(5, 3), np.array([0, bad]), numbers(2, 3)])


def test_places_along_rows_are_looked_at_as_vectors_before_anything_is_written_there():
    graph = graph_of("x: f32[5, 30], at: i64[5, 600], u: f32[5, 600]", "scatter(x, at, u, axis=1, reduce='add')", "f32[5, 30]")
    text = print_kernel(lower(graph, "k"))
    assert "places[lane] = checked(" in text.split("for lane in vector(min(512, tiles * -512 + 600), most=512):")[1]
    for bad in (30, -31):
        places = np.zeros((5, 600), np.int64)
        places[4, 599] = bad
        with pytest.raises(IndexError, match=f"index {bad} is out of range"):
            run(lower(graph, "k"), [numbers(5, 30), places, numbers(5, 600)])


def test_what_is_filled_reads_through_views():
    graph = parse_graph("def f(at: i64[3], u: f32[2, 3]):\n    v0: f32[5, 2] = full_op(f32(0.0), shape=(5, 2))\n"
                        "    v1: f32[3, 2] = permute(u, axes=(1, 0))\n"
                        "    v2: f32[5, 2] = put(v0, at, v1, axis=0, reduce='add')\n    return v2\n")
    check(graph, np.array([4, 0, 4]), numbers(2, 3))


def test_rows_take_turns_so_that_additions_need_not_wait():
    text = print_kernel(lower(graph_of("x: f32[64, 9]", "cumsum(x, axis=1, reverse=False)", "f32[64, 9]"), "k"))
    assert "for rows in parallel(16, grain=" in text and text.count("state0[3] = ") == 2
    assert "rows * 9 + k + 432" in text         # the fourth row is far away, where the sixteen before it end
    text = print_kernel(lower(graph_of("x: f32[64, 9]", "logcumsumexp(x, axis=1, reverse=False)", "f32[64, 9]"), "k"))
    assert "for rows in parallel(8, grain=" in text and text.count("state0[7] = ") == 2


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("line, result", [
    ("small_solve(a, b)", "[3, 4, 2]"), ("small_inv(a)", "[3, 4, 4]"), ("small_det(a)", "[3]"),
    ("small_cholesky(a)", "[3, 4, 4]"), ("small_solve_triangular(a, b, upper=True)", "[3, 4, 2]"),
    ("small_solve_triangular(a, b, upper=False)", "[3, 4, 2]")])
def test_small_matrices(line, result, dtype):
    graph = graph_of(f"a: {dtype}[3, 4, 4], b: {dtype}[3, 4, 2]", line, dtype + result)
    x = numbers(3, 4, 4, dtype=graph.params[0].dtype.numpy)
    check(graph, x @ x.swapaxes(1, 2) + np.eye(4, dtype=x.dtype), numbers(3, 4, 2, dtype=x.dtype), tolerance=1e-3)


def test_a_small_matrix_whose_first_pivot_is_zero():
    check(graph_of("a: f64[2, 3, 3]", "small_inv(a)", "f64[2, 3, 3]"),
          np.array([[[0.0, 1, 2], [1, 0, 3], [4, -3, 8]], [[0, 0, 1], [0, 1, 0], [1, 0, 0]]]), tolerance=1e-12)


@pytest.mark.parametrize("shape", ["0", "1", "2", "13", "3, 5", "0, 5"])
def test_orders_are_dealt_one_place_after_the_other(shape):
    graph = graph_of(f"x: f64[{shape}]", "dealt(x)", f"i64[{shape}]")
    x = random.random(graph.params[0].shape)
    check(graph, x)
    kernel = lower(graph, "k")
    for wild in (np.nan, -5.0, 1e300):                  # nothing is written outside
        if x.size:
            run(kernel, [np.full_like(x, wild)])


def test_orders_of_symbolic_length_are_dealt():
    graph = graph_of("x: f64[B, N]", "dealt(x)", "i64[B, N]")
    for shape in ((2, 3), (1, 70)):
        check(graph, random.random(shape))


def test_wide_rows_are_gone_through_in_long_pieces():
    """Of short ones each turn is in another page."""
    text = print_kernel(lower(graph_of("x: f32[3, 5003]", "cumsum(x, axis=0, reverse=False)", "f32[3, 5003]"), "k"))
    assert "for tile in parallel(5, grain=2):" in text and "min(1024, " in text
    for dtype, shape in (("f32", (3, 5003)), ("f64", (2, 3, 2049)), ("i64", (4, 1024))):
        axis = len(shape) - 2
        for reverse in (False, True):
            graph = graph_of(f"x: {dtype}{list(shape)}", f"cumsum(x, axis={axis}, reverse={reverse})", f"{dtype}{list(shape)}")
            check(graph, (9 * numbers(*shape)).astype(graph.params[0].dtype.numpy), interpreted=False)
    check(graph_of("x: f32[B, N]", "cumsum(x, axis=0, reverse=False)", "f32[B, N]"), numbers(3, 5003), interpreted=False)


@pytest.mark.parametrize("after", ["concat(v1, p, axis=0)", "add(v0, v0)", "pad(v1, 0, low=(0, 1), high=(0, 0))"])
def test_what_is_computed_of_what_was_filled_is_no_part_of_the_kernel(after):
    """`recompute` took a search into the kernel of a concat, which then stored the search alone."""
    graph = parse_graph("def f(x: f32[3], y: f32[4], p: i64[1, 4]):\n"
                        "    v0: i64[4] = searchsorted(x, y, right=False)\n"
                        "    v1: i64[1, 4] = reshape(v0, shape=(1, 4))\n"
                        f"    v2: {'i64[2, 4]' if 'concat' in after else 'i64[4]' if 'add' in after else 'i64[1, 5]'} = {after}\n"
                        "    return v2\n")
    with pytest.raises(NotImplementedError, match="searchsorted stands in its kernel"):
        lower(graph, "f")


def test_what_was_filled_has_another_shape():
    graph = parse_graph("def f(x: f32[3], y: f32[4]):\n"
                        "    v0: i64[4] = searchsorted(x, y, right=False)\n"
                        "    v1: i64[2, 2] = reshape(v0, shape=(2, 2))\n"
                        "    return v1\n")
    check(graph, np.float32([1, 2, 3]), np.float32([0, 4, 2, 3]))

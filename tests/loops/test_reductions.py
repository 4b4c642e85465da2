"""Reductions of rows, columns and everything, alone and fused."""

import math

import numpy as np
import pytest

from loops import toy
from loops.compiled import check, llvm_text, run
from loops.test_maps import data, type_of
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.llvm import machine_code
from tenon.loops.cost import cost
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower


@pytest.mark.parametrize("shape", [(4, 5), (1, 7), (3, 0), (0, 3), (2, 131), (67, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_and_columns(shape, axis):
    t = type_of("f32", *shape)
    ops = [toy.sum_, toy.prod] + ([toy.max_, toy.min_] if shape[axis] else [])
    for op in ops:
        check(trace(lambda x, op=op: op(x, axis=axis), t), data(t, -1, 1))


def test_reductions_of_every_kind_of_type():
    for dtype in ["i8", "i32", "i64", "u8", "f16", "bf16", "f64"]:
        t = type_of(dtype, 3, 19)
        for op in (toy.sum_, toy.max_, toy.min_):
            check(trace(lambda x, op=op: op(x, axis=1), t), data(t, 0 if dtype == "u8" else -3, 4), tolerance=2e-2)
    t = type_of("bool", 3, 19)
    x = data(t, 0, 1)
    x[0], x[1] = True, False
    check(trace(lambda x: (toy.any_(x, axis=1), toy.all_(x, axis=1)), t), x)


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_of_extremes(axis):
    t = type_of("f32", 6, 7)
    x = data(t).round()
    x[2, 3] = x[2, 5] = x[4, 3] = np.nan
    check(trace(lambda x: (toy.argmax(x, axis=axis), toy.argmin(x, axis=axis)), t), x)
    check(trace(lambda x: toy.max_(x, axis=axis), t), x)


@pytest.mark.parametrize("count", [0, 1, 2, 1023, 70001])
def test_everything(count):
    t = type_of("f32", count)
    check(trace(toy.total, t), data(t, 0, 1), interpreted=count < 2000)


def test_everything_of_a_symbolic_matrix():
    graph = trace(lambda x: toy.total(toy.mul(x, x)), type_of("f32", symbol("B"), symbol("N")))
    for shape in [(2, 3), (300, 301)]:
        check(graph, data(type_of("f32", *shape)), interpreted=shape[0] < 10)


@pytest.mark.parametrize("shape", [(4, 5), (3, 131), (1, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(shape, axis):
    t = type_of("f32", *shape)
    check(trace(lambda x: toy.softmax(x, axis), t), data(t))


def test_softmax_over_rows_is_one_loop_over_rows():
    t = type_of("f32", symbol("B"), 10)
    kernel = check(trace(lambda x: toy.softmax(x, 1), t), data(type_of("f32", 6, 10)))
    assert len(kernel.nests) == 1 and not kernel.temporaries


def test_normalisation_of_a_vector():
    t = type_of("f32", 5000)
    check(trace(lambda x: toy.div(x, toy.spread(toy.total(toy.mul(x, x)), axis=0, n=5000)), t), data(t))
    check(trace(lambda x: toy.softmax(x, 0), t), data(t))


def test_a_body_of_a_product_and_its_softmax():
    a, b = type_of("f32", 9, 8), type_of("f32", 8, 11)
    check(trace(lambda a, b: toy.softmax(toy.matmul(a, b), 1), a, b), data(a), data(b))
    check(trace(lambda a, b: toy.matmul(toy.softmax(a, 1), toy.exp(b)), a, b), data(a), data(b))


def test_nested_reductions():
    t = type_of("f32", 4, 5, 6)
    check(trace(lambda x: toy.sum_(toy.max_(x, axis=2), axis=1), t), data(t))
    check(trace(lambda x: toy.max_(toy.sum_(x, axis=0), axis=0), t), data(t))
    check(trace(lambda x: toy.sum_(toy.softmax(toy.sum_(x, axis=2), 1), axis=0), t), data(t))


def test_a_long_chain_is_cut():
    t = type_of("f32", 5)

    def body(x):
        for _ in range(100):
            x = toy.sub(toy.neg(x), toy.mul(x, x))
            x = toy.div(x, toy.add(toy.exp(x), toy.exp(toy.neg(x))))
        return x

    check(trace(body, t), data(t))


def test_short_loops_are_left_for_the_vectoriser():
    """A loop of 64 inside of another, unrolled wholly, made LLVM gather across the outer one: seven times slower."""
    graph = parse_graph("def f(x: f32[64, 3, 8, 8]):\n"
                        "    v0: f32[3] = sum(x, axis=(0, 2, 3), keepdims=False, dtype=f32)\n    return v0\n")
    kernel = check(graph, data(graph.params[0].type), tolerance=1e-3)
    code = machine_code.assembly(llvm_text(kernel))
    assert "vinsertps" not in code and "vgather" not in code


def test_sums_of_columns_under_several_conditions():
    """Every sum has a condition of its own, computed outside of the loop over columns."""
    check(parse_graph("""
def f(x: f64[3, 3, 5]):
    v0: f64[3, 5] = sum(x, axis=(0,), keepdims=False, dtype=f64)
    v1: f64[9, 5] = concat(v0, v0, v0, axis=0)
    return v1
"""), data(type_of("f64", 3, 3, 5)))


def test_columns_of_which_one_reduction_needs_another_are_read_line_by_line():
    t = type_of("f32", 40, 300)

    def body(x):
        largest = toy.max_(x, axis=0)
        return toy.sum_(toy.exp(toy.sub(x, toy.spread(largest, axis=0, n=x.shape[0]))), axis=0), toy.argmax(x, axis=0), largest

    x = data(t, -1, 1)
    x[3, 5] = np.nan
    kernel = check(trace(body, t), x)
    assert len(kernel.nests) == 1 and kernel.nests[0].locals
    check(trace(body, type_of("f64", symbol("B"), symbol("N"))), data(type_of("f64", 7, 11)))


@pytest.mark.parametrize(("shape", "axis"), [((7, 5003), 0), ((3, 5, 2063), 1), ((5, 3, 2063), 0), ((19, 5, 257), 1),
                                             ((7, 1031, 3), 0), ((2, 3, 4, 1031), 2), ((1200, 4099), 0)])
def test_what_depends_on_whole_columns_is_stored_tile_by_tile(shape, axis):
    """A softmax of columns: no reduction is computed again for each of its elements."""
    kept = [1 if k == axis else n for k, n in enumerate(shape)]
    at = f"axis=({axis},), keepdims=True"
    graph = parse_graph(f"""
def f(x: f32{list(shape)}):
    m: f32{kept} = max(x, {at})
    w: f32{list(shape)} = broadcast_to(m, shape={tuple(shape)})
    d: f32{list(shape)} = subtract(x, w)
    e: f32{list(shape)} = exp(d)
    s: f32{kept} = sum(e, {at}, dtype=f32)
    t: f32{list(shape)} = broadcast_to(s, shape={tuple(shape)})
    y: f32{list(shape)} = divide(e, t)
    return y
""")
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    kernel = lower(graph, "k")
    (found,) = run(kernel, [x])
    np.testing.assert_allclose(found, interpret(graph, [x])[0], rtol=2e-5)
    assert cost(kernel) < 12 * x.nbytes


def test_whole_columns_along_two_axes_are_two_nests():
    graph = parse_graph("""
def f(x: f32[16, 16, 1031]):
    m: f32[1, 16, 1031] = sum(x, axis=(0,), keepdims=True, dtype=f32)
    w: f32[16, 16, 1031] = broadcast_to(m, shape=(16, 16, 1031))
    a: f32[16, 16, 1031] = subtract(x, w)
    n: f32[16, 1, 1031] = sum(x, axis=(1,), keepdims=True, dtype=f32)
    v: f32[16, 16, 1031] = broadcast_to(n, shape=(16, 16, 1031))
    b: f32[16, 16, 1031] = subtract(x, v)
    return a, b
""")
    x = np.random.default_rng(0).integers(-9, 9, (16, 16, 1031)).astype(np.float32)
    kernel = lower(graph, "k")
    for found, expected in zip(run(kernel, [x]), interpret(graph, [x]), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(kernel.nests) == 2


def test_lines_that_are_scaled_by_numbers_in_the_order_of_the_sum_are_added_up_side_by_side():
    """As the gradient of distances does: what a line is scaled by is one number, however long that row is."""
    graph = parse_graph("""
def f(x: f32[60, 16], y: f32[70, 16], s: f32[60, 70]):
    a: f32[60, 1, 16] = reshape(x, shape=(60, 1, 16))
    b: f32[60, 70, 16] = broadcast_to(a, shape=(60, 70, 16))
    c: f32[1, 70, 16] = reshape(y, shape=(1, 70, 16))
    d: f32[60, 70, 16] = broadcast_to(c, shape=(60, 70, 16))
    e: f32[60, 70, 16] = subtract(b, d)
    g: f32[60, 70, 1] = reshape(s, shape=(60, 70, 1))
    h: f32[60, 70, 16] = broadcast_to(g, shape=(60, 70, 16))
    i: f32[60, 70, 16] = multiply(e, h)
    j: f32[60, 16] = sum(i, axis=(1,), keepdims=False, dtype=f32)
    return j
""")
    kernel = check(graph, *(data(p.type) for p in graph.params), tolerance=1e-4)
    assert "vector" in print_kernel(kernel)


@pytest.mark.parametrize("shape, axis", [((16, 5, 131), (0, 2)), ((3, 7, 11, 2, 37), (0, 2, 4)), ((2, 1, 17, 251), (0, 3))])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_what_stands_between_axes_is_reduced_in_the_order_of_memory(shape, axis, kind):
    kept = [n for k, n in enumerate(shape) if k not in axis]
    dtype = ", dtype=f32" if kind == "sum" else ""
    graph = parse_graph(f"def f(x: f32{list(shape)}):\n"
                        f"    v0: f32{kept} = {kind}(x, axis={axis}, keepdims=False{dtype})\n    return v0\n")
    kernel = check(graph, data(graph.params[0].type), tolerance=1e-3)
    assert len(kernel.nests) == 2 and "parallel(" + str(np.prod(shape) // shape[-1]) in print_kernel(kernel)


def test_few_long_lines_of_a_result_are_read_one_after_the_other():
    graph = parse_graph("def f(x: f32[3, 17, 301]):\n"
                        "    v0: f32[17] = sum(x, axis=(0, 2), keepdims=False, dtype=f32)\n    return v0\n")
    assert len(check(graph, data(graph.params[0].type), tolerance=1e-3).nests) == 1


def test_narrow_numbers_between_axes_are_added_up_in_float32():
    graph = parse_graph("def f(x: bf16[64, 3, 64]):\n"
                        "    v0: bf16[3] = sum(x, axis=(0, 2), keepdims=False, dtype=bf16)\n    return v0\n")
    x = np.ones((64, 3, 64), graph.params[0].type.dtype.numpy)
    (found,) = run(lower(graph, "k"), [x])
    assert (found.astype(np.float32) == 4096).all()


@pytest.mark.parametrize("shape", [(2000, 3), (5, 1030, 2), (1024, 15), (641, 7)])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_few_columns_are_reduced_in_whole_vectors(shape, kind):
    axis, kept = len(shape) - 2, [*shape[:-2], shape[-1]]
    dtype = ", dtype=f32" if kind == "sum" else ""
    graph = parse_graph(f"def f(x: f32{list(shape)}):\n"
                        f"    v0: f32{kept} = {kind}(x, axis=({axis},), keepdims=False{dtype})\n    return v0\n")
    kernel = check(graph, data(graph.params[0].type), tolerance=1e-3)
    assert kernel.temporaries[0].type.shape[-2] == 256 // (16 * shape[-1]) * 16


def check_sums_of_channels(*shape):
    """The gradient of a vector by which channels of images of this shape are added up: `einsum("bchw,c->bhw")`."""
    images, channels, *sides = shape
    places = images * math.prod(sides)
    graph = parse_graph(f"""
def f(x: f32{list(shape)}, g: f32[{places}]):
    a: f32{[channels, images, *sides]} = permute(x, axes=(1, 0, 2, 3))
    b: f32[{channels}, {places}] = reshape(a, shape=({channels}, {places}))
    c: f32[1, {places}] = reshape(g, shape=(1, {places}))
    d: f32[{channels}, {places}] = broadcast_to(c, shape=({channels}, {places}))
    e: f32[{channels}, {places}] = multiply(b, d)
    v: f32[{channels}] = sum(e, axis=(1,), keepdims=False, dtype=f32)
    return v
""")
    return check(graph, *(data(p.type) for p in graph.params), tolerance=1e-3)


def test_a_sum_along_places_that_are_taken_apart_divides_nothing():
    kernel = check_sums_of_channels(5, 7, 11, 13)
    assert "//" not in print_kernel(kernel) and "%" not in print_kernel(kernel)


def test_a_sum_of_products_with_long_lines_that_all_results_share_is_one_of_each_line():
    kernel = check_sums_of_channels(3, 7, 20, 20)
    assert kernel.temporaries[0].type.shape == (3, 7)


@pytest.mark.parametrize(("images", "height", "width", "plain"), [(50, 5, 6, True), (5, 11, 13, False)])
def test_a_vector_meets_channels_of_small_images_in_plain_loops(images, height, width, plain):
    places = images * height * width
    graph = parse_graph(f"""
def f(x: f32[{images}, 7, {height}, {width}], w: f32[1, 7]):
    a: f32[7, {images}, {height}, {width}] = permute(x, axes=(1, 0, 2, 3))
    b: f32[7, {places}] = reshape(a, shape=(7, {places}))
    v: f32[1, {places}] = matmul(w, b)
    return v
""")
    kernel = check(graph, *(data(p.type) for p in graph.params), tolerance=1e-4)
    assert ("contraction" not in print_kernel(kernel)) is plain

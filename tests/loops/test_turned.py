"""Transposed reads: in squares, right at every size, and no element read or written outside."""

import pytest

from loops import toy
from loops.compiled import check, llvm_text
from loops.test_maps import data, type_of
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.loops.loop_ir import Prefetch, TransposeTile, statements
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower
from tenon.ops.shape import permute
from tenon.records import replace


def is_turned(kernel):
    return any(isinstance(x, TransposeTile) for nest in kernel.nests for x in statements(nest.body))


@pytest.mark.parametrize("shape", [(64, 64), (65, 71), (8, 700), (700, 8), (33, 127)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64", "bool"])
def test_transposes(shape, dtype):
    t = type_of(dtype, *shape)
    kernel = check(trace(toy.transpose, t), data(t, 0, 2), interpreted=dtype == "f32")
    assert is_turned(kernel) == (shape[0] * shape[1] >= 4096)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i16", "bool"])
def test_squares_are_turned_in_vectors_of_any_width(vector_bytes, dtype):
    machine = replace(host(), vector_bytes=vector_bytes)
    t = type_of(dtype, 70, 67)
    assert is_turned(check(trace(toy.transpose, t), data(t, 0, 2), interpreted=False, target=machine))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64"])
@pytest.mark.parametrize(("shape", "lines", "columns"), [((700, 9), 32, 16), ((9, 700), 16, 32), ((521, 8), 32, 8),
                                                         ((13, 20, 16), 32, 16), ((31, 300), 32, 32)])
def test_of_a_square_that_is_never_full_the_lines_and_columns_that_there_are_are_turned(shape, lines, columns, dtype,
                                                                                       vector_bytes):
    machine = replace(host(), vector_bytes=vector_bytes)
    t, axes = type_of(dtype, *shape), (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    kernel = check(trace(lambda x: permute(x, axes=axes), t), data(t, 0, 2), interpreted=dtype == "f32", target=machine)
    turn, = (x for nest in kernel.nests for x in statements(nest.body) if isinstance(x, TransposeTile))
    assert (turn.lines, turn.columns) == (lines, columns)
    assert (f"[:{lines}, :{columns}])" in print_kernel(kernel)) == (lines < 32 or columns < 32)


@pytest.mark.parametrize(("shape", "fetches"), [((300, 400), True), ((64, 64), True), ((40, 700), True), ((700, 9), False)])
def test_lines_of_the_next_square_are_asked_for_where_there_is_one(shape, fetches):
    t = type_of("f64", *shape)
    kernel = check(trace(toy.transpose, t), data(t, 0, 2), interpreted=shape == (64, 64))
    assert any(isinstance(x, Prefetch) for nest in kernel.nests for x in statements(nest.body)) == fetches
    assert ("fetch(out[" in print_kernel(kernel)) == fetches


@pytest.mark.parametrize("size", [64, 1030])
def test_nothing_is_asked_for_that_the_second_cache_holds(size):
    kernel = lower(trace(toy.transpose, type_of("f32", size, size)), "k")
    assert ("llvm.prefetch" in llvm_text(kernel, replace(host(), l2_bytes=1 << 20))) == (size > 512)


def test_a_transpose_beside_other_reads():
    t, u = type_of("f32", 70, 66), type_of("f32", 66, 70)

    def body(x, y, z):
        turned = toy.transpose(x)
        return toy.add(toy.mul(turned, y), toy.transpose(z)), toy.exp(turned)

    assert is_turned(check(trace(body, t, u, t), data(t), data(u, -1, 1), data(t), interpreted=False))


@pytest.mark.parametrize("axes", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
def test_permutes(axes):
    shape = (9, 21, 40)
    result = [shape[a] for a in axes]
    kernel = check(parse_graph(f"def f(x: f32{list(shape)}):\n    v0: f32{result} = permute(x, axes={axes})\n"
                               "    return v0\n"), data(type_of("f32", *shape)), interpreted=False)
    assert is_turned(kernel) == (axes != (1, 0, 2))


def test_symbolic_sizes():
    graph = trace(toy.transpose, type_of("f32", symbol("B"), symbol("N")))
    for shape in [(2, 3), (64, 33), (131, 70)]:
        assert is_turned(check(graph, data(type_of("f32", *shape)), interpreted=False))


def test_short_rows_are_left_as_they_are():
    t = type_of("f32", 3, 2000)
    assert not is_turned(check(trace(toy.transpose, t), data(t), interpreted=False))

"""What is chosen by its place: a loop for each interval, the same elements bit for bit, zeros with their signs."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loops.compiled import check, run
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.loops.expressions import Buffer, Index, Load, size
from tenon.loops.loop_fusion import fuse_loops as joined_nests
from tenon.loops.loop_ir import Loop, Nest, Store, statements
from tenon.loops.lower import lower
from tenon.types import TensorType, float32


def stores(kernel):
    return [x for nest in kernel.nests for x in statements(nest.body) if isinstance(x, Store)]


def loops(kernel):
    """The innermost ones."""
    return [x for nest in kernel.nests for x in statements(nest.body) if isinstance(x, Loop) and not any(
        isinstance(inside, Loop) for inside in x.body)]


def joined(rows, *widths):
    params = ", ".join(f"x{k}: f32[{rows}, {n}]" for k, n in enumerate(widths))
    names = ", ".join(f"x{k}" for k in range(len(widths)))
    return parse_graph(f"def f({params}):\n    v: f32[{rows}, {sum(widths)}] = concat({names}, axis=1)\n    return v\n")


def data(*shape, dtype=np.float32):
    return np.random.default_rng(shape).normal(size=shape).astype(dtype)


def kernel_for(graph):
    return check(graph, *(data(*p.type.shape, dtype=p.dtype.numpy) for p in graph.params))


@pytest.mark.parametrize(("widths", "intervals"), [
    ((32, 32), 2), ((64, 32), 3), ((16, 16, 16, 16), 4), ((8, 8), 1), ((33, 32), 1), ((16,) * 10, 1), ((16, 0, 16), 2)])
def test_joined_parts_are_stored_where_they_belong(widths, intervals):
    assert len(stores(kernel_for(joined(3, *widths)))) == intervals


@pytest.mark.parametrize(("shapes", "axis", "count"), [
    (((31, 67), (37, 67)), 0, 2), (((67, 31), (67, 37)), 1, 2), (((4, 5, 67), (4, 7, 67), (4, 5, 67)), 1, 2),
    (((67, 1), (67, 80), (67, 1)), 1, 2), (((67, 9), (67, 11)), 1, 1), (((5, 9), (5, 40)), 1, 1)])
@pytest.mark.parametrize("dtype", ["bf16"])
def test_parts_of_several_lengths_have_loops_of_their_own_where_that_is_worth_it(shapes, axis, count, dtype):
    total = [sum(n) if k == axis else n[0] for k, n in enumerate(zip(*shapes, strict=True))]
    params = ", ".join(f"x{k}: {dtype}{list(shape)}" for k, shape in enumerate(shapes))
    names = ", ".join(f"x{k}" for k in range(len(shapes)))
    kernel = kernel_for(parse_graph(f"""
def f({params}):
    v: {dtype}{total} = concat({names}, axis={axis})
    return v
"""))
    assert len(loops(kernel)) == count


def test_what_is_padded_on_four_sides_has_a_loop_for_its_inside():
    graph = parse_graph("""
def f(x: f32[3, 41, 43]):
    v: f32[3, 44, 46] = pad(x, 2.0, low=(0, 1, 2), high=(0, 2, 1), interior=(0, 0, 0))
    return v
""")
    kernel = kernel_for(graph)
    inside = [s for s in stores(kernel) if s.value.dtype is not None and not hasattr(s.value, "condition")]
    assert any(getattr(s.value, "mask", "none") is None for s in inside)


def padded(rows):
    return parse_graph(f"""
def f(x: f32[20, {rows}, 64]):
    v: f32[20, {rows + 4}, 64] = pad(x, 2.0, low=(0, 2, 0), high=(0, 2, 0), interior=(0, 0, 0))
    return v
""")


def test_intervals_of_memory_that_a_cache_keeps_are_stored_in_one_turn_the_longest_first():
    (nest,) = kernel_for(padded(40)).nests
    first, second = nest.body[0].body
    assert first.extent.value > second.extent.value
    assert len(lower(padded(3000), "k").nests) == 2


def test_what_another_nest_reads_is_stored_before():
    """Lines that are the last ones turned round: another thread may store those."""
    i, j, x = Index("i", 64), Index("j", 8), Buffer("x", TensorType(float32, (64, 8)), "input")
    out = Buffer("out", TensorType(float32, (64, 16)), "output")

    def nest(place, value):
        inner = Loop(j, size(8), (Store(out, place, value),))
        return Nest((Loop(i, size(64), (inner,), "parallel", size(1)),))
    first = nest(i * 16 + j, Load(x, i * 8 + j, None))
    assert len(joined_nests([first, nest(i * 16 + j + 8, Load(out, (size(63) - i) * 16 + j, None))])) == 2
    assert len(joined_nests([first, nest(i * 16 + j + 8, Load(x, (size(63) - i) * 8 + j, None))])) == 1


def test_parts_are_computed_beside_one_another():
    """The gradient of slices: what is padded and added up is one loop, in which nothing is looked at twice."""
    graph = parse_graph("""
def f(x: f32[4, 32], y: f32[4, 32]):
    a: f32[4, 32] = multiply(x, y)
    b: f32[4, 32] = add(a, y)
    c: f32[4, 64] = pad(a, 0.0, low=(0, 0), high=(0, 32), interior=(0, 0))
    d: f32[4, 64] = pad(b, 0.0, low=(0, 32), high=(0, 0), interior=(0, 0))
    e: f32[4, 64] = add(c, d)
    return e, b
""")
    kernel = kernel_for(graph)
    assert len(kernel.nests) == 1
    assert [x.mask for s in stores(kernel) for x in s.value.below if hasattr(x, "mask")] == []


def test_a_zero_beside_padding_loses_its_sign_as_in_the_definition():
    graph = parse_graph("""
def f(x: f32[2, 16], y: f32[2, 16]):
    c: f32[2, 32] = pad(x, 0.0, low=(0, 0), high=(0, 16), interior=(0, 0))
    d: f32[2, 32] = pad(y, 0.0, low=(0, 16), high=(0, 0), interior=(0, 0))
    e: f32[2, 32] = add(c, d)
    return e, c
""")
    negative = np.full((2, 16), -0.0, np.float32)
    for found, wanted in zip(run(check(graph, negative, negative), [negative, negative]),
                             interpret(graph, [negative, negative]), strict=True):
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("op", ["less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("at", [0, 15, 16, 31, 32, 47, 48, 64])
def test_every_comparison_ends_where_it_does(op, at):
    for left, right in (("n", at), (at, "n")):
        check(parse_graph(f"""
def f(x: f32[3, 64], y: f32[3, 64]):
    n: i64[64] = arange(start=0, step=1, size=64, dtype=i64)
    c: bool[64] = {op}({left}, {right})
    w: bool[3, 64] = broadcast_to(c, shape=(3, 64))
    v: f32[3, 64] = where(w, x, y)
    return v
"""), data(3, 64), data(3, 64)[::-1])


def test_what_is_cut_along_an_outer_axis():
    graph = parse_graph("""
def f(x: f64[16, 5], y: f64[16, 5]):
    v: f64[32, 5] = concat(x, y, axis=0)
    w: f64[32, 5] = exp(v)
    return w
""")
    assert len(stores(kernel_for(graph))) == 2


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 3), st.lists(st.sampled_from([0, 1, 16, 24, 32, 64]), min_size=1, max_size=4),
       st.sampled_from([0, 16, 32, 5]), st.sampled_from([0, 16, 32, 7]))
def test_joined_and_padded_and_read_again(rows, widths, low, high):
    total = sum(widths)
    params = ", ".join(f"x{k}: f32[{rows}, {n}]" for k, n in enumerate(widths))
    names = ", ".join(f"x{k}" for k in range(len(widths)))
    size = total + low + high
    kernel_for(parse_graph(f"""
def f({params}):
    a: f32[{rows}, {total}] = concat({names}, axis=1)
    b: f32[{rows}, {size}] = pad(a, 1.0, low=(0, {low}), high=(0, {high}), interior=(0, 0))
    c: f32[{rows}, {size}] = add(b, 2.0)
    d: f32[{rows}] = sum(c, axis=(1,), keepdims=False, dtype=f32)
    return c, a, d
"""))


def test_what_may_be_out_of_range_is_left_as_it_is():
    """Its checks are told by the node they belong to, once each."""
    graph = parse_graph("""
def f(x: f32[40], i: i64[32]):
    a: f32[32] = take(x, i, axis=0)
    b: f32[64] = concat(a, a, axis=0)
    return b
""")
    assert len(stores(lower(graph, "f"))) == 1

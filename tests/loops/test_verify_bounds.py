"""Every load and store of a kernel is proved to stay within its buffer, or said to be decided by data."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon as tn
from operator_examples import graph_of
from tenon.dims.symbolic_dim import evaluate, symbol
from tenon.errors import BoundsError
from tenon.graph.build import trace
from tenon.graph.op import OPS
from tenon.graph.text import parse_example, parse_graph
from tenon.loops.expressions import Binary, Buffer, Const, Index, Load, size
from tenon.loops.loop_ir import Kernel, Loop, Nest, Store
from tenon.loops.lower import lower
from tenon.loops.peeling import peeled
from tenon.loops.size_needs import size_needs
from tenon.loops.size_order import follows
from tenon.loops.verify_bounds import unproved, verify_bounds
from tenon.passes.expand import expand
from tenon.types import TensorType, float32

ONE = Const(1.0, float32)


def has_loops(graph):
    values = [*graph.params, *(v for node in graph.nodes for v in node.outputs)]
    return all(node.op.compute or node.op.fill for node in graph.nodes) and not any(
        v.dtype.kind in "ct" for v in values)


def kernels():
    for op in OPS.values():
        if not (op.effect or op.data_dependent):
            for text in op.examples:
                if not text.endswith("-> error") and has_loops(graph := expand(graph_of(parse_example(text)))):
                    try:
                        kernel = lower(graph, "kernel")
                    except NotImplementedError:     # it takes several
                        continue
                    yield text, kernel


def test_the_kernels_of_all_operators_are_proved_but_for_what_data_decide():
    checked = 0
    for text, kernel in kernels():
        for loops in (kernel, peeled(kernel)):
            assert not [str(x) for x in unproved(loops) if not x.by_data], text
            checked += 1
    assert checked > 600


B, C, D = symbol("B"), symbol("C"), symbol("D")


@pytest.mark.parametrize(("function", "shapes"), [
    (lambda x, w: (x * w).sum(axis=1), [(B, C), (C,)]),
    (lambda x: tn.permute(x, (2, 0, 1)).reshape(3 * B * C), [(B, 3, C)]),
    (lambda x, w: x @ w, [(B, C), (C, D)]),
    (lambda x: x.sum(axis=0), [(B, C)]),
    (lambda x: tn.softmax(x, axis=-1), [(B, C)]),
    (lambda x: tn.cumsum(x, axis=1), [(B, C)]),
    (lambda x: tn.cat([x, x * 2.0], axis=1).sum(axis=1), [(B, C)]),
    (lambda x, w: tn.conv2d(x, w, padding=1), [(B, 3, 8, 9), (4, 3, 3, 3)]),
], ids=["sum of rows", "permuted", "product", "sum of columns", "softmax", "running", "joined", "convolution"])
def test_kernels_of_symbolic_sizes_are_proved(function, shapes):
    graph = expand(trace(function, *(TensorType(float32, shape) for shape in shapes)))
    assert not list(map(str, unproved(peeled(lower(graph, "kernel")))))


def stores(offset, extent, elements, mask=None):
    """out[offset] = x[offset] in a loop over i, of buffers with so many elements."""
    x, out = (Buffer(name, TensorType(float32, (elements,)), role) for name, role in (("x", "input"), ("out", "output")))
    i = Index("i", extent)
    body = (Store(out, i, Load(x, offset(i), mask and mask(i))),)
    return Kernel("k", (x,), (out,), (), (), (Nest((Loop(i, size(extent), body, "parallel"),)),))


@pytest.mark.parametrize("kernel", [
    stores(lambda i: i + 1, 7, 7), stores(lambda i: i - 1, 7, 7), stores(lambda i: i, 8, 7),
    stores(lambda i: i + 1, B, B),
    stores(lambda i: i * 2, 7, 12), stores(lambda i: Binary("%", i, size(8)), 9, 7),
    stores(lambda i: i - 1, 7, 7, lambda i: i < 7),
])
def test_a_kernel_that_reads_or_writes_outside_is_refused(kernel):
    with pytest.raises(BoundsError, match=r"kernel k: nest 0: (load of x|store to out)\[.*the position is in"):
        verify_bounds(kernel)


def test_a_condition_of_a_load_guards_it_and_nothing_else():
    assert verify_bounds(stores(lambda i: i - 1, 7, 7, lambda i: i >= 1))


GIVEN = [   # loops, and the least that has to be known of sizes
    (stores(lambda i: i, 3, B), B - 3), (stores(lambda i: i * 2, 4, B * 3), B * 3 - 7),
    (stores(lambda i: i * 64 + i, B, 4096), 64 - B), (stores(lambda i: i * C + i, B, C * C), C - B)]


@pytest.mark.parametrize(("kernel", "known"), GIVEN, ids=str)
def test_what_is_given_of_sizes_proves_a_position_and_one_less_does_not(kernel, known):
    assert not unproved(kernel, [known])
    assert unproved(kernel, [known + 1]) and unproved(kernel)


def test_a_position_outside_for_all_sizes_is_refused_whatever_is_given():
    with pytest.raises(BoundsError, match="load of x"):
        verify_bounds(stores(lambda i: i + 1, B, B), [B - 3, 64 - B])


@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=1, max_size=3), st.tuples(*[st.integers(-4, 4)] * 5))
def test_what_follows_from_given_sizes_holds_for_all_of_them(lines, factors):
    forms = [B * b + C * c + n for b, c, n in lines]
    x = sum(k * part for k, part in zip(factors, (B * B, B * C, B, C, 1), strict=True))
    if follows(x, forms):
        for b, c in itertools.product(range(2, 12), repeat=2):
            sizes = {"B": b, "C": c}
            assert any(evaluate(form, sizes) < 0 for form in forms) or evaluate(x, sizes) >= 0, sizes


def test_bodies_say_what_their_slices_need():
    def needs(text):
        return list(map(str, size_needs(parse_graph(text))))

    assert needs("""def f(x: f32[B, C]):
    v0: f32[3, C - 1] = slice(x, start=(0, 0), stop=(3, C - 1), step=(1, 1))
    return v0""") == ["B - 3"]
    assert needs("""def f(x: f32[B]):
    v0: f32[3] = slice(x, start=(6,), stop=(0,), step=(-2,))
    return v0""") == ["B - 7"]
    assert needs("""def f(x: f32[B]):
    v0: f32[C - 2] = slice(x, start=(2,), stop=(C,), step=(1,))
    return v0""") == ["-1*C + B"]       # without elements it ends at 2, which is within
    assert needs("""def f(x: f32[B]):
    v0: f32[C - 3] = slice(x, start=(3,), stop=(C,), step=(1,))
    return v0""")[1:] == [str((C - 3) * (B - C))]       # it may have no elements, and lie behind the end


SHRINKING = {
    "a mean of windows": lambda x: tn.avg_pool1d(x, 4, 1),
    "the largest of windows": lambda x: tn.max_pool1d(x, 4, 1),
    "the rest of a split": lambda x: tn.split(x, [2, 3], 2)[2],
    "a slice": lambda x: x[:, :, 1:-2] * 2,
    "a convolution": lambda x: tn.conv1d(x, tn.ones((3, 2, 4))),
    "its gradient": lambda x: tn.grad(lambda x: (tn.conv1d(x, tn.ones((3, 2, 4))) ** 2).sum())(x),
    "differences": lambda x: tn.diff(x, 3, -1),
}


@pytest.mark.parametrize("name", SHRINKING)
def test_positions_in_what_is_smaller_than_its_input_are_proved(name):
    """A loop of N - 3 turns that is run has N - 3 of at least 1, which its symbol alone does not say."""
    function = SHRINKING[name]
    compiled = tn.jit(function, fullgraph=True)
    for count in (6, 9, 17, 7):          # a symbol from the second call on
        x = tn.randn(2, 2, count)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [
    lambda x: tn.avg_pool2d(x, 2, 2).reshape(-1)[:68].sum(),
    lambda x: tn.avg_pool2d(x, 2, 1).reshape(x.shape[0], -1)[:, :68] * 2,
    lambda x: tn.softmax(tn.avg_pool2d(x, 3, 1, 1).reshape(-1)[:68], 0),
    lambda x: tn.avg_pool2d(x, 2, 2).reshape(-1)[3:68].reshape(5, 13).sum(0),
], ids=["sum", "rows", "softmax", "columns"])
def test_positions_in_a_slice_of_a_product_of_sizes_are_proved(function):
    """That N * M - 68 is not negative is what the slice asks; no symbol stands alone in it."""
    compiled = tn.jit(function, fullgraph=True)
    for sizes in ((12, 13), (14, 15), (17, 18)):
        x = tn.randn(2, 2, *sizes)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [
    lambda x: tn.softmax(x, 1).repeat(2, 0).sum(),
    lambda x: tn.layer_norm(x.repeat(2, 0), (x.shape[1],)),
    lambda x: x[:3, ::2] + x[:3, ::2].max(1, keepdims=True),
    lambda x: x.T.reshape(x.shape[0], -1).sort(1),
], ids=["parts of pairs", "pairs", "every other", "turned"])
def test_positions_of_changing_rows_and_columns_are_proved(function):
    compiled = tn.jit(function, fullgraph=True)
    for sizes in ((12, 13), (14, 15), (37, 18)):
        x = tn.randn(*sizes)
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-5)


def pairs(x):
    """What is even of a vector, in rows of two."""
    return x[:x.shape[0] // 2 * 2].reshape(-1, 2)


@pytest.mark.parametrize("function", [
    lambda x: (tn.avg_pool1d(pairs(tn.avg_pool2d(x, 2, 1).reshape(-1))[None], 2) ** 3).sum(),
    lambda x: (pairs(x.reshape(-1).unfold(0, 3, 2)[::2].reshape(-1)) ** 3).sum(),
], ids=["windows", "every other window"])
def test_positions_in_a_slice_that_ends_at_a_quotient_of_sizes_are_proved(function):
    gradient = tn.grad(function)
    compiled = tn.jit(gradient, fullgraph=True)
    for sizes in ((5, 7), (6, 8), (7, 9), (2, 3)):
        x = tn.randn(1, 1, *sizes)
        np.testing.assert_allclose(compiled(x).numpy(), gradient(x).numpy(), rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.integers(0, 3), st.integers(-2, 2))
def test_what_follows_from_a_product_of_sizes_holds_for_all_of_them(factors, times, more):
    b, c = symbol("B"), symbol("C")
    f = sum((factor * term for factor, term in zip(factors, (b * c, b, c, 1), strict=True)), 0)
    x = times * f + more * b * c + more
    if follows(x, [f]):
        for sizes in itertools.product(range(2, 9), repeat=2):
            values = dict(zip("BC", sizes, strict=True))
            assert evaluate(f, values) < 0 or evaluate(x, values) >= 0


def test_nothing_follows_from_a_loop_outside_of_it():
    n = symbol("N")
    i, out = Index("i", n - 3), Buffer("out", TensorType(float32, (n - 3,)), "output")
    inside = Loop(i, size(n - 3), (Store(out, size(0), ONE),))
    assert not unproved(Kernel("k", (), (out,), (), ("N",), (Nest((inside,)),)))
    beside = (Loop(i, size(n - 3), ()), Store(out, size(0), ONE))
    assert unproved(Kernel("k", (), (out,), (), ("N",), (Nest(beside),)))

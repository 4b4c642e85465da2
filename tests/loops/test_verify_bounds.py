"""Every load and store of a kernel is proved to stay within its buffer, or said to be decided by data."""

import pytest

import tenon as tn
from operator_examples import graph_of
from tenon.dims import symbol
from tenon.errors import BoundsError
from tenon.graph.build import trace
from tenon.graph.op import OPS
from tenon.graph.text import parse_example
from tenon.loops.expressions import Binary, Buffer, Const, Index, Load, size
from tenon.loops.ir import Kernel, Loop, Nest, Store
from tenon.loops.lower import lower
from tenon.loops.peeling import peeled
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
                    yield text, lower(graph, "kernel")


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

"""Loops whose ends are cut off: what is left asks nothing, and everywhere stand the same elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon as tn
from loops import compiled
from tenon.graph.text import parse_graph
from tenon.loops import peeling
from tenon.loops.expressions import Buffer, Index, Load, Local, Select, size
from tenon.loops.loop_ir import Accumulator, Kernel, Loop, Nest, Store, Update, roots, statements
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower
from tenon.loops.traversal import walk
from tenon.types import TensorType, float32, int64


def lowered(graph, name="k", *given):
    return peeling.peeled(lower(graph, name, *given))


def check(graph, *arrays):
    """Compiled == loop interpreter == NumPy reference, however little the work is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peeling, "MIN_PEELED_WORK", 1)
        patch.setattr(compiled, "lower", lowered)
        return compiled.check(graph, *arrays)


def pooling(kind, lead, sizes, kernel, stride, padding, dilation, dtype="f32"):
    counts = [(n + low + high - d * (k - 1) - 1) // s + 1
              for n, k, s, (low, high), d in zip(sizes, kernel, stride, padding, dilation, strict=True)]
    attrs = f"kernel={tuple(kernel)}, stride={tuple(stride)}, padding={tuple(padding)}, dilation={tuple(dilation)}"
    x, y, taps = [lead, *sizes], [lead, *counts], [lead, *kernel, *counts]
    ones = [1] * len(kernel)
    over = tuple(range(1, 1 + len(kernel)))
    made = {
        "max": (f"x: {dtype}{x}", [f"y: {dtype}{y} = max_pool_op(x, {attrs})"]),
        "taps": (f"x: {dtype}{x}", [f"y: i32{y} = max_pool_taps(x, {attrs})"]),
        "max grad": (f"g: {dtype}{y}, x: {dtype}{x}, taps: i32{y}",
                     [f"v0: {dtype}{x} = max_pool_grad(g, taps, sizes={tuple(sizes)}, {attrs})",
                      f"v1: bool{x} = greater(x, 0.0)", f"y: {dtype}{x} = where(v1, v0, {dtype}(0.0))"]),
        "mean": (f"x: {dtype}{x}", [f"v0: {dtype}{taps} = windows(x, {attrs})",
                                    f"y: {dtype}{y} = sum(v0, axis={over}, keepdims=False, dtype={dtype})"]),
        "mean grad": (f"g: {dtype}{y}", [
            f"v0: {dtype}{[lead, *ones, *counts]} = reshape(g, shape={(lead, *ones, *counts)})",
            f"v1: {dtype}{taps} = broadcast_to(v0, shape={tuple(taps)})",
            f"y: {dtype}{x} = add_windows(v1, sizes={tuple(sizes)}, {attrs})"]),
    }
    given, lines = made[kind]
    return parse_graph("\n".join((f"def f({given}):", *(f"    {line}" for line in lines), "    return y", "")))


KINDS = ["max", "taps", "max grad", "mean", "mean grad"]


def arrays(graph, seed):
    random = np.random.default_rng(seed)

    def one(type):
        if type.dtype.kind == "i":
            return random.integers(0, 4, type.shape).astype(np.int32)
        numbers = random.integers(-9, 9, type.shape).astype(np.float32)
        if graph.results[0].dtype.kind == "i":
            numbers[random.random(type.shape) < 0.05] = np.nan      # which wins
        return numbers.astype(type.dtype.numpy)
    return [one(p.type) for p in graph.params]


def square(n, kernel, stride, padding):
    return ([n] * 2, [kernel] * 2, [stride] * 2, [(padding, padding)] * 2, [1] * 2)


def plain_stores(kernel):
    """How many elements are stored by loops that ask nothing, in all."""
    total = 0

    def look(body, turns):
        nonlocal total
        for x in body:
            if isinstance(x, Loop):
                look(x.body, turns * int(x.extent.value))
        around = [e for s in statements(body) for e in walk(*roots(s))]
        if any(isinstance(x, Store) for x in body) and not any(
                isinstance(e, Load) and e.mask is not None for e in around):
            total += turns * sum(isinstance(x, Store) for x in body)
    for nest in kernel.nests:
        look(nest.body, 1)
    return total


@pytest.mark.parametrize(("kind", "window", "least"), [
    ("max", (57, 3, 2, 1), 27 * 27), ("mean", (57, 3, 1, 1), 55 * 55), ("max", (112, 3, 2, 1), 55 * 55),
    ("max grad", (57, 2, 2, 0), 57 * 57), ("max grad", (57, 3, 2, 1), 50 * 50), ("mean grad", (57, 3, 2, 0), 50 * 50)])
def test_whole_windows_are_read_without_a_question(kind, window, least):
    kernel = lowered(pooling(kind, 64, *square(*window)), "k")
    assert plain_stores(kernel) >= 64 * least


def test_little_work_is_not_worth_the_copies():
    few, many = (lowered(pooling("max", lead, *square(57, 3, 2, 1)), "k") for lead in (2, 64))
    assert len([x for nest in few.nests for x in statements(nest.body)]) < \
        len([x for nest in many.nests for x in statements(nest.body)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [
    (13, 3, 2, 1), (19, 3, 1, 1), (11, 2, 2, 0), (17, 3, 3, 1), (15, 2, 1, 0), (16, 5, 3, 2), (9, 7, 1, 3)])
def test_pictures(kind, window):
    graph = pooling(kind, 3, *square(*window))
    check(graph, *arrays(graph, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_types(kind, dtype):
    for line in ([21], [3], [2], [(1, 1)], [1]), ([10, 23], [1, 3], [1, 2], [(0, 0), (0, 2)], [1, 1]):
        graph = pooling(kind, 5, *line, dtype)
        check(graph, *arrays(graph, 2))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_windows(data):
    axes = data.draw(st.integers(1, 3))
    sizes, kernel, stride, padding, dilation = [], [], [], [], []
    for _ in range(axes):
        k, d = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
        low, high = (data.draw(st.integers(0, k)) for _ in range(2))
        reach = d * (k - 1) + 1
        sizes.append(data.draw(st.integers(max(1, reach - low - high), 24 if axes < 3 else 12)))
        kernel.append(k)
        stride.append(data.draw(st.integers(1, 4)))
        padding.append((low, high))
        dilation.append(d)
    graph = pooling(data.draw(st.sampled_from(KINDS)), data.draw(st.integers(1, 3)), sizes, kernel, stride, padding,
                    dilation)
    check(graph, *arrays(graph, 3))


def test_what_depends_on_two_loops_is_not_cut():
    """A triangle's border goes along with both."""
    graph = tn.jit(lambda x: tn.tril(x) + 1).graph(tn.zeros((40, 40)))
    kernel = check(graph, *arrays(graph, 4))
    assert any(isinstance(e, Select) for n in kernel.nests for s in statements(n.body) for e in walk(*roots(s)))
    assert len([s for n in kernel.nests for s in statements(n.body) if isinstance(s, Store)]) == 1


@pytest.mark.parametrize("kind", ["total", "scalar", "neighbour", "same place", "chosen place"])
def test_turns_that_need_those_before_them_stay_in_order(kind):
    """What a turn leaves to the next one, in a scalar or in memory, or writes over."""
    x, at, out = (Buffer(name, TensorType(dtype, (40,)), role)
                  for name, dtype, role in (("x", float32, "input"), ("at", int64, "input"), ("out", float32, "output")))
    i, total = Index("i", 40), Local("total", float32)
    read = Load(x, i - size(1), i >= size(1))
    stores = {
        "total": (Update(total, "add", read), Store(out, i, total)),
        "scalar": (Store(out, i, read + total), Update(total, "max", read)),
        "neighbour": (Store(out, i, Load(out, i - size(2), i >= size(2)) + read),),
        "same place": (Store(out, size(0), Load(out, size(0), i >= size(1)) + read),),
        "chosen place": (Store(out, Load(at, i, None), read),)}
    line = Loop(i, size(40), stores[kind])
    kernel = Kernel("k", (x, at), (out,), (), (), (Nest((Accumulator(total, "add"), line)),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peeling, "MIN_PEELED_WORK", 1)
        assert print_kernel(peeling.peeled(kernel)) == print_kernel(kernel)

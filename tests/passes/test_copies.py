"""A copy of a value, joined with the kernel that reads it where the two are one nest of loops."""

from __future__ import annotations

import pytest

import tenon as tn
from tenon import nn, optim
from tenon.graph.interpret import interpret
from tenon.graph.ir import MEMORY_BUDGET
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.passes import recompute as module
from tenon.passes.fusion.kernel_bodies import body_of
from tenon.passes.fusion.liveness import peak_bytes
from tenon.passes.recompute import recompute
from tenon.passes.rematerialize import with_copy, without_unread
from tenon.pipeline import compile
from tenon.records import replace
from tests.graphs import arrays_for, assert_close

# y is read by a product's result element by element; with `factor`, by the product itself.
LATE = """
def f(x: f32[40, 30], a: f32[40, 8], b: f32[8, 30]):
    y: f32[40, 30] = exp(x)
    s: f32[40] = sum(y, axis=(1,), keepdims=False, dtype=f32)
    READER
    return s, z
"""
EPILOGUE = """
    def body(p0: f32[40, 8], p1: f32[8, 30], p2: f32[40, 30]):
        v0: f32[40, 30] = matmul(p0, p1)
        v1: f32[40, 30] = multiply(v0, p2)
        return v1
    z: f32[40, 30] = fused(a, b, y, body=body)"""
FACTOR = """
    def body(p0: f32[40, 8], p1: f32[40, 30]):
        v0: f32[8, 40] = permute(p0, axes=(1, 0))
        v1: f32[8, 30] = matmul(v0, p1)
        v2: f32[8, 30] = exp(v1)
        return v2
    z: f32[8, 30] = fused(a, y, body=body)"""


WITH_SUM = """
def f(x: f32[2048, 300], a: f32[2048, 8], b: f32[8, 300]):
    y: f32[2048, 300] = exp(x)
    s: f32[2048] = sum(y, axis=(1,), keepdims=False, dtype=f32)
    def body(p0: f32[2048, 8], p1: f32[8, 300], p2: f32[2048, 300]):
        v0: f32[2048, 300] = matmul(p0, p1)
        v1: f32[2048, 300] = multiply(v0, p2)
        v2: f32[300] = sum(v1, axis=(0,), keepdims=False, dtype=f32)
        return v1, v2
    z: tuple[f32[2048, 300], f32[300]] = fused(a, b, y, body=body)
    return s, z[0], z[1]
"""


def copied(text):
    """The graph in which y is computed again for its last reader."""
    graph = parse_graph(text)
    y = graph.nodes[0].output
    body, inputs = body_of([graph.nodes[0]], [y])
    until = max(k for k, node in enumerate(graph.nodes) if y in node.uses())
    found = verify(with_copy(graph, y, until, inputs, body))
    arrays = arrays_for(graph)
    assert_close(interpret(found, arrays), interpret(graph, arrays), 1e-6)
    return [node.op.name for node in found.nodes]


def test_what_reads_element_by_element_takes_the_copy_in():
    assert copied(LATE.replace("READER", "z: f32[40, 30] = sin(y)")) == ["exp", "sum", "fused"]
    assert copied(LATE.replace("READER", EPILOGUE.strip())) == ["exp", "sum", "fused"]
    assert copied(WITH_SUM) == ["exp", "sum", "fused"]


def test_a_factor_of_a_product_is_copied_by_a_kernel_of_its_own():
    assert copied(LATE.replace("READER", FACTOR.strip())) == ["exp", "sum", "fused", "fused"]


def test_a_result_that_nobody_reads_any_more_is_not_stored():
    graph = parse_graph("""
def f(x: f32[10], y: f32[10]):
    def body(p0: f32[10], p1: f32[10]):
        v0: f32[10] = exp(p0)
        v1: f32[10] = multiply(v0, p1)
        return v0, v1
    both: tuple[f32[10], f32[10]] = fused(x, y, body=body)
    z: f32[10] = sin(both[0])
    return z
""")
    found = verify(without_unread(graph))
    assert found.nodes[0].inputs == (graph.params[0],) and len(found.nodes[0].outputs) == 1
    arrays = arrays_for(graph)
    assert_close(interpret(found, arrays), interpret(graph, arrays), 1e-6)


@pytest.fixture
def large(monkeypatch):
    """Graphs of a test are large."""
    monkeypatch.setattr(module, "MIN_KEPT_BYTES", 1 << 10)


def test_a_large_graph_is_made_smaller_unasked_where_that_costs_little(large, monkeypatch):
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))])
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit
    def step(x):
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    graph = step.capture(tn.zeros((256, 32))).graph
    arrays = arrays_for(graph)
    found = []
    for little in (0.0, 0.2):           # these products are small
        monkeypatch.setattr(module, "MAX_RECOMPUTED_TIME_SHARE", little)
        program = compile(graph, backend="cpu", trace=[])       # which is not read from the disk
        found.append((peak_bytes(program.graph), program.run(arrays)))
    assert found[1][0] < 0.95 * found[0][0]
    assert_close(found[1][1], found[0][1], 1e-5)


def test_unasked_no_product_and_no_sum_is_computed_again(large):
    graph = parse_graph("""
def f(x: f32[100, 100], w: f32[100, 100]):
    y: f32[100, 100] = matmul(x, w)
    a: f32[100, 100] = exp(x)
    s: f32[100] = sum(a, axis=(0,), keepdims=False, dtype=f32)
    z: f32[100, 100] = sin(y)
    return s, z
""")
    assert recompute(graph).nodes == graph.nodes
    asked = recompute(replace(graph, notes={MEMORY_BUDGET: 0}))
    assert peak_bytes(asked) < peak_bytes(graph)

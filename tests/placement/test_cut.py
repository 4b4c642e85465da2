"""What a cut leaves: transfers in the text, effects in order, branches and loops on every device that takes part."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from cut_graphs import all_nodes, run_cut
from graphs import assert_close
from random_cuts import sweep
from tenon.dims.symbolic_dim import symbol
from tenon.errors import GraphError
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph, Node
from tenon.graph.partition import pullback_of
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.ops.branches import cond
from tenon.ops.deferred_output import hearing, say
from tenon.ops.loops import scan, while_loop
from tenon.placement.cut_by_device import DeviceGraph, cut
from tenon.placement.open_calls import open_calls
from tenon.placement.placement import Placement
from tenon.types import TensorType, bool_, float32, int64

SCALAR, VECTOR, COUNT = TensorType(float32, ()), TensorType(float32, (3,)), TensorType(int64, ())
X = np.array([1, 2, 3], np.float32)


def placed(graph: Graph, by_operator: dict[str, int], params: tuple[int | None, ...] | None = None) -> Placement:
    """Operators by name; the others on the first device."""
    nodes: dict[Node, int] = {x: by_operator.get(x.op.name, 0) for x in all_nodes(graph) if not x.graphs}
    return Placement(tuple(f"cpu:{k}" for k in range(max([0, *by_operator.values()]) + 1)), nodes,
                     params or (None,) * len(graph.params))


def agrees(graph: Graph, placement: Placement, *arrays: Any, backend: str = "cpu") -> dict[int, DeviceGraph]:
    """The parts, which are right graphs and compute what the whole does."""
    parts = cut(graph, placement)
    for part in parts.values():
        verify(part.graph)
    given = [np.asarray(x, p.dtype.numpy) for x, p in zip(arrays, graph.params, strict=True)]
    assert_close(run_cut(graph, placement, given, backend), interpret(graph, given))
    return parts


# ---------------------------------------------------------------- the text

def test_each_crossing_edge_is_one_send_and_one_recv_that_are_seen_in_the_text() -> None:
    graph = parse_graph("""
def f(x: f32[3], w: f32[3]):
    a: f32[3] = exp(x)
    b: f32[3] = tanh(a)
    c: f32[3] = add(a, w)
    d: f32[3] = multiply(b, c)
    return d, a
""")
    parts = agrees(graph, placed(graph, {"tanh": 1, "add": 1}, (0, 1)), X, X)
    assert [str(parts[k].graph).splitlines()[1:] for k in (0, 1)] == [[
        "    v0: f32[3] = exp(x)",
        "    v1: token = send(v0, to=1, tag=0)",
        "    v2: tuple[f32[3], token] = recv(source=1, tag=1, shape=(3,), dtype=f32, after=[v1])",
        "    v3: tuple[f32[3], token] = recv(source=1, tag=2, shape=(3,), dtype=f32, after=[v2[1]])",
        "    v4: f32[3] = multiply(v2[0], v3[0])",
        "    return v4, v0",
    ], [
        "    v0: tuple[f32[3], token] = recv(source=0, tag=0, shape=(3,), dtype=f32)",
        "    v1: f32[3] = tanh(v0[0])",
        "    v2: token = send(v1, to=0, tag=1, after=[v0[1]])",
        "    v3: f32[3] = add(v0[0], w)",
        "    v4: token = send(v3, to=0, tag=2, after=[v2])",
        "    return",
    ]]
    assert parts[0].arguments == (0,) and parts[1].arguments == (1,) and parts[1].results == ()


def test_what_is_made_from_nothing_is_made_where_it_is_read() -> None:
    graph = trace(lambda x: (y := tn.arange(3, dtype="f32"), tn.exp(x) + y), VECTOR)
    parts = cut(graph, placed(graph, {"exp": 1, "add": 1}))
    assert "send" not in str(parts[0].graph) + str(parts[1].graph) and str(parts[1].graph).count("arange") == 1


def test_a_graph_of_any_size_tells_each_device_the_sizes() -> None:
    graph = trace(lambda x, y: (tn.exp(x).sum(axis=1) * 2.0, y), TensorType(float32, (symbol("B"), 3)), VECTOR)
    for rows in (2, 5):
        agrees(graph, placed(graph, {"multiply": 1}, (0, 1)), np.ones((rows, 3)), X)


def test_what_nobody_reads_does_not_cross() -> None:
    graph = trace(lambda x: (tn.exp(tn.tanh(x)), x * 2.0)[1], VECTOR)
    parts = cut(graph, placed(graph, {"exp": 1}))
    assert list(parts) == [0] and "send" not in str(parts[0].graph)


# ---------------------------------------------------------------- effects

def test_effects_keep_their_order_between_devices() -> None:
    graph = parse_graph("""
def f(x: f32[3]):
    t0: token = say(x, output_effect=0)
    a: f32[3] = exp(x)
    t1: token = say(a, output_effect=1)
    t2: token = say(x, output_effect=2)
    return a
""")
    says = [node for node in graph.nodes if node.op is say]
    placement = placed(graph, {})
    placement = Placement(("a", "b", "c"), {**placement.of, says[0]: 1, says[1]: 0, says[2]: 2}, (None,))
    for _ in range(20):
        with hearing() as heard:
            run_cut(graph, placement, [X])
        assert [number for number, _ in heard] == [0, 1, 2]


def test_effects_in_the_turns_of_a_loop_keep_their_order() -> None:
    graph = parse_graph("""
def f(n: i64):
    def body(k: i64):
        t0: token = say(k, output_effect=0)
        m: i64 = add(k, 1)
        t1: token = say(m, output_effect=1)
        return m
    def condition(k: i64):
        more: bool = less(k, 4)
        return more
    r: i64 = while_loop(n, constants=0, condition=condition, body=body)
    t2: token = say(r, output_effect=2)
    return r
""")
    nodes = all_nodes(graph)
    says = [node for node in nodes if node.op is say]
    of = {node: 0 for node in nodes if not node.graphs}
    placement = Placement(("a", "b"), {**of, says[0]: 1, says[2]: 1}, (None,))
    with hearing() as heard:
        run_cut(graph, placement, [np.asarray(1)])
    assert [(k, int(x[0])) for k, x in heard] == [(0, 1), (1, 2), (0, 2), (1, 3), (0, 3), (1, 4), (2, 4)]


# ---------------------------------------------------------------- branches and loops

def chosen(p: Any, x: Any) -> Any:
    true = trace(lambda x: tn.exp(x) * tn.tanh(x), VECTOR)
    false = trace(lambda x: tn.tanh(x) + 1.0, VECTOR)
    return cond(p, x, true=true, false=false)


def doubled(x: Any) -> Any:
    """As long as the sum is small; the condition on one device, the body on two."""
    return while_loop(x, constants=0, condition=trace(lambda x: x.sum() < 50.0, VECTOR),
                      body=trace(lambda x: tn.exp(tn.tanh(x)) + x, VECTOR))


def summed(c: Any, xs: Any) -> Any:
    body = trace(lambda c, x: (tn.tanh(c) + x, tn.exp(c * 0.1)), VECTOR, VECTOR)
    return scan(c, xs, constants=0, carried=1, length=4, body=body, reverse=False)


@pytest.mark.parametrize("p", [True, False])
@pytest.mark.parametrize("where", [{"exp": 1}, {"tanh": 1, "add": 1}, {"exp": 1, "multiply": 2}])
def test_a_branch_is_on_every_device_that_takes_part(p: bool, where: dict[str, int]) -> None:
    graph = trace(chosen, TensorType(bool_, ()), VECTOR)
    parts = agrees(graph, placed(graph, where, (0, 0)), p, X)
    assert all("cond(" in str(part.graph) for part in parts.values()) and len(parts) == max(where.values()) + 1


@pytest.mark.parametrize("where", [{"exp": 1}, {"less": 1, "sum": 1}, {"tanh": 1, "less": 2, "add": 1}])
def test_a_loop_sends_its_condition_in_every_turn(where: dict[str, int]) -> None:
    graph = trace(doubled, VECTOR)
    parts = agrees(graph, placed(graph, where, (0,)), X)
    assert all("while_loop(" in str(part.graph) for part in parts.values())
    for start in (100.0, 0.0):
        agrees(graph, placed(graph, where, (0,)), np.full(3, start))


@pytest.mark.parametrize("where", [{"exp": 1}, {"tanh": 1}, {"tanh": 1, "add": 2, "exp": 3}])
def test_a_scan_goes_on_together(where: dict[str, int]) -> None:
    graph = trace(summed, VECTOR, TensorType(float32, (4, 3)))
    agrees(graph, placed(graph, where, (0, 0)), X, np.arange(12).reshape(4, 3) * 0.1)


@pytest.mark.parametrize("make", [lambda p, x, xs: chosen(p, x), lambda p, x, xs: doubled(x),
                                  lambda p, x, xs: summed(x, xs)[0]])
def test_gradients_of_them_are_cut_too(make: Any) -> None:
    graph = trace(make, TensorType(bool_, ()), VECTOR, TensorType(float32, (4, 3)))
    pullback = open_calls(pullback_of(graph))
    where = {"exp": 1, "multiply": 1, "tanh": 2}
    agrees(pullback, placed(pullback, where), True, X, np.arange(12).reshape(4, 3) * 0.1, np.ones(3))


def test_what_a_branch_passes_on_stays_where_it_is() -> None:
    true, false = trace(lambda x, y: (x, tn.exp(y)), VECTOR, VECTOR), trace(lambda x, y: (y, x), VECTOR, VECTOR)
    graph = trace(lambda p, x, y: cond(p, x, y, true=true, false=false), TensorType(bool_, ()), VECTOR, VECTOR)
    for p in (True, False):
        agrees(graph, placed(graph, {"exp": 1}, (0, 1, 0)), p, X, -X)


# ---------------------------------------------------------------- what cannot be

def test_a_wrong_placement_is_an_error() -> None:
    graph = trace(lambda x: tn.exp(x), VECTOR)
    with pytest.raises(GraphError, match="exp is on no device"):
        cut(graph, Placement(("a",), {}, (None,)))
    with pytest.raises(GraphError, match="exp is on device 3 of 1"):
        cut(graph, Placement(("a",), {graph.nodes[0]: 3}, (None,)))
    with pytest.raises(GraphError, match="2 devices for 1 parameters"):
        cut(graph, Placement(("a",), {graph.nodes[0]: 0}, (None, None)))
    with pytest.raises(GraphError, match="parameter x is on device 7 of 1"):
        cut(graph, Placement(("a",), {graph.nodes[0]: 0}, (7,)))


# ---------------------------------------------------------------- at random

def test_random_graphs_at_random_places_are_what_they_are_uncut() -> None:
    graphs, parts = sweep(100, "reference", 11)
    assert graphs == 100 and parts > graphs


def test_so_they_are_compiled() -> None:
    assert sweep(12, "cpu", 12)[0] == 12

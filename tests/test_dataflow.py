"""The dataflow form: equal to the structured form, iterations that overlap, and graphs that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon as tn
from tenon.autodiff import gradient_graph
from tenon.dataflow.dataflow_ir import Dataflow, Edge, Primitive, Vertex
from tenon.dataflow.dataflow_text import parse_dataflow
from tenon.dataflow.execute import execute
from tenon.dataflow.from_graph import to_dataflow
from tenon.dataflow.verify_dataflow import verify
from tenon.debug.stage_texts import show_function
from tenon.dims.symbolic_dim import symbol
from tenon.errors import GraphError
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph, Value
from tenon.graph.op import OPS
from tenon.ops.branches import cond, switch
from tenon.ops.loops import scan, while_loop
from tenon.ops.shape import broadcast_to
from tenon.passes.expand import expand
from tenon.types import TensorType, float32, float64, int64

VECTOR, NUMBER = TensorType(float32, (3,)), TensorType(float32, ())
INDEX = TensorType(int64, ())


def flow_of(graph: Graph) -> Dataflow:
    return to_dataflow(expand(graph))


def check(graph: Graph, *arrays: Any, **options: Any) -> list[np.ndarray]:
    flow = flow_of(graph)
    parsed = parse_dataflow(str(flow))
    assert str(parsed) == str(flow)
    found = execute(parsed, [np.asarray(a) for a in arrays], **options)
    for left, right in zip(found, interpret(graph, [np.asarray(a) for a in arrays]), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5)
        assert left.dtype == right.dtype and left.shape == right.shape
    return found


def halving() -> Graph:
    """x is halved until its sum is at most the limit; the turns are counted."""
    types = (NUMBER, VECTOR, INDEX)
    loop = {"constants": 1, "condition": trace(lambda limit, x, n: x.sum() > limit, *types),
            "body": trace(lambda limit, x, n: (x * 0.5, n + 1), *types)}
    return trace(lambda limit, x: while_loop(limit, x, _zero(x), **loop),
                 NUMBER, VECTOR)


def _zero(x: Any) -> Any:
    return (x.sum() * 0.0).astype(int64)


def test_a_loop_runs_as_often_as_its_condition_holds():
    x, n = check(halving(), np.float32(1), np.float32([8, 8, 8]))
    assert n == 5 and x[0] == 0.25
    _, n = check(halving(), np.float32(100), np.float32([8, 8, 8]))
    assert n == 0


def test_the_text_names_the_primitives():
    text = str(flow_of(halving()))
    for name in ("Switch(", "Merge(", "Enter(", "Exit(", "NextIteration(", "frame='loop0'", "constant=True"):
        assert name in text


def test_only_the_branch_taken_runs():
    graph = trace(lambda p, x: cond(p, x, true=trace(lambda x: tn.exp(x), VECTOR), false=trace(lambda x: x + 1, VECTOR)),
                  TensorType(tn.bool, ()), VECTOR)
    ran: list[str] = []
    for taken, name in ((True, "exp"), (False, "add")):
        ran.clear()
        execute(flow_of(graph), [np.bool_(taken), np.float32([1, 2, 3])], observe=lambda v, _: ran.append(v.name))
        assert name in ran and len({"exp", "add"}.intersection(ran)) == 1


def test_a_branch_of_constants_waits_for_its_condition():
    graph = trace(lambda p: cond(p, true=trace(lambda: tn.ops.creation.zeros((3,), dtype=float32)),
                                 false=trace(lambda: tn.ops.creation.ones((3,), dtype=float32))),
                  TensorType(tn.bool, ()))
    assert check(graph, np.bool_(True))[0].sum() == 0
    assert check(graph, np.bool_(False))[0].sum() == 3


@pytest.mark.parametrize("index", [-4, 0, 1, 2, 9])
def test_switch_clamps_its_index(index):
    branches = tuple(trace(lambda x, k=k: x * float(k), VECTOR) for k in (1, 2, 3))
    graph = trace(lambda i, x: switch(i, x, branches=branches), INDEX, VECTOR)
    (y,) = check(graph, np.int64(index), np.float32([1, 1, 1]))
    assert y[0] == min(max(index, 0), 2) + 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_a_loop_that_counts(reverse):
    body = trace(lambda w, c, x: (c * w + x, c), NUMBER, NUMBER, NUMBER)
    graph = trace(lambda w, c, xs: scan(w, c, xs, constants=1, carried=1, length=5, body=body, reverse=reverse),
                  NUMBER, NUMBER, TensorType(float32, (5,)))
    check(graph, np.float32(0.5), np.float32(1), np.arange(5, dtype=np.float32))


def test_iterations_overlap_as_far_as_they_may():
    """The counter runs ahead of the work of each iteration, at most `parallel_iterations` of them."""
    types = (INDEX, INDEX, VECTOR)
    loop = {"constants": 1, "condition": trace(lambda n, i, x: i < n, *types),
            "body": trace(lambda n, i, x: (i + 1, tn.sin(tn.cos(tn.sin(x)))), *types)}
    graph = trace(lambda n, i, x: while_loop(n, i, x, **loop), INDEX, INDEX, VECTOR)
    for most in (1, 4):
        ahead, counted, worked = 0, -1, -1

        def observe(vertex: Vertex, where: str) -> None:
            nonlocal ahead, counted, worked
            turn = int(where.rpartition(":")[2] or 0)
            if vertex.name == "less":
                counted = max(counted, turn)
            if vertex.name == "cos":
                worked = max(worked, turn)
            ahead = max(ahead, counted - worked)
        check(graph, np.int64(20), np.int64(0), np.float32([1, 2, 3]), parallel_iterations=most)
        execute(flow_of(graph), [np.int64(20), np.int64(0), np.float32([1, 2, 3])], parallel_iterations=most,
                observe=observe)
        assert (ahead > 1) == (most > 1) and ahead <= most + 1


def test_gradients_of_branches_and_loops():
    """The loop of the gradient runs as often as the loop did; the branch not taken gives none, and no NaN."""
    types = (TensorType(float64, ()), TensorType(float64, ()))
    root = {"true": trace(lambda x: tn.sqrt(x), types[0]), "false": trace(lambda x: x * 3.0, types[0])}
    loop = {"constants": 1, "condition": trace(lambda w, x: x < 50.0, *types), "body": trace(lambda w, x: x * w, *types)}
    graph = trace(lambda w, x: cond(x > 0.0, while_loop(w, x, **loop), **root), *types)
    gradient = gradient_graph(graph)
    for w, x in ((3.0, 1.0), (2.0, 5.0), (2.0, 60.0), (2.0, -1e30)):
        if x < 0:
            graph_at, at = gradient_graph(trace(lambda x: cond(x > 0.0, x, **root), types[1])), [np.float64(x)]
        else:
            graph_at, at = gradient, [np.float64(w), np.float64(x)]
        found = check(graph_at, *at)
        assert all(np.isfinite(g) for g in found[1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_compute_the_same(workers):
    check(halving(), np.float32(1), np.float32([8, 8, 8]), workers=workers)


# ---------------------------------------------------------------- random programs

@st.composite
def programs(draw: Any, depth: int = 3) -> Graph:
    """Branches and loops within each other, over a vector and a number."""
    return trace(lambda x, s: _statements(draw, [x, s], depth), VECTOR, NUMBER, name="random")


def _statements(draw: Any, state: list[Any], depth: int) -> list[Any]:
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["plain", "plain", "cond", "switch", "while", "scan"] if depth else ["plain"]))
        state = list(BUILD[kind](draw, state, depth))
    return state


def _plain(draw: Any, state: list[Any], depth: int) -> list[Any]:
    x, s = state
    return draw(st.sampled_from([
        lambda: [x * 0.5 + s, s], lambda: [tn.sin(x), x.sum() * 0.25], lambda: [x, 1.0 - s], lambda: [x + 1.0, s],
        lambda: [x, tn.tanh(s) * 2.0], lambda: [x - x.mean(), s + 0.5]]))()


def _part(draw: Any, depth: int) -> Graph:
    return trace(lambda x, s: _statements(draw, [x, s], depth - 1), VECTOR, NUMBER)


def _cond(draw: Any, state: list[Any], depth: int) -> Any:
    bound = draw(st.sampled_from([-0.5, 0.0, 0.5]))
    return cond(state[1] > bound, *state, true=_part(draw, depth), false=_part(draw, depth))


def _switch(draw: Any, state: list[Any], depth: int) -> Any:
    branches = tuple(_part(draw, depth) for _ in range(draw(st.integers(1, 3))))
    return switch((state[1] * 2.0).astype(int64), *state, branches=branches)


def _while(draw: Any, state: list[Any], depth: int) -> Any:
    turns, part = draw(st.integers(0, 4)), _part(draw, depth)
    types = (NUMBER, INDEX, VECTOR, NUMBER)

    def body(k: Value, i: Value, x: Value, s: Value) -> Any:
        y, t = inlined(part, x, s)
        return i + 1, y + k, t
    out = while_loop(state[1], _zero(state[0]), *state, constants=1,
                     condition=trace(lambda k, i, x, s: (i < turns) & (s < 3.0), *types), body=trace(body, *types))
    return out[1:]


def _scan(draw: Any, state: list[Any], depth: int) -> Any:
    part = _part(draw, depth)

    def body(s: Value, row: Value) -> Any:
        y, t = inlined(part, broadcast_to(row, shape=(3,)), s)
        return t, y.sum()
    s, rows = scan(state[1], state[0], constants=0, carried=1, length=3, body=trace(body, NUMBER, NUMBER),
                   reverse=draw(st.booleans()))
    return [rows, s]


def inlined(graph: Graph, *inputs: Any) -> Any:
    return OPS["call"](*inputs, body=graph)


BUILD = {"plain": _plain, "cond": _cond, "switch": _switch, "while": _while, "scan": _scan}


@settings(max_examples=60, deadline=None)
@given(programs(), st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4), st.sampled_from([1, 3, 32]),
       st.sampled_from([0, 0, 2]))
def test_the_dataflow_form_equals_the_structured_form(graph, numbers, most, workers):
    check(graph, np.float32(numbers[:3]), np.float32(numbers[3]), parallel_iterations=most, workers=workers)


@settings(max_examples=20, deadline=None)
@given(programs(depth=2), st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4))
def test_gradients_of_random_programs_have_a_dataflow_form(graph, numbers):
    def loss(x: Value, s: Value) -> Value:
        y, t = inlined(graph, x, s)
        return y.sum() + t
    check(gradient_graph(trace(loss, VECTOR, NUMBER)), np.float32(numbers[:3]), np.float32(numbers[3]))


def test_symbolic_sizes():
    n = symbol("N")
    rows = TensorType(float32, (n, 2))
    body = trace(lambda c, x: (c + x, c), TensorType(float32, (2,)), TensorType(float32, (2,)))
    graph = trace(lambda c, xs: scan(c, xs, constants=0, carried=1, length=n, body=body), TensorType(float32, (2,)), rows)
    for size in (2, 5):
        arrays = [np.float32([1, 2]), np.ones((size, 2), np.float32)]
        found = execute(flow_of(graph), arrays, {"N": size})
        for left, right in zip(found, interpret(graph, arrays), strict=True):
            np.testing.assert_allclose(left, right)


# ---------------------------------------------------------------- graphs that are no graphs

def vertex(does: Any, *inputs: Any, **attrs: Any) -> Vertex:
    return Vertex(does, list(inputs), attrs, (VECTOR,) * (2 if does is Primitive.SWITCH else 1))


def test_a_cycle_is_refused_with_its_vertices_and_a_loop_is_none():
    x = vertex(Primitive.PARAMETER, name="x")
    first = vertex(OPS["sin"], x[0])
    second = vertex(OPS["cos"], first[0])
    first.inputs[0] = second[0]
    with pytest.raises(GraphError, match=r"wait for each other: (sin -> cos -> sin|cos -> sin -> cos)"):
        verify(Dataflow("f", (x,), (x, first, second), (second[0],)))


def test_values_of_two_loops_do_not_meet():
    x = vertex(Primitive.PARAMETER, name="x")
    inside = vertex(Primitive.ENTER, x[0], frame="loop")
    both = vertex(OPS["add"], x[0], inside[0])
    with pytest.raises(GraphError, match="add reads values of no loop and of loop loop"):
        verify(Dataflow("f", (x,), (x, inside, both), (both[0],)))
    with pytest.raises(GraphError, match="a result is inside of a loop"):
        verify(Dataflow("f", (x,), (x, inside), (inside[0],)))
    out = vertex(Primitive.EXIT, x[0])
    with pytest.raises(GraphError, match="an Exit stands outside of all loops"):
        verify(Dataflow("f", (x,), (x, out), (out[0],)))


def test_a_result_that_never_comes_is_an_error():
    x = vertex(Primitive.PARAMETER, name="x")
    p = Vertex(Primitive.PARAMETER, [], {"name": "p"}, (TensorType(tn.bool, ()),))
    split = vertex(Primitive.SWITCH, x[0], p[0])
    flow = verify(Dataflow("f", (x, p), (x, p, split), (Edge(split, 1),)))
    assert execute(flow, [np.ones(3, np.float32), np.bool_(True)])[0].sum() == 3
    with pytest.raises(GraphError, match="the result of Switch never came"):
        execute(flow, [np.ones(3, np.float32), np.bool_(False)])


@pytest.mark.parametrize(("text", "message"), [
    ("def f(x: f32):\n    v0: f32 = sin(y)\n    return v0", "line 2: no edge named 'y'"),
    ("def f(x: f32):\n    x: f32 = sin(x)\n    return x", "line 2: the name 'x' is taken"),
    ("def f(x: f32):\n    v0: f32 = nothing(x)\n    return v0", "line 2: expected"),
    ("def f(x: f32):\n    v0: f32 = sin(v1)\n    v1: f32 = sin(v0)\n    return v1", "these wait for each other"),
    ("def f(x: f32):\n    v0: tuple[f32, f32] = Switch(x)\n    return v0[0]", "Switch takes 2 inputs, not 1"),
    ("def f(x: f32):\n    v0: f32 = Enter(x)\n    v1: f32 = Exit(v0)\n    return v1", "Enter names its frame"),
    ("def f(x: f32):\n    return x, x[1]", "line 2: no edge named 'x"),
    ("x = 1", "one function definition"),
])
def test_texts_of_no_dataflow_are_refused(text, message):
    with pytest.raises(GraphError, match=message):
        parse_dataflow(text)


def test_a_user_sees_it(tmp_path: Path) -> None:
    """`tenon show` prints it, and what is printed runs."""
    (tmp_path / "f.py").write_text("def halved(n):\n    while n > 1:\n        n = n // 2\n    return n\n")
    [shown] = show_function(f"{tmp_path / 'f.py'}:halved", ["i64"], ["dataflow"])
    found = execute(parse_dataflow(shown.removeprefix("# dataflow\n")), [np.int64(20)])
    assert "NextIteration" in shown and [int(x) for x in found] == [1]

"""What each pass does to small graphs, as text."""

import numpy as np

from tenon.errors import Location
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.op import OPS
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.ops.define import composite, define
from tenon.ops.exponential import exp
from tenon.ops.reduction import sum_
from tenon.passes.drop_dead import drop_dead
from tenon.passes.expand import expand
from tenon.passes.fold import fold
from tenon.passes.merge_duplicates import merge_duplicates
from tenon.types import TOKEN, TensorType


@composite(public=False)
def pass_test_softmax(x, *, axis):
    e = exp(x)
    return e / sum_(e, axis=axis, keepdims=True)


@composite(public=False)
def pass_test_twice(x):
    return pass_test_softmax(x, axis=0), pass_test_softmax(x, axis=1)


note = define("pass_test_note", public=False, type=lambda x: TOKEN, ref=lambda x: None, effect=True)
apply = define("pass_test_apply", public=False, type=lambda x, *, body: tuple(r.type for r in body.results),
               ref=lambda x, body: tuple(interpret(body, [x])))


def text(graph: Graph) -> str:
    return print_graph(verify(graph), locations=False)


def lines(*rows: str) -> str:
    return "\n    ".join(rows)


def test_drop_dead_keeps_what_results_and_effects_need() -> None:
    graph = parse_graph(lines("def f(x: f32[2], y: f32[2]):", "v0: f32[2] = add(x, y)", "v1: f32[2] = exp(v0)",
                              "v2: f32[2] = exp(x)", "v3: token = pass_test_note(v2)", "return v0"))
    assert text(drop_dead(graph)) == lines("def f(x: f32[2], y: f32[2]):", "v0: f32[2] = add(x, y)",
                                           "v1: f32[2] = exp(x)", "v2: token = pass_test_note(v1)", "return v0")


def test_a_graph_without_dead_nodes_is_returned_as_it_is() -> None:
    graph = parse_graph(lines("def f(x: f32[2]):", "v0: f32[2] = exp(x)", "return v0"))
    assert drop_dead(graph) is graph


def test_duplicates_are_merged_but_not_effects() -> None:
    graph = parse_graph(lines("def f(x: f32[2]):", "v0: f32[2] = exp(x)", "v1: f32[2] = exp(x)",
                              "v2: token = pass_test_note(v0)", "v3: token = pass_test_note(v1, after=[v2])",
                              "v4: f32[2] = add(v0, v1)", "return v4"))
    assert text(merge_duplicates(graph)) == lines(
        "def f(x: f32[2]):", "v0: f32[2] = exp(x)", "v1: token = pass_test_note(v0)",
        "v2: token = pass_test_note(v0, after=[v1])", "v3: f32[2] = add(v0, v0)", "return v3")


def test_literals_that_differ_only_in_sign_or_type_are_no_duplicates() -> None:
    graph = parse_graph(lines("def f(x: f32[2]):", "v0: f32[2] = add(x, 0.0)", "v1: f32[2] = add(x, -0.0)",
                              "v2: f32[2] = add(v0, v1)", "return v2"))
    assert len(merge_duplicates(graph).nodes) == 3


def test_expand_opens_composites_in_composites_and_keeps_the_location() -> None:
    graph = parse_graph(lines("def f(x: f32[2, 2]):",
                              "v0: tuple[f32[2, 2], f32[2, 2]] = pass_test_twice(x)  # train.py:7",
                              "return v0[0], v0[1]"))
    opened = verify(expand(graph))
    assert {node.op.name for node in opened.nodes} == {"exp", "sum", "divide", "broadcast_to"}
    assert {node.loc for node in opened.nodes} == {Location("train.py", 7)}


def test_expand_leaves_what_a_backend_claims() -> None:
    graph = parse_graph(lines("def f(x: f32[2, 2]):", "v0: tuple[f32[2, 2], f32[2, 2]] = pass_test_twice(x)",
                              "return v0[0], v0[1]"))
    kept = expand(graph, claimed=lambda node: node.op is OPS["pass_test_softmax"])
    assert [node.op.name for node in kept.nodes] == ["pass_test_softmax", "pass_test_softmax"]


def test_fold_computes_constants_and_writes_scalars_as_literals() -> None:
    graph = parse_graph(lines("def f(x: f32[2]):", "v0: f32 = exp(f32(0.0))", "v1: f32[2] = multiply(x, v0)",
                              "v2: f32[2] = constant(data=(1.0, 2.0), dtype=f32, shape=(2,))",
                              "v3: f32[2] = add(v2, v2)", "v4: f32[2] = add(v1, v3)", "return v4"))
    assert text(drop_dead(fold(graph))) == lines(
        "def f(x: f32[2]):", "v0: f32[2] = multiply(x, 1.0)",
        "v1: f32[2] = constant(data=(2.0, 4.0), dtype=f32, shape=(2,))", "v2: f32[2] = add(v0, v1)", "return v2")


def test_fold_leaves_large_and_symbolic_results() -> None:
    graph = parse_graph(lines("def f(x: f32[B]):", "v0: f32[B] = full_op(f32(1.0), shape=(B,))",
                              "v1: f32[4096] = full_op(f32(1.0), shape=(4096,))", "v2: f32[4096] = exp(v1)",
                              "v3: f32[B] = add(x, v0)", "return v3, v2"))
    assert text(fold(graph)) == text(graph)


def test_passes_work_on_sub_graphs() -> None:
    graph = parse_graph(lines("def f(x: f32[2]):", "def body(y: f32[2]):", "    a: f32[2] = exp(y)",
                              "    b: f32[2] = exp(y)", "    c: f32[2] = add(a, b)", "    d: f32[2] = exp(c)",
                              "    return c", "v0: tuple[f32[2]] = pass_test_apply(x, body=body)", "return v0[0]")
                        .replace("v0: tuple[f32[2]]", "v0: f32[2]").replace("v0[0]", "v0"))
    cleaned = verify(drop_dead(merge_duplicates(graph)))
    assert [node.op.name for node in cleaned.nodes[0].graphs[0].nodes] == ["exp", "add"]


def test_no_pass_changes_its_argument() -> None:
    graph = parse_graph(lines("def f(x: f32[2]):", "v0: f32[2] = exp(x)", "v1: f32[2] = exp(x)",
                              "v2: f32[2] = add(v0, v1)", "return v2"))
    before = text(graph)
    for run in (expand, fold, merge_duplicates, drop_dead):
        run(graph)
    assert text(graph) == before


def test_optimised_graphs_compute_the_same() -> None:
    graph = parse_graph(lines("def f(x: f32[2, 2]):", "v0: tuple[f32[2, 2], f32[2, 2]] = pass_test_twice(x)",
                              "v1: f32[2, 2] = add(v0[0], v0[1])", "return v1"))
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    expected = interpret(graph, [x])
    for run in (expand, fold, merge_duplicates, drop_dead):
        graph = run(graph)
    np.testing.assert_allclose(interpret(graph, [x]), expected, rtol=1e-6)
    assert graph.params[0].type == TensorType(graph.results[0].dtype, (2, 2))

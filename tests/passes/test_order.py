"""What frees memory comes early; nothing else changes."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.passes.fusion.liveness import peak_bytes
from tenon.passes.schedule_nodes import NodeOrder, can_fail, schedule_nodes
from tenon.pipeline import compile, optimize
from tests.graphs import arrays_for, assert_close, mixed_graphs

# Both gradients are in memory at once, though the first is only read by the step after the second.
TWO_STEPS = """
def f(w1: f32[50, 60], w2: f32[50, 60], x: f32[50, 8], y: f32[8, 60], z: f32[8, 60]):
    g1: f32[50, 60] = matmul(x, y)
    g2: f32[50, 60] = matmul(x, z)
    n1: f32[50, 60] = subtract(w1, g1)
    n2: f32[50, 60] = subtract(w2, g2)
    return n1, n2
"""


def names(graph):
    return [node.op.name for node in graph.nodes]


def test_a_step_comes_before_the_next_gradient_is_computed():
    graph = parse_graph(TWO_STEPS)
    found = verify(schedule_nodes(graph))
    assert names(found) == ["matmul", "subtract", "matmul", "subtract"]
    assert peak_bytes(found) == peak_bytes(graph) // 2 == 12_000


def test_a_renamed_gradient_is_followed_to_its_step():
    renamed = TWO_STEPS.replace("n1: f32[50, 60] = subtract(w1, g1)", """\
r: f32[3000] = reshape(g1, shape=(3000,))
    s: f32[50, 60] = reshape(r, shape=(50, 60))
    n1: f32[50, 60] = subtract(w1, s)""")
    assert names(schedule_nodes(parse_graph(renamed))) == ["matmul", "reshape", "reshape", "subtract", "matmul", "subtract"]


def test_a_step_waits_for_the_last_reader_of_what_it_replaces():
    read_again = TWO_STEPS.replace("g2: f32[50, 60] = matmul(x, z)", """\
again: f32[50, 60] = multiply(w1, w1)
    g2: f32[50, 60] = matmul(x, z)""").replace("return n1, n2", "return n1, n2, again")
    assert names(schedule_nodes(parse_graph(read_again))) == ["matmul", "multiply", "subtract", "matmul", "subtract"]


def test_no_result_is_written_before_what_can_fail():
    """A program that fails leaves donated arguments as they were."""
    failing = """
def f(w: f32[50, 60], x: f32[50, 8], y: f32[8, 60], i: i64[3]):
    g1: f32[50, 60] = matmul(x, y)
    t: f32[3, 60] = take(y, i, axis=0)
    g2: f32[50, 60] = exp(g1)
    n: f32[50, 60] = subtract(w, g2)
    return n, t
"""
    graph = parse_graph(failing)
    assert [can_fail(node) for node in graph.nodes] == [False, True, False, False]
    assert names(schedule_nodes(graph)).index("take") < names(schedule_nodes(graph)).index("subtract")


def test_results_take_the_memory_of_donated_arguments_in_the_new_order():
    program = compile(parse_graph(TWO_STEPS), backend="cpu")
    arrays = arrays_for(program.graph)
    expected = interpret(parse_graph(TWO_STEPS), [x.copy() for x in arrays])
    results = program.run(arrays, {0, 1})
    assert {id(x) for x in results} == {id(arrays[0]), id(arrays[1])}
    assert_close(results, expected, 1e-5)


def test_what_is_in_order_stays_the_same_graph():
    graph = parse_graph("def f(x: f32[10]):\n    y: f32[10] = exp(x)\n    return y\n")
    assert schedule_nodes(graph) is graph


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mixed_graphs(most_nodes=15))
def test_random_graphs_compute_the_same_in_no_more_memory(graph):
    kernels = optimize(graph, backend="cpu")
    found = verify(schedule_nodes(kernels))
    assert sorted(map(id, found.nodes)) == sorted(map(id, kernels.nodes))
    assert peak_bytes(found) <= peak_bytes(kernels)
    arrays = arrays_for(graph)
    with np.errstate(all="ignore"):
        assert_close(interpret(found, arrays), interpret(kernels, arrays), 0)


def test_a_number_that_steps_wait_for_is_computed_when_nothing_can_fail_any_more():
    waiting = TWO_STEPS.replace("z: f32[8, 60])", "z: f32[8, 60], i: i64[3], rate: f32[1, 1])").replace(
        "    g1:", "    t: f32[3, 60] = take(y, i, axis=0)\n    g1:").replace(
        "    n1:", "    r: f32[1, 1] = sqrt(rate)\n    q: f32[50, 60] = broadcast_to(r, shape=(50, 60))\n    n1:").replace(
        "subtract(w1, g1)", "multiply(g1, q)").replace("subtract(w2, g2)", "multiply(g2, q)").replace(
        "return n1, n2", "return n1, n2, t")
    found = [node.op.name for node in NodeOrder(parse_graph(waiting)).all()]
    assert found.index("sqrt") < found.index("matmul")


def test_a_number_that_all_steps_read_does_not_make_each_of_them_look_at_all_others():
    """Neither before the last node that can fail, nor after it: the time to order would be quadratic."""
    count, looked = 200, 0

    class Counting(NodeOrder):
        def _comes_early(self, node):
            nonlocal looked
            looked += 1
            return super()._comes_early(node)

    params = ", ".join(f"w{k}: f32[50, 60]" for k in range(count))
    steps = "\n".join(f"    g{k}: f32[50, 60] = multiply(w{k}, r)\n    n{k}: f32[50, 60] = subtract(w{k}, g{k})"
                      for k in range(count))
    graph = parse_graph(f"def f({params}, r: f32[50, 60], t: f32[9, 60], i: i64[3]):\n{steps}\n"
                        f"    c: f32[3, 60] = take(t, i, axis=0)\n"
                        f"    return {', '.join(f'n{k}' for k in range(count))}, c\n")
    assert len(list(Counting(graph).all())) == len(graph.nodes) == 2 * count + 1
    assert looked < 10 * count


DRAW = """
def f(s: u64[2], x: f32[10]):
    next: u64[2] = random_advance(s)
    drawn: f32[10] = random_uniform(s, shape=(10,), dtype=f32, stream=0)
    sum: f32[10] = add(x, drawn)
    return sum, next
"""


def test_a_small_state_is_replaced_after_all_who_read_it():
    assert names(verify(schedule_nodes(parse_graph(DRAW)))) == ["random_uniform", "random_advance", "add"]
    renamed = DRAW.replace("    sum:", "    r: u64[1, 2] = reshape(s, shape=(1, 2))\n    q: u64[1, 2] = negative(r)\n    sum:")
    found = verify(schedule_nodes(parse_graph(renamed.replace("next\n", "next, q\n"))))
    assert names(found) == ["random_uniform", "reshape", "negative", "random_advance", "add"]


def test_a_state_that_draws_advance_keeps_its_memory():
    """Then a call that draws has nothing left to assign."""
    program = compile(parse_graph(DRAW), backend="cpu")
    arrays = arrays_for(program.graph)
    expected = interpret(parse_graph(DRAW), [x.copy() for x in arrays])
    results = program.run(arrays, {0})
    assert results[1] is arrays[0]
    assert_close(results, expected, 1e-6)

"""Optimised graphs on disk: as exact as the text, at the places of the graph at hand, and only where the text says all."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tenon as tn
from tenon import pipeline
from tenon.debug.show import show
from tenon.graph.ir import Graph
from tenon.graph.json_form import graph_of, places_of, record_of
from tenon.graph.text import key_of, parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.llvm import machine_code
from tenon.llvm.code_cache import CodeCache
from tenon.observe import subscribe
from tests import operator_examples
from tests.graphs import graphs, mixed_graphs

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
LITERALS = """
def literals(x: f32[3], k: i32[3]):
    v0: f32[3] = add(x, inf)           # a.py:1
    v1: f32[3] = multiply(v0, -0.0)    # a.py:2
    v2: f32[3] = maximum(v1, nan)      # a.py:1
    v3: bool[3] = less(k, 7)      # b.py:1
    v4: f32[3] = where(v3, v2, f32(1e-30))
    return v4, v3
"""


def assert_survives(graph: Graph) -> None:
    places, _ = places_of(graph)
    again = verify(graph_of(json.loads(json.dumps(record_of(graph, places))), places))
    assert print_graph(again) == print_graph(graph)
    for node in again.nodes:
        assert all(key_of(body) == key_of.function(body) for body in node.graphs)


@pytest.mark.parametrize("text", operator_examples.succeeding())
def test_every_operator_survives(text):
    assert_survives(operator_examples.graph_of(operator_examples.parse_example(text)))


def test_literals_and_places_survive():
    assert_survives(parse_graph(LITERALS))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mixed_graphs() | graphs(symbolic=True))
def test_random_optimised_graphs_survive(graph):
    assert_survives(pipeline.optimize(graph, backend="cpu"))


def test_equal_sub_graphs_are_written_once_and_read_with_places_of_their_own():
    layer = "\n".join(f"    v{k + 1}: f32[9] = exp(v{k})  # net.py:{k}" for k in range(2))
    inner = "\n".join("    " + line for line in f"def body(v0: f32[9]):\n{layer}\n    return v2".splitlines())
    graph = parse_graph(f"def net(x: f32[9]):\n{inner}\n    y: f32[9] = fused(x, body=body)\n"
                        f"{inner.replace('body(', 'body_1(').replace('net.py', 'other.py')}\n"
                        "    z: f32[9] = fused(y, body=body_1)\n    return z")
    graph.nodes[1].attrs["body"].name = "body"
    places, _ = places_of(graph)
    record = record_of(graph, places)
    assert len(record["graphs"]) == 2
    read = graph_of(record, places)
    assert [str(node.attrs["body"].nodes[0].loc) for node in read.nodes] == ["net.py:0", "other.py:0"]


def test_equal_bodies_of_kernels_from_the_same_places_are_read_as_one():
    inner = "    def body(p0: f32[9]):\n        a: f32[9] = exp(p0)  # net.py:0\n        return a\n"
    graph = parse_graph(f"def f(x: f32[9]):\n{inner}    y: f32[9] = fused(x, body=body)\n"
                        f"{inner.replace('body(', 'body_1(')}    z: f32[9] = fused(y, body=body_1)\n    return z")
    graph.nodes[1].attrs["body"].name = "body"
    places, _ = places_of(graph)
    first, second = (node.attrs["body"] for node in graph_of(record_of(graph, places), places).nodes)
    assert first is second


# ---------------------------------------------------------------- on disk

@pytest.fixture
def hits(tmp_path, monkeypatch):
    cache, found = CodeCache(tmp_path), []
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    monkeypatch.setattr(pipeline, "always_check", False)
    stop = subscribe(lambda event: found.append(event.name) if event.name in ("graph_cache.hit", "pass") else None)
    yield found
    stop()


def graph_at(line: int) -> Graph:
    return parse_graph(f"def f(x: f32[3, 4], k: i64[2]):\n    a: f32[3, 4] = exp(x)  # net.py:{line}\n"
                       f"    b: f32[2, 4] = take(a, k, axis=0)  # net.py:{line + 1}\n    return b")


def test_passes_run_once_and_places_are_those_of_the_graph_at_hand(hits):
    rows = np.array([2, 0])
    want = pipeline.compile(graph_at(1), "cpu").run([X, rows])[0]
    assert "pass" in hits and "graph_cache.hit" not in hits
    hits.clear()
    program = pipeline.compile(graph_at(50), "cpu")
    assert hits == ["graph_cache.hit"]
    np.testing.assert_array_equal(program.run([X, rows])[0], want)
    with pytest.raises(tn.errors.OutOfRange, match=r"net.py:51"):
        program.run([X, np.array([0, 3])])


def test_times_say_that_a_graph_came_from_the_disk(hits):
    lines: list[str] = []
    stop = show({"time"}, lines.append)
    try:
        for _ in range(2):
            pipeline.compile(graph_at(1), "cpu")
    finally:
        stop()
    first, second = "".join(lines).split("# time: compile", 1)
    assert "fold" in first and "from disk" not in first
    assert "from disk" in second and "fold" not in second


def test_other_attributes_other_types_and_one_place_for_two_are_other_graphs(hits):
    texts = ["def f(x: f32[3, 4]):\n    a: f32[3, 4] = multiply(x, 2.0)  # a.py:1\n"
             "    b: f32[3, 4] = exp(a)  # a.py:2\n    return b"]
    texts += [texts[0].replace("2.0", "3.0"), texts[0].replace("[3, 4]", "[4, 3]"), texts[0].replace("a.py:2", "a.py:1")]
    for text in texts:
        pipeline.compile(parse_graph(text), "cpu")
    assert "graph_cache.hit" not in hits


def test_what_users_add_is_not_taken_from_the_disk(hits):
    for factor in (2.0, 3.0):
        tripled = tn.op("times_something", type=lambda x: x, ref=lambda x, factor=factor: x * np.float32(factor),
                        expand=lambda x, factor=factor: x * factor, replace=True)
        np.testing.assert_allclose(tn.jit(lambda x, op=tripled: op(x) + 1)(X).numpy(), X * factor + 1, rtol=1e-6)
    assert "graph_cache.hit" not in hits
    exp = tn.jit(lambda x: tn.exp(x) + 1)
    exp(X)

    @tn.graph_pass
    def leave_as_it_is(graph):
        return graph
    try:
        hits.clear()
        tn.jit(lambda x: tn.exp(x) + 1)(X)
        assert "graph_cache.hit" not in hits and "pass" in hits
    finally:
        tn.remove_pass("leave_as_it_is")


WARM = """
import sys
import tenon as tn
print(tn.jit(lambda x: tn.exp(x) * 2.0 + 1.0)(tn.ones((3, 4))).sum().item())
print(*sys.modules)
"""


def test_a_second_process_loads_neither_passes_nor_loops(tmp_path):
    def loaded():
        done = subprocess.run([sys.executable, "-c", WARM], env=os.environ | {"TENON_CACHE": str(tmp_path)},
                              capture_output=True, text=True, check=True)
        result, modules = done.stdout.splitlines()
        return result, {name for name in modules.split() if name.startswith(("tenon.passes.", "tenon.loops."))}
    (cold, needed), (warm, kept) = loaded(), loaded()
    assert cold == warm
    assert {"tenon.passes.simplify", "tenon.passes.fuse", "tenon.loops.lower"} <= needed
    fusion = {f"tenon.passes.fusion{name}" for name in ("", ".kernel_bodies", ".index_checks", ".parametrize_slices")}
    assert kept <= {*fusion, "tenon.loops.whole_operators"}

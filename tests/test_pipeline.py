"""The runner of the passes, and compile on each backend."""

import numpy as np
import pytest

from tenon import pipeline
from tenon.errors import ArgumentError, GraphError
from tenon.graph.build import trace
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph
from tenon.observe import Event, subscribe
from tenon.pipeline import ON_KERNELS, OPTIMIZE, PASSES, Step, choose, compile, optimize, run_passes
from tenon.types import TensorType, float32

TEXT = "def f(x: f32[2]):\n    v0: f32[2] = multiply(x, 1.0)\n    v1: f32[2] = exp(v0)\n    return v1"


def test_every_pass_of_the_list_exists() -> None:
    assert set(OPTIMIZE) <= set(PASSES)


def test_optimize_records_what_each_pass_did() -> None:
    steps: list[Step] = []
    graph = optimize(parse_graph(TEXT), steps, backend="reference")
    assert [step.name for step in steps] == [name for name in OPTIMIZE if name not in ON_KERNELS]
    assert str(steps[0]) == "# expand (unchanged)"
    assert [step.name for step in steps if step.changed] == ["simplify", "drop_dead"]
    assert steps[-1].nodes_after == len(graph.nodes) == 1


def test_passes_are_reported_to_observers() -> None:
    events: list[Event] = []
    stop = subscribe(events.append)
    try:
        optimize(parse_graph(TEXT), backend="reference")
    finally:
        stop()
    assert [event.fields["name"] for event in events if event.name == "pass"] == [name for name in OPTIMIZE if name not in ON_KERNELS]


def test_an_error_names_the_pass() -> None:
    def broken(graph: Graph) -> Graph:
        return Graph(graph.name, (), graph.nodes, graph.results)
    with pytest.raises(GraphError) as error:
        run_passes(parse_graph(TEXT), [("broken", broken)], check=True)
    assert error.value.__notes__ == ["in pass broken on graph f"]


def test_the_reference_backend_runs_a_graph() -> None:
    program = compile(parse_graph(TEXT), backend="reference")
    x = np.array([0.0, 1.0], np.float32)
    np.testing.assert_allclose(program.run([x])[0], np.exp(x), rtol=1e-6)


def test_results_never_share_memory_with_arguments() -> None:
    program = compile(trace(lambda x: (x, x), TensorType(float32, (2,)), name="same"), backend="reference")
    x = np.zeros(2, np.float32)
    first, second = program.run([x])
    assert not np.shares_memory(first, x) and not np.shares_memory(first, second)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no backend named 'gpu'"):
        choose("gpu")


def test_every_graph_is_verified_after_every_pass_in_tests() -> None:
    assert pipeline.always_check

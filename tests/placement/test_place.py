"""Plans by cost: never worse than one device by their own estimate, and the numbers of the whole graph."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenon as tn
from graphs import arrays_for, assert_close, mixed_graphs
from structured_graphs import arguments_for, structured_graphs
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import PLACE, Graph
from tenon.graph.size_stages import is_sized_by_data
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.observe import subscribe
from tenon.ops.deferred_output import hearing
from tenon.pipeline import compile
from tenon.placement import place_costs
from tenon.placement.measure_devices import measured_timeline
from tenon.placement.place import place, round_robin
from tenon.placement.place_costs import Rates, measured_rates
from tenon.placement.placed_program import PlacedProgram, placed_by_cost, program_of_plan
from tenon.records import replace
from tenon.types import TensorType, float32

SQUARE = TensorType(float32, (64, 64))
NAMES = ("cpu", "cpu:1", "cpu:2")
FREE = Rates(message=0.0, byte=0.0, threads=3)          # whatever can be done at once is


def chains(count: int) -> Graph:
    """So many chains of small products that meet at the end."""
    def all_of(x: Any) -> Any:
        total = x
        for k in range(count):
            y = x * (k + 1.0)
            for _ in range(6):
                y = tn.tanh(y @ x)
            total = total + y
        return total
    return trace(all_of, SQUARE)


def one_chain(x: Any) -> Any:
    for _ in range(8):
        x = tn.tanh(x @ x)
    return x


@pytest.mark.parametrize("count", [2, 3, 5])
def test_chains_that_do_not_read_each_other_are_on_several_devices(count: int) -> None:
    plan = place(chains(count), NAMES[:2], Rates())
    assert plan.is_cut and plan.seconds < 0.9 * plan.alone
    assert plan.seconds <= round_robin(chains(count), NAMES[:2], Rates()).seconds


def test_a_chain_stays_on_one_device_and_so_does_what_costs_less_than_a_message() -> None:
    for function in (one_chain, lambda x: tn.exp(x[0]) + tn.sin(x[1])):
        plan = place(trace(function, SQUARE), NAMES, Rates())
        assert not plan.is_cut and plan.seconds == plan.alone and len(plan.timeline.names) == 1


def test_products_that_all_threads_share_stay_on_one_device() -> None:
    """Each device has a part of the threads only."""
    large = TensorType(float32, (1024, 1024))
    assert not place(trace(lambda x: (x @ x) + tn.tanh(x @ (x + 1.0)), large), NAMES[:2], Rates(threads=2)).is_cut


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=st.one_of(mixed_graphs(), structured_graphs(depth=1)), count=st.integers(1, 3), free=st.booleans())
def test_a_plan_is_never_worse_than_the_best_single_device(graph: Graph, count: int, free: bool) -> None:
    plan = place(graph, NAMES[:count], FREE if free else Rates())
    assert plan.seconds <= plan.alone
    assert plan.seconds <= round_robin(graph, NAMES[:count], FREE if free else Rates()).seconds * 1.0001
    verify(plan.graph)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=structured_graphs(depth=2), seed=st.integers(0, 99))
def test_what_a_plan_cuts_is_what_it_is_whole(graph: Graph, seed: int) -> None:
    arrays = arguments_for(graph, seed)
    program = program_of_plan(graph, place(graph, NAMES, FREE), lambda part: compile(part, backend="reference"))
    assert_close(program.run(arrays), interpret(graph, arrays))


def test_effects_stay_in_order() -> None:
    graph = parse_graph("""
def f(x: f32[64, 64]):
    a: f32[64, 64] = matmul(x, x)
    t0: token = say(a, output_effect=0)
    b: f32[64, 64] = exp(x)
    c: f32[64, 64] = matmul(b, b)
    t1: token = say(c, output_effect=1)
    t2: token = say(x, output_effect=2)
    return a, c
""")
    program = program_of_plan(graph, place(graph, NAMES, FREE), compile)
    with hearing() as heard:
        program.run(arrays_for(graph))
    assert [k for k, _ in heard] == [0, 1, 2]


def test_the_note_of_a_graph_makes_its_program_one_of_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chains(3)
    monkeypatch.setattr(place_costs, "_measured", [Rates()])       # whatever else this machine does
    noted = replace(graph, notes={PLACE: NAMES[:2]})
    x = np.full((64, 64), 0.01, np.float32)
    expected = compile(graph).run([x])
    found = compile(noted)
    assert_close(found.run([x]), expected)
    assert isinstance(found, PlacedProgram) and found.plan.seconds < found.plan.alone
    alone = compile(replace(trace(one_chain, SQUARE), notes={PLACE: NAMES}))
    assert not isinstance(alone, PlacedProgram)


def test_a_graph_of_sizes_by_data_runs_on_one_device() -> None:
    x = tn.tensor([1.0, -1.0, 2.0])
    graphs: list[Any] = []
    stop = subscribe(lambda event: graphs.append(event.fields["captured"]) if event.name == "graph" else None)
    tn.jit(lambda x: x[x > 0] * 3.0)(x)
    stop()
    sized = [graph for graph in graphs if is_sized_by_data(graph)]
    for graph in sized:
        found = placed_by_cost(replace(graph, notes={**graph.notes, PLACE: NAMES}), NAMES, compile)
        assert not isinstance(found, PlacedProgram)
    assert sized


def test_rates_are_measured_and_plans_are_drawn_beside_what_is_measured() -> None:
    rates = measured_rates(compile)
    assert 0 < rates.element < 1e-6 and 0 < rates.multiply_add < 1e-8 and 0 < rates.message < 0.1
    graph = chains(3)
    plan = place(graph, NAMES[:2], Rates())
    program = program_of_plan(graph, plan, compile)
    measured = measured_timeline(program, [np.full((64, 64), 0.01, np.float32)])
    assert measured.names == ("cpu", "cpu:1") == plan.timeline.names
    for timeline in (plan.timeline, measured):
        kinds = {span.kind for span in timeline.spans}
        assert kinds >= {"compute", "send"} and all(0 <= s.start <= s.end <= timeline.seconds for s in timeline.spans)
        assert all(0 < timeline.busy(device) <= 1 for device in (0, 1))

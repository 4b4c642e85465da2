"""Random graphs, cut at random, are what they are uncut.

    PYTHONPATH=.:tests python tests/random_cuts.py 10000 [backend] [seed]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cut_graphs import program_of, random_placement
from graphs import arrays_for, assert_close, graphs, mixed_graphs
from structured_graphs import arguments_for, structured_graphs
from tenon.errors import GradientError
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.partition import pullback_of
from tenon.graph.verify import verify
from tenon.pipeline import compile
from tenon.placement.cut_by_device import cut
from tenon.placement.open_calls import open_calls

Case = tuple[Graph, list[np.ndarray]]
Case_of = Callable[[Any, int], Case]


def flat(draw: Any, number: int) -> Case:
    graph = draw(mixed_graphs())
    return graph, arrays_for(graph, number)


def of_any_size(draw: Any, number: int) -> Case:
    graph = draw(graphs(symbolic=True))
    return graph, arrays_for(graph, number, B=4)


def with_control(draw: Any, number: int) -> Case:
    graph = draw(structured_graphs(depth=2))
    return graph, arguments_for(graph, number)


def with_control_of_any_size(draw: Any, number: int) -> Case:
    graph = draw(structured_graphs(symbolic=True, depth=2))
    return graph, arguments_for(graph, number, B=4)


def gradient(draw: Any, number: int) -> Case:
    """Of a graph with branches and loops."""
    graph, arrays = with_control(draw, number)
    try:
        pullback = open_calls(pullback_of(graph))
    except GradientError:
        return graph, arrays        # one of its operators has none
    seeds = pullback.params[len(graph.params):]
    return pullback, [*arrays, *(np.ones([int(n) for n in p.shape], p.dtype.numpy) for p in seeds)]


KINDS: Sequence[Case_of] = (flat, of_any_size, with_control, with_control_of_any_size, gradient)


@st.composite
def cases(draw: Any, kinds: Sequence[Case_of] = KINDS) -> tuple[Graph, list[np.ndarray], int, int, bool]:
    """A graph, arguments, the number of devices, a seed for the placement, and whether arguments are everywhere."""
    number = draw(st.integers(0, 9999))
    graph, arrays = draw(st.sampled_from(kinds))(draw, number)
    return graph, arrays, draw(st.integers(1, 4)), number, draw(st.booleans())


def check_cut(graph: Graph, arrays: list[np.ndarray], devices: int, number: int, anywhere: bool,
              backend: str) -> int:
    """Compare a cut graph with the whole; how many graphs it became."""
    parts = cut(graph, random_placement(graph, devices, number, anywhere))
    for part in parts.values():
        verify(part.graph)
    program = program_of(graph, parts, devices, backend)
    try:
        expected = interpret(graph, arrays)
    except Exception as error:
        ends_alike(program, graph, arrays, backend, error)
        return len(parts)
    assert_close(program.run(arrays), expected)
    return len(parts)


def ends_alike(program: Any, graph: Graph, arrays: list[np.ndarray], backend: str, failed: Exception) -> None:
    """A node that nobody reads may fail, or be left out, as it is where a graph is compiled whole."""
    try:
        found = program.run(arrays)
    except type(failed):
        return
    assert_close(found, compile(graph, backend=backend).run(arrays))


def sweep(examples: int, backend: str, first: int = 0, kinds: Sequence[Case_of] = KINDS) -> tuple[int, int]:
    """(graphs that were cut, graphs that they became)."""
    counts = [0, 0]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None,
              phases=[Phase.generate])      # shrinking takes minutes, and the graph is printed
    @seed(first)
    @given(case=cases(kinds))
    def check(case: Any) -> None:
        try:
            counts[1] += check_cut(*case, backend)
        except Exception as error:
            error.add_note(f"{case[2]} devices, seed {case[3]}, arguments everywhere: {case[4]}\n{case[0]}")
            raise
        counts[0] += 1
    check()
    return counts[0], counts[1]


if __name__ == "__main__":
    wanted, backend, start = int(sys.argv[1]), (sys.argv[2:] or ["reference"])[0], int((sys.argv[3:] or ["0"])[0])
    began, done, made = time.time(), 0, 0
    while done < wanted:
        one, two = sweep(min(500, wanted - done), backend, start + done)
        done, made = done + one, made + two
        print(f"{done} graphs, {made} device graphs, {time.time() - began:.0f} s", flush=True)

"""Random graphs, split at random over random meshes, are what they are on one device.

    PYTHONPATH=.:tests python tests/random_shardings.py 10000 [seed]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from graphs import arrays_for, mixed_graphs
from sharding_runs import on_ranks, part_of, random_spec
from structured_graphs import arguments_for, structured_graphs
from tenon.errors import GradientError, OutOfRange
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.partition import pullback_of
from tenon.sharding.mesh import Mesh
from tenon.sharding.propagate import propagate
from tenon.sharding.sharding import Sharding

MESHES = ({"a": 2}, {"a": 3}, {"a": 2, "b": 2}, {"a": 4}, {"a": 3, "b": 2}, {"a": 2, "b": 2, "c": 2})
TOLERANCE = 1e-3        # of float32, summed in another order


@st.composite
def cases(draw: Any) -> tuple[Graph, list[np.ndarray], list[Sharding | None], Mesh, list[Any]]:
    """A graph, perhaps of gradients, perhaps with branches and loops; arrays; how they and the results are split."""
    number = draw(st.integers(0, 1 << 30))
    control = draw(st.integers(0, 3)) == 0
    graph = draw(structured_graphs(depth=2)) if control else draw(mixed_graphs())
    arrays = arguments_for(graph, number) if control else arrays_for(graph, number)
    if draw(st.booleans()):
        try:
            graph = pullback_of(graph)
            arrays += [np.ones([int(n) for n in p.shape], p.dtype.numpy) for p in graph.params[len(arrays):]]
        except GradientError:
            pass                    # an operator has none
    mesh, rng = Mesh(draw(st.sampled_from(MESHES))), np.random.default_rng(number)
    shardings = [Sharding(mesh, random_spec(p.ndim, mesh, rng)) if rng.random() < 0.7 else None for p in graph.params]
    results = [rng.choice(np.array([None, "found", Sharding(mesh, random_spec(r.ndim, mesh, rng))], object))
               for r in graph.results]
    return graph, arrays, shardings, mesh, results


def judge(graph: Graph, arrays: Sequence[np.ndarray], shardings: Sequence[Sharding | None], mesh: Mesh,
          results: Sequence[Any]) -> None:
    """Every rank has its parts of what one device computes."""
    try:
        expected = interpret(graph, arrays)
    except (OutOfRange, GradientError):
        return                      # such as an index into nothing, or the gradient of a host operator in a loop
    plan = propagate(graph, shardings, mesh, results)
    for rank, found in enumerate(on_ranks(plan, shardings, arrays)):
        for got, whole, sharding in zip(found, expected, plan.results, strict=True):
            part = part_of(whole, sharding.layouts, mesh, rank)
            assert got.shape == part.shape and got.dtype == part.dtype
            size = 1 + np.abs(whole[np.isfinite(whole)]).max(initial=0) if whole.dtype.kind == "f" else 1
            np.testing.assert_allclose(got, part, rtol=TOLERANCE, atol=TOLERANCE * size)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    started, tried = time.time(), 0

    @seed(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck),
              phases=[Phase.generate, Phase.shrink])
    @given(cases())
    def run(case: Any) -> None:
        nonlocal tried
        tried += 1
        judge(*case)
    run()
    print(f"{tried} random graphs on random meshes equal one device's, in {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()

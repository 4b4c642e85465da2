"""Graphs on the ranks of a mesh, run by the interpreter: what every test of shardings compares with one device."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.verify import verify
from tenon.ops.communicator import speaking
from tenon.runtime.local_transport import LocalTransport
from tenon.sharding.axis_layout import Layout, layouts_of, local_digit
from tenon.sharding.mesh import Mesh
from tenon.sharding.propagate import propagate
from tenon.sharding.sharding import Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import local_graph


def part_of(array: np.ndarray, layouts: Sequence[Layout], mesh: Mesh, rank: int) -> np.ndarray:
    """What a rank has of an array: of an axis of several digits the part of each, crossed."""
    for axis, layout in enumerate(layouts):
        if layout:
            places = np.arange(array.shape[axis]).reshape([n for n, _ in layout])
            parts = [range(*local_digit(digit, mesh, rank)) for digit in layout]
            array = np.take(array, places[np.ix_(*parts)].ravel(), axis)
    return array


def at_once(count: int, run: Any) -> list[Any]:
    """`run(rank)` for every rank, a thread each; raises what one of them raised."""
    found: list[Any] = [None] * count
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            found[rank] = run(rank)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "ranks wait for each other"
    if errors:
        raise errors[0]
    return found


def on_ranks(plan: ShardingPlan, shardings: Sequence[Sharding | None], arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The results of every rank's graph on its parts of the arguments."""
    mesh, speakers = plan.mesh, LocalTransport(plan.mesh).begin()
    graphs = [verify(local_graph(plan, rank)) for rank in range(mesh.size)]
    parts = [[a if s is None else part_of(a, layouts_of(s, a.shape), mesh, rank) for a, s in
              zip(arrays, shardings, strict=True)] for rank in range(mesh.size)]

    def run(rank: int) -> list[np.ndarray]:
        try:
            with speaking(speakers[rank]):
                return interpret(graphs[rank], parts[rank])
        except BaseException as error:
            speakers[rank].abort(error)
            raise
        finally:
            speakers[rank].close()
    return at_once(mesh.size, run)


def check(graph: Graph, shardings: Sequence[Sharding | None], mesh: Mesh, arrays: Sequence[np.ndarray],
          results: Sequence[Any] = (), tolerance: float = 1e-11) -> ShardingPlan:
    """Every rank has its parts of what one device computes."""
    plan = propagate(graph, shardings, mesh, results)
    expected = interpret(graph, arrays)
    for rank, found in enumerate(on_ranks(plan, shardings, arrays)):
        for got, whole, sharding in zip(found, expected, plan.results, strict=True):
            part = part_of(whole, sharding.layouts, mesh, rank)
            assert got.shape == part.shape and got.dtype == part.dtype
            if part.dtype.kind in "fc":
                np.testing.assert_allclose(got.astype(np.complex128), part.astype(np.complex128), rtol=tolerance,
                                           atol=tolerance)
            else:
                np.testing.assert_array_equal(got, part)
    return plan


def random_spec(ndim: int, mesh: Mesh, rng: np.random.Generator) -> tuple[tuple[str, ...], ...]:
    """Each mesh axis splits one axis of a tensor, or none."""
    spec: list[tuple[str, ...]] = [()] * ndim
    for name in rng.permutation(mesh.axes):
        if ndim and rng.random() < 0.75:
            axis = int(rng.integers(ndim))
            spec[axis] = (*spec[axis], str(name))
    return tuple(spec)


MESHES = [Mesh({"a": 2}), Mesh({"a": 3}), Mesh({"a": 2, "b": 2})]

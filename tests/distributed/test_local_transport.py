"""Collectives between threads of one process: what they compute, and how they end."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenon.autodiff import derivative_graph
from tenon.errors import CommunicationError, TenonError
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.ops import collectives as c
from tenon.ops import communicator as ops_communicator
from tenon.ops.communicator import Communicator, part, part_size, speaking
from tenon.pipeline import compile
from tenon.runtime.local_transport import LocalTransport
from tenon.sharding.mesh import Mesh
from tenon.types import TensorType, as_dtype, float32, float64


def on_ranks(count: int, run: Callable[[Communicator], Any]) -> list[Any]:
    """What each rank makes; an error is in its place."""
    found: list[Any] = [None] * count
    speakers = LocalTransport(Mesh({"data": count})).begin()

    def one(rank: int) -> None:
        with speaking(speakers[rank]):
            try:
                found[rank] = run(speakers[rank])
            except Exception as error:
                found[rank] = error
                speakers[rank].abort(error)
            finally:
                speakers[rank].close()
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a rank hangs"
    return found


def data(rank: int, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(rank).integers(-8, 8, shape).astype(dtype)


SHORTS = ["f32", "f64", "f16", "bf16", "i8", "i64", "c64"]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("short", SHORTS)
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (211, 97)])
def test_all_reduce_is_the_sum_on_every_rank(count: int, short: str, shape: tuple[int, ...]) -> None:
    dtype = as_dtype(short).numpy
    found = on_ranks(count, lambda speaker: speaker.all_reduce(data(speaker.rank, shape, dtype), ("data",), "sum"))
    expected = sum(data(rank, shape) for rank in range(count))
    for x in found:
        assert x.dtype == dtype and x.shape == shape
        np.testing.assert_array_equal(x.astype(np.complex128), np.asarray(expected, dtype).astype(np.complex128))


@pytest.mark.parametrize("size", [0, 1, 3, 7])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_uneven_sizes(size: int, count: int, axis: int) -> None:
    shape = (size, 4) if axis == 0 else (4, size)
    whole = sum(data(rank, shape) for rank in range(count))

    def run(speaker: Communicator) -> Any:
        mine = speaker.reduce_scatter(data(speaker.rank, shape), axis, ("data",), "sum",
                                      part_size(size, count, speaker.rank))
        return mine, speaker.all_gather(mine, axis, ("data",), size)
    for rank, (mine, joined) in enumerate(on_ranks(count, run)):
        np.testing.assert_array_equal(mine, np.array_split(whole, count, axis)[rank])
        np.testing.assert_array_equal(joined, whole)


@pytest.mark.parametrize("split, concat", [(0, 1), (1, 0), (0, 2)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_to_all_moves_a_split_from_one_axis_to_another(split: int, concat: int, count: int) -> None:
    whole = data(0, (5, 7, 6))
    parts, others = np.array_split(whole, count, concat), np.array_split(whole, count, split)

    def run(speaker: Communicator) -> Any:
        return speaker.all_to_all(parts[speaker.rank], split, concat, ("data",),
                                  others[speaker.rank].shape[split], whole.shape[concat])
    for rank, found in enumerate(on_ranks(count, run)):
        np.testing.assert_array_equal(found, others[rank])


def test_permute_broadcast_send_and_receive() -> None:
    def run(speaker: Communicator) -> Any:
        mine = np.full(3, speaker.rank)
        speaker.barrier(("data",))
        speaker.send(mine * 10, (speaker.rank + 1) % 3, 5)
        return (speaker.permute(mine, ("data",), 1)[0], speaker.broadcast(mine, ("data",), 2)[0],
                speaker.recv((3,), mine.dtype, (speaker.rank - 1) % 3, 5)[0])
    assert on_ranks(3, run) == [(2, 2, 20), (0, 2, 0), (1, 2, 10)]


# ---------------------------------------------------------------- as operators

def graph_of(fn: Callable[..., Any], *types: TensorType) -> Graph:
    return verify(trace(fn, *types))


@pytest.mark.parametrize("run", [interpret, lambda graph, arrays: compile(graph).run(arrays)])
def test_operators_of_a_graph_ask_the_communicator(run: Any) -> None:
    graph = graph_of(lambda x: c.all_reduce(x * 2.0) + c.all_reduce(x, op="max"), TensorType(float32, (4,)))
    assert print_graph(parse_graph(print_graph(graph, locations=False)), locations=False) == \
        print_graph(graph, locations=False)
    arrays = [data(rank, (4,), np.float32) for rank in range(2)]
    for (found,) in on_ranks(2, lambda speaker: run(graph, [arrays[speaker.rank]])):
        np.testing.assert_array_equal(found, 2 * (arrays[0] + arrays[1]) + np.maximum(*arrays))


CASES: dict[str, Callable[[int, int], Callable[..., Any]]] = {
    "all_reduce": lambda n, k: lambda x: c.all_reduce(x),
    "max": lambda n, k: lambda x: c.all_reduce(x, op="max"),
    "all_gather": lambda n, k: lambda x: c.all_gather(x, axis=0, over="data", size=n * 3),
    "reduce_scatter": lambda n, k: lambda x: c.reduce_scatter(x, axis=1, over=("data",), size=part_size(4, n, k)),
    "least": lambda n, k: lambda x: c.reduce_scatter(x, axis=1, over=("data",), size=part_size(4, n, k), op="min"),
    "all_to_all": lambda n, k: lambda x: c.all_to_all(x, split=1, concat=0, over=("data",), concat_size=3 * n,
                                                      split_size=part_size(4, n, k)),
    "broadcast": lambda n, k: lambda x: c.collective_broadcast(x, over=("data",), root=n - 1),
    "permute": lambda n, k: lambda x: c.collective_permute(x, over=("data",), shift=2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_gradients_are_those_of_the_sum_of_all_ranks(name: str, count: int) -> None:
    """Each rank's gradient against differences of the sum of all ranks' weighted results."""
    type, rng = TensorType(float64, (3, 4)), np.random.default_rng(3)
    graphs = [graph_of(CASES[name](count, k), type) for k in range(count)]
    xs = [rng.standard_normal((3, 4)) for _ in range(count)]
    weights = [rng.standard_normal(graph.results[0].shape) for graph in graphs]

    def objective(given: list[np.ndarray]) -> float:
        ys = on_ranks(count, lambda speaker: interpret(graphs[speaker.rank], [given[speaker.rank]])[0])
        return float(sum((y * w).sum() for y, w in zip(ys, weights, strict=True)))
    derived = [verify(derivative_graph(graph)) for graph in graphs]
    found = on_ranks(count, lambda speaker: compile(derived[speaker.rank]).run(
        [xs[speaker.rank], weights[speaker.rank]])[-1])
    for _ in range(3):
        steps = [1e-6 * rng.standard_normal((3, 4)) for _ in range(count)]
        change = objective([x + d for x, d in zip(xs, steps, strict=True)]) - objective(
            [x - d for x, d in zip(xs, steps, strict=True)])
        expected = 2 * sum((g * d).sum() for g, d in zip(found, steps, strict=True))
        assert change == pytest.approx(expected, rel=1e-5, abs=1e-10)


# ---------------------------------------------------------------- what goes wrong

def messages(found: list[Any]) -> list[str]:
    assert all(isinstance(x, TenonError) for x in found), found
    return [x.what for x in found]


def test_an_error_of_one_rank_ends_all() -> None:
    def run(speaker: Communicator) -> Any:
        if speaker.rank == 1:
            raise CommunicationError("the disk is full")
        return speaker.all_reduce(np.ones(3), ("data",))
    assert all("the disk is full" in text for text in messages(on_ranks(3, run)))


def test_ranks_that_ask_for_different_things_are_told_so() -> None:
    def run(speaker: Communicator) -> Any:
        return speaker.all_reduce(np.ones(3 + speaker.rank), ("data",))
    assert all("f64[3]" in text and "f64[4]" in text for text in messages(on_ranks(2, run)))


def test_who_waits_for_a_rank_that_has_ended_is_told_so() -> None:
    def run(speaker: Communicator) -> Any:
        return None if speaker.rank == 0 else speaker.recv((2,), np.float64, 0, 7)
    assert "rank 0, which has ended" in on_ranks(2, run)[1].what


def test_a_circle_of_waiting_ranks_is_found() -> None:
    def run(speaker: Communicator) -> Any:
        return speaker.recv((2,), np.float64, 1 - speaker.rank, 7)
    assert all("wait for each other" in text for text in messages(on_ranks(2, run)))


def test_parts_that_do_not_fit_are_refused() -> None:
    def run(speaker: Communicator) -> Any:
        return speaker.all_gather(np.ones(3), 0, ("data",), 7)
    assert all("of 7 elements has" in text or "another rank failed" in text for text in messages(on_ranks(2, run)))


def test_no_communicator_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_communicator, "_default", [])       # which tenon.distributed sets, where it was imported
    with pytest.raises(CommunicationError, match="nobody to speak to"):
        compile(graph_of(lambda x: c.all_reduce(x), TensorType(float32, (2,)))).run([np.ones(2, np.float32)])


def test_parts_are_those_of_array_split() -> None:
    for size in range(12):
        for count in range(1, 7):
            split = np.array_split(np.arange(size), count)
            assert [np.arange(size)[part(size, count, k)].tolist() for k in range(count)] == [x.tolist() for x in split]

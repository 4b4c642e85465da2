"""Sums between devices that are started early and waited for late: where, and that nothing is read before."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tenon as tn
from passes.test_merge_collectives import names, random_step
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.verify import verify
from tenon.ops.collectives import all_reduce
from tenon.ops.communicator import speaking
from tenon.passes import merge_collectives as buckets
from tenon.passes import schedule_collectives as pass_file
from tenon.passes.schedule_collectives import schedule_collectives
from tenon.pipeline import compile
from tenon.types import TensorType, float32


class LatestSpeaker:
    """The first of two ranks that have the same numbers; a sum is made when it is waited for, and not a moment before."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.under_way: dict[int, tuple[Sequence[np.ndarray], str]] = {}

    def group(self, over: Any) -> tuple[int, ...]:
        return (0, 1)

    def all_reduce(self, x: np.ndarray, over: Any, op: str = "sum", out: Any = None) -> np.ndarray:
        return np.multiply(x, 2 if op == "sum" else 1, out=out)

    def all_gather(self, x: np.ndarray, axis: int, over: Any, size: int, out: Any = None) -> np.ndarray:
        return np.concatenate([x, x], axis, out=out)

    def start_sum(self, xs: Sequence[np.ndarray], outs: Sequence[np.ndarray], over: Any, op: str = "sum") -> None:
        for out in outs:
            out.fill(np.nan)
        self.under_way[outs[0].ctypes.data] = xs, op

    def finish_sum(self, outs: Sequence[np.ndarray]) -> None:
        xs, op = self.under_way.pop(outs[0].ctypes.data)
        for x, out in zip(xs, outs, strict=True):
            self.all_reduce(x, None, op, out)


def test_a_sum_is_started_where_it_can_be_and_waited_for_where_it_is_read() -> None:
    def step(x: Any, w: Any) -> Any:
        g = tn.sin(x)
        h = tn.exp(w)
        return all_reduce(g) * 2.0, h
    graph = verify(schedule_collectives(trace(step, TensorType(float32, (3,)), TensorType(float32, (2, 2)))))
    assert names(graph) == ["sin", "all_reduce_start", "exp", "all_reduce_done", "multiply"]


def test_a_sum_that_is_read_at_once_is_taken_apart_as_another_rank_may_have_work_between() -> None:
    graph = verify(schedule_collectives(trace(lambda x: tn.exp(all_reduce(tn.sin(x))), TensorType(float32, (3,)))))
    assert names(graph) == ["sin", "all_reduce_start", "all_reduce_done", "exp"]


def test_what_is_under_way_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_file, "MAX_UNDER_WAY", 40)

    def step(x: Any) -> Any:
        return [all_reduce(f(x)) for f in (tn.sin, tn.cos, tn.tan)], tn.tanh(x)
    graph = verify(schedule_collectives(trace(lambda x: (*step(x)[0], tn.tanh(x)), TensorType(float32, (5,)))))
    found = names(graph)
    assert found.count("all_reduce_start") == found.count("all_reduce_done")
    under_way = np.cumsum([{"all_reduce_start": 20, "all_reduce_done": -20}.get(name, 0) for name in found])
    assert 0 < under_way.max() <= 40 and under_way[-1] == 0


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_read_no_sum_before_it_is_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(buckets, "BUCKET_BYTES", int(rng.choice([30, 100, 1 << 20])))
    monkeypatch.setattr(pass_file, "MAX_UNDER_WAY", int(rng.choice([50, 1 << 20])))
    shapes = [(int(rng.integers(1, 6)),) for _ in range(3)]
    graph = verify(trace(random_step(rng, int(rng.integers(5, 40))), *(TensorType(float32, s) for s in shapes)))
    program = compile(graph)
    given = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    with speaking(LatestSpeaker()):
        expected, found = interpret(graph, given), program.run(given)
    for x, y in zip(expected, found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)

"""Sums between devices that travel together: which do, in which order, and that no bit changes."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from distributed.test_local_transport import on_ranks
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.verify import verify
from tenon.ops.collectives import all_gather, all_reduce, all_reduce_op, all_reduce_together
from tenon.passes import merge_collectives as pass_file
from tenon.passes.merge_collectives import merge_collectives
from tenon.pipeline import compile
from tenon.types import TensorType, float32, float64


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_small_sums_travel_together_as_soon_as_their_inputs_are_there() -> None:
    def step(x: Any, w: Any) -> Any:
        g1 = tn.sin(x)
        g2 = tn.cos(w)
        late = tn.exp(g2)
        return all_reduce(g1) * 2.0, all_reduce(g2), late
    graph = verify(merge_collectives(trace(step, TensorType(float32, (3,)), TensorType(float32, (2, 2)))))
    assert names(graph) == ["sin", "cos", "exp", "all_reduce_together", "multiply"]


def test_a_bucket_is_sent_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_file, "BUCKET_BYTES", 40)

    def step(x: Any) -> Any:
        gradients = [tn.sin(x), tn.cos(x), tn.exp(x), tn.tanh(x)]
        return tuple(all_reduce(g) for g in gradients)
    graph = verify(merge_collectives(trace(step, TensorType(float32, (5,)))))
    assert names(graph) == ["sin", "cos", "all_reduce_together", "exp", "tanh", "all_reduce_together"]


def test_what_depends_on_a_sum_or_stands_behind_another_effect_does_not_join() -> None:
    def chain(x: Any) -> Any:
        return all_reduce(tn.sin(all_reduce(x)))

    def apart(x: Any) -> Any:
        return all_reduce(x), all_gather(x, axis=0, over=("data",), size=6), all_reduce(tn.sin(x))

    def kinds(x: Any) -> Any:
        return all_reduce(x), all_reduce(x.astype(float64)), all_reduce(x, op="max"), all_reduce(x, over=("model",))
    for fn in (chain, apart, kinds):
        graph = verify(merge_collectives(trace(fn, TensorType(float32, (3,)))))
        assert all_reduce_together not in [node.op for node in graph.nodes]


def test_sums_have_one_order_on_ranks_that_need_a_reshape_or_a_mask_and_on_those_that_do_not(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_file, "BUCKET_BYTES", 1)

    def step(reshapes: bool, masks: bool) -> Any:
        def run(x: Any, y: Any) -> Any:
            a, b = tn.sin(x), tn.cos(y)
            first = all_reduce(b.reshape(2, 2).reshape(4) if reshapes else b)
            second = all_reduce(a, op="max")
            third = all_reduce(tn.where(False, b, 0.0) if masks else b, op="min")
            return first, second, third
        graph = merge_collectives(trace(run, TensorType(float32, (3,)), TensorType(float32, (4,))))
        return [node.attrs["op"] for node in verify(graph).nodes if node.op is all_reduce_op]
    assert step(False, False) == step(True, False) == step(False, True) == step(True, True) == ["max", "sum", "min"]


def random_step(rng: np.random.Generator, count: int) -> Any:
    """A function in which sums, what depends on them and other effects are mixed."""
    plan = [(rng.integers(5), rng.integers(1 << 30), rng.integers(1 << 30)) for _ in range(count)]

    def step(*xs: Any) -> Any:
        values = list(xs)
        for kind, a, b in plan:
            x, y = values[a % len(values)], values[b % len(values)]
            if kind < 2:
                values.append(all_reduce(x, op="sum" if b % 5 else "max"))
            elif kind == 2:
                values.append(tn.sin(x) * 0.5)
            elif kind == 3 and x.shape == y.shape:
                values.append(x + y)
            elif b % 4 == 0:
                values.append(all_gather(x[:1], axis=0, over=("data",), size=2)[:1])
        return tuple(values[len(xs):]) or (values[0],)
    return step


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_compute_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(pass_file, "BUCKET_BYTES", int(rng.choice([30, 100, 1 << 20])))
    shapes = [(int(rng.integers(1, 6)),) for _ in range(3)]
    graph = verify(trace(random_step(rng, int(rng.integers(5, 40))), *(TensorType(float32, s) for s in shapes)))
    merged = verify(merge_collectives(graph))
    given = [[rng.standard_normal(s).astype(np.float32) for s in shapes] for _ in range(2)]
    expected = on_ranks(2, lambda speaker: interpret(graph, given[speaker.rank]))
    found = on_ranks(2, lambda speaker: interpret(merged, given[speaker.rank]))
    for one, other in zip(expected, found, strict=True):
        assert not isinstance(one, Exception) and not isinstance(other, Exception), (one, other)
        assert [x.tobytes() for x in one] == [x.tobytes() for x in other]
    sums = sum(node.op is all_reduce_op for node in graph.nodes)
    assert sum(len(n.inputs) if n.op is all_reduce_together else n.op is all_reduce_op for n in merged.nodes) == sums


def test_a_compiled_step_sums_its_gradients_in_one_message() -> None:
    def step(x: Any, w: Any, b: Any) -> Any:
        loss = ((x @ w + b) ** 2).sum()
        return all_reduce(tn.exp(-loss)), all_reduce(w * 2.0), all_reduce(b + 1.0)
    graph = trace(step, *(TensorType(float32, s) for s in ((4, 3), (3, 2), (2,))))
    program = compile(graph)
    assert names(program.graph).count("all_reduce_start") == 1
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in graph.params]
    expected = on_ranks(2, lambda speaker: interpret(graph, arrays))
    for one, other in zip(expected, on_ranks(2, lambda speaker: program.run(arrays)), strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5)

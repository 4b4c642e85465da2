"""What propagation chooses: known algorithms come out, each with the collectives that it is known for."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from random_shardings import cases, judge
from sharding_runs import check, on_ranks
from tenon.autodiff import gradient_graph
from tenon.dims.symbolic_dim import symbol
from tenon.errors import CaptureError, ShapeError
from tenon.graph.build import trace
from tenon.graph.ir import Graph
from tenon.graph.op import OPS
from tenon.ops.attention import attention
from tenon.ops.matrix_products import mT
from tenon.ops.sharding_annotation import annotated
from tenon.sharding.axis_layout import reshaped
from tenon.sharding.mesh import Mesh
from tenon.sharding.propagate import propagate
from tenon.sharding.sharding import Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import collectives_of, local_graph, partition
from tenon.types import TensorType, float64, int64, uint64

DATA, MODEL = Mesh({"data": 2}), Mesh({"model": 2})


def f64(*shape: int) -> TensorType:
    return TensorType(float64, shape)


def checked(graph: Graph, mesh: Mesh, *specs: Any, results: Any = (), seed: int = 0) -> ShardingPlan:
    rng = np.random.default_rng(seed)
    shardings = [None if spec is None else Sharding(mesh, spec) for spec in specs]
    arrays = [rng.standard_normal(p.shape) for p in graph.params]  # type: ignore[arg-type]
    return check(graph, shardings, mesh, arrays, results)


def kinds(plan: ShardingPlan) -> dict[str, int]:
    return dict(Counter(c.name for c in plan.collectives))


def mlp(x: Any, up: Any, down: Any) -> Any:
    return (x @ up).relu() @ down


def test_columns_then_rows_need_one_all_reduce() -> None:
    plan = checked(trace(mlp, f64(4, 6), f64(6, 16), f64(16, 6)), MODEL, None, (None, "model"), None)
    assert kinds(plan) == {"all_reduce": 1}
    assert str(plan.made[plan.graph.nodes[-1].output]) == "(None, None) to add over model"


def test_a_batch_that_is_split_needs_none() -> None:
    assert kinds(checked(trace(mlp, f64(5, 6), f64(6, 16), f64(16, 6)), DATA, ("data",), None, None)) == {}


def test_the_gradient_of_a_weight_is_added_up_once() -> None:
    graph = gradient_graph(trace(lambda x, up, down: mlp(x, up, down).sum(), f64(5, 6), f64(6, 7), f64(7, 3)), wrt=[1, 2])
    plan = checked(graph, DATA, ("data",), None, None, results=[None, None, None])
    assert kinds(plan) == {"all_reduce": 3}
    assert plan.bytes == 8 + 8 * 6 * 7 + 8 * 7 * 3


def test_a_gradient_that_updates_a_split_state_is_scattered() -> None:
    graph = trace(lambda x, g, m: 0.9 * m + mT(x) @ g, f64(6, 4), f64(6, 3), f64(4, 3))
    plan = checked(graph, DATA, ("data",), ("data",), ("data",))
    assert kinds(plan) == {"reduce_scatter": 1}


def test_a_sum_of_parts_meets_another_before_it_is_added_up() -> None:
    plan = checked(trace(lambda x, y, w: x @ w + y @ w, f64(3, 8), f64(3, 8), f64(8, 3)), MODEL, (None, "model"),
                   (None, "model"), ("model",), results=[None])
    assert kinds(plan) == {"all_reduce": 1}


def test_what_is_added_to_a_sum_of_parts_counts_once() -> None:
    plan = checked(trace(lambda x, w, b: (x @ w + b).sum(axis=0), f64(3, 8), f64(8, 3), f64(3)), MODEL,
                   (None, "model"), ("model",), None, results=[None])
    assert kinds(plan) == {"all_reduce": 1}


def test_experts_get_their_tokens_by_all_to_all() -> None:
    graph = trace(lambda x, w: x.permute((1, 0, 2)) @ w, f64(8, 4, 2), f64(4, 2, 6))        # [tokens, experts, width]
    plan = checked(graph, DATA, ("data",), ("data",))
    assert kinds(plan) == {"all_to_all": 1}


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("count", [2, 3])
def test_keys_and_values_go_round_a_ring(is_causal: bool, count: int) -> None:
    mesh, shape = Mesh({"sequence": count}), f64(2, 2, 6, 4)

    def loss(q: Any, k: Any, v: Any) -> Any:
        out, total, _ = attention(q, k, v, None, is_causal=is_causal, scale=0.5)
        return (out * out).sum() + total.sum()
    spec = (None, None, "sequence")
    shardings = [Sharding(mesh, spec)] * 3
    plan = checked(gradient_graph(trace(loss, shape, shape, shape), wrt=[0, 1, 2]), mesh, spec, spec, spec,
                   results=[None, *shardings])
    if is_causal:
        assert kinds(plan) == {"all_reduce": 1, "collective_permute": 2}


def test_times_of_several_sizes_are_gathered() -> None:
    mesh, shape = Mesh({"sequence": 2}), f64(2, 5, 4)
    graph = trace(lambda q, k, v: attention(q, k, v, None, is_causal=True, scale=0.5)[0], shape, shape, shape)
    assert "collective_permute" not in kinds(checked(graph, mesh, *[(None, "sequence")] * 3))


def test_rows_are_repeated_after_they_are_gathered() -> None:
    plan = checked(trace(lambda x, b: x + b, f64(64, 4), f64(4)), DATA, ("data",), ("data",))
    assert plan.bytes == 8 * 4 // 2


def test_an_annotation_splits_a_value_and_its_gradient() -> None:
    def loss(x: Any, w: Any) -> Any:
        return (annotated(x @ w, (("data", 2),), (("data",), ())) ** 2.0).sum()
    plan = checked(gradient_graph(trace(loss, f64(5, 4), f64(4, 3)), wrt=[1]), DATA, None, None, results=[None, None])
    marked = [node for node in plan.graph.nodes if node.op.name == "with_sharding"]
    assert [str(plan.made[node.output]) for node in marked] == ["(data, None)"] * 2


@pytest.mark.parametrize(("layout", "shape", "new", "expected"), [
    ("a.", (6, 4), (24,), "a"), ("a.", (5, 4), (20,), "5a*4"), ("ab", (4, 6), (24,), "4a*6b"),
    (".a", (6, 4), (24,), "6*4a"), ("a", (24,), (6, 4), "a,None"), ("a", (24,), (3, 8), "None,None"),
    ("a..", (4, 3, 2), (12, 2), "a,None"), ("a.", (4, 1), (4,), "a"), ("a", (4,), (1, 4), "None,a")])
def test_splits_stay_through_reshape_where_they_can(layout: str, shape: tuple[int, ...], new: tuple[int, ...],
                                                    expected: str) -> None:
    mesh = Mesh({"a": 2, "b": 3})
    graph = trace(lambda x: x.reshape(new), f64(*shape))
    spec = tuple(None if c == "." else c for c in layout)
    plan = checked(graph, mesh, spec)
    digits = plan.made[plan.graph.nodes[-1].output].layouts
    shown = [("*".join((str(n) if len(d) > 1 else "") + "".join(axes) for n, axes in d)) or "None" for d in digits]
    assert ",".join(shown) == expected


def test_reshape_there_and_back_keeps_what_is_split() -> None:
    mesh = Mesh({"a": 2, "b": 2})
    before = (((5, ("a",)),), ((7, ("b",)),), ())
    kept, between = reshaped(before, (5, 7, 2), (35, 2), mesh)
    assert kept == before and reshaped(between, (35, 2), (5, 7, 2), mesh) == (between, before)


def test_random_numbers_are_the_same_on_every_mesh() -> None:
    graph = trace(lambda key, x: OPS["random_uniform"](key, shape=(6, 4), dtype=float64, stream=0) * x,
                  TensorType(uint64, (2,)), f64(6, 4))
    arrays = [np.array([1, 2], np.uint64), np.ones((6, 4))]
    for mesh in (DATA, Mesh({"data": 3}), Mesh({"data": 2, "other": 2})):
        check(graph, [None, Sharding(mesh, ("data",))], mesh, arrays)


def test_ranks_have_their_collectives_in_one_order() -> None:
    graph = gradient_graph(trace(lambda x, up, down: mlp(x, up, down).sum(), f64(5, 6), f64(6, 7), f64(7, 3)), wrt=[1, 2])
    mesh = Mesh({"data": 2, "model": 2})
    plan = propagate(graph, [Sharding(mesh, ("data",)), Sharding(mesh, (None, "model")), None], mesh)
    sent = [[(c.name, c.over) for c in collectives_of(local_graph(plan, rank), mesh)] for rank in range(4)]
    assert sent[0] and all(one == sent[0] for one in sent)


def test_the_plan_says_what_is_sent_and_why() -> None:
    plan = propagate(trace(mlp, f64(4, 6), f64(6, 16), f64(16, 6)), [None, Sharding(MODEL, (None, "model")), None], MODEL,
                     [None])
    text = str(plan)
    assert "1 collectives, 192 bytes a device" in text
    assert "parameter up: f64[6, 16] (None, model)" in text
    assert "all_reduce over model: 192 bytes of matmul f64[4, 6], which is returned" in text
    assert sum(c.bytes for c in collectives_of(local_graph(plan, 0), MODEL)) == plan.bytes


def test_partition_needs_no_devices() -> None:
    graph = trace(mlp, f64(5, 6), f64(6, 16), f64(16, 6))
    shapes = [partition(graph, [Sharding(DATA, ("data",)), None, None], DATA, rank).results[0].shape for rank in (0, 1)]
    assert shapes == [(3, 6), (2, 6)]


def test_what_cannot_be_is_refused() -> None:
    graph = trace(lambda x: x * 2.0, TensorType(float64, (symbol("n"),)))
    with pytest.raises(CaptureError, match="sizes are symbols"):
        propagate(graph, [None], DATA)
    with pytest.raises(ShapeError, match="has 2 entries, and the tensor 1 axes"):
        propagate(trace(lambda x: x * 2.0, f64(4)), [Sharding(DATA, ("data", None))], DATA)
    other = trace(lambda x: annotated(x, (("data", 4),), (("data",),)), f64(8))
    with pytest.raises(CaptureError, match=r"the mesh is .*4.*runs on"):
        propagate(other, [None], DATA)


def test_an_error_on_one_rank_ends_all() -> None:
    graph = trace(lambda x, at: x.take(at, axis=0).sum(), f64(4, 2), TensorType(int64, (4,)))
    sharding = Sharding(DATA, ("data",))
    plan = propagate(graph, [None, sharding], DATA, [None])
    with pytest.raises(Exception, match="index 9 is out of range"):
        on_ranks(plan, [None, sharding], [np.ones((4, 2)), np.array([0, 1, 2, 9])])


@settings(max_examples=60)
@given(cases())
def test_random_graphs_on_random_meshes_are_those_of_one_device(case: Any) -> None:
    judge(*case)

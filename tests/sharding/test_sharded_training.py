"""Training steps on meshes: the numbers of one device, whatever is split."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import tenon as tn
from sharded_models import RUNS, trained
from tenon import optim
from tenon.distributed import shard
from tenon.errors import CaptureError
from tenon.nn import cross_entropy
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding_plan import ShardingPlan

NATIVE = {"mlp columns and rows", "cnn data parallel, uneven", "moe expert parallel"}


@cache
def alone(model: type, size: int, dtype: Any = tn.float64) -> Any:
    return trained(model, size=size, dtype=dtype)


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_machine_code_computes_the_same(name: str) -> None:
    model, sizes, how = RUNS[name]
    losses, _ = trained(model, Mesh(sizes), **how)
    np.testing.assert_allclose(losses, trained(model, size=how.get("size", 6))[0], rtol=1e-12)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", RUNS)
def test_losses_and_parameters_are_those_of_one_device(name: str) -> None:
    model, sizes, how = RUNS[name]
    losses, parameters = trained(model, Mesh(sizes), **how)
    expected, others = alone(model, how.get("size", 6))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for got, p in zip(parameters, others, strict=True):
        np.testing.assert_allclose(got, p, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("interpreted")
def test_the_same_run_twice_is_the_same_to_the_bit() -> None:
    how = RUNS["moe expert and model"]
    (first, weights), (second, others) = (trained(how[0], Mesh(how[1]), steps=3, **how[2]) for _ in range(2))
    assert first == second
    assert all(a.tobytes() == b.tobytes() for a, b in zip(weights, others, strict=True))


def test_in_float32_losses_agree_to_its_digits() -> None:
    model, sizes, how = RUNS["mlp columns and rows"]
    losses, _ = trained(model, Mesh(sizes), dtype=tn.float32, **how)
    np.testing.assert_allclose(losses, alone(model, 6, tn.float32)[0], rtol=1e-5)


def plan_of(step: Any) -> ShardingPlan:
    (record,) = step.records.values()
    (captured,) = record.captures
    (made,) = captured.program._programs.values()
    plan: ShardingPlan = made.plan
    return plan


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("name", "kind"), [("moe expert parallel", "all_to_all"), ("mlp zero 1", "reduce_scatter"),
                                            ("mlp zero 3", "all_gather"), ("gpt data and sequence", "collective_permute")])
def test_each_way_has_its_collective(name: str, kind: str) -> None:
    model, sizes, how = RUNS[name]
    seen: list[Any] = []
    trained(model, Mesh(sizes), steps=2, seen=seen, **how)
    assert kind in {c.name for c in plan_of(seen[0]).collectives}


@pytest.mark.usefixtures("interpreted")
def test_megatron_adds_up_twice_a_layer_and_pass() -> None:
    model, sizes, how = RUNS["gpt megatron"]
    seen: list[Any] = []
    trained(model, Mesh(sizes), steps=2, seen=seen, make=lambda parameters: optim.SGD(parameters, lr=0.1), **how)
    assert [c.name for c in plan_of(seen[0]).collectives] == ["all_reduce"] * 4


@pytest.mark.usefixtures("interpreted")
def test_state_is_split_as_it_was_after_a_step() -> None:
    model, sizes, how = RUNS["mlp columns and rows"]
    seen: list[Any] = []
    trained(model, Mesh(sizes), seen=seen, **how)
    _, net, optimizer = seen
    group = optimizer.param_groups[0]
    assert net.up.weight.payload.parts.sharding.spec == ("model", None)
    assert net.down.weight.payload.parts.sharding.spec == (None, "model")
    assert [x.payload.parts.sharding.spec for x in group.slots["exp_avg"][:3]] == [("model", "data"), ("model",), ("data", "model")]
    assert max(part.nbytes for part in group.slots["exp_avg"][0].payload.parts.shards.values()) == net.up.weight.numpy().nbytes // 4


@pytest.mark.usefixtures("interpreted")
def test_a_sum_that_is_added_up_joins_one_that_is_not_yet() -> None:
    mesh, x, y = Mesh({"data": 2}), tn.rand(5, 3), tn.randint(0, 3, (5,))

    def loss_of(mesh: Any) -> float:
        @tn.jit(mesh=mesh)
        def loss(x, y):
            x, y = (x, y) if mesh is None else (shard(x, mesh, ("data",)), shard(y, mesh, ("data",)))
            return cross_entropy(x, y) + 0.1 * (x * x).mean()       # the first is divided by a sum: it is added up
        return float(loss(x, y))
    np.testing.assert_allclose(loss_of(mesh), loss_of(None), rtol=1e-6)


@pytest.mark.usefixtures("interpreted")
def test_what_is_printed_in_a_branch_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    mesh = Mesh({"data": 3})

    @tn.jit(mesh=mesh)
    def double(x):
        total = shard(x, mesh, ("data",)).sum()
        if total > 0:
            print("total", total)
            total = total * 2
        return total
    for _ in range(2):
        assert float(double(tn.ones(4))) == 8
    assert capsys.readouterr().out == "total tensor(4.)\n" * 2


@pytest.mark.usefixtures("interpreted")
def test_what_a_step_raises_for_some_data_is_raised_and_nothing_is_changed() -> None:
    mesh, weight = Mesh({"data": 2}), tn.ones(3)

    @tn.jit(mesh=mesh)
    def step(x, most):
        total = (shard(x, mesh, ("data",)) * weight).sum()
        weight.mul_(2.0)
        if total > most:
            raise FloatingPointError("the sum is too large")
        return total
    assert float(step(tn.ones(5, 3), tn.tensor(20.0))) == 15
    with pytest.raises(FloatingPointError, match="the sum is too large"):
        step(tn.ones(5, 3), tn.tensor(20.0))
    assert weight.tolist() == [2, 2, 2]


@pytest.mark.usefixtures("interpreted")
def test_of_several_errors_the_call_names_those_that_it_knows() -> None:
    mesh = Mesh({"data": 2})

    @tn.jit(mesh=mesh)
    def step(x):
        total = shard(x, mesh, ("data",)).sum()
        if total > 20:
            raise ValueError("large")
        assert total > 0, f"the sum is {total}"
        return total
    with pytest.raises(CaptureError, match="raises ValueError: large or AssertionError with a text of the data"):
        step(-tn.ones(5, 3))
    assert float(step(tn.ones(5, 3))) == 15


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("largest", [tn.max, tn.min])
def test_a_largest_of_parts_is_no_term_of_a_sum_of_parts(largest: Any) -> None:
    mesh, x = Mesh({"data": 2}), tn.arange(14.0).reshape(7, 2) + 1

    @tn.jit(mesh=mesh)
    def both(x):
        x = shard(x, mesh, ("data",))
        return (x * x).sum() + largest(x)
    assert float(both(x)) == float((x * x).sum() + largest(x))

"""What users write: tensors, modules and optimizers in parts, and functions on meshes; what is refused, and how."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from sharded_models import Mlp, trained
from tenon import nn, optim
from tenon.distributed import Mesh, Pipeline, Sharding, explain, gather, shard
from tenon.errors import ArgumentError, CaptureError, CommunicationError, GradientError, ShapeError
from tenon.sharding.sharded_array import ShardedArray

DATA, GRID = Mesh({"data": 2}), Mesh({"data": 2, "model": 2})


def test_a_tensor_in_parts_reads_as_a_whole_one() -> None:
    x = tn.arange(35.0).reshape(7, 5)
    y = shard(x, Mesh({"a": 2, "b": 3}), ("b", "a"))
    assert y.shape == (7, 5) and y.dtype is tn.float32 and y.ndim == 2 and y.size == 35
    assert [part.shape for part in y.payload.parts.shards.values()] == [(3, 3), (2, 3), (2, 3), (3, 2), (2, 2), (2, 2)]
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    np.testing.assert_array_equal((y * 2 + y.sum()).numpy(), (x * 2 + x.sum()).numpy())
    np.testing.assert_array_equal(gather(y).numpy(), x.numpy())
    assert "split=('b', 'a')" in repr(y) and y.tolist() == x.tolist() and y[3, 2].item() == 17.0


def test_parts_are_memory_of_their_own() -> None:
    array = np.zeros((4, 2))
    y = shard(tn.tensor(array), DATA, ("data",))
    z = shard(y, DATA, ("data",))
    assert z.payload is y.payload
    assert all(not np.shares_memory(part, array) for part in y.payload.parts.shards.values())


def test_what_no_axis_splits_is_an_array() -> None:
    assert isinstance(shard(tn.ones(3), DATA).payload, np.ndarray)
    assert isinstance(shard(tn.ones(3), Mesh({"data": 1}), ("data",)).payload, np.ndarray)


def test_rules_find_parameters_by_name() -> None:
    net = shard(Mlp(), GRID, [(r".*\.bias", ()), ("up.*", ("model",)), (r"down\.weight", (None, "model"))])
    specs = {n: p.payload.parts.sharding.spec for n, p in net.named_parameters() if not isinstance(p.payload, np.ndarray)}
    assert specs == {"up.weight": ("model", None), "down.weight": (None, "model")}
    assert net.up.weight.requires_grad


def test_a_mesh_axis_splits_every_parameter_and_state_besides() -> None:
    net = shard(Mlp(), GRID, {"up.*": ("model",)})
    optimizer = shard(optim.Adam(net.parameters()), GRID, "data")
    slots = optimizer.param_groups[0].slots["exp_avg"]
    assert [x.payload.parts.sharding.spec for x in slots] == [("model", "data"), ("model",), ("data", None), ("data",)]
    assert all(p.payload.parts.sharding.spec for p in shard(Mlp(), DATA, "data").parameters())


def doubled(mesh: Mesh, spec: Any = ("data",)) -> Any:
    @tn.jit(mesh=mesh)
    def f(x: Any) -> Any:
        return shard(x, mesh, spec) * 2.0
    return f


def test_results_stay_in_parts_and_go_on() -> None:
    f = doubled(DATA)
    y = f(tn.arange(5.0))
    assert isinstance(y.payload.parts, ShardedArray)
    np.testing.assert_array_equal(f(f(y)).numpy(), np.arange(5.0) * 8)


def test_later_calls_may_have_other_sizes() -> None:
    f = doubled(DATA)
    for n in (5, 4, 7, 1, 0, 5):
        np.testing.assert_array_equal(f(tn.arange(float(n))).numpy(), np.arange(n) * 2.0)


@pytest.mark.usefixtures("interpreted")
def test_an_axis_without_elements_is_laid_out_anew() -> None:
    """An axis of 17 * 0: the layout of its parts is sought in digits, one of which is 0."""
    mesh = Mesh({"a": 2, "b": 2})
    x = tn.zeros(9, 17, 0, 4)
    step = tn.jit(mesh=mesh)(tn.grad(lambda x: tn.square(tn.flatten(tn.vecdot(x, x))).sum()))
    for axes in [("a", None, None, "b"), (None, "a", "b", None), ("b", "a", None, None)]:
        assert step(shard(x, mesh, axes)).shape == x.shape


@pytest.mark.usefixtures("interpreted")
def test_arguments_split_in_another_way_are_another_program() -> None:
    @tn.jit(mesh=GRID)
    def f(x: Any, w: Any) -> Any:
        return (x @ w).sum(axis=0)
    x, w = tn.rand(6, 4), tn.rand(4, 3)
    expected = (x @ w).sum(axis=0).numpy()
    for spec in ((), ("data",), ("data", "model"), (("data", "model"),), (None, "data")):
        np.testing.assert_allclose(f(shard(x, GRID, spec), w).numpy(), expected, rtol=1e-5)


def test_branches_and_loops_on_the_data_run_on_every_device() -> None:
    @tn.jit(mesh=DATA)
    def f(x: Any) -> Any:
        x = shard(x, DATA, ("data",))
        while x.sum() < 100.0:
            x = x * 2.0
        return -x if x.max() > 20.0 else x
    x = tn.arange(5.0)
    assert f(x).tolist() == [0.0, -16.0, -32.0, -48.0, -64.0]


@pytest.mark.usefixtures("interpreted")
def test_random_numbers_are_those_of_one_device() -> None:
    def noise(x: Any) -> Any:
        return nn.functional.dropout(x, 0.5) + tn.rand(*x.shape)
    tn.manual_seed(1)
    expected = [tn.jit(noise)(tn.ones(6, 3)).numpy() for _ in range(3)]
    for mesh in (Mesh({"data": 3}), GRID):
        tn.manual_seed(1)
        f = tn.jit(noise, mesh=mesh)
        for found in expected:
            np.testing.assert_array_equal(f(shard(tn.ones(6, 3), mesh, ("data",))).numpy(), found)


def test_explain_runs_nothing_and_says_why() -> None:
    ran = []

    @tn.jit(mesh=DATA)
    def f(x: Any, w: Any) -> Any:
        ran.append(1)
        return (shard(x, DATA, (None, "data")) @ w).relu()
    plan = explain(f, tn.ones(3, 4), tn.ones(4, 2))
    assert [(c.name, c.over, c.bytes) for c in plan.collectives] == [("all_reduce", ("data",), 24)]
    assert "for relu" in str(plan) and "test_shard.py" in str(plan)
    with pytest.raises(ArgumentError, match="not compiled for a mesh"):
        explain(tn.jit(lambda x: x), tn.ones(2))
    w = nn.Parameter(np.ones((4, 4)))

    @tn.jit(mesh=Mesh({"pipe": 2}), pipeline=Pipeline(micro_batches=2))
    def step(x: Any) -> Any:
        loss = (x @ w @ w).mean()
        loss.backward()
        return loss
    with pytest.raises(ArgumentError, match="a pipeline of stages"):
        explain(step, tn.ones(4, 4, dtype=tn.float64))


@pytest.mark.parametrize(("make", "kind", "message"), [
    (lambda: shard(tn.ones(4), DATA, ("modle",)), ArgumentError, "no axis 'modle'"),
    (lambda: shard(tn.ones(4, 4), DATA, ("data", "data")), ArgumentError, "named twice"),
    (lambda: shard(tn.ones(4), DATA, ("data", None)), ShapeError, "2 entries, and the tensor 1"),
    (lambda: shard(tn.ones(4), {"data": 2}, ("data",)), ArgumentError, "a mesh is expected, not dict"),
    (lambda: shard(Mlp(), DATA, {"ip.*": ("data",)}), ArgumentError, "no parameter is called 'ip"),
    (lambda: shard(Mlp(), DATA, {"*.weight": ("data",)}), ArgumentError, "no regular expression: nothing to repeat"),
    (lambda: shard(Mlp(), DATA, {".*bias": ("data", None)}), ShapeError, "up.bias"),
    (lambda: shard(Mlp(), DATA, ("data",)), ArgumentError, "patterns of names"),
    (lambda: shard(optim.SGD([nn.Parameter([1.0])], lr=1.0), DATA, ("data",)), ArgumentError, "no mesh axis"),
    (lambda: tn.jit(lambda x: x, mesh={"data": 2}), ArgumentError, "mesh is a Mesh, not dict"),
    (lambda: tn.jit(lambda x: x, mesh=DATA, background=True), ArgumentError, "background"),
    (lambda: doubled(DATA, ("model",))(tn.ones(4)), ArgumentError, "no axis 'model'"),
    (lambda: doubled(Mesh({"data": 3}))(shard(tn.ones(4), DATA, ("data",))), ArgumentError, "runs on Mesh"),
])
def test_what_cannot_be_is_refused(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_a_mesh_and_a_pipeline_are_combined_by_arguments_in_parts() -> None:
    mesh = Mesh({"data": 2, "pipe": 2})

    def trained_by(mesh: Any, pipeline: Any, *given: Any) -> list[float]:
        tn.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))).to(tn.float64)
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        @tn.jit(mesh=mesh, pipeline=pipeline)
        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        return [float(step(*given)) for _ in range(3)]
    x, y = tn.rand(8, 8, dtype=tn.float64), tn.rand(8, 8, dtype=tn.float64)
    found = trained_by(mesh, Pipeline(micro_batches=4), shard(x, mesh, ("data",)), shard(y, mesh, ("data",)))
    np.testing.assert_allclose(found, trained_by(None, None, x, y), rtol=1e-12)


def test_gradients_of_parts_need_the_whole_step() -> None:
    net = shard(Mlp(), DATA, "data")
    with pytest.raises(GradientError, match="tensors in parts"):
        net(tn.ones(2, 6))
    f = tn.jit(lambda x: net(x), mesh=DATA)
    with pytest.raises(CaptureError, match="its result carries a gradient"):
        f(tn.ones(2, 6))
    with tn.no_grad():
        np.testing.assert_allclose(f(tn.ones(2, 6)).numpy(), net(tn.ones(2, 6)).numpy(), rtol=1e-6)


def test_what_one_graph_cannot_hold_is_an_error() -> None:
    @tn.jit(mesh=DATA)
    def f(x: Any) -> Any:
        return x * float(input())       # of the outside world
    with pytest.raises(CaptureError):
        f(tn.ones(2))


def test_parts_of_other_processes_are_asked_for_by_gather() -> None:
    x = ShardedArray((4,), tn.float32, Sharding(DATA, ("data",)), {0: np.zeros(2, np.float32)})
    with pytest.raises(CommunicationError, match="this process has 1 of 2") as found:
        x.full()
    assert "tn.distributed.gather" in str(found.value)


def test_an_error_in_a_program_is_told_once_by_the_call() -> None:
    @tn.jit(mesh=DATA)
    def f(x: Any, at: Any) -> Any:
        return x[shard(at, DATA, ("data",))].sum()
    with pytest.raises(tn.errors.OutOfRange, match="index 9"):
        f(tn.ones(4), tn.tensor([0, 1, 2, 9]))


@pytest.mark.usefixtures("interpreted")
def test_a_step_that_fails_leaves_state_as_it_was() -> None:
    net = shard(Mlp(), DATA, "data")
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit(mesh=DATA)
    def step(x: Any, y: Any) -> Any:
        loss = nn.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    before = net.up.weight.numpy()
    with pytest.raises(tn.errors.TenonError):
        step(tn.ones(2, 6), tn.tensor([0, 7]))
    np.testing.assert_array_equal(net.up.weight.numpy(), before)
    step(tn.ones(2, 6), tn.tensor([0, 1]))
    assert (net.up.weight.numpy() != before).any()


@pytest.mark.usefixtures("interpreted")
def test_a_model_trained_in_parts_is_saved_whole(tmp_path: Any) -> None:
    seen: list[Any] = []
    _, parameters = trained(Mlp, DATA, data=("data",), rules="data", seen=seen)
    tn.save(seen[1].state_dict(), tmp_path / "net.safetensors")
    found = tn.load(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(found["up.weight"].numpy(), parameters[0])


def test_a_parameter_is_split_in_place() -> None:
    """Its module and its optimizer know it: a tensor beside it would be split for nobody."""
    net = nn.Linear(4, 6)
    assert shard(net.weight, Mesh({"model": 2}), ("model",)) is net.weight
    assert isinstance(net.weight, nn.Parameter) and isinstance(net.weight.payload.parts, ShardedArray)

"""What newcomers from DDP, FSDP, DTensor and pjit do with meshes: it works, or says what does."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import tenon as tn
from looping_steps import compare
from sharding_runs import check
from tenon import nn, optim
from tenon.distributed import Mesh, explain, from_local, shard
from tenon.errors import ArgumentError, CaptureError, DevicePlanError, ShapeError
from tenon.graph.text import parse_graph
from tenon.sharding.sharding import Sharding
from tenon.tensor import Tensor

DATA, GRID = Mesh({"data": 2}), Mesh({"data": 2, "model": 2})


def test_a_gradient_goes_through_what_is_split_in_eager_code() -> None:
    x = tn.arange(5.0)
    np.testing.assert_array_equal(tn.grad(lambda x: (shard(x * 2, DATA, ("data",)) ** 2).sum())(x).numpy(), 8 * x.numpy())
    leaf = tn.ones(4, requires_grad=True)
    shard(leaf * 3, DATA, ("data",)).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full(4, 3.0))
    assert shard(leaf, DATA, ("data",)).requires_grad


def test_a_step_that_is_not_compiled_has_the_numbers_of_the_compiled_one() -> None:
    def run(decorate: Any) -> list[float]:
        tn.manual_seed(0)
        net = nn.Linear(5, 3)
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            loss = nn.cross_entropy(net(shard(x, DATA, ("data",))), shard(y, DATA, ("data",)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        call, x, y = decorate(step), tn.rand(7, 5), tn.randint(0, 3, (7,))
        return [float(call(x, y)) for _ in range(3)]
    np.testing.assert_allclose(run(tn.jit(mesh=DATA)), run(lambda f: f), rtol=1e-5)


def test_a_function_without_a_mesh_does_not_leave_out_what_is_to_be_split() -> None:
    @tn.jit
    def f(x: Any) -> Any:
        return shard(x, DATA, ("data",)) * 2.0
    with pytest.raises(DevicePlanError, match="runs on no mesh") as caught:
        f(tn.ones(4))
    assert "@tn.jit(mesh=" in str(caught.value) and "test_mesh_habits.py" in str(caught.value)

    @tn.jit
    def alone(x: Any) -> Any:
        return shard(x, Mesh({"data": 1}), ("data",)) * 2.0
    assert alone(tn.ones(4)).tolist() == [2.0] * 4


def test_sizes_that_the_data_decide_are_refused_with_a_way_out() -> None:
    @tn.jit(mesh=DATA)
    def f(x: Any) -> Any:
        return x[x > 0.5].sum()
    with pytest.raises(CaptureError, match="the data decide a size") as caught:
        f(tn.rand(6))
    assert "tn.where(mask, x, 0)" in str(caught.value) and "x[x > 0.5]" in str(caught.value)


def test_a_mesh_has_axes() -> None:
    with pytest.raises(ArgumentError, match="there are no axes"):
        Mesh({})
    assert Mesh({"pipe": 3}).without("pipe").size == 1 and GRID.without("data") == Mesh({"model": 2})


def test_elementwise_code_leaves_tensors_in_parts() -> None:
    net = shard(nn.Linear(4, 3), DATA, "data")
    before = net.weight.detach().numpy().copy()
    with tn.no_grad():
        net.weight.mul_(2.0)
        net.weight += 1.0
        mean = (net.weight + net.weight.abs()) / 2
    for x, expected in ((net.weight, before * 2 + 1), (mean, np.maximum(before * 2 + 1, 0))):
        assert x.payload.parts.sharding == Sharding(DATA, ("data", None))
        np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-6)
    other = shard(tn.ones(3, 4), DATA, (None, "data"))
    with tn.no_grad():
        np.testing.assert_allclose((net.weight * other + tn.arange(4.0)).numpy(), before * 2 + 1 + np.arange(4), rtol=1e-6)


def test_a_tensor_is_made_of_the_parts_that_there_are() -> None:
    parts = [tn.full((n, 2), float(k)) for k, n in enumerate((3, 2))]
    x = from_local(parts, DATA, ("data",))
    np.testing.assert_array_equal(x.numpy(), np.concatenate([p.numpy() for p in parts]))
    assert float(tn.jit(lambda x: x.sum(), mesh=DATA)(x)) == 4.0
    rows = [tn.full((2, n), float(k)) for k in range(2) for n in (2, 1)]
    assert from_local(rows, GRID, ("data", "model")).shape == (4, 3)
    assert isinstance(from_local([tn.ones(2)] * 2, DATA, ()).payload, np.ndarray)


@pytest.mark.parametrize(("parts", "spec", "told"), [
    ([1, 2], ("data",), "it has"), ([1], ("data",), "1 parts are given"), ([2, 2], (), "bring unlike ones")])
def test_parts_that_make_no_tensor_are_refused(parts: list[int], spec: Any, told: str) -> None:
    with pytest.raises((ShapeError, ArgumentError, tn.errors.CommunicationError), match=told):
        from_local([Tensor(np.full(n, k)) for k, n in enumerate(parts)], DATA, spec)


def test_bools_are_added_up_by_or() -> None:
    graph = parse_graph("def f(x: bool[3, 4], y: bool[4, 2]):\n    z: bool[3, 2] = matmul(x, y)\n    return z")
    arrays = [np.random.default_rng(0).random(shape) < 0.4 for shape in ((3, 4), (4, 2))]
    check(graph, [Sharding(DATA, (None, "data")), Sharding(DATA, ("data", None))], DATA, arrays, [Sharding(DATA, ("data",))])
    check(graph, [Sharding(DATA, (None, "data")), None], DATA, arrays, [None])


def test_ranks_whose_parts_are_alike_share_one_program() -> None:
    tn.manual_seed(0)
    net = nn.Linear(5, 3)
    optimizer = optim.Adam(net.parameters(), lr=0.1)

    @tn.jit(mesh=Mesh({"data": 4}))
    def step(x: Any, y: Any) -> Any:
        x, y = (shard(a, Mesh({"data": 4}), ("data",)) for a in (x, y))
        loss = nn.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    x, y = tn.rand(8, 5), tn.randint(0, 3, (8,))
    step(x, y)
    made = next(iter(step.capture(x, y).program._programs.values()))
    programs = [getattr(part.program, "program", part.program) for part in made.program.parts.values()]
    assert len({id(program) for program in programs}) == 1
    assert [None if s is None else s.spec for s in made.shardings].count(("data", None)) == 1


@pytest.mark.parametrize("places", [2, 3])
def test_uneven_rows_and_gradients_that_are_added_up_over_calls(places: int) -> None:
    def run(mesh: Any) -> list[float]:
        tn.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        @tn.jit(mesh=mesh)
        def backward(x: Any, y: Any) -> Any:
            if mesh is not None:
                x, y = shard(x, mesh, ("data",)), shard(y, mesh, ("data",))
            loss = nn.cross_entropy(net(x), y)
            loss.backward()
            return loss

        @tn.jit(mesh=mesh)
        def update() -> None:
            optimizer.step()
            optimizer.zero_grad()
        found = []
        for rows in (7, 5, 7, 4):
            found.append(float(backward(tn.rand(rows, 6), tn.randint(0, 3, (rows,)))))
            if len(found) % 2 == 0:
                update()
        return [*found, float(net[0].weight.abs().sum())]
    np.testing.assert_allclose(run(Mesh({"data": places})), run(None), rtol=2e-5)


def test_a_loop_that_every_device_computes_is_told() -> None:
    @tn.jit(mesh=DATA)
    def f(x: tn.Tensor, n: tn.Tensor) -> tn.Tensor:
        x, total = shard(x, DATA, ("data",)), tn.zeros(2)
        for k in range(n):          # type: ignore[call-overload]
            total = total * 0.5 + x[k]
        return total
    text = str(tn.distributed.explain(f, tn.ones(4, 2), tn.tensor(3)))
    assert "while_loop: every device computes all of it" in text


def all_queries_first(mesh: Any, width: int = 8, heads: int = 4, how: str = "chunk") -> Any:
    """GPT-2's attention: one weight whose rows are all queries, all keys, all values."""
    qkv, out = nn.Linear(width, 3 * width).double(), nn.Linear(width, width).double()
    if mesh is not None:
        for p, spec in ((qkv.weight, ("model",)), (qkv.bias, ("model",)), (out.weight, (None, "model"))):
            shard(p, mesh, spec)

    def loss(x: Any) -> Any:
        b, t, _ = x.shape
        x = x if mesh is None or "data" not in mesh.axes else shard(x, mesh, ("data",))
        if how == "chunk":
            q, k, v = (z.reshape(b, t, heads, -1).transpose(1, 2) for z in qkv(x).chunk(3, -1))
        else:
            q, k, v = qkv(x).reshape(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
        mixed = tn.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (out(mixed.transpose(1, 2).reshape(b, t, width)) ** 2).mean()
    return loss, (tn.randn(5, 16, width, dtype=tn.float64),), [*qkv.parameters(), *out.parameters()]


@pytest.mark.parametrize("how", ["chunk", "reshape"])
def test_a_fused_projection_with_all_queries_first_moves_its_weight_not_activations(how: str) -> None:
    mesh = Mesh({"model": 2})
    loss, (x,), params = all_queries_first(mesh, how=how)
    optimizer = optim.AdamW(params)

    @tn.jit(mesh=mesh)
    def step(x: Any) -> Any:
        found = loss(x)
        found.backward()
        optimizer.step()
        return found
    plan = explain(step, x)
    assert sorted(c.name for c in plan.collectives) == ["all_gather"] * 4 + ["all_reduce"]     # as Megatron's, and rows
    assert sum(c.bytes for c in plan.collectives if c.name == "all_gather") == 2 * 8 * (24 * 8 + 24) // 2


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("how", ["chunk", "reshape"])
@pytest.mark.parametrize("mesh", [Mesh({"model": 2}), Mesh({"data": 2, "model": 2}), Mesh({"model": 3}),
                                  Mesh({"data": 2, "model": 4})], ids=str)
def test_a_fused_projection_with_all_queries_first_trains_as_on_one_device(mesh: Any, how: str) -> None:
    """Three devices have no equal parts of four heads."""
    compare(partial(all_queries_first, how=how), mesh)
    compare(partial(all_queries_first, width=6, heads=3, how=how), mesh)


def test_a_fused_projection_whose_rows_go_head_by_head_is_split_by_heads() -> None:
    mesh = Mesh({"model": 2})

    class Attention(nn.Module):
        def __init__(self) -> None:
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

        def __call__(self, x: Any) -> Any:
            q, k, v = self.qkv(x).reshape(2, 5, 4, 3, 2).permute(3, 0, 2, 1, 4)
            return self.out(tn.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).reshape(2, 5, 8))
    net = shard(Attention(), mesh, {"qkv.*": ("model",), "out.weight": (None, "model")})

    @tn.jit(mesh=mesh)
    def backward(x: Any) -> Any:
        loss = net(x).square().mean()
        loss.backward()
        return loss
    assert [c.name for c in tn.distributed.explain(backward, tn.rand(2, 5, 8)).collectives] == ["all_reduce"]


def spec_of(x: Tensor) -> Any:
    return x.payload.parts.sharding.spec if hasattr(x.payload, "parts") else None


def test_a_state_is_loaded_into_parts_where_a_model_is_in_parts_and_whole_where_it_is_not() -> None:
    """Loading had taken over how the state was split: a plain model could not be trained, a split one became whole."""
    split, plain = shard(nn.Linear(4, 3), DATA, "data"), nn.Linear(4, 3)
    plain.load_state_dict(split.state_dict())
    assert spec_of(plain.weight) is None and plain.weight.tolist() == split.weight.tolist()
    plain(tn.ones(2, 4)).sum().backward()
    other = shard(nn.Linear(4, 3), GRID, {"weight": (None, "model")})
    other.load_state_dict(plain.state_dict())
    assert spec_of(other.weight) == (None, "model") and other.weight.tolist() == plain.weight.tolist()
    other.load_state_dict(split.state_dict())
    assert spec_of(other.weight) == (None, "model")


def test_what_is_filled_or_cast_stays_in_parts() -> None:
    net = shard(nn.Linear(4, 3), DATA, "data")
    nn.init.ones_(net.weight)
    with tn.no_grad():
        net.bias.copy_(tn.arange(3.0))
    net.to(tn.float64)
    assert [spec_of(net.weight), spec_of(net.bias), net.bias.tolist()] == [("data", None), ("data",), [0, 1, 2]]

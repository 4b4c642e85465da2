"""Pipelines on meshes: beside data and tensor parallel axes, and between processes."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import DevicePlanError
from tenon.pipeline import compile
from tenon.pipelining.pipelined import Pipeline, Pipelined, PipelineNote
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharded_array import ShardedArray, split_array
from tenon.sharding.sharding import Sharding
from tests.pipelining.steps_by_hand import data_for, mean_step, mlp, shallow_gpt

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
interpreted = partial(compile, backend="reference")


def whole(x: Any) -> np.ndarray:
    return x.full() if isinstance(x, ShardedArray) else x


def run_on(mesh: Mesh, make: Any, pipeline: Pipeline, data: bool, model: bool, size: int = 16) -> None:
    """A step whose batch is split over "data", and whose even matrices over "model", against one device."""
    graph, arrays = mean_step(make(), size)
    given: list[Any] = list(arrays)
    for k, p in enumerate(graph.params):
        if data and k < 2:
            given[k] = split_array(arrays[k], Sharding(mesh, ("data",)), range(mesh.size))
        if model and k >= 2 and p.ndim == 2 and p.shape[0] % 2 == 0:
            given[k] = split_array(arrays[k], Sharding(mesh, ("model",)), range(mesh.size))
    found = Pipelined(graph, PipelineNote(pipeline, (0, 1)), interpreted, mesh).run(given)
    assert any(isinstance(x, ShardedArray) for x in found) is model
    for x, want in zip(found, interpreted(graph).run(arrays), strict=True):
        np.testing.assert_allclose(whole(x), want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("sizes", "schedule"), [
    ({"data": 2, "pipe": 2}, "1f1b"), ({"pipe": 2, "model": 2}, "zero_bubble"), ({"pipe": 3, "data": 2}, "gpipe"),
    ({"data": 2, "pipe": 2, "model": 2}, "1f1b")], ids=str)
def test_an_mlp_on_a_mesh(sizes: dict[str, int], schedule: str) -> None:
    run_on(Mesh(sizes), mlp, Pipeline(micro_batches=4, schedule=schedule), "data" in sizes, "model" in sizes)


def test_a_gpt_on_a_mesh_of_three_axes() -> None:
    run_on(Mesh({"data": 2, "pipe": 2, "model": 2}), shallow_gpt, Pipeline(micro_batches=4), True, True)


@pytest.mark.parametrize("sizes", [{"data": 2, "pipe": 2}, {"pipe": 2, "model": 2}], ids=str)
@pytest.mark.parametrize("make", [mlp, shallow_gpt])
def test_an_uneven_batch_on_a_mesh(sizes: dict[str, int], make: Any) -> None:
    """20 examples, 10 a device, in micro-batches of 3, 3, 2 and 2."""
    run_on(Mesh(sizes), make, Pipeline(micro_batches=4), "data" in sizes, "model" in sizes, 20 // sizes.get("model", 1))


def test_a_batch_uneven_among_devices_and_micro_batches_is_refused() -> None:
    with pytest.raises(DevicePlanError, match="does not divide among 2 devices with 4 micro-batches each"):
        run_on(Mesh({"data": 2, "pipe": 2}), mlp, Pipeline(micro_batches=4), True, False, 11)


def test_a_jitted_step_runs_on_a_mesh_in_stages() -> None:
    def losses(**options: Any) -> list[float]:
        net = mlp()
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        @tn.jit(**options)
        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        x, y = map(tn.tensor, data_for(net, 16))
        if options:
            x, y = (tn.distributed.shard(t, options["mesh"], ("data",)) for t in (x, y))
        return [float(step(x, y)) for _ in range(3)]
    found = losses(mesh=Mesh({"data": 2, "pipe": 2}), pipeline=Pipeline(micro_batches=4))
    np.testing.assert_allclose(found, losses(), rtol=1e-12)


def test_arguments_are_split_in_the_step_as_well() -> None:
    """Each device has rows, which turns divide; activations that are marked keep their turns."""
    def losses(mesh: Any, **options: Any) -> list[float]:
        net = mlp()
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        @tn.jit(mesh=mesh, **options)
        def step(x: Any, y: Any) -> Any:
            if mesh is not None:
                x, y = (tn.distributed.shard(t, mesh, ("data",)) for t in (x, y))
            scores = net(x)
            if mesh is not None:
                scores = tn.distributed.shard(scores, mesh, ("data", None))
            loss = nn.functional.cross_entropy(scores, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        return [float(step(*map(tn.tensor, data_for(net, 16)))) for _ in range(3)]
    found = losses(Mesh({"data": 2, "pipe": 2}), pipeline=Pipeline(micro_batches=4))
    np.testing.assert_allclose(found, losses(None), rtol=1e-12)


class Encoder(nn.Module):
    """Its two heads have 3 columns each: two on one device of an axis, one on the other."""

    def __init__(self) -> None:
        self.hidden, self.mean, self.spread, self.out = (
            nn.Linear(10, 16), nn.Linear(16, 3), nn.Linear(16, 3), nn.Linear(3, 10))

    def __call__(self, x: Any) -> Any:
        h = tn.elu(self.hidden(x))
        return self.out(self.mean(h) + tn.exp(0.5 * self.spread(h)))


def test_all_ranks_of_uneven_parts_have_the_same_stages() -> None:
    """A rank of fewer elements had put a weight's gradient on another stage."""
    def losses(mesh: Any, **options: Any) -> list[float]:
        tn.manual_seed(0)
        net = Encoder().to(tn.float64)
        optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        if mesh is not None:
            tn.distributed.shard(net, mesh, {r"(hidden|mean|spread|out)\.bias": ("model",), r"out\.weight": ("model",)})
            tn.distributed.shard(optimizer, mesh)

        @tn.jit(mesh=mesh, **options)
        def step(x: Any) -> Any:
            loss = nn.functional.mse_loss(net(x), x)
            loss.backward()
            optim.clip_grad_norm(net.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
            return loss
        x = tn.rand(6, 10, dtype=tn.float64)
        return [float(step(x)) for _ in range(3)]
    found = losses(Mesh({"pipe": 2, "model": 2}), pipeline=Pipeline(micro_batches=6, schedule="zero_bubble"))
    np.testing.assert_allclose(found, losses(None), rtol=1e-12)


def test_what_is_gathered_once_for_an_uneven_batch_is_gathered_as_often_on_all_ranks() -> None:
    """Results of a segment stood in the order of a set: another one for smaller micro-batches, of other types then."""
    mesh = Mesh({"pipe": 2, "model": 2})
    graph, arrays = mean_step(mlp(), 10)
    given = [split_array(x, Sharding(mesh, ("model",)), range(mesh.size)) if k >= 2 and x.ndim and x.shape[0] >= 2 else x
             for k, x in enumerate(arrays)]
    found = Pipelined(graph, PipelineNote(Pipeline(micro_batches=4), (0, 1)), interpreted, mesh)
    for program in found.plan(given).devices.values():
        assert program.smaller is not None
        for mine, other in program.smaller.graphs.items():
            late = "late" in mine.graph.name
            assert not late or [x.type for x in mine.graph.results] == [x.type for x in other.results]
    for x, want in zip(found.run(given), interpreted(graph).run(arrays), strict=True):
        np.testing.assert_allclose(whole(x), want, rtol=1e-10, atol=1e-12)


def test_meshes_that_do_not_fit_are_refused() -> None:
    graph, arrays = mean_step(mlp(), 16)
    note = PipelineNote(Pipeline(2, 4), (0, 1))
    with pytest.raises(DevicePlanError, match="has no axis 'pipe'"):
        Pipelined(graph, note, interpreted, Mesh({"data": 2}))
    with pytest.raises(DevicePlanError, match="stages=2 is not what"):
        Pipelined(graph, note, interpreted, Mesh({"pipe": 3}))
    with pytest.raises(DevicePlanError, match="on how many devices is not said"):
        Pipelined(graph, PipelineNote(Pipeline(micro_batches=4), (0, 1)), interpreted)
    mesh = Mesh({"pipe": 2})
    along = split_array(arrays[0], Sharding(mesh, ("pipe",)), range(2))
    with pytest.raises(DevicePlanError, match="along which stages are"):
        Pipelined(graph, note, interpreted, mesh).run([along, *arrays[1:]])
    other = split_array(arrays[0], Sharding(Mesh({"data": 2}), ("data",)), range(2))
    with pytest.raises(DevicePlanError, match="is split over Mesh"):
        Pipelined(graph, note, interpreted, mesh).run([other, *arrays[1:]])


def test_processes_have_the_weights_of_their_stages_and_compute_the_same() -> None:
    pytest.importorskip("mpi4py")
    environment = {**os.environ, "TENON_BACKEND": "reference", "PYTHONPATH": f"{ROOT}", "TENON_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run([str(MPIEXEC), "-n", "2", sys.executable, str(Path(__file__).with_name("pipeline_ranks.py"))],
                         capture_output=True, text=True, timeout=600, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.split()) == ["ok"] * 6, ran.stdout

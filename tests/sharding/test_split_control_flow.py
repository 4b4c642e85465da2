"""Branches and loops on meshes: their graphs are split too, and give the numbers of one device."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from looping_steps import MESHES, STEPS, compare
from sharding_runs import check
from tenon import nn, optim
from tenon.distributed import Mesh, explain, shard
from tenon.graph.text import parse_graph
from tenon.sharding.sharding import Sharding

ROOT = Path(__file__).parents[2]
DATA, GRID = Mesh({"data": 2}), Mesh({"data": 2, "model": 2})


def rows(x: Any, mesh: Any) -> Any:
    return x if mesh is None else shard(x, mesh, ("data",))


def recurrent(mesh: Any) -> Any:
    W, U = (nn.Parameter(tn.randn(n, 6) * 0.3) for n in (6, 4))
    if mesh is GRID:
        shard(W, mesh, (None, "model"))
    optimizer = optim.SGD([W, U], lr=0.1)

    @tn.jit(mesh=mesh)
    def step(x: Any, y: Any) -> Any:
        x, y = rows(x, mesh), rows(y, mesh)

        def cell(h: Any, now: Any) -> Any:
            h = tn.tanh(h @ W + now @ U)
            return h, h.sum(-1)
        h, sums = tn.scan(cell, tn.zeros(x.shape[0], 6), x.transpose(0, 1))
        loss = ((h.mean(-1) - y) ** 2).mean() + 0.01 * (sums ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step, (tn.randn(5, 7, 4), tn.randn(5))


def fixed_point(mesh: Any) -> Any:
    net = nn.Linear(4, 4)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit(mesh=mesh)
    def step(x: Any, y: Any) -> Any:
        x, y = rows(x, mesh), rows(y, mesh)
        z, k = tn.zeros_like(x), 0
        while ((tn.tanh(net(z) + x) - z).abs().max() > 1e-2) & (k < 7):
            z, k = tn.tanh(net(z) + x), k + 1
        loss = ((z - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step, (tn.randn(7, 4), tn.randn(7, 4))


def branching(mesh: Any) -> Any:
    net = nn.Linear(4, 4)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit(mesh=mesh)
    def step(x: Any, y: Any) -> Any:
        x, y = rows(x, mesh), rows(y, mesh)
        loss = ((net(x) - y) ** 2).mean()
        if loss > 1.5:
            loss = loss + net(tn.sin(x)).abs().mean()
        else:
            loss = loss * 0.5 + tn.log1p((net(x) ** 2).sum())
        loss.backward()
        if tn.isfinite(net.weight.grad.sum()):
            optimizer.step()
        optimizer.zero_grad()
        return loss
    return step, (tn.randn(7, 4), tn.randn(7, 4))


@pytest.mark.parametrize("mesh", [DATA, GRID], ids=str)
@pytest.mark.parametrize("build", [recurrent, fixed_point, branching])
def test_a_step_with_control_flow_has_one_device_s_numbers(build: Any, mesh: Any) -> None:
    losses = []
    for place in (None, mesh):
        tn.manual_seed(0)
        step, given = build(place)
        losses.append([float(step(*given)) for _ in range(8)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-6)


def test_gradients_are_added_up_once_behind_a_loop() -> None:
    """Not in every round, and what the loop keeps for its gradient stays in parts."""
    step, given = recurrent(DATA)
    plan = explain(step, *given)
    assert [c.name for c in plan.collectives] == ["all_reduce"] * 3 and not plan.repeated
    assert sum(c.bytes for c in plan.collectives) == 4 * (1 + 36 + 24)
    step, given = fixed_point(DATA)
    told = [c for c in explain(step, *given).collectives if "rounds" in c.reason]
    assert [(c.name, c.bytes) for c in told] == [("all_reduce", 4)]         # what decides whether to go on


LOOP = """\
def f(x: f64[6, 3], w: f64[4, 3], n: i64):
    def more(w: f64[4, 3], x: f64[6, 3], n: i64):
        p: bool = greater(n, 0)
        return p
    def turn(w: f64[4, 3], x: f64[6, 3], n: i64):
        t: f64[3, 4] = permute(w, axes=(1, 0))
        a: f64[6, 4] = matmul(x, t)
        b: f64[6, 3] = matmul(a, w)
        c: f64[6, 3] = tanh(b)
        m: i64 = subtract(n, 1)
        return c, m
    y: tuple[f64[6, 3], i64] = while_loop(w, x, n, constants=1, condition=more, body=turn)
    return y[0]
"""


def test_a_weight_in_parts_is_joined_once_before_the_loop_that_reads_it_whole() -> None:
    given = [Sharding(DATA, ("data",)), Sharding(DATA, ("data",)), None]
    arrays = [np.random.default_rng(0).standard_normal(s) for s in ((6, 3), (4, 3))]
    plan = check(parse_graph(LOOP), given, DATA, [*arrays, np.asarray(3)])
    assert [(c.name, c.reason) for c in plan.collectives] == [("all_gather", "for while_loop")]
    assert plan.results[0].split_axes == ("data",)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("build", STEPS, ids=lambda build: build.__name__)
def test_every_mesh_of_up_to_8_has_one_device_s_losses_and_parameters(build: Any) -> None:
    for mesh in MESHES:
        compare(build, mesh)


RANKS = """
from looping_steps import Mesh, STEPS, trained

for build in STEPS:
    losses, params = trained(build, Mesh({"data": 2}), steps=2)
    print(build.__name__, losses, b"".join(x.tobytes() for x in params).hex()[:40])
"""


def test_loops_of_processes_compute_the_bits_of_threads(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    (tmp_path / "script.py").write_text(RANKS)
    alone, together = (subprocess.run(
        [sys.executable, *before, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=600, check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}).stdout.splitlines()
        for before in ((), ("-m", "tenon", "launch", "-n", "2")))
    assert len(alone) == len(STEPS)
    assert sorted(together) == sorted(f"[{rank}] {text}" for rank in (0, 1) for text in alone)

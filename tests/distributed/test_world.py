"""Collectives that the user calls by hand: eager, under tn.jit, differentiated, batched; alone and in two processes."""

from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from distributed.test_mpi_transport import mpiexec
from tenon.errors import ArgumentError, TenonError

PROGRAM = """
import sys
import numpy as np
import tenon as tn
from tenon import nn, optim
from tenon import distributed as dist

rank, size = dist.rank(), dist.size()
tn.manual_seed(0)
net = nn.Linear(3, 2)
opt = optim.SGD(net.parameters(), lr=0.1)

@tn.jit
def step(x, y, rows):
    loss = ((net(x) - y) ** 2).sum() / rows
    loss.backward()
    for p in net.parameters():
        p.grad = dist.all_reduce(p.grad)
    opt.step()
    opt.zero_grad()
    return dist.all_reduce(loss)

rng = np.random.default_rng(0)
for rows in (6, 7, 7):
    x, y = (rng.standard_normal((rows, k)).astype(np.float32) for k in (3, 2))
    loss = step(*(tn.asarray(np.array_split(a, size)[rank]) for a in (x, y)), float(rows))
    print("loss", f"{float(loss):.4f}")
print("weights", [f"{w:.4f}" for w in net.weight.numpy().ravel()])
x = tn.ones(2, requires_grad=True)
(dist.all_reduce(x * 2.0) * tn.tensor([1.0, 2.0])).sum().backward()
print("grad", (x.grad / size).tolist())
for f in (lambda f: f, tn.jit):
    print("batch", (f(tn.vmap(lambda v: dist.all_reduce(v).sum()))(tn.ones(3, 2)) / size).tolist())
"""


def test_the_same_program_on_one_and_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    printed = []
    for count in (1, 2):
        ran = mpiexec(count, str(script))
        assert ran.returncode == 0, ran.stderr
        printed.append(sorted(ran.stdout.splitlines()))
    assert sorted(printed[0] * 2) == printed[1]


def test_ranks_that_call_different_things_are_told_so(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "script.py"
    script.write_text("import tenon as tn\nfrom tenon import distributed as dist\n"
                      "if dist.rank(): dist.all_gather(tn.ones(3), axis=0, over='data', size=6)\n"
                      "else: dist.all_reduce(tn.ones(3))\n")
    ran = mpiexec(2, str(script))
    assert ran.returncode != 0
    assert "ranks disagree: rank" in ran.stderr
    assert "all_reduce('sum') of f32[3]" in ran.stderr and "all_gather(0) of f32[6]" in ran.stderr
    assert "script.py:4" in ran.stderr


def test_a_single_process_is_a_mesh_of_one() -> None:
    x = tn.tensor([1.0, 2.0])
    assert (tn.distributed.rank(), tn.distributed.size()) == (0, 1)
    assert tn.distributed.all_reduce(x).tolist() == [1.0, 2.0]
    assert tn.jit(lambda x: tn.distributed.all_gather(x, axis=0, over="data", size=2))(x).tolist() == [1.0, 2.0]
    assert int(tn.distributed.collective_place(over="data")) == 0


@pytest.mark.parametrize("call, said", [
    (lambda d, x: d.all_reduce(x, over="model"), "no axis 'model'"),
    (lambda d, x: d.all_reduce(x, op="mean"), "op='mean' is unknown"),
    (lambda d, x: d.all_gather(x, axis=0, over="data", size=5), "part 0 of 1 of 5 elements has 5, not 2"),
    (lambda d, x: d.all_gather(x, axis=3, over="data", size=5), "axis"),
    (lambda d, x: d.collective_broadcast(x, over="data", root=1), "root=1 is no place in a group of 1"),
    (lambda d, x: d.all_reduce(x > 1.0), "elements of type bool are not taken"),
])
def test_wrong_calls_are_refused(call: object, said: str) -> None:
    assert callable(call)
    for run in (lambda f: f, tn.jit):
        with pytest.raises(TenonError, match=said):
            run(lambda x: call(tn.distributed, x))(tn.tensor([1.0, 2.0]))


def test_a_mesh_has_a_place_a_process() -> None:
    with pytest.raises(ArgumentError, match="2 places, and there are 1 processes"):
        tn.distributed.set_mesh(tn.distributed.Mesh({"data": 2}))
    assert np.asarray(tn.distributed.current_mesh().shape).tolist() == [1]

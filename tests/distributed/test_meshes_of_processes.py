"""Functions on a mesh, in processes: the bits of threads, whatever is split; and their checkpoints on other meshes."""

from pathlib import Path

import numpy as np
import pytest

from distributed.test_mpi_transport import mpiexec

pytest.importorskip("mpi4py")

TRAINING = """
import sys
import numpy as np
import tenon as tn
from tenon import distributed as dist, nn, optim

folder, first, last, axes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
for how in ("data", "zero", "tensor"):
    mesh = dist.Mesh({"data": 2}) if axes == "two" else dist.Mesh({"data": 1})
    tn.manual_seed(first)
    net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    opt = optim.Adam(net.parameters(), lr=0.05)
    if how == "zero":
        dist.shard(net, mesh, "data")
    elif how == "tensor":
        dist.shard(net, mesh, {r"0\\.weight": ("data", None), r"0\\.bias": ("data",), r"2\\.weight": (None, "data")})
    dist.shard(opt, mesh)

    @tn.jit(mesh=mesh)
    def step(x, y):
        if how == "data":
            x, y = dist.shard(x, mesh, ("data", None)), dist.shard(y, mesh, ("data", None))
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    run = dist.Checkpoint(f"{folder}/{how}", net=net, opt=opt)
    assert run.restore().get("step", 0) == first
    for k in range(first, last):
        rng = np.random.default_rng(k)
        x, y = (tn.asarray(rng.standard_normal((7, width)).astype(np.float32)) for width in (6, 4))
        print(how, k, float(step(x, y)).hex())
    run.save(step=last)
    print(how, dist.gather(net[0].weight).numpy().tobytes().hex())
"""


def lines(count: int, folder: Path, *arguments: str) -> list[str]:
    script = folder.parent / "training.py"
    script.write_text(TRAINING)
    ran = mpiexec(count, str(script), str(folder), *arguments)
    assert ran.returncode == 0, ran.stderr
    return sorted(ran.stdout.splitlines())


def test_processes_compute_the_bits_of_threads_and_go_on_from_each_others_checkpoints(tmp_path: Path) -> None:
    threads = lines(1, tmp_path / "threads", "0", "3", "two")
    assert lines(2, tmp_path / "processes", "0", "3", "two") == sorted(threads * 2)
    assert len(list((tmp_path / "processes" / "zero").glob("1-*.safetensors"))) == 2
    # processes go on where threads were, and threads where processes were
    later = lines(1, tmp_path / "processes", "3", "5", "two")
    assert lines(2, tmp_path / "threads", "3", "5", "two") == sorted(later * 2)
    # and one device where two were: other sums, the same numbers up to rounding
    alone = lines(1, tmp_path / "threads", "5", "6", "one")
    both = lines(1, tmp_path / "processes", "5", "6", "two")
    for one, other in zip(alone, both, strict=True):
        if "0x" in one:
            assert float.fromhex(one.split()[-1]) == pytest.approx(float.fromhex(other.split()[-1]), rel=1e-5)
    assert np.isfinite([float.fromhex(x.split()[-1]) for x in threads if "0x" in x]).all()


SEEDS = """
import sys
import numpy as np
import tenon as tn
from tenon import distributed as dist, nn
from tenon.errors import CommunicationError

mesh = dist.Mesh({"data": 2})
if sys.argv[2] != "generators":
    tn.manual_seed(dist.rank() if sys.argv[2] == "weights" else 0)
net = nn.Linear(3, 2)
if sys.argv[2] == "generators":
    net.weight = nn.Parameter(tn.ones(2, 3))
    tn.manual_seed(dist.rank())

@tn.jit(mesh=mesh)
def step(x):
    with tn.no_grad():
        return (dist.shard(x, mesh, ("data",)) @ net.weight.T).sum() + tn.rand(())
try:
    print(float(step(tn.ones(4, 3) * (dist.rank() + 1 if sys.argv[2] == "arguments" else 1))).hex())
except CommunicationError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.parametrize("differ", ["weights", "generators", "arguments", "nothing"])
def test_what_ranks_hold_is_compared_before_the_first_run(tmp_path: Path, differ: str) -> None:
    (tmp_path / "seeds.py").write_text(SEEDS)
    ran = mpiexec(2, str(tmp_path / "seeds.py"), str(tmp_path), differ)
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first == second
    what = "give different arguments" if differ == "arguments" else "hold different tensors"
    assert first.startswith(f"ranks {what} at the first call of step: ") == (differ != "nothing")


PLANNED = """
import numpy as np
import tenon as tn
from tenon import distributed as dist, nn, optim

def losses(how):
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(tn.float64)
    mesh = dist.Mesh({"data": 2}) if how == "module" else None
    if mesh is not None:
        dist.shard(net, mesh, plan="auto")
    opt = optim.Adam(net.parameters(), lr=0.05)

    @tn.jit(mesh=mesh, plan="auto" if how == "step" else None)
    def step(x, y):
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    rng = np.random.default_rng(0)
    found = [float(step(*map(tn.asarray, (rng.standard_normal((rows, 16)), rng.standard_normal((rows, 4))))))
             for rows in (6, 6, 5)]
    return [x.hex() for x in found], found
one = losses("alone")[1]
for how in ("step", "module"):
    bits, found = losses(how)
    np.testing.assert_allclose(found, one, rtol=1e-12)
    print(how, bits)
"""


def test_processes_do_as_the_plan_that_the_first_of_them_makes(tmp_path: Path) -> None:
    (tmp_path / "planned.py").write_text(PLANNED)
    ran = mpiexec(2, str(tmp_path / "planned.py"))
    assert ran.returncode == 0, ran.stderr
    assert [len({x for x in ran.stdout.splitlines() if x.startswith(how)}) for how in ("step", "module")] == [1, 1]

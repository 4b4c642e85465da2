"""A state in a folder: written by all processes, whole at any moment, and read by any number of them."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from distributed.test_mpi_transport import mpiexec
from tenon import nn, optim, tensor_file
from tenon.errors import ArgumentError, TenonError
from tenon.tensor_file import DamagedFile

ROOT = Path(__file__).parents[2]


def state() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"w": tn.asarray(rng.standard_normal((5, 3)).astype(np.float32)), "empty": tn.zeros((0, 4)), "step": 3,
            "half": tn.ones(3, dtype=tn.bfloat16), "flag": tn.asarray(True), "name": "run", "none": None,
            "nest": [{"dict": tn.arange(4)}, 1.5]}


def same(x: Any, y: Any) -> bool:
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if isinstance(x, list):
        return len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, tn.Tensor):
        return x.type == y.type and np.array_equal(x.numpy(), y.numpy())
    return bool(x == y)


def test_a_state_comes_back_and_later_saves_take_its_place(tmp_path: Path) -> None:
    for step in range(3):
        tn.distributed.save({**state(), "step": step}, tmp_path)
        assert same(tn.distributed.load(tmp_path), {**state(), "step": step})
        assert sorted(x.name for x in tmp_path.iterdir()) == [f"{step + 1}-0.safetensors", "index.json"]


def test_a_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    def run(folder: Path, steps: range) -> np.ndarray:
        tn.manual_seed(steps.start)
        net = nn.Linear(3, 2)
        opt = optim.Adam(net.parameters(), lr=0.1)
        kept = tn.distributed.Checkpoint(folder, model=net, optimizer=opt)
        first = kept.restore().get("step", 0)
        for step in range(first, steps.stop):
            loss = ((net(tn.dropout(tn.ones(4, 3))) - tn.rand(4, 2)) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            kept.save(step=step + 1)
        return net.weight.numpy()
    whole = run(tmp_path / "whole", range(4))
    run(tmp_path / "parts", range(2))
    assert run(tmp_path / "parts", range(2, 4)).tobytes() == whole.tobytes()      # though it began with other numbers
    net = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match="this run consists of"):
        tn.distributed.Checkpoint(tmp_path / "whole", model=net).restore()


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    tn.distributed.save(state(), tmp_path)
    file = tmp_path / "1-0.safetensors"
    data = bytearray(file.read_bytes())
    for place in (4, 40, len(data) - 1, len(data) - 70):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1:])
        with pytest.raises(DamagedFile, match=r"damaged|does not hold"):
            tn.distributed.load(tmp_path)
    file.write_bytes(data[:-3])
    with pytest.raises(DamagedFile):
        tn.distributed.load(tmp_path)
    file.unlink()
    with pytest.raises(DamagedFile, match="cannot be read"):
        tn.distributed.load(tmp_path)


def test_an_index_from_anybody_is_refused_or_read(tmp_path: Path) -> None:
    """Random changes of the JSON: never another error than ours, never elements that no part has."""
    tn.distributed.save(state(), tmp_path)
    path, rng = tmp_path / "index.json", random.Random(0)
    text = path.read_text()
    for _ in range(150):
        found = json.loads(text)
        part = rng.choice(found["parts"])
        where = rng.choice([found, part, part["shape"], part["start"], part["whole"]])
        key = rng.choice(list(where) if isinstance(where, dict) else list(range(len(where))) or [0])
        value = rng.choice([None, -1, 0, 1, 7, 1 << 70, "../../etc/passwd", "f64", [], [1, 2], {}, 1.5, True])
        if isinstance(where, dict) or where:
            where[key] = value
        path.write_text(json.dumps(found) if rng.random() < 0.9 else json.dumps(found)[:-rng.randrange(1, 50)])
        try:
            loaded = tn.distributed.load(tmp_path)
        except TenonError:
            continue
        assert isinstance(loaded, (dict, list, int, float, str, type(None), tn.Tensor))


def test_a_full_disk_leaves_the_state_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tn.distributed.save({"w": tn.ones(3)}, tmp_path)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(tensor_file, "write", full)
    with pytest.raises(ArgumentError, match=r"process 0 has not written its part: OSError: .*No space left"):
        tn.distributed.save({"w": tn.zeros(3)}, tmp_path)
    monkeypatch.undo()
    assert tn.distributed.load(tmp_path)["w"].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ArgumentError, match="holds no checkpoint"):
        tn.distributed.load(tmp_path / "nothing")


PROGRAM = """
import sys
import tenon as tn
from tenon import distributed as dist
rank, folder, what = dist.rank(), sys.argv[1], sys.argv[2]
own = {"own": tn.full((2,), rank), "position": rank} if what == "own" else {}
if what != "load":
    dist.save({"w": tn.arange(6).reshape(3, 2), "b": tn.ones(3), **own}, folder)
found = dist.load(folder)
print(found["w"].tolist(), found["b"].tolist(), found["own"].tolist() if own else "", found.get("position"))
"""


def test_folders_that_not_all_processes_see_are_refused(tmp_path: Path) -> None:
    """That of another machine, say: no index names files that are not beside it."""
    script = tmp_path / "script.py"
    script.write_text("import sys, tenon as tn\n"
                      "from tenon import distributed\n"
                      "distributed.save({'w': tn.ones(2) * distributed.rank()}, f'{sys.argv[1]}/{distributed.rank()}')\n")
    ran = mpiexec(2, str(script), str(tmp_path))
    assert ran.returncode != 0 and "'1-1.safetensors' is not in" in ran.stderr, ran.stderr
    assert not list(tmp_path.rglob("index.json"))


def test_another_number_of_processes_reads_what_all_had_alike(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    ran = mpiexec(2, str(script), str(tmp_path / "run"), "alike")
    assert ran.returncode == 0, ran.stderr
    assert {x.name for x in (tmp_path / "run").iterdir()} >= {"index.json"}
    assert tn.distributed.load(tmp_path / "run")["w"].tolist() == [[0, 1], [2, 3], [4, 5]]
    ran = mpiexec(2, str(script), str(tmp_path / "run"), "own")
    assert ran.returncode == 0, ran.stderr
    assert sorted(line.partition("1.0] ")[2] for line in ran.stdout.splitlines()) == ["[0, 0] 0", "[1, 1] 1"]
    with pytest.raises(ArgumentError, match="of 'own' for each of 2 processes, and there are 1"):
        tn.distributed.load(tmp_path / "run")


# ---------------------------------------------------------------- faults

TRAINING = """
import os, signal, sys, time
import numpy as np
import tenon as tn
from tenon import nn, optim, tensor_file
from tenon import distributed as dist

rank, size, folder = dist.rank(), dist.size(), sys.argv[1]
faults = [(int(step), int(who), kind) for step, who, kind in (text.split(":") for text in sys.argv[2:])]

def fault(step, kind):
    mark = f"{folder}.{step}.{rank}.{kind}"
    if (step, rank, kind) in faults and not os.path.exists(mark):
        open(mark, "w").write(str(time.time()))
        if kind == "pause":
            if os.fork() == 0:
                time.sleep(1)
                os.kill(os.getppid(), signal.SIGCONT)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            os.kill(os.getpid(), signal.SIGKILL if kind != "stop" else signal.SIGSTOP)

tn.manual_seed(0)
net = nn.Linear(8, 4)
opt = optim.Adam(net.parameters(), lr=0.01)
run = dist.Checkpoint(folder, model=net, optimizer=opt)
first = run.restore().get("step", 0)
writes = tensor_file.write

@tn.jit
def step(x, y):
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    for p in net.parameters():
        p.grad = dist.all_reduce(p.grad) / size
    opt.step()
    opt.zero_grad()
    return loss

for k in range(first, 8):
    open(f"{folder}.log", "a").write(f"{time.time()} {rank} {k}\\n")
    x, y = tn.rand(size, 4, 8)[rank], tn.rand(size, 4, 4)[rank]
    fault(k, "kill")
    fault(k, "stop")
    fault(k, "pause")
    step(x, y)

    def write(*args):
        writes(*args)
        fault(k, "save")
    tensor_file.write = write
    run.save(step=k + 1)
if rank == 0:
    np.save(f"{folder}.npy", net.weight.numpy())
"""


def trained(folder: Path, *faults: str, options: tuple[str, ...] = ()) -> tuple[np.ndarray, str]:
    """The weights of a run in two processes in which these faults happen, and what was said."""
    script = folder.with_suffix(".py")
    script.write_text(TRAINING)
    ran = subprocess.run([sys.executable, "-m", "tenon", "launch", "-n", "2", "--max-restarts", str(len(faults)),
                          *options, str(script), str(folder), *faults], capture_output=True, text=True, timeout=600,
                         env={**os.environ, "PYTHONPATH": str(ROOT), "TENON_THREADS": "1"}, check=False)
    assert ran.returncode == 0, ran.stderr
    found: np.ndarray = np.load(f"{folder}.npy")
    return found, ran.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Unix only")
def test_a_run_with_faults_ends_with_the_same_bits(tmp_path: Path) -> None:
    """A seeded schedule: a rank killed in a step, and one killed between its file and the index."""
    pytest.importorskip("mpi4py")
    rng = random.Random(os.environ.get("FAULT_SEED", "3"))
    faults = [f"{rng.randrange(1, 4)}:{rng.randrange(2)}:kill", f"{rng.randrange(4, 8)}:{rng.randrange(2)}:save"]
    undisturbed, _ = trained(tmp_path / "undisturbed")
    disturbed, said = trained(tmp_path / "disturbed", *faults)
    assert undisturbed.tobytes() == disturbed.tobytes()
    assert said.count("restart") == 2
    left = [x.name for x in (tmp_path / "disturbed").iterdir()]
    assert len(left) <= 3 and all(x.startswith(("8-", "index")) for x in left), left

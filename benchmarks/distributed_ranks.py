"""What one rank of `benchmarks.distributed` measures."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.distributed import MEGABYTE, ROUNDS, SIZE
from benchmarks.models import WORKLOADS, inputs, torch_net, weights
from tenon import distributed as dist
from tenon import nn, optim
from tenon.graph.build import trace
from tenon.ops.communicator import speaking
from tenon.pipeline import compile
from tenon.types import TensorType, float32, float64


def main(part: str, *arguments: str) -> None:
    PARTS[part](*arguments)


def measured(steps: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The shortest time of each on the slowest rank; in turns, three times."""
    from mpi4py import MPI
    world, found = MPI.COMM_WORLD, dict.fromkeys(steps, float("inf"))
    for _ in range(3):
        for name, step in steps.items():
            shortest = float("inf")
            for _ in range(max(3, int(seconds * 5))):
                world.Barrier()
                shortest = min(shortest, timed(step))
            found[name] = min(found[name], world.allreduce(shortest, MPI.MAX))
    return found


def timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


# ---------------------------------------------------------------- sums

def sums(length: str) -> None:
    """A sum of 64 MiB over two processes: MPI's, whole and in pieces, the transport's, that of a graph."""
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    x, y = np.ones(SIZE // 4, np.float32), np.empty(SIZE // 4, np.float32)
    speaker = dist.world.speaker_of(dist.current_mesh())
    program = compile(trace(lambda x: dist.all_reduce(x), TensorType(float32, x.shape)))
    piece = MEGABYTE // 4

    def pieces() -> None:
        for k in range(0, x.size, piece):
            world.Allreduce(x[k:k + piece], y[k:k + piece])
    steps: dict[str, Callable[[], object]] = {
        "MPI, whole": lambda: world.Allreduce(x, y), "MPI, pieces of 1 MiB": pieces,
        "transport": lambda: speaker.all_reduce(x, ("data",), "sum", y), "graph": lambda: program.run([x])}
    found = measured(steps, float(length))
    if world.rank == 0:
        for name, seconds in found.items():
            print(f"all_reduce of 64 MiB   {name:22} {seconds * 1e3:7.1f} ms  {SIZE / seconds / 1e9:5.2f} GB/s  "
                  f"{found['MPI, pieces of 1 MiB'] / seconds:.2f} of MPI in pieces", flush=True)


# ---------------------------------------------------------------- messages

def messages(length: str) -> None:
    """8 bytes there and back: MPI's own, and Send and Recv in a graph."""
    from mpi4py import MPI

    from tenon.ops.transfer import recv, send
    world, x, y = MPI.COMM_WORLD, np.ones(1), np.empty(1)
    rank, speaker = world.rank, dist.world.speaker_of(dist.current_mesh())

    def raw() -> None:
        for _ in range(ROUNDS):
            if rank == 0:
                world.Send(x, 1)
                world.Recv(y, 1)
            else:
                world.Recv(y, 0)
                world.Send(y, 0)

    def there_and_back(x: Any) -> Any:
        for _ in range(ROUNDS):
            if rank == 0:
                send(x, to=1, tag=0)
            x = recv(source=1 - rank, tag=0, shape=(1,), dtype=float64)[0]
            if rank:
                send(x, to=0, tag=0)
        return x
    program = compile(trace(there_and_back, TensorType(float64, (1,))))

    def graph() -> None:
        with speaking(speaker):
            program.run([x])
        speaker.close()
    found = measured({"MPI": raw, "graph": graph}, float(length))
    if rank == 0:
        for name, seconds in found.items():
            print(f"message of 8 bytes     {name:22} {seconds * 1e6 / (2 * ROUNDS):7.2f} us", flush=True)


# ---------------------------------------------------------------- data-parallel training

def tenon(model: str, seconds: str) -> None:
    """A step of one device, unchanged but for its mesh: rows of the batch over the processes."""
    workload, mesh = WORKLOADS[model], dist.Mesh({"data": dist.size()})
    net = workload.network(nn)
    net.load_state_dict(weights(workload))
    assert workload.optimizer is not None
    optimizer = workload.optimizer(optim, net.parameters())

    @tn.jit(mesh=mesh if mesh.size > 1 else None)
    def step(x: Any, y: Any) -> Any:
        if mesh.size > 1:
            x, y = dist.shard(x, mesh, ("data",)), dist.shard(y, mesh, ("data",))
        scores = net(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    x, y = (tn.asarray(a) for a in inputs(workload))
    steps = [timed(lambda: float(step(x, y))) for _ in range(max(6, int(4 * float(seconds))))]
    if dist.rank() == 0:
        print(min(steps), flush=True)


def torch(model: str, count: str, rank: str, rendezvous: str, seconds: str) -> None:
    """The same by DistributedDataParallel over gloo."""
    import torch as pt
    import torch.distributed as group

    pt.set_num_threads(1)
    workload, size = WORKLOADS[model], int(count)
    net = torch_net(workload)
    if size > 1:
        group.init_process_group("gloo", init_method=rendezvous, rank=int(rank), world_size=size)
        net = pt.nn.parallel.DistributedDataParallel(net)
    assert workload.optimizer is not None
    optimizer = workload.optimizer(pt.optim, net.parameters())
    x, y = (pt.from_numpy(np.array_split(a, size)[int(rank)]) for a in inputs(workload))

    def step() -> float:
        scores = net(x)
        loss = pt.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())
    steps = [timed(step) for _ in range(max(6, int(4 * float(seconds))))]
    if rank == "0":
        print(min(steps), flush=True)


# ---------------------------------------------------------------- faults

def faulty(folder: str) -> None:
    """Ten steps with a checkpoint each; in the fifth one a rank is killed, once."""
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    run = dist.Checkpoint(f"{folder}/run", net=net, optimizer=optimizer)
    first, killed, again = run.restore().get("step", 0), Path(folder, "killed"), Path(folder, "again")

    @tn.jit
    def step(x: Any) -> Any:
        loss = (net(x) ** 2).mean()
        loss.backward()
        for p in net.parameters():
            p.grad = dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        return loss
    for k in range(first, 10):
        if k == 5 and dist.rank() == 1 and not killed.exists():
            killed.write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        step(tn.rand(32, 256))
        if killed.exists() and not again.exists() and dist.rank() == 0:
            again.write_text(str(time.time()))
        run.save(step=k + 1)


PARTS: dict[str, Callable[..., None]] = {"sums": sums, "messages": messages, "tenon": tenon, "torch": torch,
                                       "faulty": faulty}

if __name__ == "__main__":
    main(*sys.argv[1:])

"""Predicted and measured time and memory of training steps on 1, 2 and 4 logical devices of this machine.

    TENON_THREADS=1 PYTHONPATH=. python tools/plan_here.py [--json]

Times are processor time of the slowest rank's thread, the least of some runs; so other work here counts little.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.models import GPT2
from tenon.pipeline import compile
from tenon.planning.calibrate import calibrate, least_seconds, on_ranks
from tenon.planning.step_costs import capture_step, divided, rank_step
from tenon.planning.step_division import BY_ROWS
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharded_array import part_for
from tenon.sharding.spmd_partition import local_graph


def trained(net: Any, loss_of: Any, *args: Any) -> tuple[Any, Sequence[Any]]:
    """A training step with Adam, and its arguments."""
    optimizer = optim.Adam(net.parameters(), lr=1e-3)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step, args


def steps() -> dict[str, tuple[Any, Sequence[Any]]]:
    """The steps that are measured."""
    tn.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    gpt = GPT2(vocab_size=512, n_positions=64, n_embd=256, n_layer=2, n_head=4)
    ids = tn.randint(0, 512, (2, 8, 64))
    return {"MLP": trained(mlp, nn.cross_entropy, tn.rand(256, 784), tn.randint(0, 10, (256,))),
            "GPT": trained(gpt, lambda x, y: nn.cross_entropy(x.reshape(-1, 512), y.reshape(-1)), ids[0], ids[1])}


def measured(step: Any, args: Sequence[Any], mesh: Mesh) -> tuple[float, float]:
    """(seconds of the slowest rank, bytes of the largest): each rank runs its own program in a thread."""
    split, shardings, captured = divided(step, mesh), BY_ROWS.shardings(step, mesh), step.captured
    leaves = captured.arguments(list(args))
    arrays = [holder.own.payload for holder in captured.inputs.holders(leaves)]
    programs = [compile(local_graph(split, rank)) for rank in range(mesh.size)]

    def run(rank: int, _: Any) -> tuple[float, float]:
        own = [np.array(part_for(x, sharding, rank)) for x, sharding in zip(arrays, shardings, strict=True)]
        program: Any = programs[rank]
        seconds = least_seconds(lambda: program.run(own, captured.donations))
        layout = program.plan
        new = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype, taken in layout.results if taken is None)
        return seconds, sum(x.nbytes for x in own) + new + layout.memory.size
    found = on_ranks(mesh, run)
    return max(seconds for seconds, _ in found), max(size for _, size in found)


def main() -> None:
    """Print a line for each step and number of devices."""
    for devices in (1, 2, 4):
        cluster = calibrate(devices)
        for name, (step, args) in steps().items():
            captured, mesh = capture_step(step, args), Mesh({"data": devices})
            rank = rank_step(captured, mesh, cluster)
            seconds, size = measured(captured, args, mesh)
            row = {"step": name, "devices": devices, "predicted": rank.seconds, "measured": seconds,
                   "planned_bytes": rank.memory, "bytes": size}
            print(json.dumps(row) if "--json" in sys.argv else
                  f"{name} on {devices}: predicted {rank.seconds * 1e3:6.2f} ms, measured {seconds * 1e3:6.2f} "
                  f"({rank.seconds / seconds - 1:+.0%}); memory {rank.memory / 1e6:6.2f} MB, of the program "
                  f"{size / 1e6:6.2f} ({rank.memory / size - 1:+.0%})", flush=True)


if __name__ == "__main__":
    main()

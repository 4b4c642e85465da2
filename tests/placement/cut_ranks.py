"""Run by every rank of `mpiexec`: its part of a graph with a branch, a loop and their gradients, written to a file."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import tenon as tn
from tenon.distributed.mpi_transport import MpiTransport
from tenon.graph.build import trace
from tenon.graph.ir import Graph
from tenon.graph.partition import pullback_of
from tenon.ops.branches import cond
from tenon.ops.loops import while_loop
from tenon.pipeline import compile
from tenon.placement.cut_by_device import cut
from tenon.placement.open_calls import open_calls
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.sharding.mesh import Mesh
from tenon.types import TensorType, bool_, float32

VECTOR = TensorType(float32, (3,))
ARRAYS = [np.asarray(True), np.array([0.1, 0.2, 0.3], np.float32), np.ones(3, np.float32)]


def both(p: Any, x: Any) -> Any:
    """A branch, then a loop whose turns the data decide."""
    true = trace(lambda x: tn.exp(x) * tn.tanh(x), VECTOR)
    y = cond(p, x, true=true, false=trace(lambda x: tn.tanh(x) + 1.0, VECTOR))
    return while_loop(y, constants=0, condition=trace(lambda x: x.sum() < 50.0, VECTOR),
                      body=trace(lambda x: tn.exp(tn.tanh(x)) + x, VECTOR))


def whole() -> Graph:
    """Its gradient."""
    return open_calls(pullback_of(trace(both, TensorType(bool_, ()), VECTOR)))


if __name__ == "__main__":
    from cut_graphs import random_placement
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    transport, graph = MpiTransport(Mesh({"devices": count})), whole()
    for seed in range(3):
        parts = cut(graph, random_placement(graph, count, seed, anywhere=True), everywhere=True)
        mine = {k: DevicePart(compile(parts[k].graph), parts[k].arguments, parts[k].results) for k in transport.ranks}
        program = MultiDevice(graph, mine, transport)
        found = [program.run(ARRAYS)[0] for _ in range(3)]
        np.save(folder / f"{transport.ranks[0]}_{seed}.npy", np.stack(found))

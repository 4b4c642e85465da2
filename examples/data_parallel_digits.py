"""Handwritten digits read by a network that several processes train together: each has a part of every batch.

    python examples/data_parallel_digits.py                             one process
    tenon launch -n 2 examples/data_parallel_digits.py                  two; the losses are the same
    tenon launch -n 2 --max-restarts 3 examples/data_parallel_digits.py --folder run     goes on when one is killed
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon import data, distributed, nn, optim
from tenon.ops.communicator import part


def main(epochs: int = 10, seed: int = 0, folder: str | None = None) -> list[float]:
    """Train; returns the loss of every epoch.  With a folder, go on from what it holds."""
    rank, size = distributed.rank(), distributed.size()
    tn.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    images, labels = data.digits()
    batches = data.DataLoader(data.TensorDataset(images.reshape(-1, 64), labels), batch_size=100, shuffle=True,
                              seed=seed)
    run = None if folder is None else distributed.Checkpoint(folder, net=net, optimizer=optimizer, batches=batches)

    @tn.jit
    def step(x: tn.Tensor, y: tn.Tensor, count: Any) -> Any:
        loss = nn.functional.cross_entropy(net(x), y, reduction="sum") / count      # of the whole batch
        loss.backward()
        for p in net.parameters():
            p.grad = distributed.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        return distributed.all_reduce(loss)

    losses: list[float] = [] if run is None else run.restore().get("losses", [])
    for epoch in range(len(losses), epochs):
        found: list[float] = []
        for x, y in batches:                    # the same on all processes: they began with the same seed
            mine = part(len(x), size, rank)
            found.append(float(step(x[mine], y[mine], float(len(x)))))
        losses.append(float(np.mean(found)))
        if run is not None:
            run.save(losses=losses)
        if rank == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    return losses


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--folder", help="where the state of the run is kept")
    return parser.parse_args(argv)


if __name__ == "__main__":
    arguments = parsed()
    main(arguments.epochs, folder=arguments.folder)

"""A Python function on its own device makes the next batch while the model trains on this one: both are one graph.

    python examples/python_beside_the_model.py
"""

import math

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.types import TensorType, float32

ROWS, TAU = 64, 2 * math.pi


def spiral(seed: np.ndarray) -> np.ndarray:
    """Points on two arms (x, y, which arm), drawn by NumPy; any Python would do: Pillow, a database."""
    rng = np.random.default_rng(int(seed))
    arm, turn = rng.integers(0, 2, ROWS), rng.uniform(0.2, 1.0, ROWS)
    angle = TAU * (turn + arm / 2) + 0.05 * rng.standard_normal(ROWS)
    return np.stack([turn * np.cos(angle), turn * np.sin(angle), arm], 1).astype(np.float32)


draw = tn.op("draw_spiral", type=lambda seed: TensorType(float32, (ROWS, 3)), ref=spiral, replace=True)


def main(steps: int = 300) -> list[float]:
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    @tn.jit
    def step(batch: tn.Tensor, seed: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        with tn.device("python"):
            following = draw(seed)          # runs beside what follows
        loss = nn.cross_entropy(net(batch[:, :2]), batch[:, 2].astype(tn.int64))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss, following

    batch, losses = tn.tensor(spiral(np.asarray(0))), []
    for k in range(1, steps + 1):
        loss, batch = step(batch, tn.tensor(k))
        losses.append(float(loss))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()

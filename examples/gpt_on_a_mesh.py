"""A small GPT on a mesh of two axes: texts are divided over "data", the columns of its weights over "model".

    python examples/gpt_on_a_mesh.py                              # four logical devices of this process
    tenon launch -n 4 examples/gpt_on_a_mesh.py                   # four processes

The first product of each pair is annotated, and the second (Megatron's pairs, Shoeybi et al. 2019).  What has to be
sent, propagation finds; the losses are those of one device.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tenon as tn
from tenon import data, nn, optim

dist = tn.distributed
COLUMNS = (r".*\.(query|key|value|up)\.(weight|bias)", ("model",))
ROWS = (r".*\.(project|down)\.weight", (None, "model"))


class Block(nn.Module):
    """Attention and a two-layer network, each on a normalised input and added to it: [N, T, width] to the same."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: tn.Tensor) -> Any:
        n, t, width = x.shape
        h = self.before_attention(x)
        q, k, v = (f(h).reshape(n, t, self.heads, width // self.heads).permute((0, 2, 1, 3))
                   for f in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.permute((0, 2, 1, 3)).reshape(n, t, width))
        return x + self.down(tn.gelu(self.up(self.before_mlp(x))))


class GPT(nn.Module):
    """Characters [N, T] to scores [N * T, letters] of the next one."""

    def __init__(self, letters: int, context: int, width: int, heads: int, layers: int) -> None:
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, ids: tn.Tensor) -> Any:
        x = self.blocks(self.letters(ids) + self.places(tn.arange(ids.shape[1])))
        return self.head(self.norm(x)).reshape(-1, self.head.out_features)


def train(mesh: dist.Mesh | None, steps: int, batch: int, context: int, width: int, layers: int) -> list[float]:
    """The losses of some steps on the sources of Python's standard library."""
    tn.manual_seed(0)
    rng = np.random.default_rng(0)
    text = np.frombuffer(data.stdlib_text(200_000).encode("ascii", "replace"), np.uint8).astype(np.int64)
    net = GPT(128, context, width, heads=4, layers=layers)
    if mesh is not None:
        dist.shard(net, mesh, [COLUMNS, ROWS])
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)      # what it keeps is divided as the weights are

    @tn.jit(mesh=mesh)
    def step(x: tn.Tensor, y: tn.Tensor) -> Any:
        if mesh is not None:
            x = dist.shard(x, mesh, ("data",))
        loss = nn.functional.cross_entropy(net(x), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def drawn() -> tuple[tn.Tensor, tn.Tensor]:
        starts = rng.integers(0, len(text) - context - 1, batch)
        windows = np.stack([text[s:s + context + 1] for s in starts])
        return tn.asarray(windows[:, :-1]), tn.asarray(windows[:, 1:])

    losses = [float(step(*drawn())) for _ in range(steps)]
    if mesh is not None and dist.rank() == 0:
        print(str(dist.explain(step, *drawn())).splitlines()[0])
    return losses


def main(steps: int = 20, batch: int = 8, context: int = 32, width: int = 64,
         layers: int = 2) -> tuple[list[float], list[float]]:
    """The losses on one device, and those on the mesh."""
    found = train(dist.Mesh({"data": 2, "model": 2}), steps, batch, context, width, layers)
    one = train(None, steps, batch, context, width, layers)
    if dist.rank() == 0:
        print(f"loss after {steps} steps: {found[-1]:.4f}, on one device {one[-1]:.4f}")
    return one, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    main(parser.parse_args().steps)

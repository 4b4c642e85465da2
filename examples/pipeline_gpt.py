"""A small GPT trained as a pipeline: its step is cut in stages at balanced points of its graph, each on a device.

    python examples/pipeline_gpt.py --stages 2 --micro-batches 8 --schedule 1f1b

The model and the step are those of one device; `pipeline=` is the only difference, and the losses are the same.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tenon as tn
from tenon import data, nn, optim


class Block(nn.Module):
    """Attention and a two-layer network, each on a normalised input and added to it: [N, T, width] to the same."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: tn.Tensor) -> Any:
        n, t, width = x.shape
        qkv = self.qkv(self.before_attention(x)).reshape(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute((2, 0, 3, 1, 4)).unstack(axis=0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.permute((0, 2, 1, 3)).reshape(n, t, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Characters [N, T] to scores of the next one; the first and the last stage share the embedding's weight."""

    def __init__(self, letters: int, context: int, width: int, heads: int, layers: int) -> None:
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.letters, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: tn.Tensor) -> Any:
        x = self.blocks(self.letters(ids) + self.places(tn.arange(ids.shape[1])))
        return self.norm(x) @ self.letters.weight.mT


def train(pipeline: tn.distributed.Pipeline | None, steps: int, batch: int, context: int, width: int, layers: int,
          show: bool) -> list[float]:
    """The losses of some steps on the sources of Python's standard library."""
    tn.manual_seed(0)
    rng = np.random.default_rng(0)
    text = np.frombuffer(data.stdlib_text(200_000).encode("ascii", "replace"), np.uint8).astype(np.int64)
    net = GPT(128, context, width, heads=4, layers=layers)
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)

    @tn.jit(pipeline=pipeline)
    def step(x: tn.Tensor, y: tn.Tensor) -> Any:
        scores = net(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def drawn() -> tuple[tn.Tensor, tn.Tensor]:
        starts = rng.integers(0, len(text) - context - 1, batch)
        windows = np.stack([text[s:s + context + 1] for s in starts])
        return tn.asarray(windows[:, :-1]), tn.asarray(windows[:, 1:])

    losses = [float(step(*drawn())) for _ in range(steps)]
    if show and pipeline is not None:
        jitted: Any = step
        print(jitted.capture(*drawn()).program.describe())
    return losses


def main(stages: int = 2, micro_batches: int = 8, schedule: str = "1f1b", steps: int = 20, batch: int = 16,
         context: int = 32, width: int = 64, layers: int = 4) -> tuple[list[float], list[float]]:
    """The losses on one device, and those of the pipeline."""
    chunks = 2 if schedule == "interleaved" else 1
    pipeline = tn.distributed.Pipeline(stages, micro_batches, schedule, chunks)
    one = train(None, steps, batch, context, width, layers, show=False)
    found = train(pipeline, steps, batch, context, width, layers, show=True)
    print(f"loss after {steps} steps: {found[-1]:.4f}, on one device {one[-1]:.4f}")
    return one, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--schedule", default="1f1b", choices=["gpipe", "1f1b", "interleaved", "zero_bubble"])
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    main(arguments.stages, arguments.micro_batches, arguments.schedule, arguments.steps)

"""A small GPT over characters, trained on the sources of Python's own standard library; then it writes some itself.

    python examples/char_gpt.py --steps 300

A file tree that every machine has, read as one text; next-character cross entropy; AdamW with warm-up.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tenon as tn
from tenon import data, nn, optim
from tenon.debug.console import progress


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
    """Characters [N, T] to scores of the next one [N, T, vocabulary]; the embedding is also the last layer's weight."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        self.context = context
        self.characters, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        for table in (self.characters, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: tn.Tensor) -> Any:
        x = self.characters(ids) + self.positions(tn.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.characters.weight.mT


class Alphabet:
    """Text <-> ids."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self.ids = {letter: k for k, letter in enumerate(self.letters)}

    def encode(self, text: str) -> np.ndarray:
        return np.array([self.ids[letter] for letter in text], np.int64)

    def decode(self, ids: np.ndarray) -> str:
        return "".join(self.letters[int(k)] for k in ids)


def main(steps: int = 300, context: int = 64, width: int = 96, heads: int = 4, layers: int = 3, batch: int = 16,
         letters: int = 400, seed: int = 0) -> tuple[float, str]:
    """Train, then sample `letters` characters; returns the last loss and the text."""
    tn.manual_seed(seed)
    rng = np.random.default_rng(seed)
    text = data.stdlib_text(1_000_000)
    alphabet = Alphabet(text)
    ids = alphabet.encode(text)
    net = GPT(len(alphabet.letters), context, width, heads, layers)
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)
    warm_up = optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)

    @tn.jit
    def step(x: tn.Tensor, y: tn.Tensor) -> Any:
        scores = net(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses: list[float] = []
    for k in progress(range(steps), "training"):
        starts = rng.integers(0, len(ids) - context - 1, batch)
        windows = np.stack([ids[s:s + context + 1] for s in starts])
        losses.append(float(step(tn.asarray(windows[:, :-1]), tn.asarray(windows[:, 1:]))))
        warm_up.step()
        if (k + 1) % 50 == 0:
            print(f"step {k + 1:4}  loss {np.mean(losses[-50:]):.3f}")
    return float(np.mean(losses[-10:])), sample(net, alphabet, "def ", letters)


def sample(net: GPT, alphabet: Alphabet, start: str, letters: int, temperature: float = 0.8) -> str:
    """Text that begins with `start` and goes on as the network likes."""
    @tn.jit
    def following(ids: tn.Tensor) -> Any:
        return tn.random.categorical(net(ids)[0, -1] / temperature)

    net.eval()
    ids = list(alphabet.encode(start))
    with tn.no_grad():
        for _ in range(letters):
            ids.append(int(following(tn.tensor([ids[-net.context:]]))))
    return alphabet.decode(np.array(ids))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--letters", type=int, default=400)
    options = parser.parse_args()
    print(main(options.steps, letters=options.letters)[1])

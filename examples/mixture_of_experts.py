"""A mixture of experts whose experts live on different devices: each has some of them, and a part of the texts.

    python examples/mixture_of_experts.py                         # two logical devices of this process
    tenon launch -n 2 examples/mixture_of_experts.py              # two processes

Tokens go to the device of their expert and come back: two all_to_all a layer, which propagation puts there (GShard,
Lepikhin et al. 2021).  Nothing in the layer says so; its weights are annotated.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import tenon as tn
from tenon import nn, optim

dist = tn.distributed


class MixtureOfExperts(nn.Module):
    """Each token of a group goes to the expert that scores best, `room` tokens of a group to one at most."""

    def __init__(self, width: int, experts: int, room: int) -> None:
        self.experts, self.room = experts, room
        self.route = nn.Linear(width, experts)
        self.up = nn.Parameter(tn.randn(experts, width, 4 * width) * 0.2)
        self.down = nn.Parameter(tn.randn(experts, 4 * width, width) * 0.2)

    def forward(self, x: tn.Tensor) -> Any:                                     # [groups, tokens, width]
        chances = tn.softmax(self.route(x), axis=-1)
        chosen = tn.one_hot(chances.argmax(axis=-1), self.experts, dtype=x.dtype)
        place = ((chosen.cumsum(axis=1) - 1) * chosen).sum(axis=-1)             # among the tokens of its expert
        slot = tn.one_hot(place.astype(tn.int64) % self.room, self.room, dtype=x.dtype)
        send = chosen[..., None] * slot[:, :, None, :] * (place < self.room)[..., None, None]
        sent = tn.einsum("gtec,gtm->egcm", send, x)
        hidden = tn.gelu(tn.einsum("egcm,emh->egch", sent, self.up))
        back = tn.einsum("egch,ehm->egcm", hidden, self.down)
        return x + tn.einsum("gtec,egcm->gtm", send * (chances * chosen).sum(axis=-1)[..., None, None], back)


def train(mesh: dist.Mesh | None, steps: int, width: int, experts: int) -> tuple[list[float], dict[str, int]]:
    """(the losses of learning a sum of neighbours, how often each collective is in a step)"""
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(width, width), MixtureOfExperts(width, experts, room=4), nn.Linear(width, 1))
    if mesh is not None:
        dist.shard(net, mesh, {r".*\.(up|down)": ("expert",)})
    optimizer = optim.Adam(net.parameters(), lr=1e-2)
    x = tn.rand(8, 6, width)
    y = tn.sin(4 * x.sum(axis=-1, keepdims=True))

    @tn.jit(mesh=mesh)
    def step(x: tn.Tensor, y: tn.Tensor) -> Any:
        if mesh is not None:
            x, y = dist.shard(x, mesh, ("expert",)), dist.shard(y, mesh, ("expert",))
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [float(step(x, y)) for _ in range(steps)]
    found = {} if mesh is None else dict(Counter(c.name for c in dist.explain(step, x, y).collectives))
    return losses, found


def main(steps: int = 40, width: int = 16, experts: int = 4) -> tuple[list[float], list[float], dict[str, int]]:
    """The losses on one device, those on two, and what these send in a step."""
    found, sent = train(dist.Mesh({"expert": 2}), steps, width, experts)
    one, _ = train(None, steps, width, experts)
    if dist.rank() == 0:
        print(f"loss {found[0]:.4f} -> {found[-1]:.4f}, on one device {one[-1]:.4f}; a step sends {sent}")
    return one, found, sent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    main(parser.parse_args().steps)

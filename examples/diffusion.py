"""A diffusion model of handwritten digits: it learns to see the noise in them, and then draws what it is asked for.

    python examples/diffusion.py --steps 1500

The network is a small one of Ho et al., Denoising Diffusion Probabilistic Models, 2020; drawing is the loop of Song et
al., Denoising Diffusion Implicit Models, 2021, written as a loop of Python over a tensor, and one loop of the graph.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import tenon as tn
from tenon import data, nn, optim
from tenon.debug.console import progress
from tenon.demos.digits import in_terminal


class Block(nn.Module):
    """Two convolutions of normalised pictures [N, inputs, H, W], told the condition [N, features], added to them."""

    def __init__(self, inputs: int, outputs: int, features: int) -> None:
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.told = nn.Linear(features, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: tn.Tensor, condition: tn.Tensor) -> Any:
        h = self.first(nn.functional.silu(self.norm1(x))) + self.told(condition)[:, :, None, None]
        return self.second(nn.functional.silu(self.norm2(h))) + self.shortcut(x)


class UNet(nn.Module):
    """Noisy pictures [N, 1, 8, 8], their times [N] in 0 ... 1 and digits [N] to the noise in the pictures."""

    def __init__(self, width: int = 32) -> None:
        self.width, features = width, 2 * width
        self.digits = nn.Embedding(10, features)
        self.times = nn.Sequential(nn.Linear(width, features), nn.SiLU(), nn.Linear(features, features))
        self.enter, self.leave = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)
        self.down, self.shrink = Block(width, width, features), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = Block(2 * width, 2 * width, features)
        self.grow, self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2), Block(2 * width, width, features)

    def forward(self, x: tn.Tensor, times: tn.Tensor, digits: tn.Tensor) -> Any:
        angles = times[:, None] * tn.exp(tn.linspace(0, math.log(1000.0), self.width // 2))
        condition = self.times(tn.concat([tn.cos(angles), tn.sin(angles)], 1)) + self.digits(digits)
        fine = self.down(self.enter(x), condition)
        coarse = self.middle(self.shrink(fine), condition)
        return self.leave(self.up(tn.concat([self.grow(coarse), fine], 1), condition))


def shares(times: Any) -> tuple[Any, Any]:
    """How much of a picture, and how much noise, there is at these times: the squares add up to one."""
    return tn.cos(times * (0.49 * math.pi)), tn.sin(times * (0.49 * math.pi))


def loss_of(net: UNet, pictures: tn.Tensor, digits: tn.Tensor) -> Any:
    """The squared error of the noise that the network sees in pictures of random times."""
    times, noise = tn.rand(pictures.shape[0]), tn.randn_like(pictures)
    clear, hidden = shares(times[:, None, None, None])
    return nn.functional.mse_loss(net(clear * pictures + hidden * noise, times, digits), noise)


def draw(net: UNet, noise: tn.Tensor, digits: tn.Tensor, times: tn.Tensor) -> Any:
    """Pictures of these digits, out of noise, by way of these times, which fall from 1 to 0."""
    x, step = noise, times[0] - times[1]
    for time in times[:-1]:
        clear, hidden = shares(time)
        seen = net(x, time.expand(x.shape[0]), digits)
        guess = tn.clip((x - hidden * seen) / clear, -1.0, 1.0)
        clear, hidden = shares(time - step)
        x = clear * guess + hidden * seen
    return x


def main(steps: int = 1500, width: int = 32, batch: int = 64, turns: int = 40,
         seed: int = 0) -> tuple[list[float], np.ndarray]:
    """Train, then draw every digit; returns the loss of every step and the pictures [10, 8, 8], of 0 ... 1."""
    tn.manual_seed(seed)
    pictures, labels = data.digits()
    pictures = 2 * pictures.reshape(-1, 1, 8, 8) - 1
    net = UNet(width)
    optimizer = optim.AdamW(net.parameters(), lr=2e-3)

    @tn.jit
    def step(images: tn.Tensor, digits: tn.Tensor) -> Any:
        loss = loss_of(net, images, digits)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    random, losses = np.random.default_rng(seed), list[float]()
    for _ in progress(range(steps), "training"):
        chosen = random.integers(0, len(pictures), batch)
        losses.append(float(step(tn.asarray(pictures[chosen]), tn.asarray(labels[chosen]))))
    print(f"error of the noise that is seen: {np.mean(losses[:20]):.3f} at first, {np.mean(losses[-20:]):.3f} at last")
    with tn.no_grad():
        drawn = tn.jit(draw)(net, tn.randn(10, 1, 8, 8), tn.arange(10), tn.linspace(1.0, 0.0, turns + 1))
    result: np.ndarray = np.clip((drawn.numpy()[:, 0] + 1) / 2, 0, 1)
    print(in_terminal(result, np.arange(10)))
    return losses, result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 1500), ("width", 32), ("turns", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    main(**vars(parser.parse_args()))

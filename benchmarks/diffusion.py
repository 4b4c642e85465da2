"""A diffusion model of pictures: a training step of its U-Net, and sampling, a loop in the graph, beside others.

    python -m benchmarks.diffusion [--part training sampling] [--element f32 bf16] [--width 64] [--side 32] [--batch 4]

The network is that of Ho et al., Denoising Diffusion Probabilistic Models, 2020, two levels deep: residual blocks with
group normalisation that are told the time, and attention on the coarser level.  Sampling is that of Song et al.,
Denoising Diffusion Implicit Models, 2021: every turn runs the whole network on the pictures of the turn before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.peers import able
from benchmarks.timing import compare, row, use_one_core
from tenon import nn, optim
from tenon.config import config

Run = Callable[[], Any]
Arrays = dict[str, np.ndarray]
TIMES, TURNS = 1000, 10
SIZE = 64, 32, 4                # the network's width, the side of a picture, pictures at a time


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", nargs="*", default=["training", "sampling"], choices=["training", "sampling"])
    options.add_argument("--element", nargs="*", default=["f32"], choices=["f32", "bf16"])
    for name, default in zip(("width", "side", "batch"), SIZE, strict=True):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--seconds", type=float, default=6.0)
    given = options.parse_args(arguments)
    use_one_core()
    for part in given.part:
        for element in given.element:
            times = compare(runs(part, given.width, given.side, given.batch, element == "bf16"), given.seconds)
            print(row(f"{part} {element}", times), flush=True)


# ---------------------------------------------------------------- the network

def unet(nn: Any, of: Any, width: int, channels: int = 3) -> Any:
    """Noisy pictures [batch, channels, side, side] and times [batch] to the noise in them.

    `nn` and `of` are the layers and the functions of a library.
    """
    features = 4 * width

    class Residual(nn.Module):                                  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
            self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
            self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
            self.time = nn.Linear(features, outputs)
            self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

        def forward(self, x: Any, time: Any) -> Any:
            h = self.first(nn.functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
            return self.second(nn.functional.silu(self.norm2(h))) + self.shortcut(x)

    class Attention(nn.Module):                                 # type: ignore[misc, name-defined]
        def __init__(self, size: int, heads: int = 4) -> None:
            super().__init__()
            self.norm, self.heads = nn.GroupNorm(8, size), heads
            self.qkv, self.project = nn.Conv2d(size, 3 * size, 1), nn.Conv2d(size, size, 1)

        def forward(self, x: Any) -> Any:
            n, size, height, breadth = x.shape
            qkv = self.qkv(self.norm(x)).reshape(n, 3, self.heads, size // self.heads, height * breadth)
            q, k, v = (qkv[:, i].swapaxes(2, 3) for i in range(3))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            return x + self.project(mixed.swapaxes(2, 3).reshape(n, size, height, breadth))

    class UNet(nn.Module):                                      # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Sequential(nn.Linear(width, features), nn.SiLU(), nn.Linear(features, features), nn.SiLU())
            self.enter = nn.Conv2d(channels, width, 3, padding=1)
            self.down1, self.shrink = Residual(width, width), nn.Conv2d(width, width, 3, stride=2, padding=1)
            self.down2, self.attend2 = Residual(width, 2 * width), Attention(2 * width)
            self.middle, self.attend = Residual(2 * width, 2 * width), Attention(2 * width)
            self.up2, self.grow = Residual(4 * width, 2 * width), nn.Conv2d(2 * width, width, 3, padding=1)
            self.up1, self.norm = Residual(2 * width, width), nn.GroupNorm(8, width)
            self.leave = nn.Conv2d(width, channels, 3, padding=1)

        def forward(self, x: Any, times: Any) -> Any:
            time = self.time(waves(of, times, width))
            fine = self.down1(self.enter(x), time)
            coarse = self.attend2(self.down2(self.shrink(fine), time))
            h = self.attend(self.middle(coarse, time))
            h = self.up2(of.concat([h, coarse], axis=1), time)
            h = self.grow(nn.functional.interpolate(h, scale_factor=2, mode="nearest"))
            h = self.up1(of.concat([h, fine], axis=1), time)
            return self.leave(nn.functional.silu(self.norm(h)))

    return UNet()


def waves(of: Any, times: Any, width: int) -> Any:
    """Times [batch] as cosines and sines of `width / 2` lengths, [batch, width]."""
    angles = times[:, None] * of.exp(of.arange(width // 2) * (-np.log(1e4) / (width // 2)))
    return of.concat([of.cos(angles), of.sin(angles)], axis=1)


def remaining(times: np.ndarray) -> np.ndarray:
    """How much of a picture is left at these of `TIMES` times: the squared cosine of Nichol and Dhariwal, 2021."""
    return np.clip(np.cos((times / TIMES + 0.008) / 1.008 * np.pi / 2)**2, 1e-3, 0.999).astype(np.float32)


def loss_of(of: Any, nn: Any, net: Any, pictures: Any, noise: Any, times: Any, left: Any) -> Any:
    """How far the network is from the noise that was put into pictures, of which so much is left at their times."""
    share = left[:, None, None, None]
    guess = net(of.sqrt(share) * pictures + of.sqrt(1 - share) * noise, times)
    return nn.functional.mse_loss(guess, noise)


def denoised(of: Any, net: Any, x: Any, time: Any, now: Any, then: Any) -> Any:
    """Pictures of a time, of which `now` is left, as they are where `then` is left."""
    noise = net(x, of.ones(x.shape[0]) * time)
    clean = (x - of.sqrt(1 - now) * noise) / of.sqrt(now)
    return of.sqrt(then) * of.clip(clean, -1, 1) + of.sqrt(1 - then) * noise


# ---------------------------------------------------------------- the runs

def runs(part: str, width: int, side: int, batch: int, narrow: bool) -> dict[str, Run]:
    """A step of training, which gives the loss, or sampling, which gives pictures; libraries agree on both."""
    found = {name: MAKE[name](part, width, side, batch, narrow) for name in libraries(part, narrow) if able(name)}
    expected = found["tenon"]()
    for run in list(found.values())[1:]:
        np.testing.assert_allclose(run(), expected, rtol=0.06 if narrow else 2e-3, atol=0.06 if narrow else 2e-3)
    return found


def libraries(part: str, narrow: bool) -> list[str]:
    """Those that run it; XLA's convolutions inside of a loop take minutes on a processor."""
    return [name for name in MAKE if name != "jax" or not (narrow or part == "sampling")]


def problem(width: int, side: int, batch: int) -> tuple[Arrays, list[np.ndarray], list[np.ndarray]]:
    """Weights by name; pictures, noise, times and what is left at them; the times of sampling, and what is left."""
    random = np.random.default_rng(0)
    weights = {}
    for name, value in unet(nn, tn, width).state_dict().items():
        start = np.asarray(value)
        deviation = 0.02 if start.ndim < 2 else start[0].size**-0.5
        weights[name] = (float("norm" in name and "weight" in name)
                         + deviation * random.standard_normal(start.shape)).astype(np.float32)
    pictures, noise = random.standard_normal((2, batch, 3, side, side), np.float32)
    times = random.integers(0, TIMES, batch)
    turns = np.linspace(TIMES - 1, 0, TURNS + 1)
    return (weights, [pictures, noise, times.astype(np.float32), remaining(times)],
            [noise, turns.astype(np.float32), remaining(turns)])


def _tenon(part: str, width: int, side: int, batch: int, narrow: bool) -> Run:
    weights, examples, start = problem(width, side, batch)
    net = unet(nn, tn, width)
    net.load_state_dict(weights)
    optimizer = optim.AdamW(net.parameters(), lr=1e-4)

    @tn.jit
    def train(*given: Any) -> Any:
        with tn.autocast(enabled=narrow):
            loss = loss_of(tn, nn, net, *given)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    @tn.jit
    def sample(x: Any, times: Any, left: Any) -> Any:
        with tn.no_grad(), tn.autocast(enabled=narrow):
            return tn.fori_loop(
                0, TURNS, lambda turn, x: denoised(tn, net, x, times[turn], left[turn], left[turn + 1]), x)
    step, given = (train, examples) if part == "training" else (sample, start)
    arrays = [tn.asarray(x) for x in given]
    return lambda: step(*arrays).numpy()


def _torch(part: str, width: int, side: int, batch: int, narrow: bool) -> Run:
    import torch

    torch.set_num_threads(config().threads)
    weights, examples, start = problem(width, side, batch)
    net = unet(torch.nn, torch, width)
    net.load_state_dict({name: torch.from_numpy(x) for name, x in weights.items()})
    net = net.to(memory_format=torch.channels_last)         # which suits its convolutions
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    given = [torch.from_numpy(x) for x in (examples if part == "training" else start)]

    def train() -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss = loss_of(torch, torch.nn, net, *given)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().numpy()

    def sample() -> Any:
        x, times, left = given
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            for turn in range(TURNS):
                x = denoised(torch, net, x, times[turn], left[turn], left[turn + 1])
        return x.numpy()
    return train if part == "training" else sample


def _jax(part: str, width: int, side: int, batch: int, narrow: bool) -> Run:
    import jax
    import jax.numpy as jnp

    from benchmarks import jax_nn
    from benchmarks.modules import Optimizers, load, parameters

    weights, examples, _ = problem(width, side, batch)
    net = unet(jax_nn, jnp, width)
    load(net, {name: jnp.asarray(x) for name, x in weights.items()})
    values, optimizers = parameters(net), Optimizers(jnp.sqrt, jnp.zeros)
    update = optimizers.AdamW(None, 1e-4)

    def loss(values: Arrays, *given: Any) -> Any:
        load(net, values)
        return loss_of(jnp, jax_nn, net, *given)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(values: Arrays, slots: Arrays, *given: Any) -> Any:
        found, gradients = jax.value_and_grad(loss)(values, *given)
        return *update(values, gradients, slots), found
    state = [values, optimizers.slots_of(values)]

    def run() -> Any:
        *state[:], found = train(*state, *examples)
        return np.asarray(found)
    return run


MAKE: dict[str, Callable[[str, int, int, int, bool], Run]] = {"tenon": _tenon, "torch": _torch, "jax": _jax}


if __name__ == "__main__":
    main()

"""Image networks trained for five steps by PyTorch and by Tenon -> how far apart they are, and PyTorch from itself.

    python tests/interop/torch_image_training.py --width 0.25 --depth 1 --sizes 32 64 [NAMES]

A row for each network and size.  In float64 the first step and all five, against PyTorch's.  In float32 the distance
from PyTorch's run, eager and compiled, over that of PyTorch's own runs whose images and weights are moved by a unit of
the last place.  Deep networks with batch norm are chaotic: what the last place holds grows up to a hundred times a step.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tenon as tn
from interop.image_networks import IMAGE_NETWORKS, Library, Scale

STEPS, BATCH = 5, 4
State = dict[str, np.ndarray]


def weights(name: str, scale: Scale) -> State:
    torch.manual_seed(0)
    return {k: v.numpy() for k, v in IMAGE_NETWORKS[name](Library(torch), scale).state_dict().items()}


def images(size: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(size)
    return data.normal(size=(BATCH, 3, size, size)).astype("float32").astype("float64"), data.integers(0, 10, BATCH)


@dataclass(frozen=True)
class Run:
    """The loss of each step, and the gradients and buffers after the first step and after the last."""

    losses: np.ndarray
    first: list[np.ndarray]
    last: list[np.ndarray]


@dataclass(frozen=True)
class Training:
    """A network, what it is, and the images that it learns."""

    name: str
    scale: Scale
    state: State
    x: np.ndarray
    y: np.ndarray

    def run(self, library: Any, jitted: bool = False) -> Run:
        given, x = torch.from_numpy if library is torch else tn.asarray, self.x
        net = IMAGE_NETWORKS[self.name](Library(library), self.scale)
        net = net.double() if x.dtype == np.float64 else net
        net.load_state_dict({k: given(v.astype(x.dtype if v.dtype.kind == "f" else v.dtype))
                             for k, v in self.state.items()})
        optimizer = library.optim.SGD(list(net.parameters()), lr=0.01, momentum=0.9)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = library.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def kept() -> list[np.ndarray]:
            return [np.array(v.detach().numpy()) for v in [*(p.grad for p in net.parameters()), *net.buffers()]]

        step = tn.jit(step, fullgraph=True) if jitted else step
        losses = [float(step(given(x), given(self.y)))]
        first = kept()
        losses += [float(step(given(x), given(self.y))) for _ in range(1, STEPS)]
        return Run(np.array(losses), first, kept())

    def narrow(self) -> Training:
        """The same in float32."""
        return Training(self.name, self.scale, self.state, self.x.astype("float32"), self.y)

    def moved(self, seed: int) -> Training:
        """The same images and weights, each number a unit of the last place away, upwards or downwards."""
        data, type = np.random.default_rng(seed), self.x.dtype

        def near(x: np.ndarray) -> np.ndarray:
            return np.nextafter(x, np.where(data.random(x.shape) < 0.5, np.inf, -np.inf).astype(type))

        state = {k: near(v.astype(type)) if v.dtype.kind == "f" else v for k, v in self.state.items()}
        return Training(self.name, self.scale, state, near(self.x), self.y)

    def moved_runs(self) -> list[Run]:
        """PyTorch's runs of moved images and weights."""
        return [self.moved(seed).run(torch) for seed in range(3)]


def training(name: str, scale: Scale, size: int) -> Training:
    return Training(name, scale, weights(name, scale), *images(size))


def distance(run: Run, other: Run) -> float:
    """How far two runs are apart: of losses, relative; of gradients and buffers, relative to the largest of each."""
    return max(float((abs(run.losses - other.losses) / abs(other.losses)).max()), apart(run.last, other.last))


def apart(arrays: list[np.ndarray], others: list[np.ndarray]) -> float:
    return max(abs(a - b).max() / max(1.0, abs(b).max()) for a, b in zip(arrays, others, strict=True))


def row(of: Training) -> str:
    """What of a network and size is printed: float64, and the first step and all five in float32."""
    exact, found = of.run(torch), [of.run(tn, jitted) for jitted in (False, True)]
    first, wide = max(apart(r.first, exact.first) for r in found), max(distance(r, exact) for r in found)
    own = f" (PyTorch {max(distance(r, exact) for r in of.moved_runs()):.1e})" if wide > 1e-8 else ""
    near = of.narrow()
    theirs = near.run(torch)
    moved, ours = near.moved_runs(), [near.run(tn, jitted) for jitted in (False, True)]
    cells = [f"{first:.1e}", f"{wide:.1e}{own}"]
    for far in (lambda run: apart(run.first, theirs.first), lambda run: distance(run, theirs)):
        bound = max(map(far, moved))
        cells += [f"{bound:.1e}", *(f"{far(run) / bound:.2f}" for run in ours)]
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(IMAGE_NETWORKS))
    parser.add_argument("--width", type=float, default=1 / 4)
    parser.add_argument("--depth", type=float, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64])
    given = parser.parse_args()
    for name in given.names:
        for size in given.sizes:
            began = time.process_time()
            line = row(training(name, Scale(given.width, given.depth), size))
            print(f"| {name} {size} | {line} | {time.process_time() - began:.0f} s |", flush=True)


if __name__ == "__main__":
    main()

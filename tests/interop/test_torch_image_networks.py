"""Deep image networks learn as PyTorch's do: losses and gradients of five steps, eager and compiled.

In float64 the first step agrees to 1e-10, and five steps to 1e-8. Deep networks with batch norm are chaotic: what the last
place holds grows up to a hundred times a step. So where PyTorch's own runs part more, the measure is PyTorch itself: its
distance from runs whose images and weights are moved by a unit of the last place, in float32 from its float64 run.

Thin networks by default; `TENON_EXPLORE=1` builds them as published, at two sizes of images (an hour).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from interop.image_networks import FULL, IMAGE_NETWORKS, TINY, Library

EXPLORE = bool(os.environ.get("TENON_EXPLORE"))
SCALE, SIZES = (FULL, (32, 64)) if EXPLORE else (TINY, (32,))
STEPS, BATCH = 5, 4
CHAOTIC = IMAGE_NETWORKS if EXPLORE else ("efficientnet", "shufflenet_v2", "senet")


def weights(name: str) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    return {k: v.numpy() for k, v in IMAGE_NETWORKS[name](Library(torch), SCALE).state_dict().items()}


def images(size: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(size)
    return data.normal(size=(BATCH, 3, size, size)).astype("float32").astype("float64"), data.integers(0, 10, BATCH)


@dataclass(frozen=True)
class Run:
    """The loss of each step, and the gradients and buffers after the first step and after the last."""

    losses: np.ndarray
    first: list[np.ndarray]
    last: list[np.ndarray]


def trained(library: Any, name: str, state: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray,
            jitted: bool = False) -> Run:
    given = torch.from_numpy if library is torch else tn.asarray
    net = IMAGE_NETWORKS[name](Library(library), SCALE)
    net = net.double() if x.dtype == np.float64 else net
    net.load_state_dict({k: given(v.astype(x.dtype if v.dtype.kind == "f" else v.dtype)) for k, v in state.items()})
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
    losses = [float(step(given(x), given(y)))]
    first = kept()
    losses += [float(step(given(x), given(y))) for _ in range(1, STEPS)]
    return Run(np.array(losses), first, kept())


def distance(run: Run, other: Run) -> float:
    """How far two runs are apart: of losses, relative; of gradients and buffers, relative to the largest of each."""
    return max(float((abs(run.losses - other.losses) / abs(other.losses)).max()), apart(run.last, other.last))


def apart(arrays: list[np.ndarray], others: list[np.ndarray]) -> float:
    return max(abs(a - b).max() / max(1.0, abs(b).max()) for a, b in zip(arrays, others, strict=True))


def moved(name: str, x: np.ndarray, y: np.ndarray) -> list[Run]:
    """PyTorch's runs of the same images and weights, each number a unit of the last place away, upwards or downwards."""
    def near(x: np.ndarray, data: np.random.Generator) -> np.ndarray:
        return np.nextafter(x, np.where(data.random(x.shape) < 0.5, np.inf, -np.inf).astype(x.dtype))

    runs = []
    for seed in range(3):
        data = np.random.default_rng(seed)
        state = {k: near(v.astype(x.dtype), data) if v.dtype.kind == "f" else v for k, v in weights(name).items()}
        runs.append(trained(torch, name, state, near(x, data), y))
    return runs


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_losses_and_gradients_in_float64_are_those_of_pytorch(name: str, size: int) -> None:
    state, (x, y) = weights(name), images(size)
    exact = trained(torch, name, state, x, y)
    found = [trained(tn, name, state, x, y, jitted) for jitted in (False, True)]
    assert max(apart(run.first, exact.first) for run in found) <= 1e-10
    ours = max(distance(run, exact) for run in found)
    if ours > 1e-8:
        assert ours <= 4 * max(distance(run, exact) for run in moved(name, x, y))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CHAOTIC)
def test_losses_in_float32_are_as_close_as_those_of_pytorch(name: str, size: int) -> None:
    state, (x, y) = weights(name), images(size)
    exact = trained(torch, name, state, x, y).losses
    x = x.astype("float32")

    def error(run: Run) -> float:
        return float(abs(run.losses - exact).max())

    theirs = max(map(error, [trained(torch, name, state, x, y), *moved(name, x, y)]))
    for jitted in (False, True):
        assert error(trained(tn, name, state, x, y, jitted)) <= max(4 * theirs, 1e-5 * abs(exact).max())

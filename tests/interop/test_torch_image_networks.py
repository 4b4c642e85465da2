"""Deep image networks learn as PyTorch's do: losses and gradients of five steps, eager and compiled.

In float64 they agree to 1e-8. In float32 deep networks with batch norm are chaotic, so the measure is PyTorch itself: its
own distance from its float64 run where the images are moved by a unit of the last place.

Thin networks by default; `TENON_EXPLORE=1` builds them as published, at two sizes of images (an hour).
"""

from __future__ import annotations

import os
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
Losses = list[float]


def weights(name: str) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    return {k: v.numpy() for k, v in IMAGE_NETWORKS[name](Library(torch), SCALE).state_dict().items()}


def images(size: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(size)
    return data.normal(size=(BATCH, 3, size, size)).astype("float32").astype("float64"), data.integers(0, 10, BATCH)


def trained(library: Any, name: str, state: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray,
            jitted: bool = False) -> tuple[Losses, list[np.ndarray]]:
    """The loss of each step, and the gradients and buffers of the last one."""
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

    step = tn.jit(step, fullgraph=True) if jitted else step
    losses = [float(step(given(x), given(y))) for _ in range(STEPS)]
    return losses, [np.array(v.detach().numpy()) for v in [*(p.grad for p in net.parameters()), *net.buffers()]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_losses_and_gradients_in_float64_are_those_of_pytorch(name: str, size: int) -> None:
    state, (x, y) = weights(name), images(size)
    losses, gradients = trained(torch, name, state, x, y)
    for jitted in (False, True):
        found, found_gradients = trained(tn, name, state, x, y, jitted)
        np.testing.assert_allclose(found, losses, rtol=1e-8)
        for got, want in zip(found_gradients, gradients, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-8 * max(1.0, abs(want).max()))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CHAOTIC)
def test_losses_in_float32_are_as_close_as_those_of_pytorch(name: str, size: int) -> None:
    state, (x, y) = weights(name), images(size)
    exact = np.array(trained(torch, name, state, x, y)[0])
    narrow = x.astype("float32")
    moved = [narrow, *(np.nextafter(narrow, np.float32(end)) for end in (np.inf, -np.inf, 0))]

    def error(library: Any, x: np.ndarray, jitted: bool = False) -> float:
        return float(abs(np.array(trained(library, name, state, x, y, jitted)[0]) - exact).max())

    theirs = max(error(torch, x) for x in moved)
    for jitted in (False, True):
        assert error(tn, narrow, jitted) <= max(4 * theirs, 1e-5 * abs(exact).max())

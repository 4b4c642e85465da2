"""Deep image networks learn as PyTorch's do: losses and gradients of five steps, eager and compiled.

In float64 the first step agrees to 1e-10, and five steps to 1e-8. Deep networks with batch norm are chaotic: what the last
place holds grows up to a hundred times a step. So where PyTorch's own runs part more, the measure is PyTorch itself: its
distance from runs whose images and weights are moved by a unit of the last place.

Thin networks here; `python tests/interop/torch_image_training.py` prints a table of any size.
"""

from __future__ import annotations

import pytest
import torch

import tenon as tn
from interop.image_networks import IMAGE_NETWORKS, TINY
from interop.torch_image_training import apart, distance, training

SIZE = 32
CHAOTIC = "efficientnet", "shufflenet_v2", "senet"


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_losses_and_gradients_in_float64_are_those_of_pytorch(name: str) -> None:
    wide = training(name, TINY, SIZE)
    exact, found = wide.run(torch), [wide.run(tn, jitted) for jitted in (False, True)]
    assert max(apart(run.first, exact.first) for run in found) <= 1e-10
    ours = max(distance(run, exact) for run in found)
    if ours > 1e-8:
        assert ours <= 4 * max(distance(run, exact) for run in wide.moved_runs())


@pytest.mark.parametrize("name", CHAOTIC)
def test_five_steps_in_float32_are_as_close_as_those_of_pytorch(name: str) -> None:
    near = training(name, TINY, SIZE).narrow()
    exact = near.run(torch)
    theirs = max(distance(run, exact) for run in near.moved_runs())
    for jitted in (False, True):
        assert distance(near.run(tn, jitted), exact) <= max(4 * theirs, 1e-5)

"""Random networks are trained for three steps: the same losses, weights and buffers as PyTorch's, eager and compiled.

In float64, so that what differs is wrong. `TENON_EXPLORE=1` tries networks that nobody has tried.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from interop import torch_networks as networks
from tenon import optim

OPTIMIZERS = [
    ("SGD", {"lr": 0.05}), ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.3}), ("Adam", {"lr": 0.02, "eps": 1e-3}),
    ("Adam", {"lr": 0.02, "eps": 1e-3, "amsgrad": True, "weight_decay": 0.1}), ("AdamW", {"lr": 0.02, "eps": 1e-3}),
    ("RMSprop", {"lr": 0.01, "eps": 1e-3, "momentum": 0.5, "centered": True}), ("Adagrad", {"lr": 0.05, "eps": 1e-3}),
    ("Adadelta", {"lr": 0.5, "eps": 1e-3}), ("Adamax", {"lr": 0.02, "eps": 1e-3}), ("NAdam", {"lr": 0.02, "eps": 1e-3}),
]
SCHEDULES = [None, ("StepLR", {"step_size": 1, "gamma": 0.5}), ("CosineAnnealingLR", {"T_max": 5})]
LOSSES = ["cross_entropy", "smoothed", "ignoring", "probabilities", "mse_loss", "smooth_l1_loss", "sum", "logits", "kl"]


class Training:
    """What is drawn beside the network, and one step of it in either library."""

    def __init__(self, seed: int):
        self.network = networks.Maker(seed).network()
        self.random = random.Random(f"training {seed}")
        self.optimizer, self.schedule = self.random.choice(OPTIMIZERS), self.random.choice(SCHEDULES)
        self.loss, self.clip = self.random.choice(LOSSES), self.random.choice((None, None, 0.5))
        sizes = [self.random.choice((1, 2, 3, 5, 8))] * 3
        self.sizes = sizes if self.random.random() < 0.6 else [*sizes[:2], sizes[0] + 3]
        self.data = np.random.default_rng(seed)

    def __str__(self) -> str:
        return f"{self.network}\n{self.optimizer} {self.schedule} {self.loss} clip={self.clip} batches {self.sizes}"

    def batch(self, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
        shape, words = (size, *self.network.shape), self.network.words
        x = self.data.integers(0, words, shape) if words else self.data.normal(size=shape)
        if self.loss in ("cross_entropy", "smoothed", "ignoring"):
            y = self.data.integers(0, classes, size)
            return x, np.where(self.data.random(size) < 0.3, 0, y)
        y = self.data.random((size, classes)) + 0.01
        return x, y / y.sum(axis=1, keepdims=True)

    def loss_of(self, F: Any, out: Any, y: Any) -> Any:
        if self.loss in ("cross_entropy", "probabilities"):
            return F.cross_entropy(out, y)
        if self.loss == "smoothed":
            return F.cross_entropy(out, y, label_smoothing=0.2, reduction="sum")
        if self.loss == "ignoring":
            return F.cross_entropy(out, y, ignore_index=0, reduction="sum")
        if self.loss == "sum":
            return (out * y).sum() / out.shape[0]
        if self.loss == "logits":
            return F.binary_cross_entropy_with_logits(out, y)
        if self.loss == "kl":
            return F.kl_div(F.log_softmax(out, -1), y, reduction="batchmean")
        return getattr(F, self.loss)(out, y)

    def step(self, library: Any, net: Any, optimizer: Any, schedule: Any) -> Any:
        """A function of a batch: one step of training, which gives the loss and the outputs."""
        clip = library.nn.utils.clip_grad_norm_ if library is torch else optim.clip_grad_norm

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            out = net(x)
            loss = self.loss_of(library.nn.functional, out, y)
            loss.backward()
            if self.clip is not None:
                clip(list(net.parameters()), self.clip)
            optimizer.step()
            return loss, out
        return step

    def run(self, library: Any, weights: Any, jitted: bool) -> list[np.ndarray]:
        """Losses and outputs of three steps, then all weights and buffers."""
        data = self.data.bit_generator.state
        try:
            net, optimizer, schedule = self.made(library, weights)
            step = self.step(library, net, optimizer, schedule)
            step = tn.jit(step) if jitted else step
            found = []
            for size in self.sizes:
                x, y = self.batch(size, weights["classes"])
                loss, out = step(*map(torch.from_numpy if library is torch else tn.asarray, (x, y)))
                if schedule is not None:
                    schedule.step()
                found += [loss, out]
            found += [*net.parameters(), *net.buffers()]
            return [np.array(x.detach().numpy()) for x in found]
        finally:
            self.data.bit_generator.state = data

    def is_smooth(self, weights: Any, expected: list[np.ndarray]) -> bool:
        """Whether roundings decide nothing, as which of two elements is the larger one."""
        near = {k: v * (1 + 1e-13) if v.dtype.kind == "f" else v for k, v in weights["state"].items()}
        found = self.run(torch, {**weights, "state": near}, False)
        return all(np.allclose(x, y, rtol=1e-9, atol=1e-10) for x, y in zip(found, expected))

    def made(self, library: Any, weights: Any) -> tuple[Any, Any, Any]:
        net = networks.network_class(library)(self.network)
        state = weights["state"]
        net.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()} if library is torch else state)
        net.train(not self.network.evaluated)
        parameters = list(net.parameters())
        name, options = self.optimizer
        optimizer = getattr(library.optim, name)(parameters, **options)
        scheduler = torch.optim.lr_scheduler if library is torch else optim
        schedule = self.schedule and getattr(scheduler, self.schedule[0])(optimizer, **self.schedule[1])
        return net, optimizer, schedule

    def weights(self) -> dict[str, Any]:
        """What both start from."""
        torch.manual_seed(0)
        net = networks.network_class(torch)(self.network)
        x, _ = self.batch(2, 1)
        classes = net(torch.from_numpy(x)).shape[1]
        return {"state": {k: v.numpy().copy() for k, v in net.state_dict().items()}, "classes": classes,
                "trained": bool(list(net.parameters()))}


def check(seed: int, threads: bool = True) -> None:
    training = Training(seed)
    weights = training.weights()
    if not weights["trained"]:
        return
    try:
        expected = training.run(torch, weights, False)
    except (RuntimeError, ValueError):      # as a batch of one, of which there are no statistics
        return
    if not all(np.isfinite(x).all() for x in expected) or not training.is_smooth(weights, expected):
        return
    before = tn.get_num_threads()
    compiled = []
    try:
        for count in (1, 2):
            tn.set_num_threads(count)
            compiled.append(training.run(tn, weights, True))
    finally:
        tn.set_num_threads(before)
    eager = training.run(tn, weights, False)
    names = [f"{what} {k}" for k in range(3) for what in ("loss", "output")] + list(weights["state"])
    for found in (eager, compiled[0]):
        for name, x, want in zip(names, found, expected, strict=True):
            scale = max(1.0, float(abs(want).max(initial=0)))
            tolerance = 1e-6 if training.optimizer[0] == "NAdam" else 1e-8
            np.testing.assert_allclose(x, want, rtol=0, atol=tolerance * scale, err_msg=f"{name} of\n{training}")
    for name, x, y in zip(names, *compiled):
        np.testing.assert_array_equal(x, y, err_msg=f"{name} on two threads, of\n{training}")


SEEDS = [int(time.time() * 1000) + k for k in range(20)] if os.environ.get("TENON_EXPLORE") else [1, 10, 22, 40, 42]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_three_steps(seed: int) -> None:
    check(seed)

"""Random networks in float32 and narrower, in use and under `autocast`, with 8-bit weights: as near to PyTorch's as may be.

What may be is found by PyTorch in float64: how far outputs and gradients move if the result of every step, its gradient
and all weights are off by half a unit of the last place, at random; and by PyTorch's own distance where it can do it.
`TENON_EXPLORE=1` tries networks that nobody has tried.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from interop import torch_networks as networks
from interop.test_torch_random_networks import Training
from tenon import nn

TYPES = {"float32": (torch.float32, 2.0 ** -24), "float16": (torch.float16, 2.0 ** -12),
         "bfloat16": (torch.bfloat16, 2.0 ** -9)}
TIMES = 25      # the noise that four tries have shown


class Noise(torch.autograd.Function):
    """A value and its gradient, each element off by a random part of `half`."""

    @staticmethod
    def forward(ctx: Any, x: Any, half: float) -> Any:
        ctx.half = half
        return x * (1 + half * (2 * torch.rand_like(x) - 1))

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * (1 + ctx.half * (2 * torch.rand_like(g) - 1)), None


class Case:
    """One network, batch and way to run it: `mode` is "train", "use", "autocast" or "quantised"."""

    def __init__(self, seed: int, mode: str, dtype: str):
        self.training, self.mode, self.dtype = Training(seed), mode, dtype
        (self.narrow, self.half), self.grad = TYPES[dtype], mode in ("train", "autocast")
        self.held = torch.float32 if mode == "autocast" else self.narrow
        weights = self.training.weights()
        self.state = {k: self.rounded(x) for k, x in weights["state"].items()}
        x, _ = self.training.batch(self.training.sizes[-1], 1)
        self.x = self.rounded(x)
        self.y = self.rounded(self.training.data.random((len(x), weights["classes"])) - 0.3)

    def rounded(self, x: np.ndarray) -> np.ndarray:
        return x if x.dtype.kind != "f" else torch.tensor(x).to(self.held).double().numpy()

    def theirs(self, state: Any, dtype: Any, noise: float = 0.0) -> list[np.ndarray]:
        net = networks.network_class(torch)(self.training.network)
        net.load_state_dict({k: torch.tensor(x) for k, x in state.items()})
        net.train(self.grad).to(dtype)
        x = torch.tensor(self.x)
        x = x.to(dtype).requires_grad_() if x.is_floating_point() else x
        if noise:
            values, layers = [x], iter(net.layers)
            for step in net.steps:
                layer = None if step.name in networks.FUNCTIONS else next(layers)
                values.append(Noise.apply(networks.run_step(torch, layer, step, values), noise))
            out = values[-1].reshape(len(x), -1)
        else:
            with torch.autocast("cpu", self.narrow, self.mode == "autocast" and dtype is self.held):
                out = net(x).to(dtype)
        return self.found(net, x, out, torch.tensor(self.y).to(dtype))

    def ours(self, jitted: bool) -> tuple[list[np.ndarray], Any]:
        net = networks.network_class(tn)(self.training.network)
        net.load_state_dict(self.state)
        net.train(self.grad).to("float32" if self.mode == "autocast" else self.dtype)
        net = nn.quantize(net) if self.mode == "quantised" else net
        x = tn.asarray(self.x)
        x = x.astype(self.held_name).requires_grad_() if x.dtype.kind == "f" else x

        def run(x: Any, y: Any) -> Any:
            with (tn.enable_grad if self.grad else tn.no_grad)(), tn.autocast(enabled=self.mode == "autocast"):
                out = net(x)
            out = out.astype(self.held_name)
            if self.grad:
                (out * y.astype(out.dtype)).sum().backward()
            return out
        out = (tn.jit(run) if jitted else run)(x, tn.asarray(self.y))
        return self.found(net, x, out, None), net

    @property
    def held_name(self) -> str:
        return "float32" if self.mode == "autocast" else self.dtype

    def found(self, net: Any, x: Any, out: Any, y: Any) -> list[np.ndarray]:
        """Outputs, and gradients if it is a training step."""
        if y is not None and self.grad:
            (out * y).sum().backward()
        found = [out, *([p.grad for p in (*net.parameters(), x)] if self.grad else [])]
        return [np.zeros(()) if g is None else np.array(g.detach().double().numpy() if isinstance(g, torch.Tensor)
                                                        else g.detach().astype("float64").numpy()) for g in found]

    def noisy(self, state: Any) -> Any:
        return {k: self.training.data.uniform(1 - self.half, 1 + self.half, x.shape) * x if x.dtype.kind == "f" else x
                for k, x in state.items()}


def with_weights_of(net: Any, state: Any) -> Any:
    """The state with the weights that 8-bit codes stand for."""
    own = {k: x.numpy().astype(np.float64) for k, x in net.state_dict().items()}
    decoded = {k.removesuffix("codes") + "weight": x * own[k.removesuffix("codes") + "scale"].reshape(
        -1, *[1] * (x.ndim - 1)) for k, x in own.items() if k.endswith(".codes")}
    return {**state, **decoded}


def check(seed: int, mode: str, dtype: str) -> None:
    case = Case(seed, mode, dtype)
    torch.manual_seed(seed)
    eager, net = case.ours(False)
    state = with_weights_of(net, case.state)
    want = case.theirs(state, torch.float64)
    if not all(np.isfinite(x).all() for x in want):
        return
    tries = [case.theirs(case.noisy(state), torch.float64, case.half) for _ in range(4)]
    with suppress(RuntimeError):        # where PyTorch cannot compute in this type
        tries.append(case.theirs(state, case.held))
    for found in (eager, case.ours(True)[0]):
        for number, (x, expected, *others) in enumerate(zip(found, want, *tries, strict=True)):
            if all(np.isfinite(y).all() for y in others):
                noise = max(float(abs(y - expected).max(initial=0)) for y in others)
                allowed = TIMES * max(noise, case.half * float(abs(expected).max(initial=0)), 1e-30)
                np.testing.assert_allclose(x, expected, rtol=0, atol=allowed, err_msg=f"{number} of\n{case.training}")


CASES = [(1004, "train", "float32"), (1001, "use", "float32"), (1002, "train", "bfloat16"), (1003, "use", "bfloat16"),
         (1017, "use", "float16"), (1049, "autocast", "bfloat16"), (1005, "quantised", "float32"),
         (1006, "quantised", "bfloat16")]
if os.environ.get("TENON_EXPLORE"):
    CASES = [(int(time.time() * 1000) + k, mode, dtype) for k in range(3) for _, mode, dtype in CASES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("seed", "mode", "dtype"), CASES)
def test_as_near_as_roundings_allow(seed: int, mode: str, dtype: str) -> None:
    check(seed, mode, dtype)

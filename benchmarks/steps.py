"""A training step of a network, the same in Tenon and in PyTorch: loss, backward, Adam.

    runs = {"Tenon": tenon_step(net, x, y), "PyTorch": torch_step(net, x, y)}
"""
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
import tenon.nn.functional
import tenon.optim
from benchmarks.timing import compare, installed, row
from tenon.config import config

Step = Callable[[], object]


def tenon_step(net: Any, x: np.ndarray, y: np.ndarray) -> Step:
    """One jitted step, called until its loss is there to be read."""
    optimizer = tenon.optim.Adam(net.parameters(), lr=1e-3)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        loss = tenon.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    inputs = tn.asarray(x), tn.asarray(y)
    return lambda: step(*inputs).item()


def torch_step(net: Any, x: np.ndarray, y: np.ndarray) -> Step:
    """The same in PyTorch, eager."""
    import torch

    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    inputs = torch.from_numpy(x), torch.from_numpy(y)

    def step() -> object:
        loss = torch.nn.functional.cross_entropy(net(inputs[0]), inputs[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()
    return step


def report(label: str, ours: Any, theirs: Callable[[], Any], x: np.ndarray, y: np.ndarray, seconds: float) -> None:
    """Print one line for both; `theirs` makes the PyTorch network, if PyTorch is there."""
    runs = {"Tenon": tenon_step(ours, x, y)}
    if installed("torch"):
        import torch

        torch.set_num_threads(config().threads)
        runs["PyTorch"] = torch_step(theirs(), x, y)
    print(row(label, compare(runs, seconds)), flush=True)

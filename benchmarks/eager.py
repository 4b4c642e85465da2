"""What an eager operator costs beside its arithmetic, and the digits demo's step: Tenon beside PyTorch.

    TENON_THREADS=1 python -m benchmarks.eager [--seconds 0.5] [--step]
"""
import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.timing import compare, installed, row

CHAIN = 1000


def chain(module: Any, ones: Any) -> Callable[[], object]:
    """A thousand operators forward, and backward through them."""
    def run() -> None:
        x = ones(10, requires_grad=True)
        y = x
        for _ in range(CHAIN // 2):
            y = module.add(module.multiply(y, x), x)
        y.sum().backward()
    return run


def cases(module: Any, ones: Any) -> dict[str, Callable[[], object]]:
    """The same programs, written for a module."""
    x, y, p = ones(10), ones(10), ones(10, requires_grad=True)
    matrix = ones((4, 4))
    return {
        "add": lambda: module.add(x, y),
        "add, recorded": lambda: module.add(p, y),
        "x * 2.0": lambda: x * 2.0,
        "exp": lambda: module.exp(x),
        "sum": lambda: x.sum(),
        "matmul, 4x4": lambda: matrix @ matrix,
        "chain": chain(module, ones),
    }


def run(library: str, case: str) -> Callable[[], object]:
    """One of the cases in one library."""
    module: Any = tn if library == "tenon" else importlib.import_module(library)
    return cases(module, module.ones)[case]


def digits_step(jitted: bool) -> Callable[[], object]:
    """One training step of the digits demo."""
    from tenon.demos import digits
    net, random = digits.Net(), np.random.default_rng(0)
    step = digits.training_step(net, tn.optim.Adam(net.parameters(), lr=1e-3))
    x = tn.tensor(random.random((digits.BATCH, 1, 8, 8)).astype(np.float32))
    labels = tn.tensor(random.integers(0, 10, digits.BATCH))
    run = tn.jit(step) if jitted else step
    return lambda: run(x, labels).numpy()


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5)
    options.add_argument("--step", action="store_true", help="the digits demo's step too")
    given = options.parse_args(arguments)
    ours, theirs = cases(tn, tn.ones), {}
    if installed("torch"):
        import torch
        torch.set_num_threads(1)
        theirs = cases(torch, torch.ones)
    for name, run in ours.items():
        peers = {"PyTorch": theirs[name]} if theirs else {}
        print(row(name, compare({"Tenon": run, **peers}, given.seconds)), flush=True)
    if given.step:
        print(row("digits step", compare({"eager": digits_step(False), "compiled": digits_step(True)}, given.seconds)))


if __name__ == "__main__":
    main()

"""One training step of networks of fully connected layers: Tenon jitted, PyTorch eager.

    python -m benchmarks.mlp_step [--seconds 2]
"""
import argparse
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.steps import report
from tenon import nn

CASES = [(64, (64, 128, 10)), (128, (784, 512, 256, 10)), (512, (1024, 1024, 1024, 10))]      # batch, widths


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=2.0)
    given = options.parse_args(arguments)
    random = np.random.default_rng(0)
    for batch, widths in CASES:
        x = random.standard_normal((batch, widths[0])).astype(np.float32)
        y = random.integers(0, widths[-1], batch)
        label = f"MLP {'-'.join(map(str, widths))}, {batch}"
        report(label, network(nn, widths), partial(theirs, widths), x, y, given.seconds)


def network(nn: Any, widths: tuple[int, ...]) -> Any:
    """The network, of Tenon's or of PyTorch's modules."""
    layers: list[Any] = []
    for size, following in pairwise(widths):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def theirs(widths: tuple[int, ...]) -> Any:
    import torch

    return network(torch.nn, widths)


if __name__ == "__main__":
    main()

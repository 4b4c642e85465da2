"""One training step of a small convolutional network on pictures of 8 x 8: Tenon jitted, PyTorch eager.

    python -m benchmarks.cnn_step [--seconds 5]
"""
import argparse
from typing import Any

import numpy as np

from benchmarks.steps import report
from tenon import nn

BATCH = 64


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=5.0)
    given = options.parse_args(arguments)
    random = np.random.default_rng(0)
    x = random.random((BATCH, 1, 8, 8), np.float32)
    y = random.integers(0, 10, BATCH)
    report(f"CNN step, batch {BATCH}", network(nn), theirs, x, y, given.seconds)


def network(nn: Any) -> Any:
    """The network, of Tenon's or of PyTorch's modules."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))


def theirs() -> Any:
    import torch

    return network(torch.nn)


if __name__ == "__main__":
    main()

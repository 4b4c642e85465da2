"""The networks whose first step is measured, beside those of `benchmarks.models`: many layers of many sizes.

    run = network("jax", FIRST["googlenet"])
"""

from __future__ import annotations

import importlib
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.models import WORKLOADS, Workload, adam, adamw, bert, momentum, pictures, resnet18, tokens

INCEPTIONS = ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None, (192, 96, 208, 16, 48, 64),
              (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
              (256, 160, 320, 32, 128, 128), None, (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128))


def functions(nn: Any) -> Any:
    """The library that layers belong to; the layers of `benchmarks.jax_nn` stand beside JAX's functions."""
    return importlib.import_module({"benchmarks.jax_nn": "jax.numpy"}.get(nn.__name__, nn.__name__.partition(".")[0]))


def unit(nn: Any, inputs: int, outputs: int, kernel: int = 3) -> Any:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs),
                         nn.ReLU())


def googlenet(nn: Any) -> Any:
    """Szegedy et al., 2015, with batch norm, for small pictures."""
    of = functions(nn)

    class Inception(nn.Module):                                 # type: ignore[misc, name-defined]
        def __init__(self, last: int, one: int, three_in: int, three: int, five_in: int, five: int, pooled: int):
            super().__init__()
            self.one = unit(nn, last, one, 1)
            self.three = nn.Sequential(unit(nn, last, three_in, 1), unit(nn, three_in, three))
            self.five = nn.Sequential(unit(nn, last, five_in, 1), unit(nn, five_in, five), unit(nn, five, five))
            self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), unit(nn, last, pooled, 1))

        def forward(self, x: Any) -> Any:
            return of.concat([self.one(x), self.three(x), self.five(x), self.pooled(x)], axis=1)

    layers, last = [unit(nn, 3, 192)], 192
    for row in INCEPTIONS:
        if row is None:
            layers.append(nn.MaxPool2d(3, 2, 1))
        else:
            layers.append(Inception(last, *row))
            last = row[0] + row[2] + row[4] + row[5]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 10))


def unet(nn: Any, width: int = 32, levels: int = 3, classes: int = 10) -> Any:
    """Ronneberger et al., 2015: pictures to scores of every place, with group norms."""
    of = functions(nn)

    def block(inputs: int, outputs: int) -> Any:
        layers = []
        for before in (inputs, outputs):
            layers += [nn.Conv2d(before, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):                                      # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            sizes = [width * 2**k for k in range(levels)]
            self.down = nn.ModuleList([block(a, b) for a, b in zip([3, *sizes], sizes, strict=False)])
            self.up = nn.ModuleList([block(a + b, a) for a, b in pairwise(sizes)])
            self.pool, self.leave = nn.MaxPool2d(2, 2, 0), nn.Conv2d(width, classes, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for k, down in enumerate(self.down):
                x = down(self.pool(x) if k else x)
                kept.append(x)
            for fine, up in reversed(list(zip(kept, self.up, strict=False))):
                x = up(of.concat([fine, nn.functional.interpolate(x, scale_factor=2, mode="nearest")], axis=1))
            return self.leave(x).swapaxes(1, 3)

    return UNet()


def sines(nn: Any, count: int = 100) -> Any:
    """A chain of functions of an element."""
    of = functions(nn)

    class Sines(nn.Module):                                     # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            for k in range(count):
                x = of.sin(x) * 1.01 + k / count
            return x

    return Sines()


def labelled(batch: int, side: int) -> Any:
    """Random pictures, with one of ten classes for every place."""
    shape = batch, side, side
    return lambda rng: (rng.standard_normal((batch, 3, side, side), np.float32), rng.integers(0, 10, shape))


FIRST: dict[str, Workload] = WORKLOADS | {workload.name: workload for workload in (
    Workload("resnet18_32", resnet18, pictures(4, 3, 32), momentum),
    Workload("resnet18_64", resnet18, pictures(4, 3, 64), momentum),
    Workload("googlenet", googlenet, pictures(4, 3, 32), momentum),
    Workload("googlenet_64", googlenet, pictures(4, 3, 64), momentum),
    Workload("unet", unet, labelled(4, 32), adam),
    Workload("bert_small", partial(bert, layers=4, width=256, heads=4, vocabulary=4096), tokens(256, 8, 64), adamw),
    Workload("sines", sines, lambda rng: (rng.standard_normal(100_000, np.float32), rng.integers(0, 10, 1))),
)}

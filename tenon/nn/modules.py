"""PyTorch's paths to layers: `nn.modules.conv.Conv2d`, `nn.modules.utils._pair`.  Each module is all of `nn`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import repeat
from types import ModuleType, SimpleNamespace
from typing import Any

PATHS = ("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout",
         "flatten", "fold", "instancenorm", "lazy", "linear", "loss", "module", "normalization", "padding",
         "pixelshuffle", "pooling", "rnn", "sparse", "transformer", "upsampling")


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes n of one number, and a tuple of several."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))


utils = SimpleNamespace(_ntuple=_ntuple, _single=_ntuple(1), _pair=_ntuple(2), _triple=_ntuple(3),
                        _quadruple=_ntuple(4))


def __getattr__(name: str) -> Any:
    layers: ModuleType = import_module("tenon.nn")
    return layers if name in PATHS else getattr(layers, name)

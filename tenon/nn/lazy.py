"""Layers that learn how many inputs they have from their first call: LazyLinear, LazyConv2d, LazyBatchNorm1d ...

    net = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(3))
    net(x)                      # now they are Linear, and have parameters

A layer becomes one of the class it stands for.  Before that it has no parameters, and who asks for them is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenon.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)

__all__ = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
           "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d",
           "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear"]


class Lazy(Module):
    """A layer of a class whose first argument is the size of an axis of its first input."""

    uninitialized = True
    kind: type[Module] = Module     # what it becomes
    usual: Mapping[str, Any] = {}   # arguments of that

    def __init__(self, *given: Any, **named: Any):
        self.given, self.named = given, named
        self.brought: list[tuple[Any, Any]] = []

    def inputs(self, x: Any) -> Any:
        """How many inputs it has."""
        raise NotImplementedError

    def forward(self, x: Any, *more: Any) -> Any:
        given = dict(zip(("eps", "momentum", *self.usual), self.given)) if self.usual else {}
        options = {**self.usual, **given, **self.named}
        made = self.kind(int(self.inputs(x)), *(() if self.usual else self.given), **options).train(self.training)
        for where, wanted in self.brought:
            made.to(device=where, dtype=wanted)
        object.__setattr__(self, "__class__", self.kind)
        self.__dict__ = made.__dict__
        return self.forward(x, *more)

    def has_uninitialized_params(self) -> bool:
        """True: it was not called yet."""
        return True

    def reset_parameters(self) -> None:
        """Nothing: it has none yet."""

    def extra_repr(self) -> str:
        return ", ".join([*map(str, self.given), *(f"{name}={value}" for name, value in self.named.items())])


def _lazy(kind: type[Module], inputs: Callable[[Any], Any], **usual: Any) -> Any:
    doc = f"A {kind.__name__} that learns from its first call how many inputs it has."
    return type(f"Lazy{kind.__name__}", (Lazy, kind), {
        "kind": kind, "inputs": lambda self, x: inputs(x), "usual": usual, "__slots__": (), "__module__": __name__,
        "__doc__": doc})


def _channels(axes: int) -> Callable[[Any], Any]:
    return lambda x: x.shape[1 if x.ndim == axes + 2 else 0]


LazyLinear = _lazy(Linear, lambda x: x.shape[-1])
LazyConv1d, LazyConv2d, LazyConv3d = (
    _lazy(kind, _channels(k + 1)) for k, kind in enumerate((Conv1d, Conv2d, Conv3d)))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(kind, _channels(k + 1)) for k, kind in enumerate((ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(kind, _channels(k + 1), affine=True, track_running_stats=True)
    for k, kind in enumerate((InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)))
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(kind, lambda x: x.shape[1]) for kind in (BatchNorm1d, BatchNorm2d, BatchNorm3d))

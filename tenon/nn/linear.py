"""Layers that multiply by a weight matrix: Linear, Bilinear; and Identity."""

from __future__ import annotations

import math
from typing import Any

from tenon.errors import ArgumentError
from tenon.nn import init
from tenon.nn.module import Module, Parameter
from tenon.ops.creation import empty
from tenon.ops.linear_layers import bilinear, linear
from tenon.ops.shape import as_dim

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns what it is given; takes any arguments, so that it can stand for any layer."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """y = x @ weight.T + bias, from [..., in_features] to [..., out_features].

    weight [out_features, in_features] and bias [out_features] start uniform within 1/sqrt(in_features).

    >>> nn.Linear(3, 2)(tn.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = "float32"):
        in_features, out_features = as_dim(in_features), as_dim(out_features)
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(size, int) or size < 0:
                raise ArgumentError(f"Linear: {name} must be a size, not {size!r}")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype))
        self.bias = Parameter(empty(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()
        self._place(device)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            init.uniform_within_(self.bias, self.in_features)

    def forward(self, x: Any) -> Any:
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}" + (", bias=False" if self.bias is None else "")


class Bilinear(Module):
    """A bilinear form of two inputs [..., in1_features] and [..., in2_features] for every output, plus a bias."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
                 device: Any = None, dtype: Any = "float32"):
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, dtype=dtype))
        self.bias = Parameter(empty(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()
        self._place(device)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for p in self.parameters(recurse=False):
            init.uniform_within_(p, self.in1_features)

    def forward(self, x: Any, y: Any) -> Any:
        return bilinear(x, y, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in1_features}, {self.in2_features}, {self.out_features}"

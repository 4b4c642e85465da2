"""Layers whose weights are 8-bit integers with a scale a row, for use, not for training.

    net = nn.quantize(net.eval())       # in place: Linear, Embedding and convolutions, a quarter of the memory

Inputs and sums stay floating.  A product multiplies by the integers, converted while they are read, and its results by
the scales, so nothing is ever stored as floats; but for a compiled convolution, which keeps its integers as floats in
the order in which it reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, DTypeError
from tenon.nn.convolution import Conv1d, Conv2d, Conv3d, convolved, text_of
from tenon.nn.embedding import Embedding
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.ops.linear_layers import embedding, linear
from tenon.ops.shape import cast, reshape_op
from tenon.tensor import Tensor, tensor

__all__ = ["QuantizedConv", "QuantizedEmbedding", "QuantizedLinear", "quantize"]

MAX_CODE = 127      # so that every code has its opposite


class _Quantized(Module):
    """`codes` [rows, ...], 8-bit integers, and `scale` [rows]: the weight is codes * scale, row by row."""

    codes: Any
    scale: Any

    def _take(self, weight: Any) -> None:
        codes, scale = encoded(weight)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)

    @property
    def weight(self) -> Any:
        """The weight as it is used, in floating point."""
        return cast(self.codes, dtype=self.scale.dtype) * _beside(self.scale, self.codes.ndim - 1)


def _beside(rows: Any, axes: int) -> Any:
    """A number a row, with so many axes of size 1 behind it."""
    return reshape_op(rows, shape=(-1, *[1] * axes))


class QuantizedLinear(_Quantized):
    """y = x @ weight.T + bias with a weight of 8-bit integers; made of a `Linear`, by `nn.quantize`.

    >>> layer = nn.QuantizedLinear(nn.Linear(3, 2))
    >>> [(name, x.dtype) for name, x in layer.state_dict().items()]
    [('codes', tenon.int8), ('scale', tenon.float32), ('bias', tenon.float32)]
    """

    def __init__(self, layer: Linear):
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._take(layer.weight)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    def forward(self, x: Any) -> Any:
        y = linear(x, cast(self.codes, dtype=x.dtype)) * self.scale
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}" + (", bias=False" if self.bias is None else "")


class QuantizedEmbedding(_Quantized):
    """The rows of a table of 8-bit integers, scaled; made of an `Embedding`, by `nn.quantize`."""

    def __init__(self, layer: Embedding):
        self.num_embeddings, self.embedding_dim = layer.num_embeddings, layer.embedding_dim
        self._take(layer.weight)

    def forward(self, x: Any) -> Any:
        scale = embedding(x, _beside(self.scale, 1))
        return cast(embedding(x, self.codes), dtype=scale.dtype) * scale

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class QuantizedConv(_Quantized):
    """A convolution with a kernel of 8-bit integers, a scale a filter; made of a `Conv1d` to `Conv3d`.

    >>> nn.quantize(nn.Conv2d(3, 16, 3)).codes.shape
    (16, 3, 3, 3)
    """

    def __init__(self, layer: Any):
        self.count = layer.count
        for name in layer.options:
            setattr(self, name, getattr(layer, name))
        self._take(layer.weight)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    def forward(self, x: Any) -> Any:
        y = convolved(self, x, cast(self.codes, dtype=x.dtype), None) * _beside(self.scale, self.count)
        return y if self.bias is None else y + _beside(self.bias, self.count)

    def extra_repr(self) -> str:
        return text_of(self)


LAYERS: dict[type, Callable[[Any], Module]] = {
    Linear: QuantizedLinear, Embedding: QuantizedEmbedding, **dict.fromkeys((Conv1d, Conv2d, Conv3d), QuantizedConv)}


def encoded(weight: Any) -> tuple[Tensor, Tensor]:
    """8-bit codes and a scale a row, such that codes * scale is within half a scale of the weight [rows, ...]."""
    if weight.dtype.kind != "f":
        raise DTypeError(f"quantize: the weight is {weight.type}, only floating weights have 8-bit codes")
    exact = np.asarray(weight.detach()).astype(np.float64)
    if not np.isfinite(exact).all():
        raise ArgumentError("quantize: a weight is infinite or not a number")
    scale = (np.abs(exact).max(axis=tuple(range(1, exact.ndim)), initial=0.0) / MAX_CODE).astype(weight.dtype.numpy)
    divisor = np.where(scale == 0, 1, scale).astype(np.float64).reshape(-1, *[1] * (exact.ndim - 1))
    codes = np.clip(np.rint(exact / divisor), -MAX_CODE, MAX_CODE).astype(np.int8)
    return tensor(codes), tensor(scale)


def quantize(module: Any, choose: Callable[[str, Module], bool] = lambda name, layer: True) -> Any:
    """Give every Linear, Embedding and Conv1d to Conv3d in a module 8-bit weights, in place.

    Returns the module; where it is itself such a layer, the layer that takes its place.

    `choose(name, layer)` may leave layers as they are.  The layers have no parameters any more: gradients flow through
    them, and not to them.  A state dict of a quantised network is loaded into one that was quantised the same way.

    >>> nn.quantize(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))[0].codes.dtype
    tenon.int8
    """
    return _quantized("", module, choose, {})


def _quantized(name: str, x: Any, choose: Callable[[str, Module], bool], done: dict[int, Any]) -> Any:
    """What stands in the place of an attribute or item: layers that are used twice stay one."""
    if id(x) in done:
        return done[id(x)]
    if type(x) in LAYERS:
        done[id(x)] = LAYERS[type(x)](x) if choose(name, x) else x
        return done[id(x)]
    parts = x.__dict__ if isinstance(x, Module) else x
    if isinstance(parts, tuple):
        return tuple(_quantized(_named(name, k), y, choose, done) for k, y in enumerate(parts))
    if isinstance(parts, (dict, list)):
        done[id(x)] = x
        for key, y in list(parts.items() if isinstance(parts, dict) else enumerate(parts)):
            inner = name if key == "items_" and isinstance(x, Module) else _named(name, key)
            new = _quantized(inner, y, choose, done)
            if new is not y:
                parts[key] = new
    return x


def _named(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)

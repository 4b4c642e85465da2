"""Layers that are random in training: dropout of elements or channels, self-normalising; ReLU of random slopes."""

from __future__ import annotations

from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.nn.module import Module
from tenon.ops.comparison import where
from tenon.ops.creation import ones
from tenon.pytorch_in_place import rebound
from tenon.random import beside, dropout, rand

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "RReLU"]

SATURATION = -1.7580993408473766        # -SELU_SCALE * SELU_ALPHA, what selu tends to


def dropout_channels(x: Any, p: float = 0.5, training: bool = True, count: int = 2) -> Any:
    """Whole channels of x [N, C, *sizes] or [C, *sizes] with `count` sizes are zero with probability p."""
    if x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"dropout{count}d: the input must have {count + 1} or {count + 2} axes, it is {x.type}")
    if not training or p == 0:
        return x
    return x * dropout(ones((*x.shape[:x.ndim - count], *(1,) * count), dtype=x.dtype, device=x.device), p)


def alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Any:
    """Elements set to what selu tends to with probability p; mean and variance stay (Klambauer et al. 2017)."""
    return _saturated(x, x.shape, p) if training and p else x


def feature_alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Any:
    """`alpha_dropout` of whole channels of x [N, C, *sizes]."""
    if x.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout: the input must be [N, C, ...], it is {x.type}")
    return _saturated(x, (*x.shape[:2], *(1,) * (x.ndim - 2)), p) if training and p else x


def _saturated(x: Any, drawn: Any, p: float) -> Any:
    """Elements set to what selu tends to where the draws, of a shape that is broadcast, say so."""
    if p == 1:
        return x * 0
    a = ((1 - p) * (1 + p * SATURATION ** 2)) ** -0.5
    return where(rand(drawn, device=beside(x)) < 1 - p, x, SATURATION) * a - a * SATURATION * p


def rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    """x where positive, else times a slope: in training a random one in [lower, upper), else their mean."""
    if not lower <= upper:
        raise ArgumentError(f"rrelu: slopes from lower={lower} to upper={upper}")
    slope: Any = (lower + upper) / 2
    if training:
        slope = lower + (upper - lower) * rand(x.shape, dtype=x.dtype, device=beside(x))
    return where(x >= 0, x, x * slope)


class Dropout(Module):
    """In training, each element is zero with probability p and the others are scaled by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        if not 0 <= p <= 1:
            raise ArgumentError(f"{type(self).__name__}: p must be a probability, not {p}")
        self.p, self.inplace = p, inplace

    def forward(self, x: Any) -> Any:
        return rebound(x, self.dropped(x), self.inplace)

    def dropped(self, x: Any) -> Any:
        """The input with some of its elements 0, in training."""
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"{self.p:g}" + ", inplace=True" * self.inplace


class Dropout1d(Dropout):
    """Dropout of whole channels of [N, C, L] or [C, L]."""

    count = 1

    def dropped(self, x: Any) -> Any:
        return dropout_channels(x, self.p, self.training, self.count)


class Dropout2d(Dropout1d):
    """Dropout of whole channels of [N, C, H, W] or [C, H, W]."""

    count = 2


class Dropout3d(Dropout1d):
    """Dropout of whole channels of [N, C, D, H, W] or [C, D, H, W]."""

    count = 3


class AlphaDropout(Dropout):
    """Dropout that keeps mean and variance behind selu."""

    def dropped(self, x: Any) -> Any:
        return alpha_dropout(x, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels of [N, C, *sizes]."""

    def dropped(self, x: Any) -> Any:
        return feature_alpha_dropout(x, self.p, self.training)


class RReLU(Module):
    """Leaky ReLU; in training each negative element has a random slope in [lower, upper)."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, x: Any) -> Any:
        return rebound(x, rrelu(x, self.lower, self.upper, self.training), self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower:g}, upper={self.upper:g}" + ", inplace=True" * self.inplace

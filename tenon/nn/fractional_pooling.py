"""Maxima of windows whose places are drawn: `fractional_max_pool2d`, `fractional_max_pool3d` and their layers."""

from __future__ import annotations

from typing import Any, ClassVar

from tenon.errors import ArgumentError, ShapeError
from tenon.nn.module import Module
from tenon.ops.define import lift
from tenon.ops.unpooling import fractional_windows
from tenon.ops.windows import per_axis
from tenon.random import beside, rand

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


def _pooled(x: Any, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool, samples: Any,
            count: int) -> Any:
    name = f"fractional_max_pool{count}d"
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"{name}: one of output_size and output_ratio is needed")
    if x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"{name}: [C, *sizes] or [N, C, *sizes] of {count} sizes was expected, not {lift(x).type}")
    if output_size is None:
        ratios = (output_ratio,) * count if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
        if not all(0 < ratio < 1 for ratio in ratios):
            raise ArgumentError(f"{name}: output_ratio must lie between 0 and 1, got {output_ratio}")
        output_size = tuple(int(n * ratio) for n, ratio in zip(x.shape[-count:], ratios, strict=True))
    batch = x if x.ndim == count + 2 else x[None]
    if samples is None:
        samples = rand(*batch.shape[:2], count, dtype=x.dtype, device=beside(x))
    samples = samples if count > 2 else samples.flip(-1)        # whose first one of two is that of the last axis
    found = fractional_windows(batch, samples, per_axis(kernel_size, count, "kernel"),
                               per_axis(output_size, count, "output_size"))
    found = found if x.ndim == count + 2 else tuple(each[0] for each in found)
    return found if return_indices else found[0]


def fractional_max_pool2d(x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
                          return_indices: bool = False, _random_samples: Any = None) -> Any:
    """Maxima of windows of x [N, C, H, W] whose places are drawn, `output_size` of them or a part of the sizes.

    >>> nn.functional.fractional_max_pool2d(tn.ones(1, 2, 7, 7), 2, output_ratio=0.5).shape
    (1, 2, 3, 3)
    """
    return _pooled(x, kernel_size, output_size, output_ratio, return_indices, _random_samples, 2)


def fractional_max_pool3d(x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
                          return_indices: bool = False, _random_samples: Any = None) -> Any:
    """The same of x [N, C, D, H, W]."""
    return _pooled(x, kernel_size, output_size, output_ratio, return_indices, _random_samples, 3)


class _FractionalMaxPool(Module):
    """The maxima of windows whose places are drawn at every call."""

    count: ClassVar[int]

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
                 return_indices: bool = False, _random_samples: Any = None):
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"{type(self).__name__}: one of output_size and output_ratio is needed")

    def forward(self, x: Any) -> Any:
        return _pooled(x, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
                       self._random_samples, self.count)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows of x [N, C, H, W] whose places are drawn at every call."""

    count = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima of windows of x [N, C, D, H, W] whose places are drawn at every call."""

    count = 3

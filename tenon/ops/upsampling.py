"""Images made larger or smaller: interpolate, pixel_shuffle and its inverse."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.define import aliases, layer_function
from tenon.ops.indexing import take
from tenon.ops.pooling import adaptive_avg_pool
from tenon.ops.shape import permute, reshape_op

AXES = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,),
        "bicubic": (2,), "area": (1, 2, 3)}


@layer_function
def interpolate(x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False,
                recompute_scale_factor: bool = False, antialias: bool = False) -> Any:
    """x [N, C, *sizes] resampled to other sizes: "nearest", "linear", "bilinear", "trilinear", "bicubic" or "area".

    Give `size`, or `scale_factor`, each one number or one an axis.  With `antialias`, "bilinear" and "bicubic" weigh
    all elements that a smaller one stands for.

    >>> tn.interpolate(tn.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    count = x.ndim - 2
    if mode not in AXES:
        raise ArgumentError(f"interpolate: no mode {mode!r}", hint=f"one of {', '.join(AXES)}")
    if count not in AXES[mode]:
        raise ShapeError(f"interpolate: mode {mode!r} takes x with {AXES[mode]} axes of sizes, it is {x.type}")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: give either size or scale_factor")
    if antialias and mode not in _SMOOTH:
        raise ArgumentError(f"interpolate: no antialias for mode {mode!r}", hint=f"one of {', '.join(_SMOOTH)}")
    given = scale_factor if size is None else size
    listed = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
    old = tuple(map(int, x.shape[2:]))
    new = tuple(listed) if size is not None else tuple(math.floor(n * s) for n, s in zip(old, listed))
    if mode == "area":
        return adaptive_avg_pool(x, new)
    taps: Callable[..., Taps] = _SMOOTH[mode] if antialias else _TAPS.get(mode, _linear)
    for axis in reversed(range(2, x.ndim)):         # whole rows are weighed once that what lies in them is
        n, m = old[axis - 2], new[axis - 2]
        scale = n / m if size is not None or recompute_scale_factor else 1 / listed[axis - 2]
        if align_corners and taps is not _nearest:
            scale = (n - 1) / (m - 1) if m > 1 else 0.0
        if n != m or taps is _cubic:
            at, weight = taps(n, np.arange(m), scale, align_corners)
            x = _resampled(x, axis, np.clip(at, 0, n - 1).astype(np.int64), weight.astype(x.dtype.numpy))
    return x


def _resampled(x: Any, axis: int, at: Any, weight: Any) -> Any:
    """Along an axis, element j of the result is the sum over t of x[at[j, t]] * weight[j, t]."""
    shape = (len(at), *[1] * (x.ndim - axis - 1))
    parts = (take(x, at[:, t].copy(), axis=axis) * weight[:, t].copy().reshape(shape) for t in range(at.shape[1]))
    return reduce(add, parts)


aliases(upsample=interpolate)

# For each place of the result: the elements it is made of, and their weights.
Taps = tuple[np.ndarray, np.ndarray]


def _nearest(n: int, j: np.ndarray, scale: float, align: bool) -> Taps:
    return np.floor(j * scale)[:, None], np.ones((len(j), 1))


def _nearest_exact(n: int, j: np.ndarray, scale: float, align: bool) -> Taps:
    return np.floor((j + 0.5) * scale)[:, None], np.ones((len(j), 1))


def _linear(n: int, j: np.ndarray, scale: float, align: bool) -> Taps:
    place = j * scale if align else np.maximum((j + 0.5) * scale - 0.5, 0)
    low = np.floor(place)
    return np.stack([low, low + 1], 1), np.stack([1 - (place - low), place - low], 1)


def _cubic(n: int, j: np.ndarray, scale: float, align: bool) -> Taps:
    place = j * scale if align else (j + 0.5) * scale - 0.5
    low = np.floor(place)
    at = low[:, None] + np.arange(-1, 3)
    return at, cubic_weights(np.abs(place[:, None] - at), -0.75)


def cubic_weights(far: np.ndarray, a: float) -> np.ndarray:
    """The weight of an element so far away (Keys 1981)."""
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    rest = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    return np.where(far <= 1, near, np.where(far < 2, rest, 0))


def _smooth(reach: int, weigh: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Taps]:
    """All elements within a reach that grows with the scale, by weights whose sum is 1."""
    def taps(n: int, j: np.ndarray, scale: float, align: bool) -> Taps:
        stretch = max(scale, 1.0)
        centre = (j + 0.5) * scale
        first = np.maximum(np.trunc(centre - reach * stretch + 0.5), 0)
        past = np.minimum(np.trunc(centre + reach * stretch + 0.5), n)
        at = first[:, None] + np.arange(int((past - first).max()))
        weight = np.where(at < past[:, None], weigh(np.abs(at + 0.5 - centre[:, None]) / stretch), 0)
        return at, weight / weight.sum(1, keepdims=True)
    return taps


_TAPS: dict[str, Callable[..., Taps]] = {"nearest": _nearest, "nearest-exact": _nearest_exact, "bicubic": _cubic}
_SMOOTH: dict[str, Callable[..., Taps]] = {"bilinear": _smooth(1, lambda far: np.maximum(1 - far, 0)),
                                           "bicubic": _smooth(2, lambda far: cubic_weights(far, -0.5))}


@layer_function
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    """[..., C * r * r, H, W] as [..., C, H * r, W * r]."""
    r, (channels, height, width) = upscale_factor, x.shape[-3:]
    if channels % (r * r) != 0:
        raise ShapeError(f"pixel_shuffle: the {channels} channels of {x.type} do not divide by {r} * {r}")
    split = reshape_op(x, shape=(product(x.shape[:-3]), channels // (r * r), r, r, height, width))
    mixed = permute(split, axes=(0, 1, 4, 2, 5, 3))
    return reshape_op(mixed, shape=(*x.shape[:-3], channels // (r * r), height * r, width * r))


@layer_function
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    """[..., C, H * r, W * r] as [..., C * r * r, H, W]."""
    r, (channels, height, width) = downscale_factor, x.shape[-3:]
    if height % r != 0 or width % r != 0:
        raise ShapeError(f"pixel_unshuffle: the sizes of {x.type} do not divide by {r}")
    split = reshape_op(x, shape=(product(x.shape[:-3]), channels, height // r, r, width // r, r))
    mixed = permute(split, axes=(0, 1, 3, 5, 2, 4))
    return reshape_op(mixed, shape=(*x.shape[:-3], channels * r * r, height // r, width // r))


@layer_function
def channel_shuffle(x: Any, groups: int) -> Any:
    """The channels of x [N, C, ...] dealt out to groups: channel g * n + k becomes channel k * groups + g."""
    if x.shape[1] % groups != 0:
        raise ShapeError(f"channel_shuffle: the {x.shape[1]} channels of {x.type} do not divide into {groups} groups")
    rest = product(x.shape[2:])
    split = reshape_op(x, shape=(x.shape[0], groups, x.shape[1] // groups, rest))
    return reshape_op(permute(split, axes=(0, 2, 1, 3)), shape=x.shape)

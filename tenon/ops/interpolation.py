"""Images (or signals, or volumes) at another size: nearest, linear, cubic and area, one axis after the other.

Along an axis, element j of the result is a weighted sum of the input's elements at[j, t]; both tables are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.ops.define import alias, function
from tenon.ops.indexing import take
from tenon.ops.pooling import adaptive_avg_pool, resample, spatial_sizes
from tenon.ops.windows import per_axis

Tables = tuple[Any, Any]        # at [count, taps], weight [count, taps]
CUBIC = -0.75                   # the free coefficient of the cubic kernel, as in PyTorch and OpenCV
LINEAR = ("linear", "bilinear", "trilinear")


@function
def interpolate(x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool = False) -> Any:
    """x [N, C, *sizes] at another size, or scaled by a factor, one number or one an axis.

    Modes: nearest, nearest-exact, linear (bilinear,
                                           trilinear), bicubic, area.  With `align_corners` the corner elements
    keep their places; otherwise the outer edges do.

    >>> tn.interpolate(tn.tensor([[[1.0, 3.0]]]), 4, mode="linear")
    tensor([[[1. , 1.5, 2.5, 3. ]]])
    """
    sizes = spatial_sizes("interpolate", x, None)
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: either size or scale_factor must be given")
    if size is not None:
        wanted = per_axis(size, len(sizes), "size")
        scales = [n / w for n, w in zip(map(int, sizes), wanted, strict=True)]
    else:
        factors = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * len(sizes)
        wanted = tuple(int(n * f) for n, f in zip(map(int, sizes), factors, strict=True))
        scales = [1.0 / f for f in factors]
    if mode == "area":
        return adaptive_avg_pool(x, wanted)
    if mode not in MODES:
        raise ArgumentError(f"interpolate: mode={mode!r} is unknown", hint="one of " + ", ".join([*MODES, "area"]))
    for axis, (old, new, scale) in enumerate(zip(map(int, sizes), wanted, scales, strict=True), 2):
        if old != new or scale != 1:
            at, weight = MODES[mode](old, new, scale, align_corners)
            x = take(x, at[:, 0], axis=axis) if weight is None else resample(x, axis, at, weight.astype(x.dtype.numpy))
    return x


alias("upsample", interpolate)


def _nearest(shift: float) -> Callable[..., Tables]:
    def tables(old: int, new: int, scale: float, align_corners: bool) -> Tables:
        at = np.floor((np.arange(new, dtype=np.float32) + np.float32(shift)) * np.float32(scale)).astype(np.int64)
        return np.minimum(at, old - 1)[:, None], None
    return tables


def _places(old: int, new: int, scale: float, align_corners: bool) -> Any:
    """Where the elements of the result lie among those of the input."""
    if align_corners:
        return np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (np.arange(new) + 0.5) * scale - 0.5


def _linear(old: int, new: int, scale: float, align_corners: bool) -> Tables:
    place = np.clip(_places(old, new, scale, align_corners), 0, old - 1)
    low = np.minimum(place.astype(np.int64), max(old - 2, 0))
    share = place - low
    return np.minimum(low[:, None] + np.arange(2), old - 1), np.stack([1 - share, share], 1)


def _cubic(old: int, new: int, scale: float, align_corners: bool) -> Tables:
    place = _places(old, new, scale, align_corners)
    low = np.floor(place).astype(np.int64)
    distance = np.abs((place - low)[:, None] - np.arange(-1, 3))
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance ** 2 + 1
    far = ((distance - 5) * distance + 8) * distance * CUBIC - 4 * CUBIC
    return np.clip(low[:, None] + np.arange(-1, 3), 0, old - 1), np.where(distance <= 1, near, far)


MODES: dict[str, Callable[..., Tables]] = {
    "nearest": _nearest(0.0), "nearest-exact": _nearest(0.5), **dict.fromkeys(LINEAR, _linear), "bicubic": _cubic}

"""Images read at places between their elements: grid_sample, and affine_grid, which says such places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as choices
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.ops.comparison import equal, where
from tenon.ops.define import function, layer_function, lift
from tenon.ops.indexing import take_along_axis
from tenon.ops.matrix_products import matmul, mT
from tenon.ops.shape import broadcast_to, cast, reshape_op
from tenon.types import int64

MODES = "bilinear", "nearest", "bicubic"
PADDINGS = "zeros", "border", "reflection"


@function
def affine_grid(theta: Any, size: Sequence[int], align_corners: bool = False) -> Any:
    """The places [N, H, W, 2] that affine maps [N, 2, 3] send the pixels of images of `size` (N, C, H, W) to.

    Images reach from -1 to 1, x comes before y; volumes have maps [N, 3, 4] and a third coordinate.
    `align_corners=True` means the middles of the outermost pixels by -1 and 1, otherwise their edges.

    >>> tn.affine_grid(tn.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    tensor([[[[-0.5,  0. ],
              [ 0.5,  0. ]]]])
    """
    sizes = tuple(int(n) for n in size[2:])
    if tuple(theta.shape) != (size[0], len(sizes), len(sizes) + 1):
        raise ShapeError(f"affine_grid: maps {theta.type} do not fit images of size {list(size)}",
                         hint=f"they are [{size[0]}, {len(sizes)}, {len(sizes) + 1}]")
    lines = [np.linspace(-1, 1, n) * (1 if align_corners else (n - 1) / n) if n > 1 else np.zeros(n) for n in sizes]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sizes)], axis=-1)
    flat = lift(places.reshape(1, -1, len(sizes) + 1).astype(theta.dtype.numpy))
    flat = broadcast_to(flat, shape=(size[0], *flat.shape[1:]))
    return reshape_op(matmul(flat, mT(theta)), shape=(size[0], *sizes, len(sizes)))


@layer_function
def grid_sample(x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool = False) -> Any:
    """Images x [N, C, H, W] read at the places of `grid` [N, ..., 2]: x before y, from -1 to 1; volumes likewise.

    Between elements they are interpolated ("bilinear", "bicubic"), or the nearest is taken.  Beyond the edge there are
    zeros, the outermost elements ("border"), or the image again, mirrored ("reflection").

    >>> tn.grid_sample(tn.tensor([[[[1.0, 3.0]]]]), tn.tensor([[[[0.0, 0.0]]]]))
    tensor([[[[2.]]]])
    """
    count = x.ndim - 2
    if mode not in MODES or padding_mode not in PADDINGS:
        raise ArgumentError(f"grid_sample: no mode {mode!r} with padding_mode {padding_mode!r}",
                            hint=f"modes are {', '.join(MODES)}; paddings are {', '.join(PADDINGS)}")
    if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != count or count < 1:
        raise ShapeError(f"grid_sample: {x.type} cannot be read at places {grid.type}",
                         hint="x is [N, C, H, W], the grid [N, ..., 2]")
    ways = [_taps(grid[..., count - 1 - axis], n, mode, padding_mode, align_corners)
            for axis, n in enumerate(x.shape[2:])]
    return _weighted(x, ways)


def _weighted(x: Any, ways: Sequence[Sequence[tuple[Any, Any, Any]]]) -> Any:
    """The sum of the elements at all choices of a tap along each axis, each by the product of its weights.

    What lies outside is left out, whatever it would be multiplied by: zero times infinity is not zero.
    """
    batch, channels, *sizes = x.shape
    flat, total = reshape_op(x, shape=(batch, channels, product(sizes))), 0
    for taps in choices(*ways):
        at, weight, inside = taps[0]
        for n, (index, factor, within) in zip(sizes[1:], taps[1:], strict=True):
            at, weight, inside = at * n + index, weight * factor, inside & within
        read = take_along_axis(flat, reshape_op(at, shape=(batch, 1, product(at.shape[1:]))), axis=2)
        read = reshape_op(read, shape=(batch, channels, *at.shape[1:]))
        total = total + where(inside[:, None], read, 0) * weight[:, None]
    return total


def _taps(place: Any, n: int, mode: str, padding: str, align: bool) -> list[tuple[Any, Any, Any]]:
    """The indices around places along an axis of n elements, their weights, and whether there is an element."""
    place = (place + 1) * ((n - 1) / 2) if align else ((place + 1) * n - 1) / 2
    if mode == "bicubic":       # each tap is sent back by itself
        low = place.floor()
        return [_tap(_sent_back(low + k, n, padding, align), n, _keys((place - low - k).abs(), k in (0, 1)))
                for k in (-1, 0, 1, 2)]
    place = _sent_back(place, n, padding, align)
    if mode == "nearest":
        return [_tap(place.round(), n, place * 0 + 1)]
    low = place.floor()
    return [_tap(low, n, 1 - (place - low)), _tap(low + 1, n, place - low)]


def _keys(far: Any, is_near: bool) -> Any:
    """The weight of an element so far away (Keys 1981, a = -0.75)."""
    if is_near:
        return (1.25 * far - 2.25) * far * far + 1
    return ((-0.75 * far + 3.75) * far - 6) * far + 3


def _sent_back(place: Any, n: int, padding: str, align: bool) -> Any:
    """Places beyond the edge, as the padding says."""
    if padding == "reflection":
        place = _mirrored(place, 0, n - 1) if align else _mirrored(place, -0.5, n - 0.5)
    return place if padding == "zeros" else place.clip(0, n - 1)


def _tap(at: Any, n: int, weight: Any) -> tuple[Any, Any, Any]:
    inside = (at >= 0) & (at <= n - 1)
    return cast(where(inside, at, 0), dtype=int64), where(inside, weight, literal(0, weight.dtype)), inside


def _mirrored(place: Any, low: float, high: float) -> Any:
    """Places beyond `low` and `high` sent back between them, as often as it takes."""
    width = high - low
    if width == 0:
        return place * 0
    away = (place - low).abs()
    turns = (away / width).floor()
    rest = away - turns * width
    return where(equal(turns % 2, 0), rest + low, high - rest)

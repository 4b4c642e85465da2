"""Layers that only move elements: Flatten, Unflatten, PixelShuffle, PixelUnshuffle, Upsample, paddings."""

from __future__ import annotations

from typing import Any

from tenon.dims.symbolic_dim import product
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.nn.padding import pad
from tenon.ops.joining_and_axes import reshape
from tenon.ops.upsampling import channel_shuffle, interpolate, pixel_shuffle, pixel_unshuffle
from tenon.ops.windows import fold, unfold
from tenon.types import normalize_axis

PADDINGS = {"ZeroPad": "constant", "ConstantPad": "constant", "ReflectionPad": "reflect", "ReplicationPad": "replicate",
            "CircularPad": "circular"}
__all__ = ["ChannelShuffle", "Flatten", "Fold", "PixelShuffle", "PixelUnshuffle", "Unflatten", "Unfold", "Upsample",
           "UpsamplingBilinear2d", "UpsamplingNearest2d",
           *(f"{name}{count}d" for name in PADDINGS for count in (1, 2, 3))]


class Flatten(Module):
    """The axes from start_dim to end_dim as one.

    >>> nn.Flatten()(tn.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        start, end = (normalize_axis(axis, x.ndim) for axis in (self.start_dim, self.end_dim))
        if start > end:
            raise ArgumentError(f"Flatten: start_dim {self.start_dim} comes after end_dim {self.end_dim}")
        return reshape(x, (*x.shape[:start], product(x.shape[start:end + 1]), *x.shape[end + 1:]))

    def extra_repr(self) -> str:
        return "" if (self.start_dim, self.end_dim) == (1, -1) else f"{self.start_dim}, {self.end_dim}"


class Unflatten(Module):
    """One axis as several of these sizes, one of which may be -1."""

    def __init__(self, dim: int, unflattened_size: Any):
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Any) -> Any:
        axis, sizes = normalize_axis(self.dim, x.ndim), self.unflattened_size
        if -1 in sizes:
            known = -product(sizes)
            sizes = tuple(x.shape[axis] // known if size == -1 else size for size in sizes)
        return reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1:]))

    def extra_repr(self) -> str:
        return f"{self.dim}, {self.unflattened_size}"


class PixelShuffle(Module):
    """[..., C * r * r, H, W] as [..., C, H * r, W * r]."""

    def __init__(self, upscale_factor: int):
        self.upscale_factor = upscale_factor

    def forward(self, x: Any) -> Any:
        return pixel_shuffle(x, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"{self.upscale_factor}"


class PixelUnshuffle(Module):
    """[..., C, H * r, W * r] as [..., C * r * r, H, W]."""

    def __init__(self, downscale_factor: int):
        self.downscale_factor = downscale_factor

    def forward(self, x: Any) -> Any:
        return pixel_unshuffle(x, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"{self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels dealt out to groups."""

    def __init__(self, groups: int):
        self.groups = groups

    def forward(self, x: Any) -> Any:
        return channel_shuffle(x, self.groups)

    def extra_repr(self) -> str:
        return f"{self.groups}"


class Upsample(Module):
    """x [N, C, *sizes] resampled to other sizes; see `tn.interpolate` for the modes."""

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None, recompute_scale_factor: bool | None = None):
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, bool(align_corners)
        self.recompute_scale_factor = bool(recompute_scale_factor)

    def forward(self, x: Any) -> Any:
        return interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        return f"{self.size if self.scale_factor is None else f'scale_factor={self.scale_factor}'}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images resampled to another size, each element that of the nearest one."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Images resampled to another size bilinearly; corners lie on corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "bilinear", True)


class _Pad(Module):
    """More elements around the last `count` axes: a size, or (before, after) pairs, the last axis first."""

    count = 0
    mode = "constant"
    value = 0.0

    def __init__(self, padding: Any):
        listed = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * (2 * self.count)
        if len(listed) != 2 * self.count:
            raise ArgumentError(f"{type(self).__name__}: padding must be one size or {2 * self.count}, not {padding!r}")
        self.padding = listed

    def forward(self, x: Any) -> Any:
        return pad(x, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    __doc__ = _Pad.__doc__

    def __init__(self, padding: Any, value: float):
        super().__init__(padding)
        self.value = value


def _paddings(base: type[_Pad], name: str, mode: str) -> None:
    for count in (1, 2, 3):
        globals()[f"{name}{count}d"] = type(f"{name}{count}d", (base,), {
            "count": count, "mode": mode, "__doc__": base.__doc__, "__module__": __name__})


for _name, _mode in PADDINGS.items():
    _paddings(_ConstantPad if _name == "ConstantPad" else _Pad, _name, _mode)


class Unfold(Module):
    """The windows of x [N, C, H, W] as columns [N, C * taps, windows]: im2col."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Any) -> Any:
        return unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """The sum of columns [N, C * taps, windows] where their windows overlap in [N, C, *output_size]: col2im."""

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Any) -> Any:
        return fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

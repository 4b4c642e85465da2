"""Layers that only move elements: Flatten, Unflatten, PixelShuffle, PixelUnshuffle, Upsample, paddings."""

from __future__ import annotations

from typing import Any

from tenon.dims import product
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.ops.arranging import reshape
from tenon.types import normalize_axis

__all__ = ["Flatten", "Unflatten"]


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

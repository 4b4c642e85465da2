"""What each device has of a value: a layout for every axis, and the mesh axes over which parts are still to be added.

A layout is a tuple of digits, the most significant first, whose sizes multiply out to the axis; each digit is whole or
split over mesh axes.  One digit is the usual case.  Several come from `reshape`: rows of examples split over "data" and
times split over "sequence" are the digits of one axis when both become one.

    ()                                   the axis is whole
    ((8, ("data",)),)                    8 places, split over "data"
    ((4, ("data",)), (6, ("model",)))    24 places: the part of 4 and the part of 6 that a device has, crossed
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tenon.graph.ir import Value
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Axes, Sharding, part_bounds
from tenon.types import TensorType

Digit = tuple[int, Axes]
Layout = tuple[Digit, ...]
WHOLE: Layout = ()


@dataclass(frozen=True)
class ValueSharding:
    """The layout of every axis of a value, and the mesh axes over which it is a sum of parts (or a maximum ...)."""

    layouts: tuple[Layout, ...]
    partial: Axes = ()
    combine: str = "add"
    held: tuple[ValueSharding, ...] | None = None       # of a stack: that of what is pushed; None while it is empty

    @property
    def split_axes(self) -> Axes:
        """The mesh axes that split some axis."""
        return tuple(name for layout in self.layouts for name in axes_of(layout))

    @property
    def is_replicated(self) -> bool:
        """Whether every device has the whole value."""
        return not self.partial and not any(self.layouts)

    def __str__(self) -> str:
        axes = ", ".join("*".join("+".join(axes) or str(n) for n, axes in layout) or "None" for layout in self.layouts)
        partial = f" to {self.combine} over {'+'.join(self.partial)}" if self.partial else ""
        return f"({axes}){partial}"


def numbers_of(x: Value | TensorType) -> tuple[int, ...]:
    """The shape of a value of a graph without symbols."""
    shape: Any = x.shape
    return shape  # type: ignore[no-any-return]


def replicated(ndim: int) -> ValueSharding:
    """The sharding of a value that every device has whole."""
    return ValueSharding((WHOLE,) * ndim)


def axes_of(layout: Layout) -> Axes:
    """The mesh axes that split a layout's axis."""
    return tuple(name for _, axes in layout for name in axes)


def layouts_of(sharding: Sharding, shape: Sequence[int]) -> tuple[Layout, ...]:
    """The layouts that a sharding means for a tensor of this shape."""
    return tuple(normal(((size, axes),), sharding.mesh)
                 for size, axes in zip(shape, sharding.axes(len(shape)), strict=True))


def normal(digits: Iterable[Digit], mesh: Mesh) -> Layout:
    """The one form of a layout: no digit of 1, whole neighbours as one, even parts with what follows them."""
    found: list[Digit] = []
    for size, axes in digits:
        axes = tuple(name for name in axes if mesh.axis_size(name) > 1)
        if size == 1 and not axes:
            continue
        if found and not axes and (not found[-1][1] or found[-1][0] % mesh.parts(found[-1][1]) == 0):
            found[-1] = found[-1][0] * size, found[-1][1]
        else:
            found.append((size, axes))
    return () if not any(axes for _, axes in found) else tuple(found)


def size_of(layout: Layout) -> int:
    """How many places an axis of this layout has; of one that is whole it is not known."""
    return math.prod(size for size, _ in layout)


def local_digit(digit: Digit, mesh: Mesh, rank: int) -> tuple[int, int]:
    """Where a rank's part of a digit begins and ends."""
    size, axes = digit
    return part_bounds(size, mesh.parts(axes), mesh.place(rank, axes))


def local_size(layout: Layout, size: int, mesh: Mesh, rank: int) -> int:
    """How many places of an axis of this size a rank has."""
    if not layout:
        return size
    return math.prod(stop - start for start, stop in (local_digit(digit, mesh, rank) for digit in layout))


def local_shape(sharding: ValueSharding, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[int, ...]:
    """The shape of what a rank has of a value of this shape."""
    return tuple(local_size(layout, size, mesh, rank) for layout, size in zip(sharding.layouts, shape, strict=True))


def as_spec(layouts: Sequence[Layout]) -> tuple[tuple[str, ...] | None, ...] | None:
    """The spec that means these layouts; None where an axis has several digits."""
    if any(len(layout) > 1 for layout in layouts):
        return None
    return tuple(axes_of(layout) or None for layout in layouts)


# ---------------------------------------------------------------- reshape

def reshaped(layouts: Sequence[Layout], shape: Sequence[int], new: Sequence[int],
             mesh: Mesh) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    """(the layouts that an input needs to have, those of the reshaped value): splits that can stay do.

    Elements keep their row-major order, so every digit keeps its stride; one that an axis of the new shape cuts through
    has to be whole.  Of a digit that divides evenly, only the factor that is split counts.
    """
    if 0 in shape or 0 in new:
        return (WHOLE,) * len(shape), (WHOLE,) * len(new)
    needed: list[list[Digit]] = [list(layout) for layout in layouts]
    carried: list[list[tuple[int, int, Axes]]] = [[] for _ in new]      # (stride, size, mesh axes) within an axis
    for k, place, stride in _split_digits(needed, shape):
        size, axes = needed[k][place]
        parts = mesh.parts(axes)
        least = parts if size % parts == 0 else size
        step = stride * (size // least)
        axis = next((j for j, (n, inner) in enumerate(zip(new, _strides(new), strict=True))
                     if step % inner == 0 and (inner * n) % (step * least) == 0), None)
        if axis is None:
            needed[k][place] = size, ()
        else:
            carried[axis].append((step // _strides(new)[axis], least, axes))
    return (tuple(normal(digits, mesh) for digits in needed),
            tuple(normal(_filled(digits, n), mesh) for digits, n in zip(carried, new, strict=True)))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[k + 1:]) for k in range(len(shape))]


def _split_digits(layouts: Sequence[Sequence[Digit]], shape: Sequence[int]) -> list[tuple[int, int, int]]:
    """(axis, place in its layout, stride) of every digit that is split, the most significant first."""
    return [(k, place, stride * math.prod(size for size, _ in digits[place + 1:]))
            for k, (digits, stride) in enumerate(zip(layouts, _strides(shape), strict=True))
            for place, (_, axes) in enumerate(digits) if axes]


def _filled(digits: Sequence[tuple[int, int, Axes]], size: int) -> list[Digit]:
    """The digits of an axis of this size, with whole ones between those that are split."""
    found: list[Digit] = []
    for stride, n, axes in digits:
        found += [(size // (stride * n), ()), (n, axes)]
        size = stride
    return [*found, (size, ())]

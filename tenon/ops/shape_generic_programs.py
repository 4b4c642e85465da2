"""Types and attributes of a call -> those of the one program that runs it for other sizes too, where that is as fast.

    conv(f32[4, 64, 8, 8], f32[96, 64, 1, 1])  ->  conv(f32[N, C, P0, P1], f32[O, C, 1, 1])
    batch_norm_train(f32[4, 64, 8, 8], ...)    ->  batch_norm_train(f32[N, C, 8, 8], ...)

A program takes a tenth of a second to make, and a network has a convolution of other sizes in every layer.  Products of
one tap are as fast where sizes are said by the call.  Longer windows have schedules that need to know them (Winograd's
tiles, sums in registers), which take half of the time: they are worth a program of their own where there is much to do.
Norms, and windows of pooling that are one step apart, are as fast where the call says how many planes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tenon.dims.symbolic_dim import symbol
from tenon.ops.windows import window_counts
from tenon.types import TensorType

Types = Sequence[Any]
Sizes = Sequence[Any]
Attrs = Mapping[str, Any]
SINGLE = 32         # bits of the narrowest numbers that are not multiplied in pairs
MAX_OF_ONE_TAP = 256_000_000    # multiply-adds, up to which a kernel of known sizes gains nothing, or a tenth
MAX_OF_WINDOWS = 16_000_000     # up to which it saves half a millisecond: making it pays after hundreds of calls
MIN_PLANE = 64                  # places, below which a norm that knows its sizes takes half of the time, or less


def convolution_sizes(read: Callable[[Types, Attrs], tuple[Sizes, Sizes]],
                      write: Callable[[Sizes, Sizes, Sizes, Attrs], tuple[tuple[Sizes, Sizes], Attrs]]) -> \
        Callable[[Types, Attrs], tuple[Types, Attrs]]:
    """The rule of an operator that convolves.

    `read` finds the shapes of images and filters in a call; `write` makes the shapes of inputs and the attributes of
    the call from those of images, filters and results.
    """
    def rule(types: Types, attrs: Attrs) -> tuple[Types, Attrs]:
        images, filters = read(types, attrs)
        if not is_shared(types[0], images, filters, attrs):
            return types, attrs
        found = of_all_sizes(images, filters, attrs)
        shapes, known = write(*found, (found[0][0], found[1][0], *_counts(*found, attrs)), attrs)
        return tuple(TensorType(types[0].dtype, tuple(shape)) for shape in shapes), known
    return rule


def is_shared(x: TensorType, images: Sizes, filters: Sizes, attrs: Attrs) -> bool:
    """Whether a convolution runs the program that all sizes share."""
    if attrs["groups"] != 1 or x.dtype.kind != "f" or x.dtype.bits < SINGLE or 0 in (*images, *filters):
        return False
    work = images[0] * prod(_counts(images, filters, attrs)) * prod(filters)
    return bool(work <= (MAX_OF_ONE_TAP if prod(filters[2:]) == 1 else MAX_OF_WINDOWS))


def of_all_sizes(images: Sizes, filters: Sizes, attrs: Attrs) -> tuple[Sizes, Sizes]:
    """Images and filters of a convolution's program for all sizes: what is 1 stays so, and so do taps, and places where
    the step is longer, since the number of windows does not tell that of places."""
    batch, channels, outputs = (symbol(name) if size > 1 else size for name, size in
                                zip("NCO", (*images[:2], filters[0]), strict=True))
    places = [symbol(f"P{k}") if step == 1 and min(size, count) > 1 else size for k, (size, count, step) in
              enumerate(zip(images[2:], _counts(images, filters, attrs), attrs["stride"], strict=True))]
    return (batch, channels, *places), (outputs, channels, *filters[2:])


def _counts(images: Sizes, filters: Sizes, attrs: Attrs) -> Sizes:
    """How many windows there are along each axis."""
    return window_counts("conv", images[2:], filters[2:], attrs["stride"], attrs["padding"], attrs["dilation"])


def norm_sizes(types: Types, attrs: Attrs) -> tuple[Types, Attrs]:
    """The rule of a norm of planes."""
    large = len(types[0].shape) > 2 and prod(types[0].shape[2:]) >= MIN_PLANE
    return ([of_all_planes(x) for x in types], attrs) if large else (types, attrs)


def pool_sizes(types: Types, attrs: Attrs) -> tuple[Types, Attrs]:
    """The rule of windows of pooling."""
    return ([of_all_planes(x) for x in types], attrs) if set(attrs["stride"]) == {1} else (types, attrs)


def of_all_planes(x: TensorType) -> TensorType:
    """The type of images, or of a number for each channel, with as many examples and channels as a call says."""
    images = len(x.shape) > 2
    leading, names = (x.shape[:2], "NC") if images else (x.shape, "C")
    sizes = [symbol(name) if size > 1 else size for name, size in zip(names, leading, strict=True)]
    return TensorType(x.dtype, (*sizes, *x.shape[len(leading):]))

"""Types and attributes of a call -> those of the one program that runs it for other sizes too, where that is as fast.

    conv(f32[4, 64, 8, 8], f32[96, 64, 1, 1])  ->  conv(f32[N, C, P0, P1], f32[O, C, 1, 1])
    batch_norm_train(f32[4, 64, 8, 8], ...)    ->  batch_norm_train(f32[N, C, 8, 8], ...)

A program takes a tenth of a second to make, and a network has a convolution of other sizes in every layer.  Products of
one tap are as fast where sizes are said by the call.  Longer windows have schedules that need to know them (Winograd's
tiles, sums in registers), which take half of the time: they are worth a program of their own where there is much to do.
Norms, and windows of pooling that are one step apart, are as fast where the call says how many planes there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tenon.dims import symbol
from tenon.graph.op import Op
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.normalization import batch_norm_train
from tenon.ops.pooling import max_pool_grad, max_pool_op, max_pool_positions, max_pool_taps
from tenon.ops.windows import window_counts
from tenon.types import TensorType

Types = Sequence[Any]
SINGLE = 32         # bits of the narrowest numbers that are not multiplied in pairs

CONVOLUTIONS = conv, conv_input_grad, conv_weight_grad
MOST_OF_ONE_TAP = 256_000_000   # multiply-adds, up to which a kernel of known sizes gains nothing, or a tenth
MOST_OF_WINDOWS = 16_000_000    # up to which it saves half a millisecond: making it pays after hundreds of calls
LEAST_PLANE = 64                # places, below which a norm that knows its sizes takes half of the time, or less
POOLING = max_pool_op, max_pool_positions, max_pool_taps, max_pool_grad


def of_other_sizes(op: Op, types: Types, attrs: Mapping[str, Any]) -> tuple[Types, Mapping[str, Any]]:
    """What the program of a call is made for.  Types and attributes alone decide: equal calls have equal bits."""
    if op in CONVOLUTIONS and is_shared(op, types, attrs):
        return of_all_sizes(op, types, attrs)
    large = len(types[0].shape) > 2 and prod(types[0].shape[2:]) >= LEAST_PLANE
    if (op is batch_norm_train and large) or (op in POOLING and set(attrs["stride"]) == {1}):
        return [of_all_planes(x) for x in types], attrs
    return types, attrs


def of_all_planes(x: TensorType) -> TensorType:
    """The type of images, or of a number for each channel, with as many examples and channels as a call says."""
    images = len(x.shape) > 2
    leading, names = (x.shape[:2], "NC") if images else (x.shape, "C")
    sizes = [symbol(name) if size > 1 else size for name, size in zip(names, leading, strict=True)]
    return TensorType(x.dtype, (*sizes, *x.shape[len(leading):]))


def is_shared(op: Op, types: Types, attrs: Mapping[str, Any]) -> bool:
    """Whether a convolution runs the program that all sizes share."""
    images, filters = _images(op, types, attrs), _filters(op, types, attrs)
    dtype = types[0].dtype
    if attrs["groups"] != 1 or dtype.kind != "f" or dtype.bits < SINGLE or 0 in (*images, *filters):
        return False
    counts = _counts(images, filters, attrs)
    work = images[0] * prod(counts) * prod(filters)
    return bool(work <= (MOST_OF_ONE_TAP if prod(filters[2:]) == 1 else MOST_OF_WINDOWS))


def of_all_sizes(op: Op, types: Types, attrs: Mapping[str, Any]) -> tuple[tuple[TensorType, ...], dict[str, Any]]:
    """The types and attributes of a convolution's program for all sizes: what is 1 stays so, and so do taps, and places
    where the step is longer, since the number of windows does not tell that of places."""
    images, filters = _images(op, types, attrs), _filters(op, types, attrs)
    batch, channels, outputs = (symbol(name) if size > 1 else size for name, size in
                                zip("NCO", (*images[:2], filters[0]), strict=True))
    places = tuple(symbol(f"P{k}") if step == 1 and min(size, count) > 1 else size for k, (size, count, step) in
                   enumerate(zip(images[2:], _counts(images, filters, attrs), attrs["stride"], strict=True)))
    x, w = (batch, channels, *places), (outputs, channels, *filters[2:])
    out = (batch, outputs, *_counts(x, w, attrs))
    shapes = {conv: (x, w), conv_input_grad: (out, w), conv_weight_grad: (x, out)}[op]
    known = {**attrs, "sizes": places} if op is conv_input_grad else dict(attrs)
    return tuple(TensorType(types[0].dtype, shape) for shape in shapes), known


def _images(op: Op, types: Types, attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shape of what is convolved."""
    if op is conv_input_grad:
        return (types[0].shape[0], types[1].shape[1] * attrs["groups"], *attrs["sizes"])
    return tuple(types[0].shape)


def _filters(op: Op, types: Types, attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shape of the kernel."""
    if op is conv_weight_grad:
        return (types[1].shape[1], types[0].shape[1] // attrs["groups"], *attrs["kernel"])
    return tuple(types[1].shape)


def _counts(images: Sequence[Any], filters: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """How many windows there are along each axis."""
    return window_counts("conv", images[2:], filters[2:], attrs["stride"], attrs["padding"], attrs["dilation"])

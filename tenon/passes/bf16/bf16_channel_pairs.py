"""Convolutions of bfloat16 whose pairs are two channels, or places of an image, as they lie.

    conv(x, w)                ->  first(conv_channels_last(around(last(x)), last(w)))
                              or  first(conv_channels_last(places_first(x), last(w))), of small images, for vectors
    conv_input_grad(g, w)     ->  the same of g and the turned kernel
    conv_weight_grad(x, g)    ->  conv_weight_grad(around(x), g)
    conv(x, w) of one tap     ->  w @ x, where vectors multiply pairs

Images are stored with zeros around them and, unless it is their places that are summed over, with their channels last.
Of small ones many taps meet nothing but these zeros: vectors leave them out where all images stand inside of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tenon.graph.ir import Node, Value
from tenon.loops.select_conv_schedule import MAX_TAPS
from tenon.ops.barrier import stored
from tenon.ops.channels_last import conv_channels_last, first, last
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.matrix_products import matmul
from tenon.ops.repeating import flip
from tenon.ops.shape import permute, reshape_op
from tenon.ops.slice_pad_concat import pad_op
from tenon.types import bfloat16

CHUNK_ELEMENTS = 32     # elements along depth that are multiplied at a time
MIN_EXTENT = 8          # rows and columns of such a product
MIN_DEPTH = 64          # channels that a tap is worth a sum of its own for
MIN_LEFT_OUT = 1 / 16 # of the products, which is worth that sums wait between taps
TURNING = 32            # products of an element of a kernel in the time that it takes to turn it once more
Pads = Sequence[tuple[int, int]]


def has_pairs(node: Node) -> bool:
    """Whether sizes are known and even, and the product is large enough."""
    if node.output.dtype is not bfloat16 or node.attrs["groups"] != 1:
        return False
    x, y = (z.shape for z in node.inputs if isinstance(z, Value))
    if not all(isinstance(n, int) and n > 0 for n in (*x, *y, *node.output.shape)):
        return False
    steps = all(n == 1 for n in node.attrs["stride"])
    match node.op.name:
        case "conv":
            depth, last_axis, others = prod(y[1:]), y[1], (prod((x[0], *node.output.shape[2:])), y[0])
        case "conv_input_grad":
            depth, last_axis, others = y[0] * prod(y[2:]), y[0], (prod((x[0], *node.output.shape[2:])), y[1])
        case _:
            depth, last_axis, others = y[0] * prod(y[2:]), y[-1], (y[1], prod(node.output.shape[1:]))
    return depth % CHUNK_ELEMENTS == 0 and last_axis % 2 == 0 and min(others) >= MIN_EXTENT and (
        steps or node.op is conv)


def in_pairs(node: Node, x: Any, y: Any, vectors: bool = False) -> Any:
    """The product of pairs as they lie; None where there are none, or a gradient would cut elements off.

    `vectors` may leave out what taps have beyond the edges of images.
    """
    if not has_pairs(node):
        return None
    padding, none = padding_of(node), ((0, 0),) * len(node.attrs["padding"])
    if any(n < 0 for pads in padding for n in pads):
        return None
    if node.op is conv_weight_grad:
        wide = stored(around(x, padding, leading=2))
        return conv_weight_grad(wide, stored(y), **{**node.attrs, "padding": none})
    w = _turned(y) if node.op is conv else flip(_turned(y.swapaxes(0, 1)), axis=tuple(range(2, y.ndim)))
    steps = {"stride": node.attrs["stride"], "dilation": node.attrs["dilation"]}
    if vectors and meets_many_zeros(node):
        return first(conv_channels_last(_places_first(x), w, padding=padding, **steps))
    image = stored(around(last(x), padding, leading=1))
    return first(conv_channels_last(image, w, padding=none, **steps))


def _turned(w: Any) -> Any:
    """A kernel that is stored with its channels last."""
    return first(stored(last(w)))


def _places_first(x: Any) -> Any:
    """An image with its channels last that is stored as [*sizes, N, C]."""
    count = x.ndim - 2
    kept = stored(permute(x, axes=(*range(2, x.ndim), 0, 1)))
    return permute(kept, axes=(count, *range(count), count + 1))


# ---------------------------------------------------------------- zeros around images

def padding_of(node: Node) -> Pads:
    """The zeros around an image; an input's gradient is the convolution of another one with the turned kernel."""
    attrs = node.attrs
    padding: Pads = attrs["padding"]
    if node.op is not conv_input_grad:
        return padding
    x, w = (z.shape for z in node.inputs if isinstance(z, Value))
    reach = [d * (k - 1) for d, k in zip(attrs["dilation"], w[2:], strict=True)]
    low = [r - p for r, (p, _) in zip(reach, padding, strict=True)]
    high = [n - m - a + r for n, m, a, r in zip(attrs["sizes"], x[2:], low, reach, strict=True)]
    return tuple(zip(low, high, strict=True))


def met(node: Node) -> float:
    """Which part of the products of a convolution of known sizes, or of its input's gradient, is not with zeros around
    the image."""
    x, w = (z.shape for z in node.inputs if isinstance(z, Value))
    found = 1.0
    for size, taps, count, step, apart, (low, _) in zip(x[2:], w[2:], node.output.shape[2:], node.attrs["stride"],
                                                        node.attrs["dilation"], padding_of(node), strict=True):
        places = [step * p + apart * k - low for p in range(count) for k in range(taps)]
        found *= sum(0 <= place < size for place in places) / len(places)
    return found


def meets_many_zeros(node: Node) -> bool:
    """Whether leaving out products with zeros saves more than it takes to turn the kernel for tap after tap.

    Along every axis zeros come first, so that taps are not one with channels, and windows are no longer than lines of
    places, which would be put together.
    """
    x, w = (z.shape for z in node.inputs if isinstance(z, Value))
    taps, places, depth = w[2:], node.output.shape[2:], w[1] if node.op is conv else w[0]
    if len(taps) < 2 or prod(taps) > MAX_TAPS or depth < MIN_DEPTH:
        return False
    if any(n < max(k, 2) or (low <= 0 and k > 1)
           for n, k, (low, _) in zip(places, taps, padding_of(node), strict=True)):
        return False
    left_out, rows = 1 - met(node), prod(n for n in (x[0], *places) if isinstance(n, int))
    return left_out >= MIN_LEFT_OUT and rows * left_out > TURNING


def is_product(node: Node) -> bool:
    """Whether it is a matrix by every image, whose places lie side by side: a convolution of one tap without a step."""
    if node.output.dtype is not bfloat16 or node.attrs["groups"] != 1 or node.op is conv_weight_grad:
        return False
    (_, *sizes), w = (z.shape for z in node.inputs if isinstance(z, Value))
    known = all(isinstance(n, int) and n > 0 for n in (*sizes, *w))
    plain = all(n == 1 for n in node.attrs["stride"]) and not any(n for pads in node.attrs["padding"] for n in pads)
    return known and plain and all(n == 1 for n in w[2:]) and min(w[:2]) >= MIN_EXTENT


def as_product(node: Node, x: Any, w: Any) -> Any:
    """The same by `matmul`, which reads pairs of channels where they lie."""
    outputs, channels, *_ = w.shape
    matrix = reshape_op(w, shape=(outputs, channels))
    matrix = matrix if node.op is conv else permute(matrix, axes=(1, 0))
    flat = reshape_op(x, shape=(*x.shape[:2], prod(x.shape[2:])))
    return reshape_op(matmul(matrix, flat), shape=node.output.shape)


def around(x: Any, padding: Pads, leading: int) -> Any:
    """x with zeros before and after the axes that follow the leading ones."""
    if not any(n for pads in padding for n in pads):
        return x
    low, high = zip(*padding, strict=True)
    rest = (0,) * (x.ndim - leading - len(padding))
    return pad_op(x, 0, low=((0,) * leading + low + rest), high=((0,) * leading + high + rest))

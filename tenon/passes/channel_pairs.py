"""Convolutions of bfloat16 whose pairs are two channels, or places of an image, as they lie.

    conv(x, w)                ->  first(conv_channels_last(around(last(x)), last(w)))
    conv_input_grad(g, w)     ->  the same of g and the turned kernel
    conv_weight_grad(x, g)    ->  conv_weight_grad(around(x), g)
    conv(x, w) of one tap     ->  w @ x, where vectors multiply pairs

Images are stored with zeros around them and, unless it is their places that are summed over, with their channels last.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tenon.graph.ir import Node, Value
from tenon.ops.barrier import stored
from tenon.ops.channels_last import conv_channels_last, first, last
from tenon.ops.convolution import conv, conv_weight_grad
from tenon.ops.linalg import matmul
from tenon.ops.pieces import pad_op
from tenon.ops.repeating import flip
from tenon.ops.shape import permute, reshape_op
from tenon.types import bfloat16

CHUNK = 32              # elements along depth that are multiplied at a time
FEWEST = 8              # rows and columns of such a product
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
    return depth % CHUNK == 0 and last_axis % 2 == 0 and min(others) >= FEWEST and (steps or node.op is conv)


def in_pairs(node: Node, x: Any, y: Any) -> Any:
    """The product of pairs as they lie; None where there are none, or a gradient would cut elements off."""
    if not has_pairs(node):
        return None
    attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
    if node.op is conv:
        return _channels_last(x, _turned(y), attrs["padding"], attrs["stride"], attrs["dilation"])
    if node.op is conv_weight_grad:
        if any(n < 0 for pads in attrs["padding"] for n in pads):
            return None
        wide = stored(around(x, attrs["padding"], leading=2))
        return conv_weight_grad(wide, stored(y), groups=1, **{**attrs, "padding": ((0, 0),) * len(attrs["padding"])})
    reach = [d * (k - 1) for d, k in zip(attrs["dilation"], y.shape[2:], strict=True)]
    low = [r - p for r, (p, _) in zip(reach, attrs["padding"], strict=True)]
    high = [n - m - a + r for n, m, a, r in zip(attrs["sizes"], x.shape[2:], low, reach, strict=True)]
    kernel = flip(_turned(y.swapaxes(0, 1)), axis=tuple(range(2, y.ndim)))     # numbers are moved as they lie
    return _channels_last(x, kernel, list(zip(low, high, strict=True)), attrs["stride"], attrs["dilation"])


def _turned(w: Any) -> Any:
    """A kernel that is stored with its channels last."""
    return first(stored(last(w)))


def _channels_last(x: Any, w: Any, padding: Pads, stride: Any, dilation: Any) -> Any:
    """The convolution of an image that is stored with zeros around it and its channels last, as the kernel has them."""
    if any(n < 0 for pads in padding for n in pads):
        return None
    image = stored(around(last(x), padding, leading=1))
    none = ((0, 0),) * len(padding)
    return first(conv_channels_last(image, w, stride=stride, padding=none, dilation=dilation))


def is_product(node: Node) -> bool:
    """Whether it is a matrix by every image, whose places lie side by side: a convolution of one tap without a step."""
    if node.output.dtype is not bfloat16 or node.attrs["groups"] != 1 or node.op is conv_weight_grad:
        return False
    (_, *sizes), w = (z.shape for z in node.inputs if isinstance(z, Value))
    known = all(isinstance(n, int) and n > 0 for n in (*sizes, *w))
    plain = all(n == 1 for n in node.attrs["stride"]) and not any(n for pads in node.attrs["padding"] for n in pads)
    return known and plain and all(n == 1 for n in w[2:]) and min(w[:2]) >= FEWEST


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

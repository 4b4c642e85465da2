"""Convolutions of bfloat16 whose pairs vectors put together: of two taps of a row, or of two lines of channels.

    conv(x, w) of few channels    ->  conv(around(x), around(w)), of an even number of taps in a row
    conv_weight_grad(x, g)        ->  first(conv_weight_grad_last(around(last(x)), last(g))), of even numbers of places

Zeros make rows of taps or places even: what is no number may show in the window beside those that cover it, as in
Winograd's tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tenon.graph.ir import Node, Value
from tenon.ops.barrier import stored
from tenon.ops.channels_last import conv_weight_grad_last, first, last
from tenon.ops.convolution import conv, conv_weight_grad
from tenon.ops.splitting import narrow
from tenon.passes.bf16.bf16_channel_pairs import MIN_EXTENT, Pads, around, has_pairs
from tenon.types import bfloat16


def has_taps(node: Node) -> bool:
    """Whether it is a convolution whose pairs can be taps beside each other, and those of channels are none or cost
    more, as an image has to be turned for them."""
    if node.op is not conv or node.output.dtype is not bfloat16 or node.attrs["groups"] != 1:
        return False
    x, w = (z.shape for z in node.inputs if isinstance(z, Value))
    known = all(isinstance(n, int) and n > 0 for n in (*x, *w, *node.output.shape))
    beside = w[-1] > 1 and node.attrs["dilation"][-1] == 1 and node.attrs["stride"][-1] in (1, 2)
    if not known or not beside or not _pads_less(node, w[-1]):
        return False
    return min(w[0], node.output.shape[-1]) >= MIN_EXTENT and (w[-1] % 2 == 0 or not has_pairs(node))


def by_taps(node: Node, x: Any, w: Any) -> Any:
    """The convolution by an even number of taps in a row, the last of which may be 0, of an image as it lies."""
    odd, none = w.shape[-1] % 2, ((0, 0),) * len(node.attrs["padding"])
    x, padding = _longer(x, node.output.shape[-1], w.shape[-1], odd, node.attrs)
    image, kernel = stored(around(x, padding, leading=2)), stored(around(w, (*none[1:], (0, odd)), leading=2))
    return conv(image, kernel, **{**node.attrs, "padding": none})


def has_lines(node: Node) -> bool:
    """Whether it is a kernel's gradient whose taps and channels are runs of memory, and its pairs do not lie as needed.
    """
    if node.op is not conv_weight_grad or node.output.dtype is not bfloat16 or node.attrs["groups"] != 1:
        return False
    filters, channels, *kernel = node.output.shape
    known = all(isinstance(n, int) and n > 0 for z in node.inputs if isinstance(z, Value) for n in z.shape)
    run = channels * (kernel[-1] if node.attrs["dilation"][-1] == 1 else 1)
    turns = prod(kernel) > 1 or not has_pairs(node)
    return known and turns and min(filters, run) >= MIN_EXTENT and _pads_less(node, kernel[-1])


def by_lines(node: Node, x: Any, g: Any) -> Any:
    """The gradient of a kernel whose pairs are two places: two lines of channels of an image that has them last."""
    attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
    flat, odd = prod(attrs["kernel"]) == 1, g.shape[-1] % 2
    padding, none = attrs["padding"], ((0, 0),) * len(attrs["padding"])
    if odd and not flat:                # one more place, where the gradient is 0
        x, padding = _longer(x, g.shape[-1], attrs["kernel"][-1], attrs["stride"][-1], attrs)
        g = around(g, (*none[1:], (0, 1)), leading=2)
    image, attrs["padding"] = stored(around(last(x), padding, leading=1)), none
    return first(conv_weight_grad_last(image, stored(last(g)) if flat else last(stored(g)), **attrs))


def _pads_less(node: Node, taps: Any) -> bool:
    """Whether padding cuts nothing off, and every window of a row covers something of it."""
    padding = node.attrs["padding"]
    return all(n >= 0 for pads in padding for n in pads) and padding[-1][0] <= (taps - 1) * node.attrs["dilation"][-1]


def _longer(x: Any, places: Any, taps: int, more: int, attrs: Mapping[str, Any]) -> tuple[Any, Pads]:
    """An image without what no window of a row covers, and padding with so many more zeros behind it.

    So what no window covers meets no zero, with which it might make a number that is none.
    """
    *others, (low, _) = attrs["padding"]
    covered = (places - 1) * attrs["stride"][-1] + (taps - 1) * attrs["dilation"][-1] + 1
    kept = min(x.shape[-1], covered - low)
    return narrow(x, x.ndim - 1, 0, kept), (*others, (low, covered + more - low - kept))

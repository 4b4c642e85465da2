"""Graph -> the same graph with convolutions of bfloat16 and float16 as the processor multiplies such numbers.

    conv(x, w)               ->  first(conv_channels_last(around(last(x)), last(w)))
    conv_input_grad(g, w)    ->  the same of g and the turned kernel
    conv_weight_grad(x, g)   ->  conv_weight_grad(around(x), g)
    the same for vectors     ->  first(conv_weight_grad_last(around(last(x)), last(g)))
    conv(x, w) of few channels, for vectors     ->  conv(around(x), around(w)), of an even number of taps in a row
    conv(x, w) of one tap    ->  w @ x, where vectors multiply pairs; of the places of x that its steps meet
    any other                ->  cast(conv(cast(x, f32), cast(w, f32)))

Where the processor multiplies pairs of bfloat16 that are neighbours along the depth of a product, images are stored
with zeros around them and, unless it is their places that are summed over, with their channels last; so pairs are read
as they lie.  What goes to vectors may be joined of two lines, whatever the stride between them, or be two taps of a
row.  Where it does not, or there are no pairs, all numbers are converted once, and not again by every window.  Vectors
of pairs are twice as fast as float32, which is less than Winograd's tiles save of windows of 3 x 3 (9/4): these are
converted too.  Zeros make rows of places or taps even: what is no number may show in the window beside those that cover
it, as in Winograd's tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.barrier import stored
from tenon.ops.channels_last import conv_channels_last, conv_weight_grad_last, first, last
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.cutting import narrow
from tenon.ops.linalg import matmul
from tenon.ops.pieces import pad_op
from tenon.ops.repeating import flip
from tenon.ops.shape import cast, permute, reshape_op
from tenon.passes.nested import inside
from tenon.types import bfloat16, float16, float32

CONVOLUTIONS = (conv, conv_input_grad, conv_weight_grad)
CHUNK = 32              # elements along depth that are multiplied at a time
FEWEST = 8              # rows and columns of such a product
WINOGRAD = 16           # channels and filters from which on tiles save multiplications
Pads = Sequence[tuple[int, int]]


def narrow_convolutions(graph: Graph, pairs: str | None = None) -> Graph:
    """Rewrite every convolution of 16 bits; `pairs` of bfloat16 are multiplied in "registers", as "vectors" or not."""
    graph = inside(graph, partial(narrow_convolutions, pairs=pairs))
    if not any(_is_narrow(node) for node in graph.nodes):
        return graph
    if pairs:
        graph = rebuild(graph, _without_steps)

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        if not _is_narrow(node):
            return copy(node, inputs)
        found = (_in_vectors if pairs == "vectors" else _in_pairs)(node, *inputs) if pairs else None
        return _widened(node, *inputs) if found is None else found
    return rebuild(graph, visit)


def _is_narrow(node: Node) -> bool:
    """Whether it is a convolution of 16 bits that is not rewritten yet."""
    done = all(isinstance(x, Value) and x.node is not None and x.node.op is stored for x in node.inputs)
    return node.op in CONVOLUTIONS and node.output.dtype in (bfloat16, float16) and not done


def _without_steps(node: Node, inputs: tuple[Input, ...]) -> Any:
    """A convolution of one tap meets only some places of an image: it goes over these, stored side by side."""
    if not _is_narrow(node) or node.op is conv_input_grad or node.output.dtype is not bfloat16:
        return copy(node, inputs)
    stride, rank = node.attrs["stride"], len(node.attrs["stride"])
    *_, w = (z.shape for z in node.inputs if isinstance(z, Value))
    kernel = node.attrs["kernel"] if node.op is conv_weight_grad else w[2:]
    if all(n == 1 for n in stride) or any(n != 1 for n in kernel) or node.attrs["padding"] != ((0, 0),) * rank:
        return copy(node, inputs)
    image: Any = inputs[0]
    for axis, step in enumerate(stride, 2):
        image = narrow(image, axis, 0, image.shape[axis], step)
    return node.op(stored(image), inputs[1], **{**node.attrs, "stride": (1,) * rank})


def _widened(node: Node, x: Any, y: Any) -> Any:
    wide = (stored(cast(z, dtype=float32)) for z in (x, y))
    return cast(node.op(*wide, **node.attrs), dtype=node.output.dtype)


def _has_pairs(node: Node) -> bool:
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


def _saves_multiplications(node: Node) -> bool:
    """Whether Winograd's tiles take it in float32, and faster: 16 products each, and as many for 15 tiles to transform
    kernels."""
    x, y = (z.shape for z in node.inputs if isinstance(z, Value))
    kernel, channels = (node.attrs["kernel"], (x[1], y[1])) if node.op is conv_weight_grad else (y[2:], y[:2])
    if any(n != 1 for n in node.attrs["stride"]) or tuple(kernel[-2:]) != (3, 3) or min(channels) < WINOGRAD:
        return False
    images, _, *places = y if node.op is conv_weight_grad else node.output.shape
    known = [n for n in (images, *places) if isinstance(n, int)]
    tiles = prod(known[:-2]) * prod(-(-n // 2) for n in known[-2:])
    return len(known) < len(places) + 1 or 16 * (tiles + 15) < 9 / 2 * prod(known)


def _in_vectors(node: Node, x: Any, y: Any) -> Any:
    """The product of pairs as vectors multiply them; None where float32 is as fast."""
    if _is_product(node):
        return _product(node, x, y)
    if _saves_multiplications(node):
        return None
    if _has_taps(node):
        return _by_taps(node, x, y)
    return _by_lines(node, x, y) if _has_lines(node) else _in_pairs(node, x, y)


def _is_product(node: Node) -> bool:
    """Whether it is a matrix by every image, whose places lie side by side: a convolution of one tap without a step."""
    if node.output.dtype is not bfloat16 or node.attrs["groups"] != 1 or node.op is conv_weight_grad:
        return False
    (_, *sizes), w = (z.shape for z in node.inputs if isinstance(z, Value))
    known = all(isinstance(n, int) and n > 0 for n in (*sizes, *w))
    plain = all(n == 1 for n in node.attrs["stride"]) and not any(n for pads in node.attrs["padding"] for n in pads)
    return known and plain and all(n == 1 for n in w[2:]) and min(w[:2]) >= FEWEST


def _product(node: Node, x: Any, w: Any) -> Any:
    """The same by `matmul`, which reads pairs of channels where they lie."""
    outputs, channels, *_ = w.shape
    matrix = reshape_op(w, shape=(outputs, channels))
    matrix = matrix if node.op is conv else permute(matrix, axes=(1, 0))
    flat = reshape_op(x, shape=(*x.shape[:2], prod(x.shape[2:])))
    return reshape_op(matmul(matrix, flat), shape=node.output.shape)


def _has_taps(node: Node) -> bool:
    """Whether it is a convolution whose pairs can be taps beside each other, and those of channels are none or cost
    more, as an image has to be turned for them."""
    if node.op is not conv or node.output.dtype is not bfloat16 or node.attrs["groups"] != 1:
        return False
    x, w = (z.shape for z in node.inputs if isinstance(z, Value))
    known = all(isinstance(n, int) and n > 0 for n in (*x, *w, *node.output.shape))
    beside = w[-1] > 1 and node.attrs["dilation"][-1] == 1 and node.attrs["stride"][-1] in (1, 2)
    if not known or not beside or not _pads_less(node, w[-1]):
        return False
    return min(w[0], node.output.shape[-1]) >= FEWEST and (w[-1] % 2 == 0 or not _has_pairs(node))


def _pads_less(node: Node, taps: Any) -> bool:
    """Whether padding cuts nothing off, and every window of a row covers something of it."""
    padding = node.attrs["padding"]
    return all(n >= 0 for pads in padding for n in pads) and padding[-1][0] <= (taps - 1) * node.attrs["dilation"][-1]


def _by_taps(node: Node, x: Any, w: Any) -> Any:
    """The convolution by an even number of taps in a row, the last of which may be 0, of an image as it lies."""
    odd, none = w.shape[-1] % 2, ((0, 0),) * len(node.attrs["padding"])
    x, padding = _longer(x, node.output.shape[-1], w.shape[-1], odd, node.attrs)
    image, kernel = stored(_around(x, padding, leading=2)), stored(_around(w, (*none[1:], (0, odd)), leading=2))
    return conv(image, kernel, **{**node.attrs, "padding": none})


def _longer(x: Any, places: Any, taps: int, more: int, attrs: Mapping[str, Any]) -> tuple[Any, Pads]:
    """An image without what no window of a row covers, and padding with so many more zeros behind it.

    So what no window covers meets no zero, with which it might make a number that is none.
    """
    *others, (low, _) = attrs["padding"]
    covered = (places - 1) * attrs["stride"][-1] + (taps - 1) * attrs["dilation"][-1] + 1
    kept = min(x.shape[-1], covered - low)
    return narrow(x, x.ndim - 1, 0, kept), (*others, (low, covered + more - low - kept))


def _has_lines(node: Node) -> bool:
    """Whether it is a kernel's gradient whose taps and channels are runs of memory, and its pairs do not lie as needed.
    """
    if node.op is not conv_weight_grad or node.output.dtype is not bfloat16 or node.attrs["groups"] != 1:
        return False
    filters, channels, *kernel = node.output.shape
    known = all(isinstance(n, int) and n > 0 for z in node.inputs if isinstance(z, Value) for n in z.shape)
    run = channels * (kernel[-1] if node.attrs["dilation"][-1] == 1 else 1)
    turns = prod(kernel) > 1 or not _has_pairs(node)
    return known and turns and min(filters, run) >= FEWEST and _pads_less(node, kernel[-1])


def _by_lines(node: Node, x: Any, g: Any) -> Any:
    """The gradient of a kernel whose pairs are two places: two lines of channels of an image that has them last."""
    attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
    flat, odd = prod(attrs["kernel"]) == 1, g.shape[-1] % 2
    padding, none = attrs["padding"], ((0, 0),) * len(attrs["padding"])
    if odd and not flat:                # one more place, where the gradient is 0
        x, padding = _longer(x, g.shape[-1], attrs["kernel"][-1], attrs["stride"][-1], attrs)
        g = _around(g, (*none[1:], (0, 1)), leading=2)
    image, attrs["padding"] = stored(_around(last(x), padding, leading=1)), none
    return first(conv_weight_grad_last(image, stored(last(g)) if flat else last(stored(g)), **attrs))


def _in_pairs(node: Node, x: Any, y: Any) -> Any:
    """The product of pairs as they lie; None where there are none, or a gradient would cut elements off."""
    if not _has_pairs(node):
        return None
    attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
    if node.op is conv:
        return _channels_last(x, y, attrs["padding"], attrs["stride"], attrs["dilation"])
    if node.op is conv_weight_grad:
        if any(n < 0 for pads in attrs["padding"] for n in pads):
            return None
        wide = stored(_around(x, attrs["padding"], leading=2))
        return conv_weight_grad(wide, stored(y), groups=1, **{**attrs, "padding": ((0, 0),) * len(attrs["padding"])})
    reach = [d * (k - 1) for d, k in zip(attrs["dilation"], y.shape[2:], strict=True)]
    low = [r - p for r, (p, _) in zip(reach, attrs["padding"], strict=True)]
    high = [n - m - a + r for n, m, a, r in zip(attrs["sizes"], x.shape[2:], low, reach, strict=True)]
    turned = flip(y, axis=tuple(range(2, y.ndim))).swapaxes(0, 1)
    return _channels_last(x, turned, list(zip(low, high, strict=True)), attrs["stride"], attrs["dilation"])


def _channels_last(x: Any, w: Any, padding: Pads, stride: Any, dilation: Any) -> Any:
    """The convolution of an image that is stored with zeros around it and its channels last."""
    if any(n < 0 for pads in padding for n in pads):
        return None
    image = stored(_around(last(x), padding, leading=1))
    none = ((0, 0),) * len(padding)
    return first(conv_channels_last(image, first(stored(last(w))), stride=stride, padding=none, dilation=dilation))


def _around(x: Any, padding: Pads, leading: int) -> Any:
    """x with zeros before and after the axes that follow the leading ones."""
    if not any(n for pads in padding for n in pads):
        return x
    low, high = zip(*padding, strict=True)
    rest = (0,) * (x.ndim - leading - len(padding))
    return pad_op(x, 0, low=((0,) * leading + low + rest), high=((0,) * leading + high + rest))

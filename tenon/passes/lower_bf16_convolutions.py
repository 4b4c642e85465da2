"""Graph -> the same graph with convolutions of bfloat16 and float16 as the processor multiplies such numbers.

    conv, conv_input_grad, conv_weight_grad of bfloat16    ->  products of pairs (`passes/bf16/`)
    the same of one tap, with steps                        ->  over the places of x that its steps meet
    those of groups of few channels      ->  as they are: elements of windows are copied, and widened then
    any other                            ->  cast(conv(cast(x, f32), cast(w, f32)))

Where the processor multiplies pairs of bfloat16 that are neighbours along the depth of a product, images are stored so
that pairs are read as they lie.  What goes to vectors may be joined of two lines, whatever the stride between them, or
be two taps of a row.  Where it does not, or there are no pairs, all numbers are converted once, and not again by every
window.  Vectors of pairs are twice as fast as float32, which is less than Winograd's tiles save of windows of 3 x 3
(9/4): these are converted too.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.loops.select_conv_schedule import MAX_TAPS, MAX_UNPACKED_FILTERS
from tenon.ops.barrier import stored
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.shape import cast
from tenon.ops.splitting import narrow
from tenon.passes.bf16.bf16_channel_pairs import as_product, has_pairs, in_pairs, is_product, meets_many_zeros, met
from tenon.passes.bf16.bf16_tap_pairs import by_lines, by_taps, has_lines, has_taps
from tenon.passes.rewriting.nested import on_subgraphs
from tenon.types import bfloat16, float16, float32

CONVOLUTIONS = (conv, conv_input_grad, conv_weight_grad)
WINOGRAD = 16           # channels and filters from which on tiles save multiplications


def lower_bf16_convolutions(graph: Graph, pairs: str | None = None) -> Graph:
    """Rewrite every convolution of 16 bits; `pairs` of bfloat16 are multiplied in "registers", as "vectors" or not."""
    graph = on_subgraphs(graph, partial(lower_bf16_convolutions, pairs=pairs))
    if not any(_is_narrow(node) for node in graph.nodes):
        return graph
    if pairs:
        graph = rebuild(graph, _without_steps)

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        if not _is_narrow(node) or (pairs != "registers" and _is_copied(node)):
            return copy(node, inputs)
        found = (_in_vectors if pairs == "vectors" else in_pairs)(node, *inputs) if pairs else None
        return _widened(node, *inputs) if found is None else found
    return rebuild(graph, visit)


def _is_narrow(node: Node) -> bool:
    """Whether it is a convolution of 16 bits that is not rewritten yet."""
    done = all(isinstance(x, Value) and x.node is not None and x.node.op is stored for x in node.inputs)
    return node.op in CONVOLUTIONS and node.output.dtype in (bfloat16, float16) and not done


def _is_copied(node: Node) -> bool:
    """Whether groups of few channels have windows that are copied where they overlap: what is read is widened there."""
    x, y = (z.shape for z in node.inputs if isinstance(z, Value))
    filters, channels, *kernel = node.output.shape if node.op is conv_weight_grad else y
    groups, reach = node.attrs["groups"], [d * (k - 1) for d, k in zip(node.attrs["dilation"], kernel, strict=True)]
    if groups == 1 or not all(isinstance(n, int) and n > 0 for n in (*x, *y, *node.output.shape)):
        return False
    overlap = any(r >= s for r, s in zip(reach, node.attrs["stride"], strict=True))
    few = max(channels, filters // groups) <= MAX_UNPACKED_FILTERS and prod(kernel) <= MAX_TAPS
    return few and (overlap or channels == filters // groups == 1)


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


def _in_vectors(node: Node, x: Any, y: Any) -> Any:
    """The product of pairs as vectors multiply them; None where float32 is as fast."""
    if is_product(node):
        return as_product(node, x, y)
    if _saves_multiplications(node):
        return None
    if has_taps(node):
        return by_taps(node, x, y)
    return by_lines(node, x, y) if has_lines(node) else in_pairs(node, x, y, vectors=True)


def _saves_multiplications(node: Node) -> bool:
    """Whether Winograd's tiles take it in float32, and faster than pairs, some of which may be left out: 16 products
    each, and as many for 16 tiles to transform kernels."""
    x, y = (z.shape for z in node.inputs if isinstance(z, Value))
    kernel, channels = (node.attrs["kernel"], (x[1], y[1])) if node.op is conv_weight_grad else (y[2:], y[:2])
    if any(n != 1 for n in node.attrs["stride"]) or tuple(kernel[-2:]) != (3, 3) or min(channels) < WINOGRAD:
        return False
    images, _, *places = y if node.op is conv_weight_grad else node.output.shape
    known = [n for n in (images, *places) if isinstance(n, int)]
    tiles = prod(known[:-2]) * prod(-(-n // 2) for n in known[-2:])
    if len(known) < len(places) + 1:
        return True
    left_out = node.op is not conv_weight_grad and has_pairs(node) and meets_many_zeros(node)
    return 16 * (tiles + 16) < 9 / 2 * prod(known) * (met(node) if left_out else 1)


def _widened(node: Node, x: Any, y: Any) -> Any:
    wide = (stored(cast(z, dtype=float32)) for z in (x, y))
    return cast(node.op(*wide, **node.attrs), dtype=node.output.dtype)

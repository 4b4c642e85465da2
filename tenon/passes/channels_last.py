"""Graph of a network in use -> the same graph, in which convolutions read and write their channels last.

    conv(x, w)    ->    permute(conv_channels_last(permute(x), w))

Then filters are the lanes of vectors: their constant weights are packed once, and an image is read where it lies.  What
is done element by element, or in windows, between two convolutions is done in the same layout, so nothing is permuted
but what comes in and what goes out.  A convolution of every channel by itself becomes `depthwise_channels_last`.
"""

from __future__ import annotations

from typing import Any

from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.ir import CONSTANTS, Graph, Input, Node, Value
from tenon.ops.barrier import barrier
from tenon.ops.channels_last import conv_channels_last, depthwise_channels_last, first, last, taps_first
from tenon.ops.convolution import conv
from tenon.ops.pooling import max_pool_op
from tenon.passes.constants import constant_values

FEWEST_FILTERS = 8      # that are worth a vector


def channels_last(graph: Graph) -> Graph:
    """Turn convolutions with constant weights, where all convolutions of the graph are such."""
    found = [node for node in graph.nodes if node.op is conv]
    if CONSTANTS not in graph.notes or not found:
        return graph
    known = constant_values(graph, graph.notes[CONSTANTS])
    if not all(turns(node, set(known)) for node in found):
        return graph
    turned: dict[Value, Value] = {}         # from a value of the old graph to what it is with its channels last

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        out = _with_channels_last(node, inputs, turned)
        if out is None:
            return copy(node, inputs)
        turned[node.output] = out
        return first(out)

    return rebuild(graph, visit)


def turns(node: Node, constants: set[Value]) -> bool:
    """Whether a convolution has constant weights, known sizes, and filters that are worth a vector."""
    x, w = node.inputs
    sizes = [n for y in (x, w) if isinstance(y, Value) for n in y.shape]
    return (w in constants and x not in constants and all(isinstance(n, int) for n in sizes)
            and node.output.dtype.kind == "f" and node.output.dtype.bits >= 32
            and isinstance(w, Value) and w.shape[0] >= FEWEST_FILTERS
            and (node.attrs["groups"] == 1 or _is_depthwise(node)))


def _is_depthwise(node: Node) -> bool:
    """Whether every channel is convolved by itself, with one kernel."""
    x, w = node.inputs
    return isinstance(w, Value) and isinstance(x, Value) and w.shape[0] == x.shape[1] == node.attrs["groups"]


def _with_channels_last(node: Node, inputs: tuple[Input, ...], turned: dict[Value, Value]) -> Any:
    """The node's result with its channels last; None where it is better computed as it is."""
    if node.op is conv:
        attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
        x = _turned(node.inputs[0], inputs[0], turned)
        if node.attrs["groups"] == 1:
            return conv_channels_last(x, inputs[1], **attrs)
        kernel = barrier(taps_first(inputs[1]))     # which is kept as it is read
        return depthwise_channels_last(x, kernel, **attrs)
    if not any(x in turned for x in node.inputs):
        return None
    if node.op is max_pool_op and len(node.attrs["kernel"]) == node.output.ndim - 2:
        ones = {"kernel": 1, "stride": 1, "padding": (0, 0), "dilation": 1}     # along channels
        attrs = {name: (*value, ones[name]) for name, value in node.attrs.items()}
        return current_builder().emit(node.op, (_turned(node.inputs[0], inputs[0], turned),), attrs)
    if node.op.elementwise and len(node.outputs) == 1:
        new = tuple(_turned(x, y, turned) for x, y in zip(node.inputs, inputs, strict=True))
        return current_builder().emit(node.op, new, node.attrs)
    return None


def _turned(old: Input, new: Input, turned: dict[Value, Value]) -> Any:
    """An operand with its channels last; numbers are as they are."""
    if not isinstance(old, Value):
        return new
    return turned[old] if old in turned else last(new)

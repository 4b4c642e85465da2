"""Graph of a network in use -> the same graph, in which convolutions read and write their channels last.

    conv(x, w)    ->    permute(conv_channels_last(permute(x), w))

Then filters are the lanes of vectors: their constant weights are packed once, and an image is read where it lies.  What
is done element by element, or in windows, between two convolutions is done in the same layout, so nothing is permuted
but what comes in and what goes out.  A convolution of every channel by itself becomes `depthwise_channels_last`.

What hangs together so is a region.  It is converted where its convolutions gain more by that than it costs to permute
what comes in and goes out: one whose channels stand alone gains next to nothing, and stays as it is without others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.ir import CONSTANTS, Graph, Input, Node, Value
from tenon.loops.cost import MULTIPLY_ADD, STORE
from tenon.ops.barrier import barrier
from tenon.ops.channels_last import conv_channels_last, depthwise_channels_last, first, last, taps_first
from tenon.ops.convolution import conv
from tenon.ops.pooling import max_pool_op
from tenon.ops.shape import broadcast_to, permute
from tenon.passes.fusion.fusion_groups import bytes_of
from tenon.passes.partition_constants import constant_values

MIN_FILTERS = 8         # that are worth a vector
CHANNELS_LAST_GAIN = 0.25   # part of a convolution's work that is saved, as measured with 1 x 1 to 7 x 7 taps


def use_channels_last(graph: Graph) -> Graph:
    """Turn convolutions with constant weights, where all convolutions of the graph are such, region by region."""
    found = [node for node in graph.nodes if node.op is conv]
    if CONSTANTS not in graph.notes or not found:
        return graph
    known = constant_values(graph, graph.notes[CONSTANTS])
    if not all(can_be_channels_last(node, set(known)) for node in found):
        return graph
    chosen = {node for region in regions(graph) if pays(region, graph, set(known)) for node in region}
    converted: dict[Value, Value] = {}         # from a value of the old graph to what it is with its channels last

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        if node not in chosen:
            return copy(node, inputs)
        converted[node.output] = _with_channels_last(node, inputs, converted)
        return first(converted[node.output])

    return rebuild(graph, visit)


def can_be_channels_last(node: Node, constants: set[Value]) -> bool:
    """Whether a convolution has constant weights, known sizes, and filters that are worth a vector."""
    x, w = node.inputs
    sizes = [n for y in (x, w) if isinstance(y, Value) for n in y.shape]
    return (w in constants and x not in constants and all(isinstance(n, int) for n in sizes)
            and node.output.dtype.kind == "f" and node.output.dtype.bits >= 32
            and isinstance(w, Value) and w.shape[0] >= MIN_FILTERS
            and (node.attrs["groups"] == 1 or _is_depthwise(node)))


def _is_depthwise(node: Node) -> bool:
    """Whether every channel is convolved by itself, with one kernel."""
    x, w = node.inputs
    return isinstance(w, Value) and isinstance(x, Value) and w.shape[0] == x.shape[1] == node.attrs["groups"]


# ---------------------------------------------------------------- regions

def regions(graph: Graph) -> list[list[Node]]:
    """The convolutions, and what is done between and behind them in the same layout: nodes that hang together."""
    region_of: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        near = {id(region): region for x in node.uses() if (region := region_of.get(x)) is not None}
        if node.op is not conv and not (near and _is_alike(node)):
            continue
        region, *others = sorted(near.values(), key=len, reverse=True) or [[]]
        for more in ([node], *others):
            region += more
            region_of.update((x.output, region) for x in more)
    return list({id(region): region for region in region_of.values()}.values())


def _is_alike(node: Node) -> bool:
    """Whether the node does the same in any layout."""
    if node.op is max_pool_op:
        return len(node.attrs["kernel"]) == node.output.ndim - 2
    return node.op.elementwise and len(node.outputs) == 1


def pays(region: Sequence[Node], graph: Graph, constants: set[Value]) -> bool:
    """Whether what the convolutions gain is more than what it costs to permute what comes in and goes out."""
    return sum(map(_gain, region)) > (1 + STORE) * sum(map(bytes_of, _borders(region, graph, constants)))


def _gain(node: Node) -> float:
    """What a convolution gains, in bytes that could be moved meanwhile: a part of its work, and packing its weights."""
    if node.op is not conv:
        return 0.0
    weight: Any = node.inputs[1]
    work: float = MULTIPLY_ADD * bytes_of(node.output) * prod(weight.shape[1:])
    return CHANNELS_LAST_GAIN * work + (1 + STORE) * bytes_of(weight)


def _borders(region: Sequence[Node], graph: Graph, constants: set[Value]) -> list[Value]:
    """What is permuted on the way in, and on the way out; what is permuted there anyway costs nothing more."""
    inside, users, results = {node.output for node in region}, graph.users(), set(graph.results)
    read = dict.fromkeys(_source(x) for node in region for x in (node.inputs[:1] if node.op is conv else node.inputs)
                         if isinstance(x, Value) and x not in inside and x not in constants)
    into = [x for x in read if x.node is None or x.node.op is not permute]
    members = set(region)
    out = [x for x in inside if x in results or any(y.op is not permute and y not in members for y in users[x])]
    return into + out


def _source(x: Value) -> Value:
    """What is read where x is; a gate of every channel is a small array that is broadcast."""
    if x.node is None or x.node.op is not broadcast_to:
        return x
    source = x.node.inputs[0]
    return source if isinstance(source, Value) else x


# ---------------------------------------------------------------- nodes

def _with_channels_last(node: Node, inputs: tuple[Input, ...], converted: dict[Value, Value]) -> Any:
    """The node's result with its channels last."""
    if node.op is conv:
        return _convolved(node, _channels_last_of(node.inputs[0], inputs[0], converted), inputs[1])
    new = tuple(_channels_last_of(x, y, converted) for x, y in zip(node.inputs, inputs, strict=True))
    return current_builder().emit(node.op, new, _with_channels(node.attrs) if node.op is max_pool_op else node.attrs)


def _convolved(node: Node, x: Any, w: Any) -> Any:
    attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
    if node.attrs["groups"] == 1:
        return conv_channels_last(x, w, **attrs)
    return depthwise_channels_last(x, barrier(taps_first(w)), **attrs)      # a kernel that is kept as it is read


def _with_channels(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Of windows that have one place along channels."""
    ones = {"kernel": 1, "stride": 1, "padding": (0, 0), "dilation": 1}
    return {name: (*value, ones[name]) for name, value in attrs.items()}


def _channels_last_of(old: Input, new: Input, converted: dict[Value, Value]) -> Any:
    """An operand with its channels last; numbers are as they are."""
    if not isinstance(old, Value):
        return new
    return converted[old] if old in converted else last(new)

"""A piece's graph -> whether a call of it costs less than its operators do eagerly."""

from __future__ import annotations

import math

from tenon.graph.ir import Graph, Node, Value

OPERATOR = 3e-6         # seconds that an eager call takes, whatever it does
ELEMENT = 0.5e-9        # for each element that it makes or reads
PRODUCT = 0.2e-9        # for each product of two that it adds up
LONG_WAY = 100e-6       # a call whose guards Python looks at, one by one, or that is recorded on the tape
GRADIENT = 3            # times as much as the operators do is what they do with their gradients


def pays(graph: Graph, recorded: bool) -> bool:
    """Whether the graph is worth a call by the slow path, or one on the tape: a few small operators are not."""
    return sum(map(_seconds, graph.nodes)) * (GRADIENT if recorded else 1) > LONG_WAY * (1 + recorded)


def _seconds(node: Node) -> float:
    """About what the operator takes eagerly."""
    if node.graphs or not all(isinstance(d, int) for x in _values(node) for d in x.shape):
        return LONG_WAY         # a loop, or sizes that nobody knows
    sizes = [int(x.type.size) for x in _values(node)]
    read = [int(x.type.size) for x in node.inputs if isinstance(x, Value) and x.ndim > 1]
    products = math.sqrt(math.prod([*read[:2], *(int(x.type.size) for x in node.outputs[:1])])) if len(read) > 1 else 0
    return OPERATOR + sum(sizes) * ELEMENT + (0 if node.op.elementwise else products * PRODUCT)


def _values(node: Node) -> list[Value]:
    return [x for x in (*node.inputs, *node.outputs) if isinstance(x, Value)]

"""A graph -> about how long its operators take eagerly, and whether a call of its program costs less."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tenon.dims import evaluate, symbols
from tenon.graph.ir import Graph, Node, Value

OPERATOR = 3e-6         # seconds that an eager call takes, whatever it does
ELEMENT = 0.5e-9        # for each element that it makes or reads
PRODUCT = 0.2e-9        # for each product of two that it adds up
LONG_WAY = 100e-6       # a call whose guards Python looks at, one by one, or that is recorded on the tape
STEP_BY_STEP = 40e-6    # a call whose guards machine code looks at, and whose program Python runs
ASKED = 25e-6           # what it takes each time that the program asks Python for something
GRADIENT = 3            # times as much as the operators do is what they do with their gradients


def pays(graph: Graph, recorded: bool) -> bool:
    """Whether the graph is worth a call by the long way, or one on the tape: a few small operators are not."""
    return seconds_of(graph) * (GRADIENT if recorded else 1) > LONG_WAY * (1 + recorded)


def seconds_of(graph: Graph, sizes: Mapping[str, int] | None = None) -> float:
    """About what the operators take, at these sizes; those that the data decide are taken to be as large as any is."""
    known = dict(sizes or {})
    if sizes is not None:
        most = max((math.prod(int(evaluate(d, known)) for d in p.shape) for p in graph.params), default=1)
        known |= {name: most for name in graph.symbols() if name not in known}
    return sum(_seconds(node, known) for node in graph.nodes)


def _seconds(node: Node, sizes: Mapping[str, int]) -> float:
    if node.graphs or not all(symbols(d) <= sizes.keys() for x in _values(node) for d in x.shape):
        return LONG_WAY         # a loop, or sizes that nobody knows
    outputs = [_size(x, sizes) for x in node.outputs]
    read = [_size(x, sizes) for x in node.inputs if isinstance(x, Value) and x.ndim > 1]
    products = math.sqrt(math.prod([*read[:2], *outputs[:1]])) if len(read) > 1 else 0
    elements = sum(outputs) + sum(_size(x, sizes) for x in node.inputs if isinstance(x, Value))
    return OPERATOR + elements * ELEMENT + (0 if node.op.elementwise else products * PRODUCT)


def _size(x: Value, sizes: Mapping[str, int]) -> int:
    return math.prod(int(evaluate(d, sizes)) for d in x.shape)


def _values(node: Node) -> list[Value]:
    return [x for x in (*node.inputs, *node.outputs) if isinstance(x, Value)]

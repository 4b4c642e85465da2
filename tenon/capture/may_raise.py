"""A captured graph -> the values to compute although nobody reads all of them, since the program would notice.

An index out of range, or a matrix without inverse, is an error where the program asks for it; compiled code computes
what is read, and would not come across it.  Such values become results of the graph, which nobody looks at.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import OPS


def unread(graph: Graph) -> list[Value]:
    """Outputs of operators that may fail, of which the graph does not read every element."""
    whole, found = set(graph.results), []
    for node in reversed(graph.nodes):
        if whole.isdisjoint(node.outputs) and not node.op.effect:
            if not may_fail(node):
                continue
            found.append(node.outputs[0])
        whole.update(_read_whole(node))
    return found


def may_fail(node: Node) -> bool:
    """Whether running the operator may end in an error, for elements of some values."""
    op = node.op
    if op.fails == "matrix" or (op.is_host and not op.is_own):
        return True
    opened = op.compute is None and op.expand is not None       # its indices are looked at in what it means
    indices = any(isinstance(x, Value) and x.dtype.kind in "ui" for x in node.inputs)
    return (indices and (op.fails == "index" or opened)) or any(may_fail(n) for body in node.graphs for n in body.nodes)


def _read_whole(node: Node) -> Iterator[Value]:
    """The inputs of which the operator looks at every element to compute every element of its output."""
    for k, x in enumerate(node.inputs):
        if isinstance(x, Value) and (k > 0 or not node.op.reads_part or _is_all(node, x)):
            yield x


def _is_all(node: Node, x: Value) -> bool:
    """Whether a slice has all elements of what it is a slice of."""
    return node.op is OPS["slice"] and node.outputs[0].type.size == x.type.size

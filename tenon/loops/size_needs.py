"""Body of a kernel -> what its operators ask of sizes, and nothing decides before there are numbers.

`x[:3]` of B elements needs B - 3 not to be negative.  A capture asks its call for that, and holds only where the answer
is the same; a graph that was read from text is verified for the sizes of each run.  So a kernel may rely on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.dims.symbolic_dim import Dim
from tenon.graph.ir import Graph, Node
from tenon.graph.partition import all_nodes
from tenon.loops.size_order import never_negative
from tenon.ops.slice_pad_concat import slice_needs, slice_op, slice_size


def size_needs(body: Graph) -> tuple[Dim, ...]:
    """The sizes that are not negative in any run of the body, although they are for some values of the symbols."""
    needs = dict.fromkeys(need for node in all_nodes(body) if node.op is slice_op for need in _of_slice(node))
    return tuple(need for need in needs if not never_negative(need))


def _of_slice(node: Node) -> Iterator[Dim]:
    """What its type rule asks of each axis: nothing of one without elements, whose need times their number is 0."""
    (x,), (start, stop, step) = node.inputs, (node.attrs[name] for name in ("start", "stop", "step"))
    assert x is not None
    for n, a, b, c in zip(x.shape, start, stop, step, strict=True):
        elements = slice_size(a, b, c)
        some = never_negative(elements - 1) or (c == 1 and never_negative(n - a))
        yield from (need if some else need * elements for need in slice_needs(n, a, b, c))

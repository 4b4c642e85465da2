"""Body of a kernel -> the indices among its data that it checks, so that equal checks later are known to hold."""

from __future__ import annotations

from collections.abc import Iterable

from tenon.dims.symbolic_dim import Dim
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import Op
from tenon.ops.comparison import where
from tenon.ops.indexing import put, take

AT_PLACES = take, put           # (x, indices, ...), along `axis` of x


def checked(body: Graph, nodes: Iterable[Node]) -> set[tuple[int, Dim]] | None:
    """(parameter, number of places) of the indices that these nodes check; None where it is not as simple."""
    found = set()
    for node in nodes:
        if node.op not in AT_PLACES or node.inputs[1] not in body.params or not isinstance(node.inputs[0], Value):
            return None
        number = next(k for k, p in enumerate(body.params) if p is node.inputs[1])
        found.add((number, node.inputs[0].shape[node.attrs["axis"]]))
    return found or None


def is_whole(body: Graph) -> bool:
    """Whether every element of every node is computed: nothing is cut, padded or chosen, and nothing empty."""
    return all(_looks_at_all(node.op) and all(isinstance(n, int) and n > 0 for x in node.outputs for n in x.shape)
               for node in body.nodes)


def _looks_at_all(op: Op) -> bool:
    """Whether it computes every element, of every element of what it is given, or of those at given places."""
    if op.elementwise:
        return op is not where
    return op in AT_PLACES or op.moves in ("view", "source") or (op.operations is not None and not op.reads_part)

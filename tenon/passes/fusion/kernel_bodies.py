"""Nodes -> the body of a kernel, and its loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.kernels import has_kernel
from tenon.graph.partition import has_effect
from tenon.locks import unforked
from tenon.loops.whole_operators import is_attention
from tenon.ops.indexing import gather, put, scatter_op, take
from tenon.target import Target

if TYPE_CHECKING:
    from tenon.loops.loop_ir import Kernel

INDEXING = take, gather, put, scatter_op        # (x, indices, ...)


def body_of(nodes: Sequence[Node], results: Iterable[Value]) -> tuple[Graph, tuple[Value, ...]]:
    """(the graph that computes `results` by these nodes, the values outside that it reads, in order)."""
    outside = outside_of(nodes)
    values: dict[Value, Value] = {x: Value(x.type) for x in outside}
    params = tuple(values.values())
    copies = []
    for node in nodes:
        inputs: tuple[Input, ...] = tuple([values[x] if isinstance(x, Value) else x for x in node.inputs])
        copy = Node(node.op, inputs, node.attrs, (), node.loc)
        copy.outputs = tuple([Value(x.type, copy, k) for k, x in enumerate(node.outputs)])
        copies.append(copy)
        values.update(zip(node.outputs, copy.outputs, strict=True))
    return Graph("body", params, tuple(copies), tuple(values[r] for r in results)), outside


def outside_of(nodes: Sequence[Node]) -> tuple[Value, ...]:
    """The values that these nodes read and do not make, in the order in which they are read."""
    inside = {output for node in nodes for output in node.outputs}
    return tuple(dict.fromkeys([x for node in nodes for x in node.inputs if isinstance(x, Value) and x not in inside]))


def has_loops(node: Node) -> bool:
    """Whether a kernel can compute the node."""
    values = (*node.outputs, *(x for x in node.inputs if x is not None))
    has_rule = node.op.compute is not None or node.op.fill is not None or is_attention(node)
    return (has_rule and not has_effect(node) and not node.after and not only_checks(node)
            and not has_kernel(node) and all(x.dtype.kind in "buif" for x in values))


def only_checks(node: Node) -> bool:
    """Whether all that running the node does is to look at indices: a loop over a result without elements would not."""
    if node.op not in INDEXING or not all(0 in x.shape for x in node.outputs):
        return False
    indices = node.inputs[1]
    return not isinstance(indices, Value) or 0 not in indices.shape


MAX_LOWERED = 512           # kernels that are kept until somebody compiles them


def lowered(body: Graph, key: str, target: Target) -> Kernel:
    """The loops of a body, whose key this is, for a machine: those that fusion tried, if it did."""
    kernel = _lowered.get((target, key))
    if kernel is None:
        with unforked:
            from tenon.loops.lower import lower  # local: slow to load, and a program from the disk needs no loops
        kernel = lower(body, "kernel", target=target)
        if not kernel.checks:           # which name a place in the source
            _lowered[target, key] = kernel
            while len(_lowered) > MAX_LOWERED:
                _lowered.pop(next(iter(_lowered)), None)
    return kernel


def forget_lowered() -> None:
    """Let go of the loops, once a graph is compiled."""
    if _lowered:
        from tenon.loops.hash_consing import forget_gone  # local, as above
        _lowered.clear()
        forget_gone()


_lowered: dict[tuple[Target, str], Kernel] = {}

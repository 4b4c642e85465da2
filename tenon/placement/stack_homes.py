"""A placement -> one in which all that handles a stack is on one device: a stack lives in the memory of one run.

What is pushed may come from anywhere, and what is taken may go anywhere.  Branches and loops through which a stack
passes take part on its device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.union_find import UnionFind
from tenon.ops.control_flow_nodes import LOOPS, Control, is_control
from tenon.ops.loops import while_loop
from tenon.placement.placement import Placement
from tenon.records import replace


def with_stacks_together(graph: Graph, placement: Placement) -> Placement:
    """The nodes that handle a stack on the device of the first of them."""
    if not any(_handles(node) for node in graph.nodes):
        return placement
    stacks = _Stacks()
    stacks.enter(graph)
    homes: dict[Value, int] = {}
    of = dict(placement.of)
    for node, stack in stacks.nodes:
        if not node.graphs and node in of:
            homes.setdefault(stacks.one.find(stack), of[node])
    for node, stack in stacks.nodes:
        if (one := stacks.one.find(stack)) in homes:
            of[node] = homes[one]
    return replace(placement, of=of)


def _handles(node: Node) -> bool:
    return any(x.dtype.kind == "s" for x in node.outputs) or any(any(map(_handles, g.nodes)) for g in node.graphs)


class _Stacks:
    """Which values are one stack, and which nodes have a part in it."""

    def __init__(self) -> None:
        self.one: UnionFind[Value] = UnionFind()
        self.nodes: list[tuple[Node, Value]] = []

    def join(self, values: Sequence[Input]) -> None:
        """These are one stack, as far as they are stacks at all."""
        found = [x for x in values if isinstance(x, Value) and x.dtype.kind == "s"]
        for x in found[1:]:
            self.one.union(x, found[0])

    def enter(self, graph: Graph) -> None:
        for node in graph.nodes:
            for inner in node.graphs:
                self.enter(inner)
            if is_control(node):
                for same in _same(node):
                    self.join(same)
            else:
                self.join([*node.inputs, *node.outputs])
            touched = [x for x in (*node.inputs, *node.outputs) if isinstance(x, Value) and x.dtype.kind == "s"]
            self.nodes += [(node, touched[0])] if touched else []


def _same(node: Node) -> Iterator[Sequence[Input]]:
    """The values that a branch or loop passes on to each other."""
    control = Control.of(node)
    for graph in control.graphs:
        given = (*control.constants, *control.carried, *control.sequences)
        yield from zip(given, graph.params, strict=True)
        if node.op is not while_loop or graph is not control.graphs[0]:
            yield from zip(node.outputs, graph.results, strict=True)
    if node.op in LOOPS:
        yield from zip(control.carried, node.outputs, strict=False)

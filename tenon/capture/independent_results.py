"""A graph -> its results in groups that share nothing a gradient goes through.

Eager code lets go of the tape of one loss when its gradient is taken, and another loss keeps its own.  A call of a
graph is on the tape once for each group, so that it is the same there.
"""

from __future__ import annotations

from collections.abc import Collection

from tenon.graph.ir import Graph, Node, Value
from tenon.ops.barrier import stop_gradient


def independent_results(graph: Graph, wanted: Collection[int]) -> tuple[list[tuple[int, ...]], set[int]]:
    """The places of the results, group by group, and those without a gradient, which are in the first group too."""
    roots = _roots(graph, {graph.params[k] for k in wanted})
    groups: dict[Node | None, list[int]] = {}
    for k, result in enumerate(graph.results):
        groups.setdefault(roots(result), []).append(k)
    rest = groups.pop(None, [])
    listed = list(groups.values()) or [[]]
    listed[0] = sorted([*listed[0], *rest])
    return [tuple(group) for group in listed], set(rest)


class _roots:
    """What a value has in common with all that it shares a node with, through which a gradient goes."""

    def __init__(self, graph: Graph, start: set[Value]):
        self.above: dict[Node, Node] = {}
        flows = set(start)
        for node in graph.nodes:
            read = [x for x in node.inputs if isinstance(x, Value) and x in flows]
            if not read or node.op is stop_gradient:
                continue
            flows.update(y for y in node.outputs if y.dtype.is_differentiable)
            self.above[node] = node
            for x in read:
                if x.node is not None:
                    self.above[self.root(x.node)] = node

    def root(self, node: Node) -> Node:
        """The one node that stands for all that share something."""
        while self.above[node] is not node:
            self.above[node] = node = self.above[self.above[node]]
        return node

    def __call__(self, value: Value) -> Node | None:
        return self.root(value.node) if value.node in self.above and value.dtype.is_differentiable else None

"""Graph -> the same graph without the nodes whose results nobody reads.  Effects stay."""

from __future__ import annotations

from dataclasses import replace

from tenon.graph.ir import Graph, Node
from tenon.passes.nested import has_effect, nested


@nested
def drop_dead(graph: Graph) -> Graph:
    """Remove nodes whose results nobody reads."""
    live = live_nodes(graph)
    if len(live) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(node for node in graph.nodes if node in live))


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that a result or an effect depends on."""
    needed, live = set(graph.results), set()
    for node in reversed(graph.nodes):
        if has_effect(node) or not needed.isdisjoint(node.outputs):
            live.add(node)
            needed.update(node.uses())
    return live

"""Graph -> the same graph without the nodes whose results nobody reads.  Effects stay."""

from __future__ import annotations

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Node
from tenon.passes.nested import has_effect, nested


@nested
def drop_dead(graph: Graph) -> Graph:
    """Remove nodes whose results nobody reads."""
    live = live_nodes(graph)
    if len(live) == len(graph.nodes):
        return graph
    return rebuild(graph, lambda node, inputs: copy(node, inputs) if node in live else None)


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that a result or an effect depends on."""
    needed, live = set(graph.results), set()
    for node in reversed(graph.nodes):
        if has_effect(node) or not needed.isdisjoint(node.outputs):
            live.add(node)
            needed.update(node.uses())
    return live

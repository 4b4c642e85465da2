"""Graph -> the same graph without barriers; runs when no later pass merges equal expressions."""

from __future__ import annotations

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.barrier import barrier
from tenon.passes.nested import nested


@nested
def drop_barriers(graph: Graph) -> Graph:
    """Let every reader of a barrier read what went into it."""
    if not any(node.op is barrier for node in graph.nodes):
        return graph
    return rebuild(graph, lambda node, inputs: inputs if is_open(node, inputs) else copy(node, inputs))


def is_open(node: Node, inputs: tuple[Input, ...]) -> bool:
    """Whether the node is a barrier whose inputs can stand for its outputs."""
    return node.op is barrier and all(isinstance(x, Value) for x in inputs)

"""Graph -> the same graph without barriers; runs when no later pass merges equal expressions."""

from __future__ import annotations

from typing import Any

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Literal, Node
from tenon.ops.barrier import barrier
from tenon.ops.shape import full_op
from tenon.passes.rewriting.nested import nested


@nested
def drop_barriers(graph: Graph) -> Graph:
    """Let every reader of a barrier read what went into it."""
    if not any(node.op is barrier for node in graph.nodes):
        return graph
    return rebuild(graph, without_barrier)


def without_barrier(node: Node, inputs: tuple[Input, ...]) -> Any:
    """The inputs of a barrier, any other node as it is."""
    if node.op is not barrier:
        return copy(node, inputs)
    return tuple(full_op(x, shape=()) if isinstance(x, Literal) else x for x in inputs)

"""A graph and what a call was given -> values within it, computed by the interpreter from what leads to them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.graph.compare import difference
from tenon.graph.interpret import interpret, witnessed
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import all_nodes, needed
from tenon.records import replace

Array = np.ndarray[Any, Any]


def values_of(graph: Graph, wanted: set[Value], arrays: Sequence[Array]) -> dict[Value, list[Array]]:
    """What values are in a run of the interpreter, an array an iteration."""
    found: dict[Value, list[Array]] = {}
    if wanted:
        def see(node: Node, _: Sequence[Any], made: Sequence[Any]) -> None:
            for x, array in zip(node.outputs, made, strict=True):
                if x in wanted:
                    found.setdefault(x, []).append(np.array(array))
        with witnessed(see):
            interpret(leading_to(graph, wanted), arrays)
    return found


def leading_to(graph: Graph, wanted: set[Value]) -> Graph:
    """The graph with no more than what leads to these values, which may lie in graphs inside of it."""
    holding = {node for node in graph.nodes if any(not wanted.isdisjoint(x.outputs) for g in node.graphs
                                                   for x in all_nodes(g))}
    ends = [x for node in graph.nodes for x in node.outputs if x in wanted or node in holding]
    nodes = needed(graph, ends)
    return replace(graph, nodes=tuple(node for node in graph.nodes if node in nodes), results=())


def agreeing(iterations: Sequence[Array], stored: Sequence[Array]) -> list[Array] | None:
    """What the program stored, where it is as the interpreter says: then it is what was meant."""
    if not iterations or not stored:
        return None
    stored, found = list(stored), []
    for iteration in iterations:
        k = next((k for k, x in enumerate(stored) if x.shape == iteration.shape and x.dtype == iteration.dtype
                  and difference(iteration, x) is None), None)
        if k is None:
            return None
        found.append(stored.pop(k))
    return found

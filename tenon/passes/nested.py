"""A pass on one graph -> the same pass on every sub-graph (bodies of cond, scan ...), then on the graph itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tenon.graph.build import current_builder, rebuild
from tenon.graph.cut import map_graphs
from tenon.graph.ir import Graph, Input, Node

Pass = Callable[[Graph], Graph]


def nested(run: Pass) -> Pass:
    """`run`, innermost graphs first."""
    @wraps(run)
    def everywhere(graph: Graph) -> Graph:
        if any(node.graphs for node in graph.nodes):
            graph = rebuild(graph, lambda node, inputs: _with_bodies(node, inputs, everywhere))
        return run(graph)
    return everywhere


def _with_bodies(node: Node, inputs: tuple[Input, ...], run: Pass) -> Any:
    return current_builder().emit(node.op, inputs, map_graphs(node.attrs, run))

"""A pass on one graph -> the same pass on every sub-graph (bodies of cond, scan ...), then on the graph itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tenon.graph.build import current_builder, rebuild
from tenon.graph.ir import Graph, Input, Node
from tenon.graph.partition import map_graphs

Pass = Callable[[Graph], Graph]


def nested(run: Pass) -> Pass:
    """`run`, innermost graphs first."""
    @wraps(run)
    def everywhere(graph: Graph) -> Graph:
        return run(on_subgraphs(graph, everywhere))
    return everywhere


def on_subgraphs(graph: Graph, run: Pass) -> Graph:
    """The graph in which `run` has changed every sub-graph."""
    if not any(node.graphs for node in graph.nodes):
        return graph
    return rebuild(graph, lambda node, inputs: _with_bodies(node, inputs, run))


def _with_bodies(node: Node, inputs: tuple[Input, ...], run: Pass) -> Any:
    return current_builder().emit(node.op, inputs, map_graphs(node.attrs, run))

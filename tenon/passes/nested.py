"""A pass on one graph -> the same pass on every sub-graph (bodies of cond, scan ...), then on the graph itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from tenon.graph.build import current_builder, rebuild
from tenon.graph.ir import Graph, Input, Node, graphs_in

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


def map_graphs(attrs: Mapping[str, Any], run: Pass) -> dict[str, Any]:
    """Attributes with `run` applied to every graph among them."""
    return {name: _map(value, run) for name, value in attrs.items()}


def _map(value: Any, run: Pass) -> Any:
    if isinstance(value, Graph):
        return run(value)
    return tuple(run(x) for x in value) if graphs_in(value) else value


def has_effect(node: Node) -> bool:
    """Whether the node, or any node of its sub-graphs, must neither be removed nor repeated."""
    return node.op.effect or any(has_effect(inner) for graph in node.graphs for inner in graph.nodes)

"""Graph -> the same graph where equal operators on equal inputs are computed once: common subexpressions."""

from __future__ import annotations

from typing import Any

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node
from tenon.graph.partition import has_effect
from tenon.graph.structural_key import exactly
from tenon.graph.text import print_graph
from tenon.passes.rewriting.nested import nested
from tenon.records import replace


@nested
def merge_duplicates(graph: Graph) -> Graph:
    """Compute equal expressions once; effects keep their number."""
    seen: dict[Any, Any] = {}

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        if has_effect(node):
            return copy(node, inputs)
        key = node.op, inputs, tuple((name, attribute_key(value)) for name, value in node.attrs.items())
        if key not in seen:
            seen[key] = copy(node, inputs)
        return seen[key]

    return rebuild(graph, visit)


def attribute_key(value: Any) -> Any:
    """What equal attributes have in common, graphs among them that do the same."""
    if isinstance(value, tuple):
        return tuple(map(attribute_key, value))
    return print_graph(replace(value, name="graph"), locations=False) if isinstance(value, Graph) else exactly(value)

"""Graph -> the same graph where equal operators on equal inputs are computed once."""

from __future__ import annotations

from typing import Any

from tenon.dataclasses import replace
from tenon.graph.build import copy, rebuild
from tenon.graph.cut import has_effect
from tenon.graph.ir import Graph, Input, Node
from tenon.graph.text import print_graph
from tenon.passes.nested import nested


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
    """Equal for attributes that mean the same: 1, 1.0 and True differ, as do 0.0 and -0.0, and nan equals itself."""
    if isinstance(value, tuple):
        return tuple(map(attribute_key, value))
    if isinstance(value, Graph):
        return print_graph(replace(value, name="graph"), locations=False)
    return (type(value), repr(value)) if isinstance(value, (bool, int, float, complex)) else value

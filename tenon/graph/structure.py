"""A graph -> what it is apart from identities: equal for graphs that do the same."""

from __future__ import annotations

from typing import Any

from tenon.graph.ir import Graph, Input, Literal


def structure(graph: Graph) -> tuple[Any, ...]:
    """Equal for graphs that do the same with inputs of the same types."""
    numbers: dict[Input, int] = {p: k for k, p in enumerate(graph.params)}
    key: list[Any] = [p.type for p in graph.params]
    for node in graph.nodes:
        inputs = tuple(x if x is None else x.key() if isinstance(x, Literal) else numbers[x] for x in node.inputs)
        after = tuple([numbers[x] for x in node.after])
        key.append((node.op, inputs, after, tuple([(name, _exactly(value)) for name, value in node.attrs.items()])))
        for x in node.outputs:
            numbers[x] = len(numbers)
    return (*key, tuple(numbers[r] for r in graph.results))


def _exactly(value: Any) -> Any:
    """An attribute, 0.0 apart from -0.0; a graph among them is compared by identity."""
    if isinstance(value, (float, complex)):
        return repr(value)
    return (*map(type, value), *map(_exactly, value)) if isinstance(value, tuple) else value

"""Graph -> the same graph with composite operators opened, down to what is claimed or primitive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.build import current_builder, expansion, rebuild, types_of
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.partition import map_graphs

Claims = Callable[[Node], bool]


def nobody(node: Node) -> bool:
    """No backend claims any composite."""
    return False


def expand(graph: Graph, claimed: Claims = nobody) -> Graph:
    """Open every composite operator that is not `claimed`."""
    if not any(_opens(node, claimed) or node.graphs for node in graph.nodes):
        return graph
    return rebuild(graph, lambda node, inputs: _open(node, inputs, claimed))


def _opens(node: Node, claimed: Claims) -> bool:
    return node.op.compute is None and node.op.expand is not None and not claimed(node)


def _open(node: Node, inputs: tuple[Input, ...], claimed: Claims) -> Any:
    """The node itself, its graphs opened, or its definition inlined, with the location of the composite."""
    if not _opens(node, claimed):
        return current_builder().emit(node.op, inputs, map_graphs(node.attrs, lambda body: expand(body, claimed)))
    definition = expansion(node.op, types_of(inputs), node.attrs)
    values: dict[Value, Any] = dict(zip(definition.params, (x for x in inputs if x is not None), strict=True))
    for inner in definition.nodes:
        outputs = _open(inner, tuple(values[x] if isinstance(x, Value) else x for x in inner.inputs), claimed)
        values.update(zip(inner.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
    results = tuple(as_value(values[r]) for r in definition.results)
    return results if len(results) > 1 else results[0]


def as_value(x: Value | Literal) -> Value:
    """A literal as a node of its own, where the graph needs a value."""
    if isinstance(x, Value):
        return x
    return current_builder().constant(np.asarray(x.value, x.dtype.numpy))

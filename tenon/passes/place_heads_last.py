"""Graph -> the same graph, in which attention writes its result as it is read: with the heads side by side.

Networks put the heads together again after attention, out.swapaxes(-3, -2).reshape(...), for a product with weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenon.graph.build import current_builder, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.partition import map_graphs
from tenon.ops.attention import attention
from tenon.ops.shape import permute


def place_heads_last(graph: Graph) -> Graph:
    """Let attention write what is read with its last but one axes swapped; other readers swap them back."""
    users = graph.users()
    chosen = {node for node in graph.nodes if _is_read_swapped(node, users)}
    if not chosen and not any(node.graphs for node in graph.nodes):
        return graph

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        attrs = map_graphs(node.attrs, place_heads_last)
        if _swaps(node) and _made_by(node.inputs[0]) in chosen:
            swapped_back = _made_by(inputs[0])
            assert swapped_back is not None
            return swapped_back.inputs[0]
        if node not in chosen:
            return current_builder().emit(node.op, inputs, attrs)
        out, *sums = attention(*inputs, **{**attrs, "heads_last": True})
        return permute(out, axes=_swapped(node.outputs[0])), *sums
    return rebuild(graph, visit)


def _is_read_swapped(node: Node, users: Mapping[Value, list[Node]]) -> bool:
    if node.op is not attention or node.attrs["heads_last"] or node.outputs[0].ndim < 3:
        return False
    return any(map(_swaps, users[node.outputs[0]]))


def _made_by(x: Input) -> Node | None:
    return x.node if isinstance(x, Value) else None


def _swaps(node: Node) -> bool:
    return node.op is permute and node.output.ndim >= 3 and tuple(node.attrs["axes"]) == _swapped(node.output)


def _swapped(x: Value) -> tuple[int, ...]:
    """The axes with the third from the end and the last but one exchanged."""
    first = range(x.ndim - 3)
    return (*first, x.ndim - 2, x.ndim - 3, x.ndim - 1)

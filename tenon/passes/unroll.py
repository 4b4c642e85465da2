"""Graph -> the same graph where a scan of one iteration, or of a few small ones, is its body that many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.graph.build import call_graph, copy, literal, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.partition import has_effect
from tenon.ops.control_flow_nodes import Control, as_values
from tenon.ops.loops import scan
from tenon.ops.shape import full_op, reshape_op
from tenon.ops.slice_pad_concat import concat_op, slice_op
from tenon.passes.rewriting.nested import nested

MAX_ITERATIONS, MAX_NODES = 4, 12        # of a scan that is unrolled, and nodes in all its iterations


@nested
def unroll(graph: Graph) -> Graph:
    """Write short scans out."""
    if not any(node.op is scan for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node: Node, inputs: tuple[Input, ...]) -> Any:
    if node.op is not scan or not is_short(node):
        return copy(node, inputs)
    return unrolled(Control.of(node, inputs), node.outputs)


def is_short(node: Node) -> bool:
    """Whether a scan is to be written out."""
    length, nodes = node.attrs["length"], node.attrs["body"].nodes
    if not isinstance(length, int) or has_effect(node):
        return False
    small = length <= MAX_ITERATIONS and length * len(nodes) <= MAX_NODES and not any(inner.graphs for inner in nodes)
    return length <= 1 or small


def unrolled(control: Control, outputs: Sequence[Value]) -> tuple[Value, ...]:
    """The body, once for each iteration."""
    length, count = control.rest["length"], len(control.carried)
    constants, state = as_values(control.constants), as_values(control.carried)
    rows: list[Sequence[Value]] = []
    for k in reversed(range(length)) if control.rest["reverse"] else range(length):
        results = call_graph(control.bodies[0], [*constants, *state, *(row(x, k) for x in control.sequences)])
        state, rows = results[:count], [*rows, results[count:]]
    rows = rows[::-1] if control.rest["reverse"] else rows
    stacked = [stack([r[k] for r in rows]) if rows else full_op(literal(0, x.dtype), shape=x.shape)
               for k, x in enumerate(outputs[count:])]
    return *state, *stacked


def row(x: Input, k: int) -> Value:
    """One slice of a sequence."""
    assert isinstance(x, Value)
    rest = x.shape[1:]
    part = slice_op(x, start=(k, *(0 for _ in rest)), stop=(k + 1, *rest), step=(1,) * x.ndim)
    reshaped: Value = reshape_op(part, shape=rest)
    return reshaped


def stack(rows: Sequence[Value]) -> Value:
    """Slices, one after the other."""
    parts = [reshape_op(x, shape=(1, *x.shape)) for x in rows]
    stacked: Value = concat_op(*parts, axis=0) if len(parts) > 1 else parts[0]
    return stacked



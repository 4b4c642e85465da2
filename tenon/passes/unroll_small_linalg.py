"""Graph -> the same graph with systems of few equations written out, in place of calls of LAPACK.

    v0: f32[2, 1] = solve(s, y)     ->      v0: f32[2, 1] = small_solve(s, y)
"""

from __future__ import annotations

from typing import Any

from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.small_matrices import WRITTEN_OUT, is_small
from tenon.passes.rewriting.nested import nested


@nested
def unroll_small_linalg(graph: Graph) -> Graph:
    """Let small operators take the place of what calls LAPACK for few rows."""
    return rebuild(graph, _visit) if any(map(_is_small, graph.nodes)) else graph


def _visit(node: Node, inputs: tuple[Input, ...]) -> Any:
    return current_builder().emit(WRITTEN_OUT[node.op], inputs, node.attrs) if _is_small(node) else copy(node, inputs)


def _is_small(node: Node) -> bool:
    return node.op in WRITTEN_OUT and all(isinstance(x, Value) and _fits(x) for x in node.inputs)


def _fits(x: Value) -> bool:
    known = all(isinstance(n, int) for n in x.shape[-2:])
    return x.dtype.short in ("f32", "f64") and known and is_small(x.type)

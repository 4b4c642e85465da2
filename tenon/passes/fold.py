"""Graph -> the same graph with everything that depends on constants only computed now (constant folding)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import TenonError
from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.partition import has_effect
from tenon.ops.creation import arange_op
from tenon.ops.shape import broadcast_to, constant, full_op, reshape_op
from tenon.passes.rewriting.nested import nested
from tenon.types import STACK

MAX_ELEMENTS = 1024    # larger constants cost more to carry about than to compute
GENERATORS = (constant, broadcast_to, full_op, arange_op, reshape_op)     # as cheap as a load


@nested
def fold(graph: Graph) -> Graph:
    """Compute what is constant."""
    known: dict[Value, np.ndarray] = {}

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        inputs = tuple(_as_literal(x, known) for x in inputs)
        arrays = _evaluate(node, inputs, known) if _is_foldable(node, inputs, known) else None
        if arrays is None:
            return copy(node, inputs)
        if node.op in GENERATORS:
            outputs = copy(node, inputs)
        else:
            constants = tuple(map(current_builder().constant, arrays))
            outputs = constants if len(node.outputs) > 1 else constants[0]
        known.update(zip(outputs if isinstance(outputs, tuple) else (outputs,), arrays, strict=True))
        return outputs

    return rebuild(graph, visit)


def _is_foldable(node: Node, inputs: tuple[Input, ...], known: dict[Value, np.ndarray]) -> bool:
    return (not has_effect(node) and not node.graphs and not node.op.data_dependent
            and all(x in known for x in inputs if isinstance(x, Value))
            and all(_is_small(x) for x in node.outputs)
            and not any(_mentions_symbol(value) for value in node.attrs.values()))


def _is_small(value: Value) -> bool:
    return value.type != STACK and isinstance(value.size, int) and value.size <= MAX_ELEMENTS


def _mentions_symbol(value: Any) -> bool:
    return isinstance(value, SymbolicDim) or (isinstance(value, tuple) and any(map(_mentions_symbol, value)))


def _evaluate(node: Node, inputs: tuple[Input, ...], known: dict[Value, np.ndarray]) -> tuple[np.ndarray, ...] | None:
    """The outputs; None where the operator raises: then it raises at run time, where the user expects it."""
    arrays = [None if x is None else np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal) else known[x]
              for x in inputs]
    try:
        with np.errstate(all="ignore"):
            return evaluate_op(node.op, arrays, node.attrs, tuple(x.type for x in node.outputs))
    except (TenonError, ArithmeticError, ValueError, IndexError):
        return None


def _as_literal(x: Input, known: dict[Value, np.ndarray]) -> Input:
    """A known scalar is written where it is read."""
    if isinstance(x, Value) and x.ndim == 0 and x in known and x.node is not None and x.node.op is constant:
        return Literal(known[x].item(), x.type)
    return x

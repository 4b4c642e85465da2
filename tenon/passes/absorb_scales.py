"""Graph with constant weights -> the same graph, in which a product's columns are scaled by scaling its weight.

What a product of matrices is scaled by, column by column, goes to its weight: algebra that pays only because the weight
is scaled once.  The literature calls it batch-norm folding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.ir import CONSTANTS, Graph, Input, Literal, Node, Value
from tenon.ops.arithmetic import add, multiply
from tenon.ops.convolution import conv
from tenon.ops.matrix_products import matmul_op
from tenon.ops.shape import broadcast_to, permute, reshape_op
from tenon.passes.partition_constants import bytes_of, constant_values, may_be_kept
from tenon.records import dataclass, replace


@dataclass(frozen=True)
class Scaled:
    """A value of the new graph that is product + shift, with a weight and a shift that are constants.

    The shift has the axes of the product, of size 1 where it is the same everywhere.
    """

    product: Node
    inputs: tuple[Input, ...]
    shift: Any = None


def absorb_scales(graph: Graph) -> Graph:
    """Bring factors and summands of the columns of a product to its weight and to one summand, where all of them
    depend on the parameters in graph.notes[CONSTANTS] alone: BatchNorm in use becomes part of the convolution.

    Legal where scaled weights are finite: an infinite scale times a weight of 0 is NaN, times the product it is not.
    Whoever runs the constant part looks at what it returns (`capture/constant_weights.py`)."""
    if CONSTANTS not in graph.notes:
        return graph
    known = constant_values(graph, graph.notes[CONSTANTS])
    users = graph.users()
    ends = set(graph.results)
    scaled: dict[Value, Scaled] = {}        # by the old graph's value

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        found = _absorbed(node, inputs, known, scaled)
        if found is None:
            return copy(node, inputs)
        out = _written(found)
        if len(users[node.output]) == 1 and node.output not in ends:
            scaled[node.output] = found
        return out

    return rebuild(graph, visit)


def _absorbed(node: Node, inputs: tuple[Input, ...], known: Mapping[Value, int],
              scaled: Mapping[Value, Scaled]) -> Scaled | None:
    """What the node is as a scaled product; None where it is none."""
    if node.op in WEIGHTS and node.output.dtype.kind == "f" and _is_worth_keeping(node.inputs[1], known):
        return Scaled(node, inputs)
    if node.op not in (multiply, add):
        return None
    for k, x in enumerate(node.inputs):
        before = scaled.get(x) if isinstance(x, Value) else None
        if before is None:
            continue
        other = _along_columns(node.inputs[1 - k], inputs[1 - k], before.product, known)
        if other is None or (node.op is multiply and isinstance(node.inputs[1 - k], Literal)):
            return None         # one number is multiplied by while the product is stored, which is free
        if node.op is add:
            return replace(before, shift=other if before.shift is None else before.shift + other)
        left, weight = before.inputs
        inner = WEIGHTS[before.product.op](weight, other)
        return Scaled(before.product, (left, inner), None if before.shift is None else before.shift * other)
    return None


def _is_worth_keeping(weight: Input, known: Mapping[Value, int]) -> bool:
    """Whether a scaled weight would be kept: one of 8 bits is not, since its size is worth more than the scaling."""
    return isinstance(weight, Value) and weight in known and may_be_kept(bytes_of(weight), known[weight])


def _along_columns(old: Input, now: Input, product: Node, known: Mapping[Value, int]) -> Any:
    """A constant operand that differs from column to column of the product at most, with size 1 along other axes."""
    shape = product.output.shape
    column = 1 if product.op is conv else len(shape) - 1
    if isinstance(old, Literal):
        return broadcast_to(now, shape=(1,) * len(shape))
    if old is None or old not in known or old.node is None or old.node.op is not broadcast_to:
        return None
    assert isinstance(now, Value) and now.node is not None
    small: Any = now.node.inputs[0]
    sizes = (*(1,) * (len(shape) - small.ndim), *small.shape)
    if any(n != 1 for axis, n in enumerate(sizes) if axis != column):
        return None
    return reshape_op(small, shape=sizes)


def _written(found: Scaled) -> Any:
    out = current_builder().emit(found.product.op, found.inputs, found.product.attrs)
    return out if found.shift is None else add(out, broadcast_to(found.shift, shape=out.shape))


def _scale_kernel(weight: Any, scale: Any) -> Any:
    """[O, C, *kernel] by [1, O, 1 ...]"""
    return weight * permute(scale, axes=(1, 0, *range(2, weight.ndim)))


def _scale_matrix(weight: Any, scale: Any) -> Any:
    """[..., K, N] by [..., 1, N or 1]"""
    return weight * reshape_op(scale, shape=(1,) * (weight.ndim - 1) + (scale.shape[-1],))


WEIGHTS = {conv: _scale_kernel, matmul_op: _scale_matrix}      # products, and how their right factor is scaled

"""Nodes -> what of them is the gradient of attention in plain operators, which differentiation makes of them.

    slopes = weights * (g @ v.T - (g @ v.T * weights).sum(-1))
    dv = weights.T @ g;  dq = scale * slopes @ k;  dk = scale * slopes.T @ q

Slopes are followed down to the last products, through what scores were scaled, masked, converted or renamed by.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tenon.graph.ir import Literal, Node, Value
from tenon.ops.arithmetic import divide, multiply, subtract
from tenon.ops.comparison import where
from tenon.ops.matrix_products import matmul_op
from tenon.ops.reduction import sum_
from tenon.ops.shape import permute
from tenon.passes.attention.match_attention import (
    Factor,
    PlainAttention,
    along_rows,
    factor_of,
    names_of,
    narrow,
    number_beside,
    renames,
)
from tenon.records import dataclass

Users = Mapping[Value, list[Node]]
Q, K, V = range(3)


@dataclass(frozen=True)
class AttentionProduct:
    """A node that is the gradient of queries, keys or values; `transposed` where it has rows for columns."""

    node: Node
    of: int
    transposed: bool


@dataclass(frozen=True)
class PlainGradient:
    """The products, and the gradient of attention's result that they come from."""

    g: Factor | None
    products: tuple[AttentionProduct, ...]


def plain_gradient(x: PlainAttention, users: Users, results: Collection[Value]) -> PlainGradient | None:
    """What is computed of the weights beside the result; None where that is not attention's gradient alone."""
    readers = _readers(x.weights, users, results)
    if readers is None:
        return None
    products = [node for node in readers if node.op is matmul_op and node is not x.product]
    scaled = [node for node in readers if node.op is multiply]
    if len(readers) != 1 + len(products) + len(scaled) or x.product not in readers:
        return None
    if not products and not scaled:
        return PlainGradient(None, ())
    found = [_of_values(node, factor_of(x.product.inputs[0])) for node in products]
    slopes = _slopes(x, scaled, users) if scaled else None
    if (scaled and slopes is None) or None in found:
        return None
    gradients = [] if slopes is None else _of_scores(x, slopes[0], users, results)
    if gradients is None:
        return None
    sources = {pair[1] for pair in (*found, slopes) if pair is not None}
    if len(sources) != 1:
        return None
    return PlainGradient(sources.pop(), (*(pair[0] for pair in found if pair), *gradients))


def _readers(x: Value, users: Users, results: Collection[Value]) -> list[Node] | None:
    """The nodes that read a value, also transposed, renamed or converted; None where it is a result."""
    found: dict[Node, None] = {}
    stack = [x]
    while stack:
        value = stack.pop()
        if value in results:
            return None
        for node in users[value]:
            if renames(node) or (node.op is permute and factor_of(node.output) == factor_of(value).transposed):
                stack.append(node.output)
            else:
                found[node] = None
    return list(found)


def _of_values(node: Node, weights: Factor) -> tuple[AttentionProduct, Factor] | None:
    """The gradient of values, and what it is computed of."""
    left, right = map(factor_of, node.inputs)
    if left == weights.transposed:
        return AttentionProduct(node, V, False), right
    return (AttentionProduct(node, V, True), left.transposed) if right == weights else None


def _slopes(x: PlainAttention, scaled: list[Node], users: Users) -> tuple[Value, Factor] | None:
    """The gradient of what the softmax is taken of, and the factor of the product that it comes from."""
    for node in scaled:
        for difference in node.inputs:
            if isinstance(difference, Value) and difference.node is not None and difference.node.op is subtract:
                first, mean = difference.node.inputs
                summed = along_rows(mean, sum_)
                if not isinstance(first, Value) or not isinstance(summed, Value) or summed.node is None:
                    continue
                if {*scaled} == {node, summed.node} and set(summed.node.inputs) == {first, x.weights}:
                    *_, source = names_of(first)
                    g = _against(source, x.v.transposed)
                    return None if g is None else (node.output, g)
    return None


def _against(x: Value, factor: Factor) -> Factor | None:
    """What is multiplied with this factor."""
    if x.node is None or x.node.op is not matmul_op:
        return None
    left, right = map(factor_of, x.node.inputs)
    return left if right == factor else None


def _of_scores(x: PlainAttention, slopes: Value, users: Users,
               results: Collection[Value]) -> list[AttentionProduct] | None:
    """The gradients of queries and keys."""
    scale, chosen = 1.0, set()
    while slopes not in results and len(users[slopes]) == 1:
        (node,) = users[slopes]
        factor = number_beside(node) if node.op in (multiply, divide) else None
        if factor is not None:
            scale *= factor[1]
        elif node.op is where:
            condition, *values = node.inputs
            zero = next((k for k, y in enumerate(values) if isinstance(y, Literal) and y.value == 0), None)
            if zero is None or not isinstance(condition, Value) or condition is slopes:
                return None
            chosen.add((narrow(condition), zero == 0))
        elif not renames(node):
            break
        slopes = node.output
    same = {(mask.x, mask.forbids) for mask in x.masks if not mask.is_added}
    readers = _readers(slopes, users, results)
    if readers is None or chosen != same or not math.isclose(scale, x.scale, rel_tol=1e-6):
        return None
    found = [_of_queries_or_keys(node, factor_of(slopes), x) for node in readers]
    return None if None in found else [product for product in found if product]


def _of_queries_or_keys(node: Node, slopes: Factor, x: PlainAttention) -> AttentionProduct | None:
    if node.op is not matmul_op:
        return None
    left, right = map(factor_of, node.inputs)
    known = {(slopes, x.k): (Q, False), (slopes.transposed, x.q): (K, False),
             (x.k.transposed, slopes.transposed): (Q, True), (x.q.transposed, slopes): (K, True)}
    return AttentionProduct(node, *known[left, right]) if (left, right) in known else None

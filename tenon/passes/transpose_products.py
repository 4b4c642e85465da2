"""Graph -> the same graph where a product that is only read transposed is made transposed.

    y = matmul(a, b); z = permute(y, axes=(1, 0))    ->    z = matmul(permute(b, axes=(1, 0)), permute(a, axes=(1, 0)))

The factors are read while they are packed, in any order; the result need not be gone through crosswise by its reader.
So the gradient of `x @ w.T` with respect to w lies in memory as w does.
"""

from __future__ import annotations

from typing import Any

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.matrix_products import matmul_op, mT
from tenon.ops.shape import permute
from tenon.passes.drop_dead import drop_dead
from tenon.passes.rewriting.nested import nested


@nested
def transpose_products(graph: Graph) -> Graph:
    """Swap and transpose the factors of every product that one `permute` alone reads."""
    read = drop_dead(graph)
    transposed = _read_transposed(read)
    if not transposed:
        return graph

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        if node not in transposed:
            return copy(node, inputs)
        product = inputs[0]
        assert isinstance(product, Value) and product.node is not None
        left, right = product.node.inputs
        return matmul_op(mT(right), mT(left))
    return rebuild(read, visit)


def _read_transposed(graph: Graph) -> set[Node]:
    """The nodes that transpose such a product; who reads a product twice as it is needs it as it is."""
    users, results = graph.users(), set(graph.results)
    found = set()
    for node in graph.nodes:
        if node.op is matmul_op and node.output not in results and len(users[node.output]) == 1:
            (reader,) = users[node.output]
            if reader.op is permute and _swaps_last(reader.attrs["axes"]):
                found.add(reader)
    return found


def _swaps_last(axes: tuple[int, ...]) -> bool:
    last = len(axes) - 1
    return axes == (*range(last - 1), last, last - 1)

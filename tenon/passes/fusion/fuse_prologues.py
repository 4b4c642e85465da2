"""Cheap elementwise work that is stored for a product with one row alone -> a part of that product.

    w = q * s, stored; y = x @ w    ->    y = x @ (q * s)

The elements of a factor that meet one row are read once, in plain loops, so nothing is computed twice: weights of 8
bits that are scaled by hand never stand in memory as floats.  The literature calls it a prologue.
"""

from __future__ import annotations

from tenon.graph.ir import Node, Value
from tenon.ops.matrix_products import matmul_op
from tenon.passes.fusion.fusion_groups import FusionGroup, elements, try_nodes, union
from tenon.passes.fusion.fusion_partition import Groups

MAX_NODES = 8           # of the work on a factor
MIN_FACTOR_ELEMENTS = 1 << 14   # of a factor that takes longer to store than a kernel to begin


def take_prologues(groups: Groups) -> None:
    """Change the partition where it pays."""
    for node in groups.graph.nodes:
        if node.op is matmul_op and groups.kinds[node].name == "contraction":
            for producer in groups.producers(node):
                _try(groups, producer, node)


def may_have_prologue(groups: Groups, group: FusionGroup) -> bool:
    """Whether a product may take in what one of its factors is made of."""
    return any(node.op is matmul_op and any(_may_take(groups, producer, node) for producer in groups.producers(node))
               for node in group.nodes)


def _try(groups: Groups, producer: Node, node: Node) -> None:
    before, after = groups.group_of(producer), groups.group_of(node)
    if before is after or not _may_take(groups, producer, node):
        return
    both = try_nodes(*groups.with_views(union(before, after, groups.position)), groups.target)
    if both is not None and not both.products and both.cost < groups.worth.cost(before) + groups.worth.cost(after):
        groups.merge(before, after, certainly=True)


def _may_take(groups: Groups, producer: Node, node: Node) -> bool:
    """Whether the group of the producer is cheap work on a factor of the product, which nobody else reads."""
    before, x = groups.group_of(producer), producer.output
    if before.kinds != {"map"} or not _is_worthwhile(x, node) or not _is_read_by(groups, x, node):
        return False
    cheap = all(part.op.elementwise and not groups.kinds[part].expensive for part in before.nodes)
    return (cheap and len(before.nodes) <= MAX_NODES and groups.with_views(before)[1] == [x]
            and groups.may_be_one(before, groups.group_of(node)))


def _is_read_by(groups: Groups, x: Value, node: Node) -> bool:
    """Whether the value, as it is or through views, is read by the node and nobody else."""
    return not groups.is_stored(x) and all(
        user is node or (groups.kinds[user].name == "view" and _is_read_by(groups, user.output, node))
        for user in groups.users[x])


def _is_worthwhile(factor: Value, node: Node) -> bool:
    """Whether the factor is large, and each of its elements meets one other."""
    left = node.inputs[0]
    assert isinstance(left, Value)
    if not all(isinstance(n, int) for x in (factor, left, node.output) for n in x.shape):
        return False
    size = elements(factor.shape)
    return elements(node.output.shape) * elements(left.shape[-1:]) <= size and size >= MIN_FACTOR_ELEMENTS

"""Cheap elementwise work that is stored for a product alone -> a part of the product, which computes it while packing.

    w = q * s, stored; y = x @ w    ->    y = x @ (q * s)

Each element of a factor is then computed when it is packed, or when it is read by a product of few rows, in vectors.
A factor that meets many rows, or columns, is not worth it: storing it is a small part of what takes time there.
"""

from __future__ import annotations

from tenon.graph.ir import Node, Value
from tenon.ops.linalg import matmul_op
from tenon.passes.groups import Group, elements, try_nodes, union
from tenon.passes.partition import Groups

MOST_NODES = 8          # of the work on a factor
MOST_USES = 64          # products of each element of a factor: beyond, storing it takes no time beside them
FEW_USES = 8            # of which it pays for a factor of so many elements;
LEAST = 1 << 14
LARGE = 1 << 20         # with more, for one that leaves the caches between the two kernels


def take_prologues(groups: Groups) -> None:
    """Change the partition where it pays."""
    for node in groups.graph.nodes:
        if node.op is matmul_op and groups.kinds[node].name == "contraction":
            for producer in groups.producers(node):
                _try(groups, producer, node)


def may_have_prologue(groups: Groups, group: Group) -> bool:
    """Whether a product may take in what one of its factors is made of."""
    return any(node.op is matmul_op and any(_may_take(groups, producer, node) for producer in groups.producers(node))
               for node in group.nodes)


def _try(groups: Groups, producer: Node, node: Node) -> None:
    before, after = groups.group_of(producer), groups.group_of(node)
    if before is after or not _may_take(groups, producer, node):
        return
    trial = try_nodes(*groups.with_views(union(before, after, groups.position)))
    if trial is not None and trial.one_nest and trial.has_vectors:
        groups.merge(before, after, True)


def _may_take(groups: Groups, producer: Node, node: Node) -> bool:
    """Whether the group of the producer is cheap work on a factor of the product, which nobody else reads."""
    before, x = groups.group_of(producer), producer.output
    if before.kinds != {"map"} or not _is_worthwhile(x, node) or not _is_read_by(groups, x, node):
        return False
    cheap = all(part.op.elementwise and not groups.kinds[part].expensive for part in before.nodes)
    return (cheap and len(before.nodes) <= MOST_NODES and groups.with_views(before)[1] == [x]
            and groups.may_be_one(before, groups.group_of(node)))


def _is_read_by(groups: Groups, x: Value, node: Node) -> bool:
    """Whether the value, as it is or through views, is read by the node and nobody else."""
    return not groups.is_stored(x) and all(
        user is node or (groups.kinds[user].name == "view" and _is_read_by(groups, user.output, node))
        for user in groups.users[x])


def _is_worthwhile(factor: Value, node: Node) -> bool:
    """Whether the factor is large, and storing it takes long beside multiplying it."""
    left = node.inputs[0]
    assert isinstance(left, Value)
    if not all(isinstance(n, int) for x in (factor, left, node.output) for n in x.shape):
        return False
    size = elements(factor.shape)
    products = elements(node.output.shape) * elements(left.shape[-1:])
    return products <= MOST_USES * size and size >= (LEAST if products <= FEW_USES * size else LARGE)

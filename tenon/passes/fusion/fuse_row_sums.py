"""Sums over the rows of what the epilogue of a product stores -> parts of that product's kernel.

It adds up what it has just computed (`tenon.loops.epilogue_reductions`), which no cache near the processor holds any
more when all is stored: the gradient of a bias beside that of an activation.  All else is merged before, since a sum in
the kernel of a product must not keep anything out of it.
"""

from __future__ import annotations

from tenon.graph.ir import Node, Value
from tenon.loops.cost import known
from tenon.ops.reduction import sum_
from tenon.passes.fusion.fusion_groups import FusionGroup, bytes_of
from tenon.passes.fusion.fusion_partition import Groups

MIN_SUMMED_BYTES = 1 << 21  # bytes of what is added up: less of it is still in a cache
MIN_COLUMNS = 64        # at least


def join_row_sums(groups: Groups) -> None:
    """Change the partition where it pays."""
    for node in groups.graph.nodes:
        if (x := _added_up(node)) is not None and x.node is not None and groups.is_core(x.node):
            before, after = groups.group_of(x.node), groups.group_of(node)
            if groups.may_be_one(before, after) and _joins(before, after, x, groups):
                groups.merge(before, after, certainly=False)


def _added_up(node: Node) -> Value | None:
    """What the node adds up over all axes but the last, if that is large."""
    if node.op is not sum_:
        return None
    x = node.inputs[0]
    if not isinstance(x, Value) or x.ndim < 2 or node.attrs["axis"] != tuple(range(x.ndim - 1)):
        return None
    return x if known(x.shape[-1]) >= MIN_COLUMNS and bytes_of(x) >= MIN_SUMMED_BYTES else None


def _joins(before: FusionGroup, after: FusionGroup, x: Value, groups: Groups) -> bool:
    """Whether the first is a product and its epilogue, and the second nothing but such sums of its results, and what is
    made of them.

    A product without an epilogue is faster where it only stores.
    """
    if not {"contraction", "map"} <= before.kinds or after.kinds - {"map", "reduce"}:
        return False
    sums = [node for node in after.nodes if groups.kinds[node].name == "reduce"]
    small = all(known(y.size) <= known(x.shape[-1]) for y in after.results)
    return small and all((y := _added_up(node)) is not None and y in before.results for node in sums)

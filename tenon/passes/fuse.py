"""Graph -> the same graph where operators that one kernel can compute together are one `fused` node.

Five steps, all decided by what memory is moved: nodes are merged with those that they read from; cheap values that
are stored for other kernels are computed again there; sums join the product whose rows they add up; products with
one row take in what their factors are made of; kernels that read the same memory are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tenon.graph.ir import Graph
from tenon.passes.drop_dead import drop_dead
from tenon.passes.fusion.duplicate_producers import repeat_cheap
from tenon.passes.fusion.early_kernels import settled_products
from tenon.passes.fusion.emit_fused_nodes import grouped
from tenon.passes.fusion.fuse_prologues import take_prologues
from tenon.passes.fusion.fuse_row_sums import join_row_sums
from tenon.passes.fusion.fusion_partition import Groups
from tenon.passes.fusion.horizontal_fusion import merge_siblings
from tenon.passes.rewriting.nested import on_subgraphs
from tenon.target import GENERIC, Target

SWEEPS = 2      # what stood between two nodes may have been merged with one of them since


def fuse(graph: Graph, begin: Callable[[Graph], None] | None = None, target: Target = GENERIC) -> Graph:
    """Group operators into kernels for a machine, in sub-graphs too.

    `begin` is told of products when they are what they will be: of some at the start, of all before the last step.
    """
    groups = Groups(drop_dead(on_subgraphs(graph, partial(fuse, target=target))), target)
    if begin is not None:
        begin(settled_products(groups))
    for alike in groups.links() * SWEEPS:
        for producer, node in alike:
            groups.try_merge(producer, node)
        for producer, node in alike:
            groups.try_merge_linked(producer, node)
    repeat_cheap(groups)
    join_row_sums(groups)
    take_prologues(groups)
    if begin is not None:
        begin(grouped(groups))
    merge_siblings(groups)
    return grouped(groups)

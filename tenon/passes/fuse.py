"""Graph -> the same graph where operators that one kernel can compute together are one `fused` node.

Three steps, all decided by what memory is moved: nodes are merged with those that they read from; cheap values that
are stored for other kernels are computed again there; kernels that read the same memory are merged.
"""

from __future__ import annotations

from tenon.graph.ir import Graph
from tenon.passes.drop_dead import drop_dead
from tenon.passes.nested import nested
from tenon.passes.partition import Groups
from tenon.passes.repeat_cheap import repeat_cheap
from tenon.passes.siblings import merge_siblings

SWEEPS = 2      # what stood between two nodes may have been merged with one of them since


@nested
def fuse(graph: Graph) -> Graph:
    """Group operators into kernels."""
    groups = Groups(drop_dead(graph))
    for producer, node in groups.links() * SWEEPS:
        groups.try_merge(producer, node)
    repeat_cheap(groups)
    merge_siblings(groups)
    return groups.emit()

"""Kernels that read the same memory -> one kernel, where that reads it once."""

from __future__ import annotations

from itertools import combinations

from tenon.passes.partition import Groups


def merge_siblings(groups: Groups) -> None:
    """Change the partition where it pays."""
    values = [*groups.graph.params, *(x for node in groups.graph.nodes for x in node.outputs)]
    for x in values:
        readers = [group for group in groups.readers(x) if group.kinds <= {"map", "reduce"}]
        for one, other in combinations(sorted(readers, key=groups.order.place.__getitem__), 2):
            groups.try_merge_siblings(one, other)

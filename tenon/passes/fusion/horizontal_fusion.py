"""Kernels that read the same memory, or a result that another stores -> one kernel, where that reads it once or never.
"""

from __future__ import annotations

from itertools import combinations

from tenon.graph.ir import Value
from tenon.passes.fusion.fusion_groups import FusionGroup, bytes_of, find_group
from tenon.passes.fusion.fusion_partition import Groups
from tenon.passes.fusion.fusion_profitability import MAX_COST_RATIO


def merge_siblings(groups: Groups) -> None:
    """Change the partition where it pays."""
    values = [*groups.graph.params, *(x for node in groups.graph.nodes for x in node.outputs)]
    moved = _Moved(groups)
    for x in values:
        made = {groups.group_of(node) for node in groups.behind(x) if node is x.node and groups.is_stored(x)}
        beside = [group for group in made | groups.readers(x) if group.kinds <= {"map", "reduce"}]
        beside = [group for group in beside if bytes_of(x) >= (1 - MAX_COST_RATIO) * moved.by(group)]
        for one, other in combinations(sorted(beside, key=groups.order.place.__getitem__), 2):
            if moved.may_save(find_group(one), find_group(other)):
                groups.try_merge_siblings(find_group(one), find_group(other))


class _Moved:
    """What kernels read and write, and which pairs are not worth a trial."""

    def __init__(self, groups: Groups):
        self.groups = groups
        self.known: dict[FusionGroup, tuple[set[Value], int]] = {}
        self.tried: set[tuple[FusionGroup, FusionGroup]] = set()

    def by(self, group: FusionGroup) -> int:
        """Bytes; a store counts twice."""
        return self._of(group)[1]

    def may_save(self, one: FusionGroup, other: FusionGroup) -> bool:
        """Whether what both touch is enough of what they move; asked once for every pair."""
        if one is other or (one, other) in self.tried:
            return False
        self.tried.add((one, other))
        shared = sum(bytes_of(x) for x in self._of(one)[0] & self._of(other)[0])
        return shared >= (1 - MAX_COST_RATIO) * (self.by(one) + self.by(other))

    def _of(self, group: FusionGroup) -> tuple[set[Value], int]:
        """(the values that the kernel reads and writes, the bytes that it moves)."""
        if group not in self.known:
            read = self.groups.inputs_of(group)
            written = self.groups.with_views(group)[1]
            self.known[group] = read.union(written), sum(map(bytes_of, read)) + 2 * sum(map(bytes_of, written))
        return self.known[group]

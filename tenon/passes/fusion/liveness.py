"""Graph -> which memory is in use at which node, beside parameters and results."""

from __future__ import annotations

import numpy as np

from tenon.graph.ir import Graph, Value
from tenon.locks import cached_property
from tenon.passes.fusion.fusion_groups import elements
from tenon.passes.fusion.fusion_partition import RENAMES
from tenon.records import dataclass


def peak_bytes(graph: Graph) -> int:
    """The most memory in use at one node, beside parameters and results; symbolic sizes count as middling ones."""
    return Timeline(graph).peak


@dataclass(frozen=True)
class LiveRange:
    """Memory that a node makes: where it is read, and how large it is.  Renamed values are one memory."""

    made: int
    reads: tuple[int, ...]
    size: int
    kept: bool          # a result, which has memory of its own, to the end

    def last(self, end: int) -> int:
        return end if self.kept else max(self.reads, default=self.made)


class Timeline:
    """Which memory is in use at which node."""

    def __init__(self, graph: Graph):
        self.graph, self.end = graph, len(graph.nodes)
        self.home: dict[Value, Value] = {}
        reads: dict[Value, list[int]] = {}
        made: dict[Value, int] = {}
        for k, node in enumerate(graph.nodes):
            renamed = node.inputs[0] if node.op in RENAMES else None
            for x in node.uses():
                reads.setdefault(self.home.get(x, x), []).append(k)
            for x in node.outputs:
                self.home[x] = self.home.get(renamed, renamed) if isinstance(renamed, Value) else x
                if self.home[x] is x:
                    made[x] = k
        results = {self.home.get(r, r) for r in graph.results}
        self.lives = {x: LiveRange(k, tuple(reads.get(x, ())), elements(x.shape) * x.dtype.itemsize, x in results)
                      for x, k in made.items()}
        change = np.zeros(self.end + 2, np.int64)
        for life in self.lives.values():
            if not life.kept:
                change[life.made] += life.size
                change[life.last(self.end) + 1] -= life.size
        self.used = np.cumsum(change)[:max(1, self.end)]

    @cached_property
    def top(self) -> int:
        """The node at which most is in use."""
        return int(self.used.argmax())

    @cached_property
    def peak(self) -> int:
        """How much that is."""
        return int(self.used.max(initial=0))

    def lives_at(self, x: Value, k: int) -> bool:
        """Whether a value is in memory at a node anyway; an argument always is."""
        life = self.lives.get(self.home.get(x, x))
        return life is None or life.made <= k <= life.last(self.end)

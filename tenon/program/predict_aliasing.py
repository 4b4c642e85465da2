"""A graph that is yet to be ordered -> which variants of its kernels the first run will call, as far as that is known.

The results of an optimizer's step take the memory of donated arguments, and a kernel that shares memory is other code.
That a result takes the argument it was made from is known before the steps are: `tenon.passes.schedule_nodes` lets
whoever else reads the argument come first.  Which kernels share what lies between them is not: it depends on their
order. Nor is it known where there are loops, which a signal ends: what comes before them leaves arguments as they were.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.graph.ir import DONATED, UPDATES, Graph, Value
from tenon.ops.graph_calls import fused
from tenon.ops.shape import reshape_op
from tenon.program.kernel import CompiledKernel


class PredictedAliasing:
    """The variants of kernels of a graph that `tenon.runtime.program_layout.called_first` will name."""

    def __init__(self, graph: Graph) -> None:
        self.params = set(graph.params)
        self.donated = [graph.params[k] for k in sorted(graph.notes.get(DONATED, ()))]
        self.updated: dict[Value, list[Value]] = {}
        for k, result in graph.notes.get(UPDATES, ()):
            self.updated.setdefault(graph.params[k], []).append(_home(graph.results[result]))
        self.results = {_home(x): x.type for x in graph.results}
        self.loops = any(node.op is not fused and node.graphs for node in graph.nodes)

    def variant(self, unit: CompiledKernel, inputs: Sequence[Value], outputs: Sequence[Value]) -> CompiledKernel | None:
        """The kernel that is called on these values; None where that depends on the order of the steps."""
        read, pairs = [_home(x) for x in inputs], unit.facts.in_place
        if pairs and (self.loops or any(outputs[k] not in self.results and read[j] not in self.params
                                        for k, j in pairs)):
            return None
        taken: dict[int, int] = {}
        for result in (x for x in self.results if x in outputs):
            place = outputs.index(result)
            free = (read.index(x) for x in self._donors(result) if read.count(x) == 1)
            found = next((j for j in free if (place, j) in pairs and j not in taken.values()), None)
            if found is not None:
                taken[place] = found
        return unit.sharing(tuple(sorted(taken.items())))

    def _donors(self, result: Value) -> list[Value]:
        if self.updated:
            return [x for x in self.donated if result in self.updated.get(x, ())]
        return [x for x in self.donated if x.type == self.results[result]]


def _home(x: Value) -> Value:
    """The value whose memory this is under another type."""
    while x.node is not None and x.node.op is reshape_op and isinstance(x.node.inputs[0], Value):
        x = x.node.inputs[0]
    return x

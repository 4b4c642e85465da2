"""A call of a jitted function -> its capture and its program once more, in which each node knows where it comes from.

The recapture has the same text, so it runs the same kernels, which are found on disk; only passes may run anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.constant_weights import WithConstants
from tenon.capture.jitted import Jitted
from tenon.debug.node_origins import ModuleNames, captured_with_origins, number_of, numbered
from tenon.graph.interpret import bind_sizes
from tenon.graph.ir import Graph
from tenon.graph.partition import all_nodes
from tenon.graph.size_stages import is_sized_by_data
from tenon.pipeline import Step, compile
from tenon.program.backend_interface import Executable
from tenon.records import dataclass


@dataclass(frozen=True, eq=False)
class Recapture:
    """`graph` is that of the results, whose gradient is another program where the tape asks for it; `sizes` are those
    of the call."""

    captured: Captured
    graph: Graph
    names: ModuleNames
    sizes: Mapping[str, int]

    @property
    def operators(self) -> list[str]:
        """The operator of each captured node, by the number of its origin."""
        return [node.op.name for node in sorted(all_nodes(self.graph), key=number_of)]

    def compiled(self, trace: list[Step] | None = None) -> Executable | None:
        """The program, None where it is made stage by stage since the data decide sizes; `trace` gets its passes."""
        if is_sized_by_data(self.graph):
            return None
        if self.captured.halves is None and (holders := self.captured.constant_holders):
            return WithConstants(self.graph, holders, lambda: None, trace)
        return compile(self.graph, trace=trace)


def recaptured(jitted: Jitted, captured: Captured, args: Any, keywords: Any) -> Recapture:
    """The recapture of a capture, for the sizes of a call with these arguments."""
    found, names = captured_with_origins(jitted, captured, args, keywords)
    graph = numbered(found.halves.forward if found.halves is not None else found.graph)
    sizes: dict[str, int] = {}
    if graph.symbols():
        leaves = found.arguments(found.leaves_of(args, keywords))
        assert leaves is not None
        shapes: Any = [holder.own.payload.shape for holder in found.inputs.holders(leaves)]
        sizes = {name: int(size) for name, size in bind_sizes(graph, shapes).items()}
    return Recapture(found, graph, names, sizes)

"""Graph -> a program that the reference interpreter runs, node by node in NumPy.  Slow, plain, and the oracle."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tenon.atomic import at_once
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.program.backend_interface import Array, Backend, Then
from tenon.records import dataclass


@dataclass(frozen=True)
class ReferenceProgram:
    graph: Graph

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results; none shares memory with an argument or with another."""
        with np.errstate(all="ignore"):
            results = interpret(self.graph, arrays)
        taken = list(arrays)
        for k, result in enumerate(results):
            if not result.flags.owndata or any(np.may_share_memory(result, other) for other in taken):
                results[k] = result.copy()
            taken.append(results[k])
        if then is not None:
            at_once(then(results, None) or ())
        return results


REFERENCE = Backend("reference", ReferenceProgram, claims=lambda node: node.op.ref is not None)

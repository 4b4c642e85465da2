"""A twin and arguments -> a summary of what each captured node computes, by the reference interpreter.

Nodes of loops are told of their last turn.  The numbers are the reference's: those of compiled code may differ by
rounding, and `tn.debug.watch` tells these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.capture.pytree import unfold
from tenon.debug.summary import summary_of
from tenon.debug.twin import Twin
from tenon.debug.viewer.graph_data import Data
from tenon.graph.interpret import interpret, witnessed
from tenon.graph.ir import Node
from tenon.tensor import asarray


def node_values(twin: Twin, args: Sequence[Any], keywords: Mapping[str, Any], numbers: Mapping[Node, int]) -> Data:
    """By the number of a node: `outputs`, a summary each in words, `bad`, how many elements are NaN or infinite, and
    `turns`, how often it was computed."""
    found: dict[Node, Data] = {}

    def see(node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        summaries = [summary_of(np.asarray(x), bins=0) for x in outputs
                     if isinstance(x, (np.ndarray, np.generic)) and np.asarray(x).dtype.kind not in "OUS"]
        turns = found[node]["turns"] + 1 if node in found else 1
        found[node] = {"turns": turns, "outputs": [str(s) for s in summaries],
                       "bad": sum(s.nan + s.inf for s in summaries)}
    given = [asarray(x) if isinstance(x, np.ndarray) else x for x in unfold((tuple(args), dict(keywords)))[0]]
    leaves = twin.captured.arguments(given)
    assert leaves is not None
    arrays = [holder.own.payload for holder in twin.captured.inputs.holders(leaves)]
    with witnessed(see), np.errstate(all="ignore"):
        interpret(twin.graph, arrays, twin.sizes or None)       # type: ignore[arg-type]  # all are arrays by now
    return {str(numbers[node]): data for node, data in found.items() if node in numbers}

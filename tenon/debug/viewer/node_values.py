"""A recapture and arguments -> a summary of what each captured node computes, by the reference interpreter.

Nodes of loops are told of their last turn.  The numbers are the reference's: those of compiled code may differ by
rounding, and `tn.debug.watch` tells these: of what it has watched, the summaries are those of the compiled call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.debug.array_summary import summary_of
from tenon.debug.recapture import Recapture
from tenon.debug.value_names import span_of
from tenon.debug.viewer.graph_data import Data
from tenon.debug.watched_values import Watched, WatchedValue
from tenon.graph.interpret import interpret, witnessed
from tenon.graph.ir import Graph, Node
from tenon.graph.partition import all_nodes
from tenon.tensor_state import in_memory


def watched_values(watched: Watched, graph: Graph, numbers: Mapping[Node, int]) -> Data:
    """The same of what was watched, from compiled calls; and of gradients."""
    twins: dict[Any, list[Node]] = defaultdict(list)
    for node in all_nodes(graph):
        twins[_place(node)].append(node)
    found: Data = {}
    for node, order, value in watched.by_node():
        alike = twins.get(_place(node), [])
        if order < len(alike) and alike[order] in numbers and value.turns:
            found[str(numbers[alike[order]])] = _told(value)
    return found


def _place(node: Node) -> Any:
    """What tells nodes of two captures of one function apart, but for those of one line that are alike."""
    loc = node.loc
    return loc and span_of(loc), loc is not None and loc.derives is not None, node.op.name, tuple(
        str(x.type) for x in node.outputs)


def _told(value: WatchedValue) -> Data:
    summaries = [summary_of(x, bins=0) for x in (value.value, value.grad) if x is not None]
    words = [f"{value.name}: {summaries[0]}; {value.source}", *(f"gradient: {x}" for x in summaries[1:])]
    return {"turns": len(value.turns), "outputs": words, "bad": sum(s.nan + s.inf for s in summaries)}


def node_values(again: Recapture, args: Sequence[Any], keywords: Mapping[str, Any],
                numbers: Mapping[Node, int]) -> Data:
    """By the number of a node: `outputs`, a summary each in words, `bad`, how many elements are NaN or infinite, and
    `turns`, how often it was computed."""
    found: dict[Node, Data] = {}

    def see(node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        summaries = [summary_of(np.asarray(x), bins=0) for x in outputs
                     if isinstance(x, (np.ndarray, np.generic)) and np.asarray(x).dtype.kind not in "OUS"]
        turns = found[node]["turns"] + 1 if node in found else 1
        found[node] = {"turns": turns, "outputs": [str(s) for s in summaries],
                       "bad": sum(s.nan + s.inf for s in summaries)}
    leaves = again.captured.arguments(again.captured.leaves_of(args, keywords))
    assert leaves is not None
    arrays = [in_memory(holder.own.payload) for holder in again.captured.inputs.holders(leaves)]
    with witnessed(see), np.errstate(all="ignore"):
        interpret(again.graph, arrays, again.sizes or None)
    return {str(numbers[node]): data for node, data in found.items() if node in numbers}

"""A captured graph <-> the optimised graph of an earlier process, on disk: a warm start runs no passes.

The key is all that decides what the passes make: the text of the graph, which of its nodes come from the same place in
the user's program, the names of the passes, Tenon's source, NumPy (which folds constants), the processor.  The places
themselves are those of the graph at hand, so that a line added above a function changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from tenon.errors import GraphError
from tenon.graph.ir import Graph
from tenon.graph.json_form import graph_of, places_of, record_of
from tenon.graph.text import print_graph
from tenon.llvm import machine_code
from tenon.llvm.code_cache import make_key
from tenon.llvm.fingerprint import fingerprint
from tenon.observe import emit, span
from tenon.records import replace


def remembered(graph: Graph, passes: Sequence[str], run: Callable[[Graph], Graph]) -> Graph:
    """What `run` makes of the graph: read from the disk where it was made before, else made now and written there."""
    version = fingerprint()
    if version is None or not machine_code.keeps_code() or not is_own(graph):
        return run(graph)
    places, of_nodes = places_of(graph)
    try:
        text = print_graph(graph, locations=False)
    except GraphError:                          # an attribute without text form
        return run(graph)
    key = make_key("graph", version, np.__version__, text, f"{of_nodes} {dict(graph.notes)}", *passes,
                   *machine_code.environment())
    record = machine_code.stored(key)
    if record is not None:
        emit("graph_cache.hit", graph=graph.name)
        with span("from_disk", graph=graph.name):
            return replace(graph_of(json.loads(record), places), notes=graph.notes)
    made = run(graph)
    try:
        machine_code.store(key, json.dumps(record_of(made, places)).encode())
    except (GraphError, KeyError) as error:     # a pass made an attribute or a place that the graph did not have
        emit("graph_cache.not_written", graph=graph.name, error=repr(error))
    return made


def is_own(graph: Graph) -> bool:
    """Whether the text says all that the graph means, since its operators are Tenon's."""
    return all(node.op.is_own and all(map(is_own, node.graphs)) for node in graph.nodes)

"""A bad number in a compiled call -> the path of the module that made it: equal layers share their lines.

The call is captured once more, as the profiler does, so that nodes know their modules.  Then the interpreter computes
what leads to the operation that was named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.debug.bad_numbers import BadNumber
from tenon.debug.interpreted_values import leading_to
from tenon.debug.node_origins import Origin, captured_with_origins
from tenon.graph.interpret import interpret, witnessed
from tenon.graph.ir import Node
from tenon.graph.partition import all_nodes
from tenon.tensor_state import in_memory

Array = np.ndarray[Any, Any]


class _Found(Exception):
    """Ends the interpreter at the operation that was looked for."""


def module_path(jitted: Jitted, captured: Captured, leaves: Sequence[Any], error: BadNumber,
                bad: Callable[[Array], Any]) -> str:
    """The modules around the first operation of the error's name and line that makes a bad number of good ones, from
    the outermost on; "" where none are, or the operation is not met again."""
    record = next(((piece, key[0]) for piece in jitted.with_pieces() for key, record in piece.records.items()
                   if key is not None and captured in record.captures), None)
    if record is None:
        return ""
    arrays = [np.asarray(in_memory(x.own.payload)) for x in captured.inputs.holders(leaves)]
    args, keywords = record[1].build(leaves)
    graph = captured_with_origins(record[0], captured, args, keywords)[0].graph
    suspects = {node: node.loc for node in all_nodes(graph)
                if node.op.name == error.operator and isinstance(node.loc, Origin) and _stands_at(node.loc, error)}
    found: list[Origin] = []

    def see(node: Node, given: Sequence[Any], made: Sequence[Array]) -> None:
        if node in suspects and any(bad(np.asarray(x)) for x in made) and not any(
                x is not None and bad(np.asarray(x)) for x in given):
            found.append(suspects[node])
            raise _Found
    try:
        with np.errstate(all="ignore"), witnessed(see):
            interpret(leading_to(graph, {x for node in suspects for x in node.outputs}), arrays)
    except _Found:
        pass
    return found[0].path if found else ""


def _stands_at(loc: Origin, error: BadNumber) -> bool:
    place, other = loc.derives or loc, error.where
    return other is not None and (place.file, place.line) == (other.file, other.line)

"""Optimised graph -> assembly for this processor: bodies to loops to LLVM IR, equal ones once."""

from __future__ import annotations

from functools import partial

from tenon.backends.cpu.assemble import Assembly, assemble
from tenon.backends.cpu.unit import Unit, key_of
from tenon.graph.ir import Graph
from tenon.observe import span


def assemble_graph(graph: Graph) -> Assembly:
    """Kernels and steps for a graph."""
    units: dict[str, Unit | None] = {}
    with span("assemble", graph=graph.name, nodes=len(graph.nodes)):
        return assemble(graph, partial(_shared_unit, units))


def _shared_unit(units: dict[str, Unit | None], body: Graph) -> Unit | None:
    key = key_of(body)
    if key not in units:
        units[key] = make_unit(body)
    return units[key]


def make_unit(body: Graph) -> Unit | None:
    """The kernel of a body; None where loops cannot express it."""
    return None

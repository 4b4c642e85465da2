"""A captured graph and what runs it -> the device of each captured node, as plain data."""

from __future__ import annotations

from tenon.debug.node_origins import number_of
from tenon.debug.viewer.graph_data import Data, all_nodes
from tenon.graph.ir import Graph
from tenon.graph.value_devices import speaks_of_devices
from tenon.placement.follow_devices import placement_of
from tenon.placement.placed_program import PlacedProgram
from tenon.program.backend_interface import Executable


def device_data(graph: Graph, program: Executable | None, count: int) -> Data:
    """The names of the devices, and for each of `count` origins the place of its device among them, or -1."""
    if isinstance(program, PlacedProgram):
        graph, placement = program.plan.graph, program.plan.placement
    elif speaks_of_devices(graph):
        placement = placement_of(graph)
    else:
        return {"names": [], "of": []}
    of = [-1] * count
    for node, _ in all_nodes(graph, None):
        if 0 <= (number := number_of(node)) < count:
            of[number] = placement.of.get(node, -1)
    return {"names": list(placement.devices), "of": of}

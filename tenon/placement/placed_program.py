"""A graph that may be on several devices -> what runs it: on one of them, or cut as the costs say.

    program = placed_by_cost(graph, ("cpu", "cpu:1"), compile)
    print(program.plan.timeline)        # where it was cut

A graph in which the data decide sizes is run on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.graph.ir import PLACE, Graph
from tenon.graph.size_stages import is_sized_by_data
from tenon.placement.cut_by_device import cut
from tenon.placement.open_calls import open_calls
from tenon.placement.place import PlacePlan, place
from tenon.placement.place_costs import measured_rates
from tenon.program.backend_interface import Executable
from tenon.records import replace
from tenon.runtime.local_transport import LocalTransport
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.sharding.mesh import Mesh

Compile = Callable[[Graph], Executable]


class PlacedProgram(MultiDevice):
    """What runs a graph that was cut by its costs; `plan` says how, and what it is thought to take."""

    plan: PlacePlan


def placed_by_cost(graph: Graph, names: Sequence[str], compile: Compile) -> Executable:
    """What runs the graph soonest, as far as the model of costs knows."""
    plain = without_places(graph)
    if is_sized_by_data(graph):
        return compile(plain)
    opened = replace(open_calls(plain), notes=plain.notes)
    plan = place(opened, names, measured_rates(compile))
    return program_of_plan(graph, plan, compile) if plan.is_cut else compile(plain)


def without_places(graph: Graph) -> Graph:
    """The graph, to be run on one device."""
    return replace(graph, notes={name: value for name, value in graph.notes.items() if name != PLACE})


def program_of_plan(graph: Graph, plan: PlacePlan, compile: Compile) -> PlacedProgram:
    """What runs a graph as a plan says."""
    names = plan.placement.devices
    made = {rank: DevicePart(compile(part.graph), part.arguments, part.results)
            for rank, part in cut(plan.graph, plan.placement).items()}
    program = PlacedProgram(graph, made, LocalTransport(Mesh({"devices": len(names)})), dict(enumerate(names)))
    program.plan = plan
    return program

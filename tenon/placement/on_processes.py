"""A graph and the processes of this run -> what runs it: cut between them as its costs say, all have the results.

    tn.jit(step, place="processes")

The first process plans for all.  Where nothing is gained, each computes the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from tenon.graph.ir import Graph
from tenon.graph.size_stages import is_sized_by_data
from tenon.placement import place_costs
from tenon.placement.cut_by_device import cut
from tenon.placement.open_calls import open_calls
from tenon.placement.place import PlacePlan, place, planned_as
from tenon.placement.placed_program import PlacedProgram, without_places
from tenon.program.backend_interface import Array, Executable, Then
from tenon.records import replace
from tenon.runtime.multi_device import DevicePart
from tenon.runtime.transports import transport_for
from tenon.sharding.mesh import Mesh

AXIS = "processes"


class ProcessesProgram(PlacedProgram):
    """What runs this process's part; what all are given at first is compared before."""

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results, which are the same in all processes."""
        if not self._agreed:
            self.transport.agree_on_state(self.graph.name, list(zip(self.graph.params, arrays, strict=True)), ())
        return super().run(arrays, donated, then)


def placed_on_processes(graph: Graph, names: Sequence[str], compile: Callable[[Graph], Executable]) -> Executable:
    """What runs a graph on all processes, whose names these are.

    Raises CommunicationError where they captured different ones.
    """
    plain = without_places(graph)
    if is_sized_by_data(graph):
        return compile(plain)
    opened = replace(open_calls(plain), notes=plain.notes)
    transport = transport_for(Mesh({AXIS: len(names)}))
    transport.agree(graph)
    (rank, speaker), = transport.begin().items()
    said = np.zeros((2, len(opened.nodes)), np.int64)
    try:
        if rank == 0:
            said = _said(place(opened, names, place_costs.measured_rates(compile), apart=True), opened)
        said = speaker.broadcast(said, (AXIS,))
    except BaseException as error:
        speaker.abort(error)
        raise
    finally:
        speaker.close()
    plan = planned_as(opened, names, said[0].tolist(), said[1].tolist())
    if not plan.is_cut:
        return compile(plain)
    parts = cut(plan.graph, plan.placement, everywhere=True)
    mine = {k: DevicePart(compile(parts[k].graph), parts[k].arguments, parts[k].results) for k in transport.ranks}
    program = ProcessesProgram(graph, mine, transport, dict(enumerate(names)))
    program.plan = plan
    return program


def _said(plan: PlacePlan, graph: Graph) -> np.ndarray:
    """The places of nodes in the order in which they start, and where each is."""
    position = {node: k for k, node in enumerate(graph.nodes)}
    return np.array([[position[node] for node in plan.graph.nodes],
                     [plan.placement.of[node] for node in plan.graph.nodes]], np.int64).reshape(2, -1)

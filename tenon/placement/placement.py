"""Where everything in a graph is computed: data, and the questions that a cut asks of them.

    Placement(("cpu:0", "cpu:1"), {node: 1, ...}, (0, None))        # nodes of branches and loops are in the table too

A device is a rank, its place among the names.  A parameter without one (None) is there on every device that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenon.errors import GraphError
from tenon.graph.ir import Graph, Node
from tenon.ops.control_flow_nodes import is_control
from tenon.records import dataclass


@dataclass(frozen=True, eq=False)
class Placement:
    """The names of the devices, the rank of each node, at all depths, and that of each parameter.

    A branch or loop is where the nodes in it are; where it is in the table, it takes part there too.
    """

    devices: tuple[str, ...]
    of: Mapping[Node, int]
    params: tuple[int | None, ...]

    def ranks(self, node: Node) -> frozenset[int]:
        """The devices that take part in a node: of a branch or loop, those of the nodes in it."""
        if not node.graphs:
            return frozenset((self.of[node],))
        own = (self.of[node],) if node in self.of else ()
        return frozenset((*self._inside(node), *own)) or frozenset((0,))

    def _inside(self, node: Node) -> Iterator[int]:
        for graph in node.graphs:
            for inner in graph.nodes:
                yield from self.ranks(inner)

    def main(self, node: Node) -> int:
        """Among the devices that take part, the one for what needs no other: that of the node itself, or the first."""
        ranks, own = self.ranks(node), self.of.get(node)
        return own if own is not None and own in ranks else min(ranks)


def check_placement(graph: Graph, placement: Placement) -> None:
    """Raise GraphError unless every node and parameter is on one of the devices, and may be."""
    count = len(placement.devices)
    if len(placement.params) != len(graph.params):
        raise GraphError(f"{graph.name}: {len(placement.params)} devices for {len(graph.params)} parameters")
    for param, rank in zip(graph.params, placement.params, strict=True):
        if rank is not None and not 0 <= rank < count:
            raise GraphError(f"{graph.name}: the parameter {param.name} is on device {rank} of {count}")
    for node in graph.nodes:
        _check_node(graph, node, placement)


def _check_node(graph: Graph, node: Node, placement: Placement) -> None:
    rank = placement.of.get(node, -1)
    if not node.graphs and not 0 <= rank < len(placement.devices):
        where = "on no device" if rank == -1 else f"on device {rank} of {len(placement.devices)}"
        raise GraphError(f"{graph.name}: {node.op.name} is {where}", where=node.loc)
    if node.op.data_dependent:
        raise GraphError(f"{graph.name}: the data decide the size that {node.op.name} gives, and a graph in which they "
                         "do is run on one device", where=node.loc,
                         hint="keep the shape: tn.where(mask, x, other)")
    for inner in node.graphs:
        for one in inner.nodes:
            _check_node(inner, one, placement)
    if node.graphs and not is_control(node) and len(placement.ranks(node)) > 1:
        raise GraphError(f"{graph.name}: {node.op.name} holds nodes of several devices", where=node.loc,
                         hint="tenon.placement.open_calls gives a graph without it")

"""How a graph is computed on a mesh: what `propagate` finds, and what `local_graph` and `explain` read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.errors import Location
from tenon.graph.ir import Graph, Node, Value
from tenon.records import dataclass, field
from tenon.sharding.axis_layout import ValueSharding
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Axes


@dataclass(frozen=True)
class NodeSharding:
    """One way to compute a node."""

    inputs: tuple[ValueSharding | None, ...]
    outputs: tuple[ValueSharding, ...]
    cost: float
    order: tuple[Any, ...]      # between choices of one cost
    ring: Axes = ()             # of attention: the devices that keys and values go round
    work: float = 0.0           # of the cost, what is computed


@dataclass(frozen=True)
class ControlSharding:
    """One way to compute a branch or loop: its graphs are planned too."""

    inputs: tuple[ValueSharding, ...]
    outputs: tuple[ValueSharding, ...]
    plans: Mapping[Graph, ShardingPlan]
    cost: float


@dataclass(frozen=True)
class PlannedCollective:
    """What is sent: the operator, what a rank sends, between whom, and for which node of the whole graph."""

    name: str
    bytes: int
    over: Axes
    value: str
    where: Location | None
    reason: str


@dataclass(eq=False)
class ShardingPlan:
    """How a graph is computed on a mesh."""

    mesh: Mesh
    graph: Graph                                        # with composites opened
    made: Mapping[Value, ValueSharding]                 # every value, as it is made
    needs: Mapping[tuple[Node, int], ValueSharding]     # (node, which input) -> as it is read
    results: tuple[ValueSharding, ...]                  # as they are returned
    rings: Mapping[Node, Axes] = field(default_factory=dict)        # attention with keys and values that go round
    collectives: Sequence[PlannedCollective] = field(default_factory=list)
    bodies: Mapping[Node, Mapping[Graph, ShardingPlan]] = field(default_factory=dict)       # of branches and loops
    cost: float = 0.0                                   # bytes that are sent, and work

    @property
    def bytes(self) -> int:
        """What a rank sends in all."""
        return sum(c.bytes for c in self.collectives)

    @property
    def repeated(self) -> Sequence[Node]:
        """The branches and loops that every device computes whole, though it has only its part of what they read."""
        return [node for node in self.graph.nodes if node.graphs and not any(
            plan.is_split for plan in self.bodies.get(node, {}).values()) and any(
            self.made[x].split_axes for x in node.inputs if isinstance(x, Value))]

    @property
    def is_split(self) -> bool:
        """Whether a device has less of some value than there is of it."""
        return any(made.split_axes for made in self.made.values())

    def __str__(self) -> str:
        lines = [f"{self.graph.name} on {self.mesh!r}: {len(self.collectives)} collectives, "
                 f"{self.bytes:,} bytes a device"]
        lines += [f"  parameter {p.name}: {p.type} {self.made[p]}" for p in self.graph.params if any(
            self.made[p].layouts)]
        lines += [f"  {c.name} over {'+'.join(c.over)}: {c.bytes:,} bytes of {c.value}, {c.reason}"
                  + (f"  # {c.where}" if c.where else "") for c in self.collectives]
        lines += [f"  {node.op.name}: every device computes all of it"
                  + (f"  # {node.loc}" if node.loc else "") for node in self.repeated]
        return "\n".join(lines)

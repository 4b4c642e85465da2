"""A graph, shardings and a mesh -> the graph of one rank: its parts of all values, with collectives between.

    plan = propagate(graph, shardings, mesh)
    local = partition(plan, rank)               # a graph like any other, for tenon.pipeline.compile

Every rank's graph has its collectives in the same order, so none waits for what another never says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import has_effect, map_graphs, needed
from tenon.observe import emit
from tenon.ops import collectives
from tenon.ops.control_flow_nodes import BRANCHES
from tenon.records import dataclass
from tenon.sharding.axis_layout import ValueSharding, local_shape, numbers_of
from tenon.sharding.localize import local_attrs
from tenon.sharding.mesh import MICRO_AXIS, Mesh
from tenon.sharding.propagate import propagate
from tenon.sharding.reshard import cost_of, emit_moves
from tenon.sharding.ring_attention import on_ring
from tenon.sharding.sharding import Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.value_shardings import value_of


def partition(graph: Graph, shardings: Sequence[Sharding | None], mesh: Mesh, rank: int,
              results: Sequence[Sharding | str | None] = ()) -> Graph:
    """The graph of one rank of a mesh, of a graph whose parameters are split so."""
    return local_graph(propagate(graph, shardings, mesh, results), rank)


def local_graph(plan: ShardingPlan, rank: int) -> Graph:
    """The graph of one rank."""
    plan.mesh.coordinates(rank)         # raises where there is no such rank
    found = _Local(plan, rank).run()
    emit("partitioned", graph=found, rank=rank)
    return found


class _Local:
    def __init__(self, plan: ShardingPlan, rank: int):
        self.plan, self.mesh, self.rank = plan, plan.mesh, rank
        self.builder = Builder(plan.graph.name, rewriting=True)
        self.have: dict[Value, dict[ValueSharding, Value]] = {}

    def run(self, ask_the_first: bool = False) -> Graph:
        """The graph; of a condition, perhaps with what the first rank found."""
        plan = self.plan
        for p in plan.graph.params:
            shape = local_shape(plan.made[p], numbers_of(p), self.mesh, self.rank)
            self.have[p] = {plan.made[p]: self.builder.parameter(p.type.with_shape(shape), p.name)}
        live = needed(plan.graph, plan.graph.results, has_effect)
        for node in plan.graph.nodes:
            if node in live:
                self.builder.loc = node.loc
                self._node(node)
        self.builder.loc = None
        results = [self.sharded(r, sharding) for r, sharding in zip(plan.graph.results, plan.results, strict=True)]
        found = self.builder.finish([value_of(self._as_the_first(r)) if ask_the_first else r for r in results])
        found.notes = plan.graph.notes
        return found

    def sharded(self, value: Value, target: ValueSharding) -> Value:
        """What this rank has of a value under a sharding."""
        have = self.have[value]
        if target not in have:
            source = min(have, key=lambda s: cost_of(s, target, numbers_of(value), self.mesh))
            have[target] = emit_moves(self.builder, have[source], source, target, numbers_of(value), self.mesh,
                                      self.rank)
        return have[target]

    def _node(self, node: Node) -> None:
        plan = self.plan
        inputs: tuple[Input, ...] = tuple(
            self.sharded(x, plan.needs[node, k]) if isinstance(x, Value) else x for k, x in enumerate(node.inputs))
        outputs = [plan.made[y] for y in node.outputs]
        if node.op.name == "with_sharding":
            self.have[node.output] = {outputs[0]: value_of(inputs[0])}
            return
        if node in plan.rings:
            with using(self.builder):
                found = on_ring(node, inputs, plan.rings[node], self.mesh, self.rank)
            self.have.update({y: {sharding: x} for y, x, sharding in zip(node.outputs, found, outputs, strict=True)})
            return
        if node in plan.bodies:
            inputs, attrs = self._control(node, inputs)
        elif node.op.name == "reshape":
            attrs = {"shape": local_shape(outputs[0], numbers_of(node.output), self.mesh, self.rank)}
        else:
            attrs = dict(local_attrs(node, outputs, self.mesh, self.rank))
        out = self.builder.emit(node.op, inputs, attrs, node.loc)
        for y, made, sharding in zip(node.outputs, out if isinstance(out, tuple) else (out,), outputs, strict=True):
            shape = local_shape(sharding, numbers_of(y), self.mesh, self.rank)
            assert made.shape == shape, f"{node.op.name}: rank {self.rank} has {made.type}, not {list(shape)}"
            self.have[y] = {sharding: made}

    def _control(self, node: Node, inputs: tuple[Input, ...]) -> tuple[tuple[Input, ...], dict[str, Any]]:
        """The inputs and attributes of a branch or loop.  Where ranks speak in it all go the same way, whatever the
        last bits are of the numbers that decide."""
        plans = self.plan.bodies[node]
        speaks = any(plan.collectives for plan in plans.values())

        def local(graph: Graph) -> Graph:
            asked = speaks and graph is node.attrs.get("condition") and not _counts(graph)
            return _Local(plans[graph], self.rank).run(asked)
        attrs = map_graphs(node.attrs, local)
        if speaks and node.op in BRANCHES:
            inputs = (self._as_the_first(inputs[0]), *inputs[1:])
        return inputs, attrs

    def _as_the_first(self, x: Input) -> Input:
        """What the first rank has of a value that is the same on all."""
        over = tuple(name for name, n in zip(self.mesh.axes, self.mesh.shape, strict=True)
                     if n > 1 and name != MICRO_AXIS)
        if not over or not isinstance(x, Value):
            return x
        found: Value = self.builder.emit(collectives.collective_broadcast_op, (x,), {"over": over, "root": 0})[0]
        return found


def _counts(condition: Graph) -> bool:
    """Whether a condition is of whole numbers alone: then it is the same on all ranks to the last bit."""
    live = needed(condition, condition.results)
    read = [x for node in condition.nodes if node in live for x in node.inputs if isinstance(x, Value)]
    return all(x.dtype.kind in "iu" or (x.dtype.kind == "b" and x.node is not None) for x in read)


# ---------------------------------------------------------------- what is sent

@dataclass(frozen=True)
class Sent:
    """A collective of a rank's graph."""

    name: str
    bytes: int
    over: tuple[str, ...]


def collectives_of(graph: Graph, mesh: Mesh) -> list[Sent]:
    """The collectives of a rank's graph in order: what each sends of this rank's, and over which mesh axes."""
    found = []
    for node in graph.nodes:
        if node.op in collectives.COLLECTIVES:
            found.append(Sent(node.op.name, _sent(node, mesh), node.attrs["over"]))
        for inner in node.graphs:
            found += collectives_of(inner, mesh) * node.attrs.get("length", 1)
    return found


def _sent(node: Node, mesh: Mesh) -> int:
    parts = mesh.parts(node.attrs["over"])
    x = node.inputs[0]
    assert isinstance(x, Value)
    larger = max(int(x.size), int(node.output.size)) * max(1, x.dtype.bits // 8)
    share = {"all_reduce": 2 * (parts - 1), "collective_permute": parts, "collective_broadcast": parts}
    return larger * share.get(node.op.name, parts - 1) // parts

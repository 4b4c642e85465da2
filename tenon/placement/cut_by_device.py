"""A graph and a device for each node -> one graph a device; what crosses between two is a send here and a recv there.

    parts = cut(graph, Placement(("cpu:0", "cpu:1"), {node: 1, ...}, (0, None)))
    parts[1].graph, parts[1].arguments, parts[1].results

A value crosses once for each device that reads it, whoever reads it there.  It is sent right after it is made, and
received right before it is first read, so that it travels while both compute.  Every node, send and recv has a place in
one order of all (that of the graph), which each device keeps; a recv comes after its send in it, so no run can deadlock
(`tenon.placement.deadlock_check` proves it of what comes out).  Effects keep their order between devices too: where the
next one is elsewhere, a number without meaning is sent there.  Branches and loops: `tenon.placement.cut_control`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.dims.size_assumptions import told_by
from tenon.errors import GraphError, Location
from tenon.graph.build import Builder, constant_attrs
from tenon.graph.ir import AS_READ, AUTOTUNE, MEMORY_BUDGET, Graph, Input, Node, Value
from tenon.graph.op import OPS, Op
from tenon.graph.partition import has_effect, needed
from tenon.ops.transfer import recv, send
from tenon.placement import cut_control
from tenon.placement.deadlock_check import check_no_deadlock
from tenon.placement.placement import Placement, check_placement
from tenon.placement.stack_homes import with_stacks_together
from tenon.records import dataclass
from tenon.types import TOKEN

KEPT_NOTES = (AUTOTUNE, MEMORY_BUDGET)
Moment = tuple[int, int, int]       # the node, before (0), at (1) or behind it (2), and which of several there
BEFORE, AT, BEHIND = range(3)


@dataclass(frozen=True, eq=False)
class DeviceGraph:
    """What one device computes: a graph, the places of its arguments among all, and those of its results."""

    graph: Graph
    arguments: tuple[int, ...]
    results: tuple[int, ...]


def cut(graph: Graph, placement: Placement, everywhere: bool = False) -> dict[int, DeviceGraph]:
    """The graph of each device that has anything to do, by rank; `everywhere`, each has all results.

    Raises GraphError where a node is on no device, or cannot be cut.
    """
    placement = with_stacks_together(graph, placement)
    check_placement(graph, placement)
    level = Level(placement, frozenset(range(len(placement.devices))), itertools.count())
    for param, rank in zip(graph.params, placement.params, strict=True):
        level.enter(param, rank)
    level.nodes(graph)
    level.end()
    owners = [sorted(level.ranks) if everywhere else [level.home_of(x)] for x in graph.results]
    for x, ranks in zip(graph.results, owners, strict=True):
        for rank in ranks:
            level.at(x, rank)
    places = {rank: [k for k, ranks in enumerate(owners) if rank in ranks] for rank in sorted(level.ranks)}
    parts = {rank: _device_graph(graph, level, rank, mine) for rank, mine in places.items()
             if mine or level.builders[rank].nodes}
    check_no_deadlock({rank: part.graph for rank, part in parts.items()},
                      {rank: part.arguments for rank, part in parts.items()})
    return parts


def _device_graph(graph: Graph, level: Level, rank: int, results: Sequence[int]) -> DeviceGraph:
    """What a device has, with parameters that tell it the sizes that it asks for."""
    made = level.finish(rank, f"{graph.name}_{rank}", [level.at(graph.results[k], rank) for k in results])
    arguments = [k for k, p in enumerate(graph.params) if level.known[rank].get(p) in set(made.params)]
    told = {told_by(dim) for p in made.params for dim in p.shape}
    for name in made.symbols():
        if name not in told:
            k = next(k for k, p in enumerate(graph.params) if any(told_by(dim) == name for dim in p.shape))
            made.params += (Value(graph.params[k].type, name=graph.params[k].name),)
            arguments.append(k)
            told |= {told_by(dim) for dim in graph.params[k].shape}
    made.notes = {name: graph.notes[name] for name in KEPT_NOTES if name in graph.notes}
    if AS_READ in graph.notes:
        made.notes = {**made.notes, AS_READ: made}
    return DeviceGraph(made, tuple(arguments), tuple(results))


class Level:
    """One graph, or one branch or body, while it is cut: what each device has so far, in a builder of its own."""

    def __init__(self, placement: Placement, ranks: frozenset[int], tags: itertools.count[int]):
        self.placement, self.ranks, self.tags = placement, ranks, tags
        self.builders = {rank: Builder(str(rank), rewriting=True) for rank in ranks}
        self.known: dict[int, dict[Value, Value]] = {rank: {} for rank in ranks}
        self.homes: dict[Value, int | None] = {}        # None: a parameter that may be asked for anywhere
        self.moments: dict[Node, Moment] = {}           # of new nodes
        self.made_at: dict[Value, int] = {}             # the number of the node that made an old value
        self.now = -1                                   # the number of the node that is being cut
        self.order: list[Value] = []                    # the parameters
        self.frontier: frozenset[int] = frozenset()     # devices of the last effect,
        self.ordered = ranks                            # and those that are known to come after it
        self.loc: Location | None = None

    def enter(self, param: Value, rank: int | None) -> None:
        """A parameter, on one device or wherever it is asked for."""
        self.homes[param], self.made_at[param] = rank, -1
        self.order.append(param)

    def home_of(self, x: Value) -> int:
        """The device of a value; of a parameter that is everywhere, the first."""
        home = self.homes[x]
        return min(self.ranks) if home is None else home

    # ------------------------------------------------------------ nodes

    def nodes(self, graph: Graph) -> None:
        """Cut one node after the other, but those that nobody reads."""
        live = needed(graph, graph.results, has_effect)
        for k, node in enumerate(node for node in graph.nodes if node in live):
            self.now, self.loc = k, node.loc
            ranks = self.placement.ranks(node)
            effect = has_effect(node)
            if effect:
                self.wait_for_effects(ranks)
            if len(ranks) == 1:
                self._whole(node, min(ranks))
            else:
                cut_control.cut_control(self, node)
            if effect:
                self.frontier, self.ordered = ranks, ranks if len(ranks) == 1 else frozenset()

    def _whole(self, node: Node, rank: int) -> None:
        inputs = tuple(self.at(x, rank) if isinstance(x, Value) else x for x in node.inputs)
        self.made(node, rank, self.emit(rank, node.op, inputs, node.attrs, AT))

    def made(self, node: Node, rank: int, outputs: Sequence[Value], places: Sequence[int] | None = None) -> None:
        """Note the outputs of a node, or those at these places, as made on a device."""
        for k, x in zip(range(len(node.outputs)) if places is None else places, outputs, strict=True):
            self.put(node.outputs[k], rank, x)

    def put(self, x: Value, rank: int, new: Value) -> None:
        """Note what a value is on the device where it is made."""
        self.homes[x], self.made_at[x], self.known[rank][x] = rank, self.now, new

    def emit(self, rank: int, op: Op, inputs: tuple[Input, ...], attrs: Mapping[str, Any], phase: int,
             at: int | None = None) -> tuple[Value, ...]:
        """A node on a device; its outputs."""
        builder = self.builders[rank]
        out = builder.emit(op, inputs, attrs, self.loc)
        self.note(builder.nodes[-1], phase, at)
        return out if isinstance(out, tuple) else (out,)

    def note(self, node: Node, phase: int = AT, at: int | None = None) -> None:
        """The moment of a new node."""
        self.moments[node] = (self.now if at is None else at, phase, len(self.moments))

    # ------------------------------------------------------------ transfers

    def at(self, x: Value, rank: int) -> Value:
        """The value on a device: it crosses where it is not there yet."""
        known = self.known[rank]
        if x not in known:
            home = self.homes[x]
            if home is None or (home == rank and x.node is None):
                self.param(x, rank)
            elif x.node is not None and _reads_nothing(x.node):
                again = self.emit(rank, x.node.op, x.node.inputs, x.node.attrs, BEFORE)
                known.update(zip(x.node.outputs, again, strict=True))
            else:
                known[x] = self._cross(self.at(x, home), home, rank, self.made_at[x])
        return known[x]

    def _cross(self, x: Value, source: int, to: int, made_at: int) -> Value:
        """A value of one device on another."""
        if x.dtype.kind in "ts":
            raise GraphError(f"a {x.dtype.name} is made on {self.placement.devices[source]} and read on "
                             f"{self.placement.devices[to]}, and lives on one device", where=self.loc)
        tag = next(self.tags)
        self.emit(source, send, (x,), {"to": to, "tag": tag}, BEHIND, made_at)
        return self.emit(to, recv, (), {"source": source, "tag": tag, "shape": x.shape, "dtype": x.dtype}, BEFORE)[0]

    def param(self, x: Value, rank: int) -> Value:
        """A parameter on a device, whether or not it is read there."""
        known = self.known[rank]
        if x not in known:
            known[x] = self.builders[rank].parameter(x.type, x.name)
        return known[x]

    def wait_for_effects(self, ranks: frozenset[int]) -> None:
        """Let devices come after the last effect, where it was on another."""
        for rank in sorted(ranks - self.ordered):
            for source in sorted(self.frontier - {rank}):
                nothing = self.no_data(source, BEHIND, self.now - 1)
                self._cross(nothing, source, rank, self.now - 1)
            self.ordered |= {rank}

    def no_data(self, rank: int, phase: int = BEFORE, at: int | None = None) -> Value:
        """A value without meaning."""
        return self.emit(rank, OPS["constant"], (), constant_attrs(np.zeros((), np.bool_)), phase, at)[0]

    # ------------------------------------------------------------ the end

    def end(self) -> None:
        """All nodes are cut: what is asked for now is so for the results."""
        self.now, self.loc = self.now + 1, None

    def finish(self, rank: int, name: str, results: Sequence[Value]) -> Graph:
        """What a device has, in the order of all."""
        nodes = sorted(self.builders[rank].nodes, key=self.moments.__getitem__)
        last: tuple[Value, ...] = ()
        for node in nodes:
            if node.op.effect:
                node.after, last = last, tuple(x for x in node.outputs if x.type == TOKEN) or last
        have = self.known[rank]
        params = tuple(have[p] for p in self.order if p in have and have[p].node is None)
        return Graph(name, params, tuple(nodes), tuple(results))


def _reads_nothing(node: Node) -> bool:
    """Whether a node is made again where it is read: what is known without data, and by Tenon's own code."""
    return not any(isinstance(x, Value) for x in node.inputs) and not node.op.effect and not node.graphs \
        and not node.op.data_dependent and node.op.is_own

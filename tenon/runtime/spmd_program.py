"""A graph and a mesh -> what runs it on all devices of the mesh: a local graph a rank, for how arguments are split.

    program = SpmdProgram(graph, mesh, compile)
    loss, weight = program.run([x, weight])         # arrays, or arrays in parts (tenon.sharding.sharded_array)

An argument that is an array is there for every rank, one in parts is split as it is.  A result that updates an argument
is split as that is; any other stays as it was made, so a result is an array or an array in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.errors import ArgumentError
from tenon.graph.interpret import bind_sizes
from tenon.graph.ir import DIVIDED, HELD, MESH, UPDATES, Graph, Value
from tenon.graph.size_stages import of_sizes
from tenon.graph.text import print_graph
from tenon.locks import Lock
from tenon.observe import emit, span
from tenon.ops.deferred_output import hearing
from tenon.passes.expand import expand
from tenon.passes.merge_control_flow import merge_control_flow
from tenon.program.backend_interface import Executable, Then
from tenon.records import dataclass, replace
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.runtime.transports import Agreed, transport_for
from tenon.sharding.axis_layout import ValueSharding, as_spec
from tenon.sharding.mesh import Mesh
from tenon.sharding.propagate import check_sizes_are_given, propagate
from tenon.sharding.sharded_array import ShardedArray, part_for
from tenon.sharding.sharding import Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import local_graph

Given = np.ndarray | ShardedArray
Cut = tuple[slice, ...] | None      # None: all of it


@dataclass(frozen=True, eq=False)
class SplitProgram:
    """The program for one way in which the arguments are split."""

    plan: ShardingPlan
    shardings: tuple[Sharding | None, ...]          # of the arguments,
    results: tuple[Sharding | None, ...]            # and of the results
    program: MultiDevice
    cuts: tuple[tuple[int, tuple[Cut, ...]], ...]   # by rank: what it has of each argument that comes whole


class Unheard(Executable):
    """A program whose `say` nobody hears: what all ranks say is told once in a process."""

    def __init__(self, program: Executable):
        self.program = program

    @property
    def graph(self) -> Graph:
        return self.program.graph

    def run(self, arrays: Sequence[Any], donated: Collection[int] = (), then: Then | None = None) -> list[Any]:
        """The results of the program."""
        with hearing():
            return self.program.run(arrays, donated, then)


class SpmdProgram:
    """What runs a graph on a mesh; an `Executable`."""

    def __init__(self, graph: Graph, mesh: Mesh, compile: Callable[[Graph], Executable]):
        self.graph, self.mesh, self.compile = graph, mesh, compile
        self.transport = transport_for(mesh)
        self._programs: dict[Any, SplitProgram] = {}
        self._lock = Lock()

    def program_for(self, arrays: Sequence[Given]) -> SplitProgram:
        """The program for arguments of these shapes that are split so, made now if need be."""
        key = tuple((x.shape, x.sharding if isinstance(x, ShardedArray) else None) for x in arrays)
        found = self._programs.get(key)
        if found is None:
            with self._lock:
                found = self._programs[key] = self._programs.get(key) or self._made(arrays)
        return found

    def run(self, arrays: Sequence[Any], donated: Collection[int] = (), then: Then | None = None) -> list[Any]:
        """The results; what `then` says is stored when all ranks have come to their end.

        Nothing is written in donated memory: another rank may fail later, and state is then as it was before.
        """
        made = self.program_for(arrays)
        results = self._joined(made, made.program.run(self._given(made, arrays)))
        if then is not None:
            at_once(then(results, None) or ())
        return results

    def parts_for(self, arrays: Sequence[Given]) -> tuple[MultiDevice, list[np.ndarray]]:
        """What runs a call with these arguments, and what all devices together are given."""
        made = self.program_for(arrays)
        return made.program, self._given(made, arrays)

    def _given(self, made: SplitProgram, arrays: Sequence[Given]) -> list[np.ndarray]:
        return [self._part(x, cut, made.shardings[k], rank) for rank, cuts in made.cuts
                for k, (x, cut) in enumerate(zip(arrays, cuts, strict=True))]

    def _part(self, x: Given, cut: Cut, sharding: Sharding | None, rank: int) -> np.ndarray:
        if isinstance(x, ShardedArray):         # split as the program is for
            return x.shards[rank] if rank in x.shards else part_for(x, sharding, rank)
        return x if cut is None else x[cut]

    def _joined(self, made: SplitProgram, found: Sequence[np.ndarray]) -> list[Any]:
        count, results = len(made.results), []
        for k, (value, sharding) in enumerate(zip(made.plan.graph.results, made.results, strict=True)):
            if sharding is None:
                results.append(found[k])
                continue
            shards = {rank: found[place * count + k] for place, rank in enumerate(self.transport.ranks)}
            results.append(ShardedArray(tuple(value.shape), value.dtype, sharding, shards))      # type: ignore[arg-type]
        return results

    def plan_for(self, arrays: Sequence[Given]) -> ShardingPlan:
        """How the graph is split for such arguments; nothing is compiled."""
        for p, x in zip(self.graph.params, arrays, strict=True):
            if isinstance(x, ShardedArray) and x.sharding.mesh != self.mesh:
                raise ArgumentError(f"{self.graph.name} runs on {self.mesh!r}, and {p.name} is split over "
                                    f"{x.sharding.mesh!r}", hint="shard it over the mesh that the function has")
        check_sizes_are_given(self.graph)
        graph = merge_control_flow(expand(whole_numbers(self.graph, arrays), claimed=lambda node: not node.graphs))
        shardings = shardings_of(self.graph, arrays)
        with span("propagate", graph=graph.name, nodes=len(graph.nodes)):
            plan = propagate(graph, shardings, self.mesh, wanted_results(graph, shardings))
        emit("sharded", graph=graph.name, plan=plan)
        return plan

    def _made(self, arrays: Sequence[Given]) -> SplitProgram:
        self.transport.agree(self.graph)        # before any rank waits for another in it
        self.transport.agree_on_state(self.graph.name, whole_state(self.graph, arrays), held_state(self.graph))
        plan, shardings = given_in_parts(self.plan_for(arrays), shardings_of(self.graph, arrays))
        graph = plan.graph
        ranks = self.transport.ranks
        count, size = len(graph.params), len(graph.results)
        parts: dict[int, DevicePart] = {}
        locals_ = [replace(local_graph(plan, rank), notes={}) for rank in ranks]
        programs: dict[str, Executable] = {}        # ranks whose parts are alike share one
        for place, (rank, local) in enumerate(zip(ranks, locals_, strict=True)):
            text = print_graph(local)
            programs[text] = programs.get(text) or self.compile(local)
            parts[rank] = DevicePart(Unheard(programs[text]) if place else programs[text],
                                     tuple(range(place * count, (place + 1) * count)),
                                     tuple(range(place * size, (place + 1) * size)))
        together = Graph(graph.name, tuple(p for local in locals_ for p in local.params), (),
                         tuple(r for local in locals_ for r in local.results))
        names = {rank: f"rank {rank} {self.mesh.coordinates(rank)}" for rank in ranks}
        cuts = tuple((rank, tuple(None if s is None else s.slices(x.shape, rank) for x, s in zip(
            arrays, shardings, strict=True))) for rank in ranks)
        return SplitProgram(plan, shardings, tuple(as_sharding(s.layouts, self.mesh) for s in plan.results),
                            MultiDevice(together, parts, Agreed(self.transport), names), cuts)


def shardings_of(graph: Graph, arrays: Sequence[Given]) -> tuple[Sharding | None, ...]:
    """How the arguments are split: those in parts as they are, whole ones as a plan divides them."""
    divided: Mapping[int, Sharding] = graph.notes.get(DIVIDED) or {}
    return tuple(x.sharding if isinstance(x, ShardedArray) else divided.get(k) for k, x in enumerate(arrays))


def given_in_parts(plan: ShardingPlan,
                   given: Sequence[Sharding | None]) -> tuple[ShardingPlan, tuple[Sharding | None, ...]]:
    """The plan with arguments that are whole, but of which ranks only read their parts, given in parts; and how each
    argument is split.  So ranks whose parts are alike have one graph, which is compiled once."""
    reads: dict[Value, set[ValueSharding | None]] = {}
    for node in plan.graph.nodes:
        for k, read in enumerate(node.inputs):
            if isinstance(read, Value) and read.node is None:
                reads.setdefault(read, set()).add(plan.needs.get((node, k)))
    kept = {plan.graph.params[k] for _, k in _updates(plan.graph)}.union(plan.graph.results)
    made, shardings = dict(plan.made), []
    for p, sharding in zip(plan.graph.params, given, strict=True):
        wanted = next(iter(reads[p])) if len(reads.get(p, ())) == 1 else None
        if sharding is None and wanted is not None and p not in kept and not wanted.partial and any(wanted.layouts) \
                and (spec := as_spec(wanted.layouts)) is not None:
            sharding, made[p] = Sharding(plan.mesh, spec).with_entries(p.ndim), wanted
        shardings.append(sharding)
    return replace(plan, made=made), tuple(shardings)


def whole_state(graph: Graph, arrays: Sequence[Given]) -> list[tuple[Value, np.ndarray]]:
    """What a graph reads that is not in parts."""
    return [(p, x) for p, x in zip(graph.params, arrays, strict=True) if not isinstance(x, ShardedArray)]


def held_state(graph: Graph) -> tuple[Value, ...]:
    """The parameters of a graph that are tensors from outside, no arguments."""
    return tuple(graph.params[k] for k in graph.notes.get(HELD, ()))


def wanted_results(graph: Graph, shardings: Sequence[Sharding | None]) -> list[Sharding | str | None]:
    """How the results are returned: what updates an argument as that is split, others as they are made."""
    updates = dict(_updates(graph))
    return [shardings[updates[k]] if k in updates else "found" for k in range(len(graph.results))]


def _updates(graph: Graph) -> list[tuple[int, int]]:
    """Which result is the new state of which parameter."""
    return [(result, param) for param, result in graph.notes.get(UPDATES) or ()]


def as_sharding(layouts: Sequence[Any], mesh: Mesh) -> Sharding | None:
    """The sharding of these layouts; None where nothing is split."""
    spec = as_spec(layouts)
    assert spec is not None, "results have layouts of one digit"
    return Sharding(mesh, spec) if any(spec) else None


def whole_numbers(graph: Graph, arrays: Sequence[Given]) -> Graph:
    """The graph for the sizes of these arrays."""
    notes = {name: x for name, x in graph.notes.items() if name not in (MESH, HELD, DIVIDED)}
    if not graph.symbols():
        return replace(graph, notes=notes)
    return replace(of_sizes(graph, bind_sizes(graph, [x.shape for x in arrays])), notes=notes)

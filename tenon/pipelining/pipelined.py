"""A captured training step -> an executable that runs it as a pipeline, on the devices of this process or of a mesh.

    program = Pipelined(graph, Pipeline(stages=2, micro_batches=8), batch, compile, transport)
    program.run(arrays)
    print(program.describe())       # the stages, what crosses between them, and the schedule as a picture

Sizes that are symbols are numbers in each run: there is a plan for each set of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.errors import ArgumentError, DevicePlanError
from tenon.graph.build import copy, rebuild
from tenon.graph.interpret import bind_sizes
from tenon.graph.ir import UPDATES, Graph, Value
from tenon.graph.size_stages import of_sizes
from tenon.locks import Lock
from tenon.ops.sharding_annotation import with_sharding
from tenon.pipelining.device_program import DeviceProgram
from tenon.pipelining.device_steps import Instruction, device_steps
from tenon.pipelining.micro_batches import MicroStep, micro_step, plan_micro_batches
from tenon.pipelining.schedules import SCHEDULES, PipelineSchedule, pipeline_schedule
from tenon.pipelining.segments import Segments, segments_of
from tenon.pipelining.simulate_schedule import StageCosts, gantt, simulate
from tenon.pipelining.stages import Stages, stages_of_step
from tenon.pipelining.step_parts import parts_of_step
from tenon.pipelining.uneven_batches import SmallerBatches, smaller_batches
from tenon.program.backend_interface import Array, Executable, Then
from tenon.records import dataclass, replace
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.runtime.spmd_program import held_state, whole_state
from tenon.runtime.transports import Agreed, transport_for
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharded_array import ShardedArray, part_for
from tenon.sharding.sharding import Sharding, entry_axes

PIPE_AXIS = "pipe"


@dataclass(frozen=True)
class Pipeline:
    """How a step runs as a pipeline: on so many devices, each with `chunks` stages, in so many micro-batches.

    Without `stages`, the axis "pipe" of the mesh says them.  `schedule`: "gpipe", "1f1b", "interleaved" (which takes
    `chunks` > 1) or "zero_bubble".  `batch` names arguments and the axis along which each holds examples, None for
    none; without it, these are the rows of all arguments that have as many as the first.  `begins` are parameters (or
    modules) that stages but the first begin with; without it, stages are balanced by their work.  Raises ArgumentError
    for what is none of this.

    >>> from tenon.pipelining.pipelined import Pipeline
    >>> Pipeline(stages=2, micro_batches=8).schedule
    '1f1b'
    """

    stages: int | None
    micro_batches: int
    schedule: str = "1f1b"
    chunks: int = 1
    batch: Mapping[str, int | None] | None = None
    begins: tuple[Any, ...] = ()

    def __init__(self, stages: int | None = None, micro_batches: int = 1, schedule: str = "1f1b", chunks: int = 1,
                 batch: Mapping[str, int | None] | None = None, begins: Sequence[Any] = ()):
        if schedule not in SCHEDULES:
            raise ArgumentError(f"Pipeline: no schedule is named {schedule!r}", hint=f"one of {', '.join(SCHEDULES)}")
        made = pipeline_schedule(schedule, 2 if stages is None else stages, micro_batches, chunks)      # raises
        if begins and stages is not None and len(begins) != made.stages - 1:
            raise ArgumentError(f"Pipeline: {len(begins)} in begins, and {made.stages} stages, of which all but the "
                                "first begin with one")
        for name, value in (("stages", stages), ("micro_batches", micro_batches), ("schedule", schedule),
                            ("chunks", chunks), ("batch", batch), ("begins", tuple(begins))):
            object.__setattr__(self, name, value)

    def mesh_for(self, mesh: Mesh | None) -> Mesh:
        """The mesh that it runs on: the one that is given, or one of its stages alone.

        Raises DevicePlanError where the mesh has no axis "pipe", or not of as many places as there are to be stages.
        """
        if mesh is None:
            if self.stages is None:
                raise DevicePlanError("Pipeline: on how many devices is not said",
                                      hint="Pipeline(stages=2, ...), or a mesh with an axis 'pipe'")
            return Mesh({PIPE_AXIS: self.stages})
        if PIPE_AXIS not in mesh.axes:
            raise DevicePlanError(f"Pipeline: {mesh!r} has no axis {PIPE_AXIS!r}", hint='Mesh({"data": 2, "pipe": 2})')
        if self.stages not in (None, mesh.axis_size(PIPE_AXIS)):
            raise DevicePlanError(f"Pipeline: stages={self.stages} is not what {mesh!r} has along {PIPE_AXIS!r}",
                                  hint="leave out stages=, the mesh says them")
        return mesh

    def schedule_on(self, devices: int) -> PipelineSchedule:
        """The schedule for so many devices."""
        made = pipeline_schedule(self.schedule, devices, self.micro_batches, self.chunks)
        if self.begins and len(self.begins) != made.stages - 1:
            raise DevicePlanError(f"Pipeline: {len(self.begins)} in begins, and {made.stages} stages, of which all but "
                                  "the first begin with one")
        return made


@dataclass(frozen=True)
class PipelineNote:
    """What a captured graph is told of: the pipeline, the places of its arguments, and of what stages begin with."""

    pipeline: Pipeline
    arguments: tuple[int, ...]
    begins: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class PipelinePlan:
    """A step in stages, for certain sizes, and arguments that are split in a certain way."""

    graph: Graph
    stages: Stages
    schedule: PipelineSchedule
    program: MultiDevice
    devices: Mapping[int, DeviceProgram]            # of this process, by rank
    shardings: Mapping[int, Sharding]               # of arguments that are split
    wanted: tuple[Sharding | None, ...]             # of the results
    made: Mapping[int, tuple[int, ...]]             # the results that each of these devices has
    at: Mapping[int, int]                           # the places along "pipe" of results that one device alone has


@dataclass(frozen=True, eq=False)
class DeviceGraphs:
    """What the devices at one place along the other axes of a mesh do."""

    step: MicroStep
    segments: Segments
    instructions: tuple[tuple[Instruction, ...], ...]
    smaller: SmallerBatches | None


class Pipelined:
    """What runs such a graph; an `Executable`, whose arguments may be in parts, and whose results may be."""

    def __init__(self, graph: Graph, note: PipelineNote, compile: Callable[[Graph], Executable],
                 mesh: Mesh | None = None):
        self.graph, self.note, self.compile = graph, note, compile
        self.mesh = note.pipeline.mesh_for(mesh)
        self.transport = transport_for(self.mesh)
        self.plans: dict[Any, PipelinePlan] = {}
        self._lock = Lock()
        self._agreed = False

    def run(self, arrays: Sequence[Any], donated: Collection[int] = (), then: Then | None = None) -> list[Any]:
        """The results; what `then` says is stored when all devices have come to their end.

        Nothing is written in donated memory: another device may fail later, and state is then as it was before.
        """
        if not self._agreed:
            self.transport.agree(self.graph)
            self.transport.agree_on_state(self.graph.name, whole_state(self.graph, arrays), held_state(self.graph))
            self._agreed = True
        plan = self.plan(arrays)
        found = plan.program.run(arrays)
        results = self._joined(plan, found)
        if then is not None:
            at_once(then(results, None) or ())
        return results

    def plan(self, arrays: Sequence[Any]) -> PipelinePlan:
        """The plan for arguments of these shapes that are split so, made once."""
        split = [x.sharding.everywhere if isinstance(x, ShardedArray) else None for x in arrays]
        key = tuple((x.shape, sharding if sharding is None or not sharding.is_replicated else None)
                    for x, sharding in zip(arrays, split, strict=True))
        if key not in self.plans:
            with self._lock:
                if key not in self.plans:
                    self._check({k: sharding for k, sharding in enumerate(split) if sharding is not None})
                    shardings = {k: sharding for k, (_, sharding) in enumerate(key) if sharding is not None}
                    graph = self.graph
                    if graph.symbols():
                        graph = of_sizes(graph, bind_sizes(graph, [x.shape for x in arrays]))
                    self.plans[key] = self._plan(graph, shardings)
        return self.plans[key]

    @property
    def last_plan(self) -> PipelinePlan:
        """The plan of the last sizes; raises ArgumentError where these are not known yet."""
        if not self.plans:
            if self.graph.symbols():
                raise ArgumentError(f"{self.graph.name} has not run yet, so the sizes of its batch are not known",
                                    hint="call the step once before")
            shapes: Any = [tuple(p.shape) for p in self.graph.params]
            self.plan([np.broadcast_to(np.zeros((), p.dtype.numpy), shape)
                       for p, shape in zip(self.graph.params, shapes, strict=True)])
        return list(self.plans.values())[-1]

    def _check(self, shardings: Mapping[int, Sharding]) -> None:
        for k, sharding in shardings.items():
            name = self.graph.params[k].name
            if sharding.mesh != self.mesh:
                raise DevicePlanError(f"{self.graph.name} runs on {self.mesh!r}, and {name} is split over "
                                      f"{sharding.mesh!r}", hint="shard it over the mesh that the function has")
            if PIPE_AXIS in axes_of(sharding.spec):
                raise DevicePlanError(f"{self.graph.name}: {name} is split over {PIPE_AXIS!r}, along which stages are",
                                      hint="split it over another axis of the mesh")

    def _plan(self, graph: Graph, shardings: Mapping[int, Sharding]) -> PipelinePlan:
        settings = self.note.pipeline
        schedule = settings.schedule_on(self.mesh.axis_size(PIPE_AXIS))
        others = self.mesh.without(PIPE_AXIS)
        batch = batch_axes(graph, self.note)
        graph, shardings = annotated_arguments(graph, shardings, self.mesh)
        updates = {result: param for param, result in graph.notes.get(UPDATES) or ()}
        wanted = tuple(shardings.get(updates.get(k, -1)) for k in range(len(graph.results)))
        plan = plan_micro_batches(graph, batch, settings.micro_batches, others, shardings, wanted)
        apart = len(self.transport.ranks) < self.mesh.size
        first = micro_step(plan, dict.fromkeys(others.axes, 0))
        stages = stages_of_step(parts_of_step(first.graph, list(batch), first.rows), schedule.stages,
                                self.note.begins or None)
        graphs: dict[tuple[int, ...], DeviceGraphs] = {}    # by the place along the other axes
        devices, made, parts, total = {}, {}, {}, 0
        for rank in self.transport.ranks:
            here = self.mesh.coordinates(rank)
            device = here.pop(PIPE_AXIS)
            place = tuple(here.values())
            if place not in graphs:
                step = micro_step(plan, here) if any(place) else first
                graphs[place] = self._graphs(step, stages.on(first.graph, step.graph), batch, schedule, apart)
            found = graphs[place]
            mine = [(k, r) for k, (r, stage) in enumerate(found.segments.results) if stage is None
                    or schedule.device_of(stage) == device or (apart and k not in updates)]
            ranks = [self.mesh.rank_at({**here, PIPE_AXIS: d}) for d in range(schedule.devices)]
            devices[rank] = program = DeviceProgram(found.step.graph, found.instructions[device], [r for _, r in mine],
                                                    batch, settings.micro_batches, self.compile, ranks, found.smaller)
            made[rank] = tuple(k for k, _ in mine)
            parts[rank] = DevicePart(OfParts(program, rank, [shardings.get(k) for k in program.arguments]),
                                     program.arguments, tuple(range(total, total + len(mine))))
            total += len(mine)
        together = replace(graph, results=tuple(graph.results[k] for rank in made for k in made[rank]))
        runs = MultiDevice(together, parts, Agreed(self.transport))
        one = next(iter(graphs.values()))
        at = {k: schedule.device_of(stage) for k, (_, stage) in enumerate(one.segments.results)
              if stage is not None and k in updates}
        return PipelinePlan(graph, stages, schedule, runs, devices, shardings, wanted, made, at)

    def _graphs(self, step: MicroStep, stages: Stages, batch: Mapping[int, int], schedule: PipelineSchedule,
                apart: bool) -> DeviceGraphs:
        """A step on a micro-batch in these stages, and what each device does."""
        parts = parts_of_step(step.graph, list(batch), step.rows)
        segments = segments_of(parts, stages, schedule.splits_backward)
        instructions = device_steps(segments, schedule, apart)
        smaller = smaller_batches(step, list(batch), stages, schedule, apart, instructions)
        return DeviceGraphs(step, segments, instructions, smaller)

    def _joined(self, plan: PipelinePlan, found: Sequence[Array]) -> list[Any]:
        """The results: an array where this process has it whole, else an array in parts."""
        shards: list[dict[int, Array]] = [{} for _ in plan.wanted]
        arrays = iter(found)
        for rank, places in plan.made.items():
            for k in places:
                shards[k][rank] = next(arrays)
        results: list[Any] = []
        apart = len(self.transport.ranks) < self.mesh.size
        for k, (value, parts, sharding) in enumerate(zip(plan.graph.results, shards, plan.wanted, strict=True)):
            if sharding is None and not (apart and k in plan.at):
                results.append(next(iter(parts.values())))
                continue
            shape: Any = tuple(value.shape)
            found_at = Sharding(self.mesh, () if sharding is None else sharding.spec,
                                ((PIPE_AXIS, plan.at[k]),) if k in plan.at else ())
            results.append(ShardedArray(shape, value.dtype, found_at, parts))
        return results

    def describe(self, width: int = 100) -> str:
        """The stages of the last plan, and its schedule as a picture, by the work that stages are said to have.

        Raises ArgumentError where no run has told sizes that are symbols.
        """
        plan = self.last_plan
        whole = sum(plan.stages.work) or 1.0
        rows = [f"{self.graph.name} in {plan.stages.count} stages, {self.note.pipeline.micro_batches} micro-batches, "
                f"{plan.schedule.name}"]
        for k, work in enumerate(plan.stages.work):
            rows.append(f"  stage {k} on device {plan.schedule.device_of(k)}: {work / whole:.0%} of the work" + (
                f", then {plan.stages.crossing[k]:,} bytes a micro-batch" if k < len(plan.stages.crossing) else ""))
        costs = [work / whole for work in plan.stages.work]
        return "\n".join([*rows, gantt(simulate(plan.schedule, StageCosts(costs, costs, costs)), width)])


@dataclass(frozen=True, eq=False)
class OfParts:
    """A device's program, given arguments that are whole or in parts."""

    program: DeviceProgram
    rank: int
    shardings: Sequence[Sharding | None]

    @property
    def graph(self) -> Graph:
        return self.program.graph

    def run(self, arrays: Sequence[Any], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results of the device."""
        params = [self.graph.params[k] for k in self.program.arguments]
        return self.program.run([self._part(p, x, s) for p, x, s in zip(params, arrays, self.shardings, strict=True)])

    def _part(self, p: Value, x: Array | ShardedArray, sharding: Sharding | None) -> Array:
        """What this device has of an argument."""
        if isinstance(x, ShardedArray) and self.rank in x.shards:
            return x.shards[self.rank]
        if isinstance(x, ShardedArray) and x.sharding.at and not x.is_here:
            raise DevicePlanError(
                f"pipeline: {self.graph.name} reads {p.name}: {p.type} on device {self.rank}, and another function, "
                f"whose stages are cut elsewhere, keeps it on {dict(x.sharding.at)}",
                hint="Pipeline(begins=[...]) with the same modules cuts both functions at one place")
        return part_for(x, sharding, self.rank)


def annotated_arguments(graph: Graph, shardings: Mapping[int, Sharding],
                        mesh: Mesh) -> tuple[Graph, Mapping[int, Sharding]]:
    """The graph without the marks of `shard` on its arguments, and how these are split then: devices first divide the
    rows of a batch, and then turns what each has."""
    place = {p: k for k, p in enumerate(graph.params)}
    marked = {node: place[x] for node in graph.nodes if node.op is with_sharding
              and isinstance(x := node.inputs[0], Value) and x in place and Mesh(dict(node.attrs["mesh"])) == mesh}
    if not marked:
        return graph, shardings
    said = {k: Sharding(mesh, node.attrs["spec"]) for node, k in marked.items()}
    found = rebuild(graph, lambda node, inputs: inputs[0] if node in marked else copy(node, inputs))
    return found, {**{k: sharding for k, sharding in said.items() if not sharding.is_replicated}, **shardings}


def axes_of(spec: Sequence[Any]) -> set[str]:
    """The mesh axes that a spec names."""
    return {name for entry in spec for name in entry_axes(entry)}


def batch_axes(graph: Graph, note: PipelineNote) -> dict[int, int]:
    """For each parameter that holds examples, along which axis."""
    named = {graph.params[k].name: k for k in note.arguments}
    if note.pipeline.batch is not None:
        for name, axis in note.pipeline.batch.items():
            if name not in named:
                raise DevicePlanError(f"Pipeline: the step has no tensor argument {name!r}",
                                    hint=f"its arguments are {', '.join(named) or 'none'}")
            x = graph.params[named[name]]
            if axis is not None and not -x.ndim <= axis < x.ndim:
                raise DevicePlanError(f"Pipeline: {name}: {x.type} has no axis {axis}")
        return {named[name]: axis % graph.params[named[name]].ndim for name, axis in note.pipeline.batch.items()
                if axis is not None}
    tensors = [k for k in note.arguments if graph.params[k].ndim]
    if not tensors:
        raise DevicePlanError(f"Pipeline: {graph.name} has no argument that holds a batch",
                            hint="pass the batch as tensors: their rows are examples")
    rows = graph.params[tensors[0]].shape[0]
    return {k: 0 for k in tensors if graph.params[k].shape[0] == rows}

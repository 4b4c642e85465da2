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

from tenon.errors import ArgumentError, DevicePlanError
from tenon.graph.interpret import learn_shape
from tenon.graph.ir import Graph
from tenon.graph.size_stages import of_sizes
from tenon.locks import Lock
from tenon.pipelining.device_program import DeviceProgram
from tenon.pipelining.device_steps import Instruction, device_steps
from tenon.pipelining.micro_batches import MicroStep, micro_step, plan_micro_batches
from tenon.pipelining.schedules import SCHEDULES, PipelineSchedule, pipeline_schedule
from tenon.pipelining.segments import Segments, segments_of
from tenon.pipelining.simulate_schedule import StageCosts, gantt, simulate
from tenon.pipelining.stages import Stages, stages_of_step
from tenon.pipelining.step_parts import parts_of_step
from tenon.program.backend_interface import Array, Executable, Then
from tenon.records import dataclass
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.runtime.transports import Transport, transport_for
from tenon.sharding.mesh import Mesh

PIPE_AXIS = "pipe"


@dataclass(frozen=True)
class Pipeline:
    """How a step runs as a pipeline: on so many devices, each with `chunks` stages, in so many micro-batches.

    `schedule`: "gpipe", "1f1b", "interleaved" (which takes `chunks` > 1) or "zero_bubble".  `batch` names arguments
    and the axis along which each holds examples, None for none; without it, these are the rows of all arguments that
    have as many as the first.  `begins` are parameters (or modules) that stages but the first begin with; without it,
    stages are balanced by their work.  Raises ArgumentError for what is none of this.

    >>> from tenon.pipelining.pipelined import Pipeline
    >>> Pipeline(stages=2, micro_batches=8).schedule
    '1f1b'
    """

    stages: int
    micro_batches: int
    schedule: str = "1f1b"
    chunks: int = 1
    batch: Mapping[str, int | None] | None = None
    begins: tuple[Any, ...] = ()

    def __init__(self, stages: int, micro_batches: int, schedule: str = "1f1b", chunks: int = 1,
                 batch: Mapping[str, int | None] | None = None, begins: Sequence[Any] = ()):
        if schedule not in SCHEDULES:
            raise ArgumentError(f"Pipeline: no schedule is named {schedule!r}", hint=f"one of {', '.join(SCHEDULES)}")
        made = pipeline_schedule(schedule, stages, micro_batches, chunks)       # raises for bad counts
        if begins and len(begins) != made.stages - 1:
            raise ArgumentError(f"Pipeline: {len(begins)} in begins, and {made.stages} stages, of which all but the "
                                "first begin with one")
        for name, value in (("stages", stages), ("micro_batches", micro_batches), ("schedule", schedule),
                            ("chunks", chunks), ("batch", batch), ("begins", tuple(begins))):
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class PipelineNote:
    """What a captured graph is told of: the pipeline, the places of its arguments, and of what stages begin with."""

    pipeline: Pipeline
    arguments: tuple[int, ...]
    begins: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class PipelinePlan:
    """A step in stages, for certain sizes."""

    stages: Stages
    schedule: PipelineSchedule
    program: MultiDevice
    devices: Mapping[int, DeviceProgram]        # of this process, by rank


@dataclass(frozen=True, eq=False)
class DeviceGraphs:
    """What the devices at one place along the other axes of a mesh do."""

    step: MicroStep
    stages: Stages
    segments: Segments
    instructions: tuple[tuple[Instruction, ...], ...]


class Pipelined:
    """What runs such a graph."""

    def __init__(self, graph: Graph, note: PipelineNote, compile: Callable[[Graph], Executable],
                 mesh: Mesh | None = None, transport: Transport | None = None):
        self.graph, self.note, self.compile = graph, note, compile
        self.mesh = mesh or Mesh({PIPE_AXIS: note.pipeline.stages})
        self.transport: Transport = transport or transport_for(self.mesh)
        self.plans: dict[Any, PipelinePlan] = {}
        self._lock = Lock()
        if not graph.symbols():
            self.plan({})

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results, in memory of their own; what `then` says is stored when all devices have come to their end."""
        sizes: dict[str, int] = {}
        for value, array in zip(self.graph.params, arrays, strict=True):
            learn_shape(value, np.asarray(array), sizes)
        return self.plan(sizes).program.run(arrays, donated, then)

    def plan(self, sizes: Mapping[str, int]) -> PipelinePlan:
        """The plan for these sizes, made once."""
        key = tuple(sorted(sizes.items()))
        if key not in self.plans:
            with self._lock:
                if key not in self.plans:
                    self.plans[key] = self._plan(of_sizes(self.graph, sizes) if sizes else self.graph)
        return self.plans[key]

    def _plan(self, graph: Graph) -> PipelinePlan:
        settings = self.note.pipeline
        schedule = pipeline_schedule(settings.schedule, settings.stages, settings.micro_batches, settings.chunks)
        others = Mesh({name: n for name, n in zip(self.mesh.axes, self.mesh.shape, strict=True) if name != PIPE_AXIS})
        over = tuple(name for name in others.axes if name == "data")
        batch = batch_axes(graph, self.note)
        plan = plan_micro_batches(graph, batch, settings.micro_batches, others, None, over)
        found: dict[tuple[int, ...], DeviceGraphs] = {}      # by the place along the other axes
        programs, parts = {}, {}
        for rank in self.transport.ranks:
            here = self.mesh.coordinates(rank)
            device = here.pop(PIPE_AXIS)
            place = tuple(here.values())
            if place not in found:
                found[place] = self._graphs(micro_step(plan, batch, here, over), schedule)
            graphs = found[place]
            mine = [(k, r) for k, (r, stage) in enumerate(graphs.segments.results)
                    if stage is None or schedule.device_of(stage) == device]
            ranks = [self.mesh.rank_at({**here, PIPE_AXIS: d}) for d in range(schedule.devices)]
            programs[rank] = DeviceProgram(
                graphs.step.graph, graphs.instructions[device], [r for _, r in mine], graphs.step.batch,
                settings.micro_batches, self.compile, here, ranks)
            parts[rank] = DevicePart(programs[rank], tuple(range(len(graph.params))), tuple(k for k, _ in mine))
        stages = next(iter(found.values())).stages
        return PipelinePlan(stages, schedule, MultiDevice(graph, parts, self.transport), programs)

    def _graphs(self, step: MicroStep, schedule: PipelineSchedule) -> DeviceGraphs:
        """A step on a micro-batch in stages, and what each device does."""
        parts = parts_of_step(step.graph, list(step.batch), step.rows)
        stages = stages_of_step(parts, schedule.stages, self.note.begins or None)
        segments = segments_of(parts, stages, schedule.splits_backward)
        return DeviceGraphs(step, stages, segments, device_steps(segments, schedule))

    def describe(self, width: int = 100) -> str:
        """The stages of the last plan, and its schedule as a picture, by the work that stages are said to have."""
        plan = list(self.plans.values())[-1]
        whole = sum(plan.stages.work) or 1.0
        rows = [f"{self.graph.name} in {plan.stages.count} stages, {self.note.pipeline.micro_batches} micro-batches, "
                f"{plan.schedule.name}"]
        for k, work in enumerate(plan.stages.work):
            rows.append(f"  stage {k} on device {plan.schedule.device_of(k)}: {work / whole:.0%} of the work" + (
                f", then {plan.stages.crossing[k]:,} bytes a micro-batch" if k < len(plan.stages.crossing) else ""))
        costs = [work / whole for work in plan.stages.work]
        return "\n".join([*rows, gantt(simulate(plan.schedule, StageCosts(costs, costs, costs)), width)])


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

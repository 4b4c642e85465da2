"""An uneven batch in micro-batches -> the graphs and sizes of those with one example fewer, by those of the others.

Both steps are alike, node by node.  They are cut in stages at the same places, so every instruction of a device is
there for both, and what differs are the graphs that it runs, and the sizes of what it receives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.graph.ir import Graph, Node, Value
from tenon.pipelining.device_steps import Instruction, Run, device_steps
from tenon.pipelining.micro_batches import MicroStep, rows_before
from tenon.pipelining.schedules import PipelineSchedule
from tenon.pipelining.segments import Segment, segments_of
from tenon.pipelining.stages import Stages
from tenon.pipelining.step_parts import Rows, parts_of_step
from tenon.records import dataclass, replace
from tenon.sharding.axis_layout import numbers_of


@dataclass(frozen=True, eq=False)
class SmallerBatches:
    """What a device does otherwise in the micro-batches from `begins` on."""

    begins: int
    graphs: Mapping[Segment, Graph]
    shapes: Mapping[Value, tuple[int, ...]]

    def shape_of(self, value: Value, micro: int | None) -> tuple[int, ...]:
        """The shape of a value in a micro-batch, or of one that is there once."""
        return self.shapes[value] if self.has(micro) else numbers_of(value)

    def has(self, micro: int | None) -> bool:
        """Whether this micro-batch is one of them."""
        return micro is not None and micro >= self.begins

    def begin_of(self, value: Value, rows: Rows, micro: int) -> tuple[int, ...]:
        """Where a micro-batch's rows of a value begin."""
        sizes = numbers_of(value)[rows.axis], self.shapes[value][rows.axis]
        before = rows_before(micro, self.begins, *sizes)
        return tuple(a + before * (k == rows.axis) for k, a in enumerate(rows.start))


def smaller_batches(step: MicroStep, batch: Sequence[int], stages: Stages, schedule: PipelineSchedule, apart: bool,
                    instructions: Sequence[Sequence[Instruction]]) -> SmallerBatches | None:
    """What these instructions do otherwise in the smaller micro-batches of a step, if there are such."""
    if step.smaller is None:
        return None
    pairs = dict(zip(step.graph.nodes, step.smaller.graph.nodes, strict=True))
    parts = parts_of_step(step.smaller.graph, batch, step.smaller.rows)
    of: dict[Node, int] = {pairs[node]: stage for node, stage in stages.of.items()}
    alike = device_steps(segments_of(parts, replace(stages, of=of), schedule.splits_backward), schedule, apart)
    graphs: dict[Segment, Graph] = {}
    for mine, others in zip(instructions, alike, strict=True):
        for a, b in zip(mine, others, strict=True):
            if isinstance(a, Run):
                assert isinstance(b, Run) and len(a.segment.reads) == len(b.segment.reads)
                graphs[a.segment] = b.segment.graph
    values = dict(zip(step.graph.params, step.smaller.graph.params, strict=True))
    values.update((x, y) for a, b in pairs.items() for x, y in zip(a.outputs, b.outputs, strict=True))
    return SmallerBatches(step.larger, graphs, {x: numbers_of(y) for x, y in values.items()})

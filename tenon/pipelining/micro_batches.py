"""A training step on a whole batch -> the same on one micro-batch, by splitting over a mesh axis that is turns.

A micro-batch is a place of the mesh axis "micro": what `tenon.sharding` makes for a rank there is what a device does in
one of its turns.  Where turns differ they take different rows of a value that is there once (a mask, noise that was
drawn for the batch): such slices are told apart from the graph, which is then the same for all turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.errors import DevicePlanError
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.pipelining.step_parts import MICRO_AXIS, Rows
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh
from tenon.sharding.propagate import propagate
from tenon.sharding.sharding import Axes, Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import local_graph


@dataclass(frozen=True, eq=False)
class MicroStep:
    """The graph of a step on one micro-batch, and its values of which each has its part."""

    graph: Graph
    rows: Mapping[Value, Rows]


def plan_micro_batches(graph: Graph, batch: Mapping[int, int], micro_batches: int, mesh: Mesh,
                       shardings: Mapping[int, Sharding], results: Sequence[Sharding | None]) -> ShardingPlan:
    """How a step runs on micro-batches, and on the devices of a mesh, over which parameters and results are split.

    `batch` gives the axis along which each parameter holds examples.  Raises DevicePlanError where it does not divide.
    """
    turns = Mesh({**dict(zip(mesh.axes, mesh.shape, strict=True)), MICRO_AXIS: micro_batches})
    given: list[Sharding | None] = [None] * len(graph.params)
    for k, p in enumerate(graph.params):
        axes: list[Axes] = list(shardings[k].axes(p.ndim)) if k in shardings else [()] * p.ndim
        if k in batch:
            axes[batch[k]] += (MICRO_AXIS,)
            _check_divides(p, batch[k], turns.parts(axes[batch[k]]))
        given[k] = Sharding(turns, axes)
    return propagate(graph, given, turns, [None if x is None else Sharding(turns, x.spec) for x in results])


def _check_divides(p: Value, axis: int, parts: int) -> None:
    size = p.shape[axis]
    if not isinstance(size, int) or size % parts or not size:
        raise DevicePlanError(f"pipeline: axis {axis} of {p.name}: {p.type} does not divide in {parts} equal parts",
                              hint=f"choose micro_batches so that the batch is a multiple of {parts}, or drop the last "
                                   "examples (drop_last=True of the loader)")


def micro_step(plan: ShardingPlan, coordinates: Mapping[str, int]) -> MicroStep:
    """What a device at these coordinates of the mesh does with a micro-batch."""
    turns = plan.mesh
    count = turns.axis_size(MICRO_AXIS)
    first = local_graph(plan, turns.rank_at({**coordinates, MICRO_AXIS: 0}))
    last = local_graph(plan, turns.rank_at({**coordinates, MICRO_AXIS: count - 1}))
    return MicroStep(*_without_turns(first, last, count))


def _without_turns(first: Graph, last: Graph, count: int) -> tuple[Graph, dict[Value, Rows]]:
    """The graph of all turns, given those of the first and the last; and the values of which each has its own rows."""
    builder = Builder(first.name, rewriting=True)
    values: dict[Value, Input] = {p: builder.parameter(p.type, p.name) for p in first.params}
    rows: dict[Value, Rows] = {}
    for node, other in zip(first.nodes, last.nodes, strict=True):
        inputs = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
        attrs, loc = node.attrs, node.loc
        axis = _axis_of_turns(node, other, count)
        if axis is not None and (spread := _spread(builder, node, inputs[0], axis)) is not None:
            values[node.output] = spread
            continue
        out = builder.emit(node.op, inputs, attrs, loc)
        listed = out if isinstance(out, tuple) else (out,)
        values.update(zip(node.outputs, listed, strict=True))
        if axis is not None:
            whole = inputs[0]
            assert isinstance(whole, Value)
            rows[listed[0]] = Rows(whole, axis, node.attrs["start"])
    found = builder.finish([x for x in (values[r] for r in first.results) if isinstance(x, Value)])
    found.notes = first.notes
    return found, rows


def _axis_of_turns(node: Node, other: Node, count: int) -> int | None:
    """The axis along which turns take different rows; None where a node is the same for all."""
    if node.op is not other.op or [x.type for x in node.outputs] != [x.type for x in other.outputs]:
        raise DevicePlanError(f"pipeline: micro-batches differ in {node.op.name}", where=node.loc,
                            hint="choose micro_batches so that the batch is a multiple of it")
    if node.attrs == other.attrs:
        return None
    starts = list(zip(node.attrs.get("start", ()), other.attrs.get("start", ()), strict=True))
    moved = [k for k, (a, b) in enumerate(starts) if a != b]
    if node.op.name == "slice" and len(moved) == 1:
        axis = moved[0]
        size = node.output.shape[axis]
        begin, end = starts[axis]
        if isinstance(size, int) and end - begin == size * (count - 1) and set(node.attrs["step"]) == {1}:
            return axis
    raise DevicePlanError(f"pipeline: micro-batches differ in {node.op.name}", where=node.loc,
                        hint="what is computed for an example may not depend on its place in the batch")


def _spread(builder: Builder, node: Node, whole: Input, axis: int) -> Value | None:
    """Rows of what is the same in every row: spread over fewer rows in the first place."""
    maker = whole.node if isinstance(whole, Value) else None
    if maker is None or maker.op.name not in ("broadcast_to", "full_op"):
        return None
    source = maker.inputs[0]
    if isinstance(source, Value):
        own = axis - (node.output.ndim - source.ndim)
        if own >= 0 and source.shape[own] != 1:
            return None
    found: Value = builder.emit(maker.op, maker.inputs, {**maker.attrs, "shape": node.output.shape}, node.loc)
    return found

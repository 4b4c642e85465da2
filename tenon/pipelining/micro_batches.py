"""A training step on a whole batch -> the same on one micro-batch, by splitting over a mesh axis of micro-batches.

A micro-batch is a place of the mesh axis "micro": what `tenon.sharding` makes for a rank there is what a device does
for one of them.  Where they differ they take different rows of a value that is there once (a mask, noise that was
drawn for the batch): such slices are told apart from the graph, which is then the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.errors import DevicePlanError
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Input, Node, Value, graphs_in
from tenon.graph.structural_key import Exact
from tenon.graph.text import key_of
from tenon.pipelining.step_parts import Rows
from tenon.records import dataclass
from tenon.sharding.axis_layout import Layout, ValueSharding, local_shape, normal, numbers_of
from tenon.sharding.mesh import MICRO_AXIS, Mesh
from tenon.sharding.propagate import Given, propagate
from tenon.sharding.sharding import Axes, Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import local_graph


@dataclass(frozen=True, eq=False)
class MicroStep:
    """The graph of a step on one micro-batch, and its values of which each has its part.

    Of an uneven batch the first `larger` micro-batches have one example more; what is done with others is `smaller`.
    """

    graph: Graph
    rows: Mapping[Value, Rows]
    larger: int
    smaller: MicroStep | None = None


def plan_micro_batches(graph: Graph, batch: Mapping[int, int], micro_batches: int, mesh: Mesh,
                       shardings: Mapping[int, Sharding], results: Sequence[Sharding | None]) -> ShardingPlan:
    """How a step runs on micro-batches, and on the devices of a mesh, over which parameters and results are split.

    `batch` gives the axis along which each parameter holds examples.  Raises DevicePlanError for fewer examples than
    micro-batches, and where an uneven batch is split unevenly over devices too.
    """
    micro_mesh = Mesh({**dict(zip(mesh.axes, mesh.shape, strict=True)), MICRO_AXIS: micro_batches})
    given: list[Given] = [None] * len(graph.params)
    for k, p in enumerate(graph.params):
        axes: list[Axes] = list(shardings[k].axes(p.ndim)) if k in shardings else [()] * p.ndim
        layouts = [normal(((n, over),), micro_mesh) for n, over in zip(numbers_of(p), axes, strict=True)]
        if k in batch:
            layouts[batch[k]] = _in_micro_batches(p, batch[k], axes[batch[k]], micro_mesh)
        given[k] = ValueSharding(tuple(layouts))
    return propagate(graph, given, micro_mesh,
                     [None if x is None else Sharding(micro_mesh, x.spec) for x in results])


def _in_micro_batches(p: Value, axis: int, over: Axes, micro_mesh: Mesh) -> Layout:
    """The layout of an axis of examples that these devices divide first, then the micro-batches of each."""
    size, devices, count = numbers_of(p)[axis], micro_mesh.parts(over), micro_mesh.axis_size(MICRO_AXIS)
    if size < devices * count or (size % (devices * count) and size % devices):
        parts = f"{devices} devices with {count} micro-batches each" if over else f"{count} micro-batches"
        raise DevicePlanError(f"pipeline: axis {axis} of {p.name}: {p.type} does not divide among {parts}",
                              hint="the batch has at least as many examples as there are micro-batches, and a multiple "
                                   "of the devices that it is split over; or drop the last examples (drop_last=True of "
                                   "the loader)")
    if size % (devices * count) == 0:
        return normal(((size, (*over, MICRO_AXIS)),), micro_mesh)
    return normal(((devices, over), (size // devices, (MICRO_AXIS,))), micro_mesh)


def micro_step(plan: ShardingPlan, coordinates: Mapping[str, int]) -> MicroStep:
    """What a device at these coordinates of the mesh does with a micro-batch."""
    count = plan.mesh.axis_size(MICRO_AXIS)
    ranks = [plan.mesh.rank_at({**coordinates, MICRO_AXIS: k}) for k in range(count)]
    sizes = [[local_shape(plan.made[p], numbers_of(p), plan.mesh, rank) for p in plan.graph.params] for rank in ranks]
    larger = sizes.count(sizes[0])
    samples = sorted({0, larger - 1, min(larger, count - 1), count - 1})
    graphs = [local_graph(plan, ranks[k]) for k in samples]
    if len({len(graph.nodes) for graph in graphs}) > 1 or sizes[larger:] != [sizes[-1]] * (count - larger):
        raise DevicePlanError(f"pipeline: micro-batches of {plan.graph.name} differ by more than one example",
                              hint="choose micro_batches so that the batch is a multiple of it")
    axes = [_axis_of_rows(nodes, samples, larger) for nodes in zip(*(graph.nodes for graph in graphs), strict=True)]
    smaller = None if larger == count else MicroStep(*_of_all(graphs[-1], graphs[0], axes), count - larger)
    return MicroStep(*_of_all(graphs[0], graphs[0], axes), larger, smaller)


def _of_all(graph: Graph, first: Graph, axes: Sequence[int | None]) -> tuple[Graph, dict[Value, Rows]]:
    """The graph of all micro-batches of one size, given that of one; and the values of which each has its own rows,
    along these axes.  `first` is the graph of the first one."""
    builder = Builder(graph.name, rewriting=True)
    values: dict[Value, Input] = {p: builder.parameter(p.type, p.name) for p in graph.params}
    rows: dict[Value, Rows] = {}
    for node, other, axis in zip(graph.nodes, first.nodes, axes, strict=True):
        inputs = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
        if axis is not None and (spread := _spread(builder, node, inputs[0], axis)) is not None:
            values[node.output] = spread
            continue
        out = builder.emit(node.op, inputs, node.attrs, node.loc)
        listed = out if isinstance(out, tuple) else (out,)
        values.update(zip(node.outputs, listed, strict=True))
        if axis is not None:
            whole = inputs[0]
            assert isinstance(whole, Value)
            rows[listed[0]] = Rows(whole, axis, other.attrs["start"])
    found = builder.finish([x for x in (values[r] for r in graph.results) if isinstance(x, Value)])
    found.notes = graph.notes
    return found, rows


def _axis_of_rows(nodes: Sequence[Node], samples: Sequence[int], larger: int) -> int | None:
    """The axis along which these micro-batches take different rows; None where a node is one for all of one size."""
    node = nodes[0]
    starts = {other.attrs["start"] for other in nodes} if node.op.name == "slice" else set()
    pairs = [(a, b) for a, b, k in zip(nodes, nodes[1:], samples[1:], strict=False) if k != larger]
    if any(a.op is not b.op or [x.type for x in a.outputs] != [x.type for x in b.outputs] for a, b in pairs):
        raise _differ(node, "choose micro_batches so that the batch is a multiple of it")
    if len(starts) <= 1 and all(_alike(a, b) for a, b in pairs):
        return None
    moved = [k for k in range(node.output.ndim) if len({start[k] for start in starts}) > 1]
    if len(moved) == 1 and all(set(other.attrs["step"]) == {1} for other in nodes):
        axis = moved[0]
        sizes = numbers_of(node.output)[axis], numbers_of(nodes[-1].output)[axis]
        if all(other.attrs["start"][axis] - node.attrs["start"][axis] == rows_before(k, larger, *sizes)
               for other, k in zip(nodes, samples, strict=True)):
            return axis
    raise _differ(node, "what is computed for an example may not depend on its place in the batch")


def _alike(a: Node, b: Node) -> bool:
    """Whether nodes say the same; what they do in branches and loops too."""
    attrs = [{name: tuple(map(key_of, graphs)) if (graphs := graphs_in(x)) else x for name, x in node.attrs.items()}
             for node in (a, b)]
    return Exact(attrs[0]) == Exact(attrs[1])


def rows_before(number: int, larger: int, size: int, smaller: int) -> int:
    """How many rows micro-batches have before one of them, where those behind the first `larger` have fewer."""
    return min(number, larger) * size + max(0, number - larger) * smaller


def _differ(node: Node, hint: str) -> DevicePlanError:
    return DevicePlanError(f"pipeline: micro-batches differ in {node.op.name}", where=node.loc, hint=hint)


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

"""A training step on one micro-batch -> what is done when: before, for each micro-batch, and behind all of them.

The graph is what one place of the mesh axis "micro" computes: parameters that hold a batch have its part, and a
collective over "micro" (`all_reduce`: a gradient, a loss; `all_gather`: results in rows) is where micro-batches come
together.  There is no such device: the places are micro-batches of the same device.  So each value is of one kind:

    micro    computed for each micro-batch: it depends on a part of the batch
    early    computed once, before: of parameters that are whole, or of sums over the batch that need no weights
    late     computed once, behind: of sums over all micro-batches

What a micro-batch needs of the whole batch (how many targets count, say) must be known early: where it depends on
weights that the step changes, as the statistics of a batch norm do, there is no pipeline, and that is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tenon.errors import DevicePlanError
from tenon.graph.ir import UPDATES, Graph, Node, Value
from tenon.graph.partition import all_nodes, has_effect, innermost
from tenon.ops.collectives import COLLECTIVES, all_gather_op, all_reduce_op
from tenon.records import dataclass
from tenon.sharding.mesh import MICRO_AXIS
from tenon.types import TOKEN

# What is done again wherever it is read, since its input is no larger than its output.
REPEATED = "view", "source"


@dataclass(frozen=True, eq=False)
class Accumulated:
    """A value that is there when all micro-batches have given theirs: their sum, maximum or minimum ("sum", "max",
    "min"), all of them along an axis ("concat"), or the only one ("only")."""

    value: Value            # what is read of it
    part: Value             # what each micro-batch gives
    how: str
    axis: int = 0
    over: tuple[str, ...] = ()      # the axes of the mesh, beside "micro", that it is reduced over
    node: Node | None = None


@dataclass(frozen=True)
class Rows:
    """A part of a value that is there once: it begins at `start`, and further on along `axis` in each micro-batch."""

    whole: Value
    axis: int
    start: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StepParts:
    """Which nodes of a graph are done when."""

    graph: Graph
    micro: frozenset[Value]             # values computed for each micro-batch, parameters among them
    late: frozenset[Value]              # computed behind all; what is neither is early
    sums: tuple[Accumulated, ...]
    first: frozenset[Accumulated]       # those that are known before the first micro-batch
    forward: tuple[Node, ...]           # the nodes for each micro-batch, but those that are repeated
    backward: tuple[Node, ...]          # those of them that are part of a gradient, or read one
    repeated: frozenset[Node]
    rows: Mapping[Value, Rows]          # values of which a micro-batch has its part

    def reads(self, node: Node) -> list[Value]:
        """What a node reads, seen through the nodes that are repeated."""
        return sources([x for x in node.inputs if isinstance(x, Value)], self.repeated)


def sources(values: Iterable[Value], repeated: Collection[Node]) -> list[Value]:
    """The values that these come from, seen through the nodes that are repeated."""
    found: dict[Value, None] = {}
    pending = list(reversed(list(values)))
    while pending:
        x = pending.pop()
        if x.node is not None and x.node in repeated:
            pending.extend(y for y in reversed(x.node.inputs) if isinstance(y, Value))
        else:
            found[x] = None
    return list(found)


def is_meeting(node: Node) -> bool:
    """Whether micro-batches come together there."""
    return node.op in COLLECTIVES and MICRO_AXIS in node.attrs["over"]


def parts_of_step(graph: Graph, batch: Collection[int],
                  rows: Mapping[Value, Rows] | None = None) -> StepParts:
    """Sort the nodes of a graph of which the parameters at `batch` hold a part of the batch, and `rows` a part of
    other values.

    Raises DevicePlanError, with the user's line, where micro-batches need what only all of them together have.
    """
    rows = rows or {}
    micro: set[Value] = {*(graph.params[k] for k in batch), *rows}
    behind: set[Value] = set()          # values that depend on some meeting
    sums: list[Accumulated] = []
    for node in graph.nodes:
        uses = node.uses()
        if node.outputs and node.outputs[0] in rows:
            continue
        if any(is_meeting(inner) for graph in node.graphs for inner in all_nodes(graph)):
            raise DevicePlanError(f"pipeline: micro-batches would meet within {node.op.name}", where=node.loc,
                                  hint="what it does for an example may not depend on others of the batch")
        if is_meeting(node):
            sums.append(_accumulated(node))
            behind.update(node.outputs)
            continue
        if any(x in micro for x in uses if x.type != TOKEN):
            micro.update(node.outputs)
            if any(inner.op.effect and inner.op not in COLLECTIVES for inner in innermost(node)):
                raise DevicePlanError(f"pipeline: {node.op.name} would be done once for each micro-batch",
                                    where=node.loc, hint="do it outside of the step, with what the step returns")
        if any(x in behind for x in uses if x.type != TOKEN):
            behind.update(node.outputs)
    first = _needed_first(graph, micro, behind, sums, rows)
    sums += [Accumulated(x, x, "only") for x in dict.fromkeys(graph.results) if x in micro and x.node is not None]
    late = _late(graph, micro, sums, first)
    kept = {x.part for x in sums} | set(graph.results)
    repeated = frozenset(node for node in graph.nodes
                         if node.op.moves in REPEATED and not kept.intersection(node.outputs))
    forward, backward = _directions(graph, micro - rows.keys(), repeated, [x.part for x in sums if x not in first])
    return StepParts(graph, frozenset(micro), frozenset(late), tuple(sums), first, forward, backward, repeated,
                     rows)


def _accumulated(node: Node) -> Accumulated:
    """What a collective over the micro-batches gathers."""
    part = node.inputs[0]
    assert isinstance(part, Value)
    over = tuple(name for name in node.attrs["over"] if name != MICRO_AXIS)
    if node.op is all_reduce_op:
        return Accumulated(node.output, part, node.attrs["op"], 0, over, node)
    if node.op is all_gather_op and not over:
        return Accumulated(node.output, part, "concat", node.attrs["axis"], (), node)
    raise DevicePlanError(f"pipeline: the step needs {node.op.name} between micro-batches", where=node.loc,
                        hint="what is computed for an example may not depend on others of the batch")


def _needed_first(graph: Graph, micro: set[Value], behind: set[Value],
                  sums: list[Accumulated], rows: Collection[Value]) -> frozenset[Accumulated]:
    """The sums that micro-batches read, which must not depend on what the step changes."""
    wanted: set[Value] = set()
    for node in reversed(graph.nodes):
        if not is_meeting(node) and (any(x in micro for x in node.outputs) or not wanted.isdisjoint(node.outputs)):
            wanted.update(x for x in node.uses() if x in behind and x.type != TOKEN)
    # A value for each micro-batch may be behind a meeting; what it reads there is wanted, and so on.
    first = [x for x in sums if x.value in wanted]
    changed = _depending_on_weights(graph, rows)
    for x in first:
        if x.part in changed or x.part in behind:
            raise DevicePlanError(
                "pipeline: this couples the examples of a batch, and depends on weights: a micro-batch cannot be "
                "computed before all others are", where=None if x.node is None else x.node.loc,
                hint="nn.LayerNorm or nn.GroupNorm in the place of batch norm, net.eval() for its layers, or a step "
                     "without a pipeline")
    return frozenset(first)


def _depending_on_weights(graph: Graph, rows: Collection[Value]) -> set[Value]:
    """The values that depend on parameters that the step updates by gradients, or on these rows."""
    found = {graph.params[k] for k, _ in graph.notes.get(UPDATES) or () if graph.params[k].dtype.is_differentiable}
    found |= set(rows)
    for node in graph.nodes:
        if any(x in found for x in node.inputs if isinstance(x, Value)):
            found.update(node.outputs)
    return found


def _late(graph: Graph, micro: set[Value], sums: list[Accumulated], first: frozenset[Accumulated]) -> set[Value]:
    """The sums that are there behind all micro-batches, and what is computed of them."""
    late = {x.value for x in sums if x not in first and x.how != "only"}
    for node in graph.nodes:
        if not is_meeting(node) and any(x in late for x in node.inputs if isinstance(x, Value)):
            late.update(node.outputs)
    return late - micro


def _directions(graph: Graph, micro: set[Value], repeated: Collection[Node],
                ends: Iterable[Value]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The nodes for each micro-batch that lead to its ends: those forward, and those that are part of a gradient, or
    read one.  What only leads to sums that are known first is in neither."""
    wanted = set(ends)
    needed: list[Node] = []
    for node in reversed(graph.nodes):
        here = not is_meeting(node) and any(x in micro for x in node.outputs)
        if here and (has_effect(node) or not wanted.isdisjoint(node.outputs)):
            wanted.update(x for x in node.inputs if isinstance(x, Value))
            needed.append(node)
    gradients: set[Value] = set()
    forward, backward = [], []
    for node in reversed(needed):
        derives = node.loc is not None and node.loc.derives is not None
        if derives or any(x in gradients for x in node.inputs if isinstance(x, Value)):
            gradients.update(node.outputs)
            backward.append(node)
        else:
            forward.append(node)
    return tuple(x for x in forward if x not in repeated), tuple(x for x in backward if x not in repeated)

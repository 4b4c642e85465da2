"""Graph in its last order -> the same, with sums between devices started early and waited for late.

    s = all_reduce(g)                       p = all_reduce_start(g)
    h = kernel(x)               ->          h = kernel(x)
    w = step(w, s)                          s = all_reduce_done(p, g)
                                            w = step(w, s)

PyTorch's DDP (Li et al. 2020) has gradients summed while others are still made.  What is summed is kept until then, so
only so many bytes are under way at once.  Starts keep the order that effects have, which is one on all ranks; when a
rank waits for a sum is its own affair.  All sums are taken apart, even where one is read at once: another rank, whose
parts are of other sizes, may have work between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import has_effect
from tenon.ops.async_all_reduce import all_reduce_done, all_reduce_start
from tenon.ops.collectives import all_reduce_op, all_reduce_together
from tenon.passes.merge_collectives import bytes_of_sum
from tenon.records import dataclass, replace

MAX_UNDER_WAY = 16 << 20        # bytes of sums that are started and not waited for
SUMS = (all_reduce_op, all_reduce_together)


def schedule_collectives(graph: Graph) -> Graph:
    """Start sums as soon as there is what they sum, and wait for them before the first node that reads them."""
    if not any(node.op in SUMS for node in graph.nodes):
        return graph
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    values: dict[Value, Value] = dict(zip(graph.params, builder.params, strict=True))
    pending: dict[Node, Sequence[Value]] = {}
    with using(builder):
        for step in limited(placed(graph)):
            _emit(builder, step, values, pending)
    return replace(graph, params=tuple(builder.params), nodes=tuple(builder.nodes),
                   results=tuple(values[r] for r in graph.results))


@dataclass(frozen=True)
class SumStep:
    """A node in its place; of a sum that is waited for elsewhere, its start or its end."""

    node: Node
    part: str = ""              # "start", "done", or nothing: all of it


def placed(graph: Graph) -> list[SumStep]:
    """The nodes in their new order."""
    behind: list[list[SumStep]] = [[] for _ in range(len(graph.nodes) + 1)]     # what comes before node k
    place = {node: k for k, node in enumerate(graph.nodes)}
    first = {x: k for k, node in reversed(list(enumerate(graph.nodes))) for x in node.uses()}
    earliest = 0                # behind all effects so far
    for k, node in enumerate(graph.nodes):
        if node.op not in SUMS:
            earliest = k + 1 if has_effect(node) else earliest
            behind[k + 1].insert(0, SumStep(node))
            continue
        start = max([earliest, *(_known_at(x.node, place, k) for x in node.inputs if isinstance(x, Value))])
        done = min((first[y] for y in node.outputs[:-1] if y in first), default=len(graph.nodes))
        behind[start].append(SumStep(node, "start"))
        behind[done].append(SumStep(node, "done"))
        earliest = start
    return [step for steps in behind for step in steps]


def _known_at(node: Node | None, place: Mapping[Node, int], reader: int) -> int:
    """The place from which on there is what a node makes; a sum is waited for where it is read."""
    if node is None:
        return 0
    return reader if node.op in SUMS else place[node] + 1


def limited(steps: Sequence[SumStep]) -> Iterator[SumStep]:
    """The same, where the oldest sums are waited for when too much is under way."""
    under_way: dict[Node, int] = {}
    for step in steps:
        if step.part == "done" and step.node not in under_way:
            continue
        if step.part == "done":
            del under_way[step.node]
        elif step.part == "start":
            size = sum(map(bytes_of_sum, step.node.outputs[:-1]))
            while under_way and sum(under_way.values()) + size > MAX_UNDER_WAY:
                oldest = next(iter(under_way))
                del under_way[oldest]
                yield SumStep(oldest, "done")
            under_way[step.node] = size
        yield step


def _emit(builder: Builder, step: SumStep, values: dict[Value, Value], pending: dict[Node, Sequence[Value]]) -> None:
    node, builder.loc = step.node, step.node.loc
    inputs = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
    attrs, after = node.attrs, tuple(values[x] for x in node.after if x in values)
    if step.part == "start":
        *pending[node], values[node.outputs[-1]] = builder.emit(all_reduce_start, inputs, attrs, after=after)
        return
    if step.part == "done":
        *made, _ = builder.emit(all_reduce_done, (*pending[node], *inputs), attrs)
        values.update(zip(node.outputs, made, strict=False))
        return
    found = builder.emit(node.op, inputs, attrs, after=after)
    values.update(zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=True))

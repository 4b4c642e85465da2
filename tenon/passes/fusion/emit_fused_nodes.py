"""A partition of a graph's nodes -> the graph with one node a group."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Node, Value
from tenon.ops.graph_calls import fused
from tenon.passes.fusion.fusion_groups import FusionGroup, find_group
from tenon.passes.fusion.kernel_bodies import body_of
from tenon.records import replace

if TYPE_CHECKING:
    from tenon.passes.fusion.fusion_partition import Groups


def grouped(groups: Groups) -> Graph:
    """The graph with one node a group."""
    graph = groups.graph
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    made = _FusedEmitter(groups, builder, dict(zip(graph.params, builder.params, strict=True)))
    for group in in_order(groups):
        made.add(group)
    for result in graph.results:
        made.add_renames(result)
    new = builder.finish([made.values[r] for r in graph.results])
    return replace(new, notes=graph.notes)


class _FusedEmitter:
    """Appends groups to a builder; `values` says what the graph's values are there."""

    def __init__(self, groups: Groups, builder: Builder, values: dict[Value, Value]):
        self.groups, self.builder, self.values = groups, builder, values

    def add(self, group: FusionGroup) -> None:
        """The node of a group."""
        nodes, results = self.groups.with_views(group)
        if len(nodes) == 1:
            self.add_alone(nodes[0])
            return
        body, outside = body_of(nodes, results)
        for x in outside:
            self.add_renames(x)
        inputs = tuple(self.values[x] for x in outside)
        made = self.builder.emit(fused, inputs, {"body": body}, group.nodes[-1].loc)
        self.values.update(zip(results, made if isinstance(made, tuple) else (made,), strict=True))

    def add_alone(self, node: Node) -> None:
        """A node as it is."""
        for x in node.inputs:
            self.add_renames(x)
        inputs = tuple(self.values[x] if isinstance(x, Value) else x for x in node.inputs)
        after = tuple(self.values[x] for x in node.after)
        made = self.builder.emit(node.op, inputs, node.attrs, node.loc, after)
        self.values.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))

    def add_renames(self, x: object) -> None:
        """The chain of renaming views that ends in `x`, from the first that is not there yet."""
        chain: list[Node] = []
        while isinstance(x, Value) and x not in self.values:
            assert x.node is not None and self.groups.kinds[x.node].name == "view", x
            chain.append(x.node)
            x = x.node.inputs[0]
        for node in reversed(chain):
            inputs = tuple(self.values[x] if isinstance(x, Value) else x for x in node.inputs)
            self.values[node.output] = self.builder.emit(node.op, inputs, node.attrs, node.loc)


def in_order(groups: Groups) -> Iterator[FusionGroup]:
    """Groups after those that they read, otherwise in the order of the graph; an effect reads the one before it."""
    listed = groups.all()
    needs = {group: set(map(find_group, group.reads)) - {group} for group in listed}
    readers: dict[FusionGroup, list[FusionGroup]] = {group: [] for group in listed}
    for group, needed in needs.items():
        for other in needed:
            readers[other].append(group)
    places = {group: _place(group, groups) for group in listed}
    ready = [(places[group], k, group) for k, group in enumerate(listed) if not needs[group]]
    heapq.heapify(ready)
    number = {group: k for k, group in enumerate(listed)}
    while ready:
        *_, group = heapq.heappop(ready)
        yield group
        for reader in readers[group]:
            needs[reader].discard(group)
            if not needs[reader]:
                heapq.heappush(ready, (places[reader], number[reader], reader))


def _place(group: FusionGroup, groups: Groups) -> int:
    """Where in the graph a group is computed, if what it reads is there: as late as the last of its nodes.

    With a product as early as that, whose factors then need not be kept: they are activations, mostly, which the
    step of an optimizer is much later than.
    """
    products = [groups.position[node] for node in group.nodes if groups.kinds[node].name == "contraction"]
    return max(products, default=group.last)

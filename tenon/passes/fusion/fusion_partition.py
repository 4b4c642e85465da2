"""The partition of a graph's nodes into groups that will be one kernel each.

Views (a permute, a broadcast, a cast) belong to whoever reads them, every reader its own copy.  All other nodes start
alone and are merged with the groups that they read from, if

* no third group lies between the two (the graph of groups stays without cycles), and
* one kernel costs less than two (tenon.passes.fusion.fusion_profitability).

A contraction takes in only views on its inputs and elementwise work on its result, and at last sums of that over rows
(tenon.passes.fusion.fuse_row_sums).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from math import prod
from typing import Any

from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import Op
from tenon.graph.partition import has_effect
from tenon.loops.cost import known
from tenon.ops.channels_last import conv_channels_last, depthwise_channels_last
from tenon.ops.shape import permute, reshape_op
from tenon.passes.fusion.classify_ops import Kind, kind_of
from tenon.passes.fusion.emit_fused_nodes import in_order
from tenon.passes.fusion.fusion_groups import (
    FusionGroup,
    GroupOrder,
    bytes_of,
    elements,
    find_group,
    largest,
    try_nodes,
    union,
)
from tenon.passes.fusion.fusion_profitability import MAX_INPUTS, FusionProfit
from tenon.target import GENERIC, LINE_BYTES, Target

MAX_NODES = 48              # in one kernel; beyond, compiling costs more than memory traffic
SIZE_BITS = 4           # bits by which sizes differ that are taken for different
PANEL_FILTERS = 16      # filters that meet an element of an image at once
MIN_IMAGE_READS = 8         # times that an element of an image is read, for which a copy pays
MAX_APART = 200             # places in the graph; what is further apart lies in memory for long anyway
RENAMES: tuple[Op, ...] = (reshape_op,)     # what a backend does by giving the same memory another type


class Groups:
    """The partition of a graph's nodes while it grows coarser."""

    def __init__(self, graph: Graph, target: Target = GENERIC):
        self.graph, self.target = graph, target
        self.position = {node: k for k, node in enumerate(graph.nodes)}
        self.users = graph.users()
        self.kinds: dict[Node, Kind] = {}
        self.results = set(graph.results)
        effects = [node for node in graph.nodes if has_effect(node)]
        self.earlier = dict(pairwise(reversed(effects)))        # the effect that has to be before an effect
        self.group: dict[Node, FusionGroup] = {}
        self.sources: dict[Value, tuple[Node, ...]] = {}        # the nodes behind the views that a value is made of
        self._forget()
        for node in reversed(graph.nodes):
            self.kinds[node] = self._kind(node)
        for k, node in enumerate(graph.nodes):
            self._start(k, node)
        self.order = GroupOrder(list(self.group.values()))

    def refresh(self) -> None:
        """Find again what lies behind every value, and what reads what, after nodes were inlined."""
        self.sources = {}
        for node in self.graph.nodes:
            if self.kinds[node].name == "view":
                self._see_through(node)
            else:
                self.sources.update((output, (node,)) for output in node.outputs)
        for group in self.all():
            reads = {self.group_of(source) for node in self.with_views(group)[0] for source in self._needs(node)}
            group.reads = reads - {group}
        self.order = GroupOrder(list(in_order(self)))

    def _forget(self) -> None:
        """Begin to note what groups are, which holds while no node becomes a view."""
        self.known: dict[FusionGroup, tuple[list[Node], list[Value]]] = {}    # `with_views`
        self.read: dict[FusionGroup, set[Value]] = {}                         # `inputs_of`
        self.refused: set[tuple[FusionGroup, FusionGroup]] = set()                  # pairs that do not pay
        self.worth = FusionProfit(self)

    def all(self) -> list[FusionGroup]:
        """The groups there are by now."""
        return list(dict.fromkeys(map(find_group, self.group.values())))

    def inline(self, nodes: Sequence[Node]) -> None:
        """Let whoever reads these nodes compute them, as if they were views; `refresh` has to follow."""
        for node in nodes:
            group = self.group_of(node)
            rest = FusionGroup([x for x in group.nodes if x is not node], group.kinds, group.reads, group.first,
                               group.last)
            del self.group[node]
            self.kinds[node] = Kind("view")
            self._forget()
            group.into = rest
            self.group.update(dict.fromkeys(rest.nodes, rest))

    def _kind(self, node: Node) -> Kind:
        """A view that is read by something other than a kernel, or hides windows from one, must be stored: it is a map.
        """
        kind = kind_of(node)
        if kind.name == "view" and node.op not in RENAMES and self.is_stored(node.output):
            return Kind("map")
        return kind

    def is_stored(self, value: Value) -> bool:
        """Whether a result, or a node that is no kernel, needs the value in memory, by itself or renamed."""
        return value in self.results or any(
            self.kinds[user].name == "opaque" or (user.op in RENAMES and self.is_stored(user.output))
            or (self.kinds[user].checks and _repeats(value))
            or _hides_windows(value, user, self.target)
            for user in self.users[value])

    def _start(self, k: int, node: Node) -> None:
        if self.kinds[node].name == "view":
            self._see_through(node)
            return
        reads = {self.group[source] for source in self._needs(node)}
        self.group[node] = FusionGroup([node], {self.kinds[node].name}, reads, k, k)
        self.sources.update((output, (node,)) for output in node.outputs)

    def _needs(self, node: Node) -> Iterator[Node]:
        """What has to be computed before: what makes its values, and the effect before an effect."""
        yield from (source for x in node.uses() for source in self.behind(x))
        if node in self.earlier:
            yield self.earlier[node]

    def _see_through(self, node: Node) -> None:
        self.sources[node.output] = tuple(dict.fromkeys(
            source for x in node.inputs if isinstance(x, Value) for source in self.behind(x)))

    def behind(self, value: Value) -> tuple[Node, ...]:
        """The nodes, views apart, that make a value."""
        return self.sources.get(value, ())

    def is_core(self, node: Node) -> bool:
        """Whether the node is work that may be merged."""
        return self.kinds[node].name in ("map", "reduce", "contraction")

    def links(self) -> list[list[tuple[Node, Node]]]:
        """(a node, one that reads it), those between which most memory would be moved first, then in the graph's order;
        those between which about as much would be moved together.

        What is merged first may keep others apart: a mean of all rows must not keep from one another the large
        values from which it is computed and which it scales.
        """
        found = [(source, node) for node in self.graph.nodes if self.is_core(node) for source in self.producers(node)]

        def moved(link: tuple[Node, Node]) -> int:
            return -(bytes_of(link[0].output).bit_length() // SIZE_BITS)
        return [list(alike) for _, alike in groupby(sorted(found, key=moved), key=moved)]

    def producers(self, node: Node) -> list[Node]:
        """The nodes that it reads, through views, the latest first."""
        found = {source for x in node.inputs if isinstance(x, Value) for source in self.behind(x)}
        return sorted((x for x in found if self.is_core(x)), key=self.position.__getitem__, reverse=True)

    def readers(self, x: Value) -> set[FusionGroup]:
        """The groups that read a value, as it is or through views."""
        found: set[FusionGroup] = set()
        seen, left = {x}, [x]           # views that meet again are followed once
        while left:
            for user in self.users[left.pop()]:
                if self.kinds[user].name != "view":
                    found.add(self.group_of(user))
                    continue
                left += (y for y in user.outputs if y not in seen)
                seen.update(user.outputs)
        return found

    def inputs_of(self, group: FusionGroup) -> set[Value]:
        """What the kernel of the group reads from memory."""
        if group not in self.read:
            nodes = self.with_views(group)[0]
            made = {y for node in nodes for y in node.outputs}
            self.read[group] = {_memory_of(x) for node in nodes for x in node.inputs
                                if isinstance(x, Value) and x not in made}
        return self.read[group]

    # ------------------------------------------------------------ merging two groups

    def group_of(self, node: Node) -> FusionGroup:
        """The group that the node is in by now."""
        group = self.group[node] = find_group(self.group[node])
        return group

    def try_merge(self, producer: Node, consumer: Node) -> None:
        """Make one group of those of two nodes, one of which reads the other, if that is allowed and pays."""
        before, after = self.group_of(producer), self.group_of(consumer)
        if before is not after and self.may_merge(before, after):
            self.merge(before, after, self.joins_elementwise(before, after))

    def try_merge_siblings(self, x: FusionGroup, y: FusionGroup) -> None:
        """Make one group of two that read the same memory, if that is allowed and pays."""
        before, after = sorted((x, y), key=self.order.place.__getitem__)
        if self.may_be_one(before, after) and "contraction" not in before.kinds | after.kinds:
            self.merge(before, after, False)

    def merge(self, before: FusionGroup, after: FusionGroup, certainly: bool) -> None:
        """Make one group of the two, if none lies between and it pays."""
        if (before, after) in self.refused or self.order.between(before, after) is None:
            return
        if certainly or self.worth.pays(before, after, union(before, after, self.position)):
            self.join(before, after)
        else:
            self.refused.add((before, after))

    def try_merge_linked(self, producer: Node, consumer: Node) -> None:
        """Make one group of rows, what is made of their sums, which is all that lies between, and what reads both, if
        that is allowed, pays, and goes through the rows once."""
        before, after = self.group_of(producer), self.group_of(consumer)
        if before is after or before.kinds != {"map", "reduce"} or not self.may_merge(before, after):
            return
        link = self.order.link(before, after)
        if link is None or link.kinds != {"map"} or (before, after) in self.refused:
            return
        both = union(before, link, self.position)
        if not self.may_be_one(both, after):
            return
        merged = union(both, after, self.position)
        if self.worth.pays(before, after, merged) and self.worth.is_one_nest(merged):
            self.join(self.join(before, link), after)
        else:
            self.refused.add((before, after))

    def join(self, before: FusionGroup, after: FusionGroup) -> FusionGroup:
        """One group in place of two between which none lies."""
        merged, between = union(before, after, self.position), self.order.between(before, after)
        assert between is not None
        before.into = after.into = merged
        self.order.merge(before, after, merged, between)
        self.group.update(dict.fromkeys(merged.nodes, merged))
        return merged

    def may_merge(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether the kinds and sizes of work go together."""
        if not self.may_be_one(before, after):
            return False
        if "contraction" in after.kinds:
            return self.joins_epilogue(before, after)
        if "contraction" in before.kinds:
            alone = after.kinds == {"map"} and self.is_read_only_by(before, after)
            return alone and (self.joins_elementwise(before, after) or self.joins_renamed(before, after))
        return "reduce" not in before.kinds or elements(largest(after)) >= elements(largest(before))

    def may_be_one(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether one kernel of the two is not too large."""
        if len(before.nodes) + len(after.nodes) > MAX_NODES or self.is_far(before, after):
            return False
        return self.inputs(before) + self.inputs(after) <= MAX_INPUTS

    def is_far(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether what the second reads of the first has left the caches; what a product makes had better not leave
        registers, so an optimizer's step does not wait for the last gradient."""
        return after.first - before.last > MAX_APART and "contraction" not in before.kinds

    def joins_epilogue(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether the first is elementwise work that is read along with a contraction's result, not by it."""
        products = [node for node in after.nodes if self.kinds[node].name == "contraction"]
        if before.kinds != {"map"} or not all(node.op.elementwise for node in before.nodes):
            return False
        shapes = {node.output.shape for node in (*before.nodes, *products)}
        read = {source for node in products for x in node.uses() for source in self.behind(x)}
        return len(shapes) == 1 and read.isdisjoint(before.nodes)

    def inputs(self, group: FusionGroup) -> int:
        made = set(group.results)
        return len({x for node in group.nodes for x in node.inputs if isinstance(x, Value) and x not in made})

    def is_read_only_by(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether no third group reads the first: it might take over what the second makes, which then is not stored.
        """
        return all(self.readers(x) <= {before, after} for x in before.results)

    def joins_elementwise(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether the second is elementwise work in one shape, which it reads of the first directly."""
        shapes = {node.output.shape for node in after.nodes}
        if len(shapes) > 1 or not all(node.op.elementwise for node in after.nodes):
            return False
        made = set(before.results)
        inputs = [x for node in after.nodes for x in node.inputs if isinstance(x, Value)]
        if any(self.group_of(source) is before for x in inputs if x not in made for source in self.behind(x)):
            return False        # through a view
        return all(x.shape in shapes for x in inputs if x in made)

    def joins_renamed(self, before: FusionGroup, after: FusionGroup) -> bool:
        """Whether the second is elementwise work in one shape, which it reads of the first under other names."""
        shapes = {node.output.shape for node in after.nodes}
        if len(shapes) > 1 or not all(node.op.elementwise for node in after.nodes):
            return False
        inputs = [x for node in after.nodes for x in node.inputs if isinstance(x, Value)]
        read = [x for x in inputs if any(self.group_of(source) is before for source in self.behind(x))]
        return all(x.shape in shapes and _memory_of(x).node in before.members for x in read)

    # ------------------------------------------------------------ what a group computes

    def with_views(self, group: FusionGroup) -> tuple[list[Node], list[Value]]:
        """(the nodes of the kernel with the views that it reads through, the values that others need of it).

        The last value comes first: what is written first may lie in memory that the others do not read any more.
        """
        if group not in self.known:
            self.known[group] = self._find_views(group)
        return self.known[group]

    def _find_views(self, group: FusionGroup) -> tuple[list[Node], list[Value]]:
        nodes = dict.fromkeys(group.nodes)
        stack = [x for node in group.nodes for x in node.inputs]
        while stack:
            x = stack.pop()
            if isinstance(x, Value) and x.node is not None and x.node not in nodes and self.is_taken_in(x, group):
                nodes[x.node] = None
                stack.extend(x.node.inputs)
        ordered = sorted(nodes, key=self.position.__getitem__)
        return ordered, [x for x in reversed(list(group.results)) if self.is_needed(x, group)]

    def is_taken_in(self, x: Value, group: FusionGroup) -> bool:
        """Whether the kernel computes the view itself; renaming memory costs nothing outside."""
        assert x.node is not None
        if self.kinds[x.node].name != "view":
            return False
        return x.node.op not in RENAMES or not self.is_renamed_memory(x, group)

    def is_renamed_memory(self, x: Value, group: FusionGroup) -> bool:
        while x.node is not None and x.node.op in RENAMES:
            inner = x.node.inputs[0]
            if not isinstance(inner, Value):
                return False
            x = inner
        return x.node is None or (self.kinds[x.node].name != "view" and x.node not in group.members)

    def is_needed(self, x: Value, group: FusionGroup) -> bool:
        """Whether the value is read outside of the group, as it is or through views."""
        pending, seen = [x], {x}
        while pending:
            read = pending.pop()
            if read in self.results:
                return True
            for user in self.users[read]:
                if self.kinds[user].name == "view":
                    pending += [y for y in user.outputs if y not in seen]
                    seen.update(user.outputs)
                elif user not in group.members:
                    return True
        return False


def _repeats(value: Value) -> bool:
    """Whether views show some element again and again, so that not every index into the value is looked at."""
    if value.node is None or (kind := kind_of(value.node)).name != "view":
        return False
    return kind.repeats or any(_repeats(x) for x in value.node.inputs if isinstance(x, Value))


def _hides_windows(view: Value, user: Node, target: Target) -> bool:
    """Whether a convolution reads much slower through the view."""
    if view.node is None:
        return False
    if user.op in (conv_channels_last, depthwise_channels_last):
        return view is user.inputs[0] and _scatters_channels(view.node) and _reads_often(user)
    if user.attrs.get("groups", 1) == 1:
        return False
    # One of groups of channels is no product any more: windows have to slide along what lies side by side, and a plain
    # loop takes a hundred times as long.
    alone, through = (try_nodes(nodes, user.outputs, target) for nodes in ([user], [view.node, user]))
    return alone is not None and alone.products > 0 and (through is None or through.products == 0)


def _scatters_channels(view: Node) -> bool:
    """Whether the elements of a line of channels lie in more lines of memory than one."""
    shape, axis, source = view.output.shape, view.output.ndim - 1, view.output
    while source.node is not None and source.node.op is permute:
        axis = source.node.attrs["axes"][axis]
        source = source.node.inputs[0]                              # type: ignore[assignment]
    return axis != source.ndim - 1 and known(shape[-1]) * source.dtype.itemsize > LINE_BYTES


def _reads_often(user: Node) -> bool:
    """Whether each element of an image is read so often that copying it first is little beside that: once for every
    tap that meets it, and every panel of filters.  One channel after the other is read as vectors only from a copy."""
    if user.op is depthwise_channels_last:
        return True
    *_, filters = user.output.shape
    weight: Any = user.inputs[1]
    taps: float = prod(weight.shape[2:]) / prod(user.attrs["stride"])
    return taps * -(-known(filters) // PANEL_FILTERS) >= MIN_IMAGE_READS


def _memory_of(x: Value) -> Value:
    """The value that lies in the memory that x is another name for."""
    while x.node is not None and x.node.op in RENAMES and isinstance(x.node.inputs[0], Value):
        x = x.node.inputs[0]
    return x

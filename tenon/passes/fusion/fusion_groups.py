"""Groups of nodes that will be one kernel: the graph that they make, and whether the loops of one are one nest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenon.dims.symbolic_dim import Dim
from tenon.gc_control import collect_young
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.text import key_of, key_of_nodes
from tenon.locks import cached_property
from tenon.loops.cost import cost, known
from tenon.loops.loop_ir import Contraction
from tenon.ops.slice_pad_concat import slice_op
from tenon.passes.fusion.kernel_bodies import body_of, lowered, outside_of
from tenon.passes.fusion.parametrize_slices import on_pieces
from tenon.records import dataclass
from tenon.target import Target


@dataclass(eq=False)
class FusionGroup:
    """Nodes that will be one kernel, in the order of the graph."""

    nodes: list[Node]
    kinds: set[str]
    reads: set[FusionGroup]           # of which some may have been merged since
    first: int                  # places in the graph
    last: int
    into: FusionGroup | None = None   # what it was merged into

    @cached_property
    def members(self) -> frozenset[Node]:
        return frozenset(self.nodes)

    @property
    def results(self) -> Iterator[Value]:
        return (x for node in self.nodes for x in node.outputs)


# ---------------------------------------------------------------- the graph of groups

def find_group(group: FusionGroup) -> FusionGroup:
    """What a group has become."""
    while group.into is not None:
        group = group.into
    return group


def union(before: FusionGroup, after: FusionGroup, position: Mapping[Node, int]) -> FusionGroup:
    """The two as one; they stay as they are."""
    nodes = sorted(before.nodes + after.nodes, key=position.__getitem__)
    reads = set(map(find_group, before.reads | after.reads)) - {before, after}
    return FusionGroup(nodes, before.kinds | after.kinds, reads, min(before.first, after.first),
                       max(before.last, after.last))


class GroupOrder:
    """Groups in an order in which each comes after those that it reads; merging two keeps it so.

    Places in the graph will not do: a group made of an early and a late node depends on nodes later than its readers.
    """

    def __init__(self, groups: Iterable[FusionGroup]):
        self.places: list[FusionGroup | None] = list(groups)      # None where a group was that has been merged
        self.place = {group: k for k, group in enumerate(groups)}

    def between(self, before: FusionGroup, after: FusionGroup) -> set[FusionGroup] | None:
        """What `after` depends on, of the groups that stand between the two; None if any of it depends on `before`."""
        found: set[FusionGroup] = set()
        stack = [group for group in map(find_group, after.reads) if group is not before]
        while stack:
            group = stack.pop()
            if group in found or self.place[group] < self.place[before]:
                continue
            found.add(group)
            reads = set(map(find_group, group.reads)) - {group}
            if before in reads:
                return None
            stack.extend(reads)
        return found

    def link(self, before: FusionGroup, after: FusionGroup) -> FusionGroup | None:
        """What reads `before` and is read by `after`, if it is all that depends on the one and is needed by the other.
        """
        needed: set[FusionGroup] = set()
        stack = [after]
        while stack:
            group = stack.pop()
            reads = set(map(find_group, group.reads)) - {after} - needed
            found = {x for x in reads if self.place[x] > self.place[before]}
            needed |= found
            stack.extend(found)
        links = {before}
        for group in sorted(needed, key=self.place.__getitem__):
            if not links.isdisjoint(map(find_group, group.reads)):
                links.add(group)
        links.remove(before)
        return links.pop() if len(links) == 1 else None

    def merge(self, before: FusionGroup, after: FusionGroup, merged: FusionGroup, needed: set[FusionGroup]) -> None:
        """Put the merged group behind what it needs and in front of the others between the two."""
        start, stop = self.place[before], self.place[after] + 1
        region = [group for group in self.places[start:stop] if group not in (None, before, after)]
        first = [group for group in region if group in needed]
        ordered = [*first, merged, *(group for group in region if group not in needed)]
        self.places[start:stop] = ordered + [None] * (stop - start - len(ordered))
        self.place.update((group, start + k) for k, group in enumerate(ordered) if group is not None)


# ---------------------------------------------------------------- sizes and trials

def largest(group: FusionGroup) -> tuple[Dim, ...]:
    """The shape with most elements among the group's results, as far as sizes are known."""
    return max((node.output.shape for node in group.nodes), key=elements)


def elements(shape: Iterable[Dim]) -> int:
    """Their number; a symbolic size counts as a middling one."""
    total = 1
    for n in shape:
        total *= known(n)
    return total


def bytes_of(x: Value) -> int:
    """How much memory a value takes, as far as sizes are known."""
    return known(x.size) * x.dtype.itemsize


MAX_TRIALS = 10_000         # answers that are kept


@dataclass(frozen=True)
class Trial:
    """What became of a body that was lowered: `one_nest` has no memory between its parts, `products` of matrices, of
    which one `adds_up` what it stores."""

    one_nest: bool
    products: int
    adds_up: bool
    checks: int
    cost: float


_trials: dict[tuple[Target, str], Trial | None] = {}


def try_lowering(body: Graph, target: Target) -> Trial | None:
    """How good a kernel the body would be; None if it cannot be one.  Equal bodies are tried once."""
    body = on_pieces(body)[0]
    key = key_of(body)
    return _trials[target, key] if (target, key) in _trials else _tried(body, target, key)


def try_nodes(nodes: Sequence[Node], results: Sequence[Value], target: Target) -> Trial | None:
    """The same, of the body that these nodes would be; it is only made where none like it was tried."""
    if any(node.graphs or node.op is slice_op for node in nodes):
        return try_lowering(body_of(nodes, results)[0], target)
    key = key_of_nodes(outside_of(nodes), nodes, results)
    if (target, key) in _trials:
        return _trials[target, key]
    return _tried(body_of(nodes, results)[0], target, key)


def _tried(body: Graph, target: Target, key: str) -> Trial | None:
    """The answer, which is kept."""
    if len(_trials) >= MAX_TRIALS:
        _trials.clear()
    trial = _trials[target, key] = _try(body, target, key)
    collect_young()
    return trial


def _try(body: Graph, target: Target, key: str) -> Trial | None:
    try:
        kernel = lowered(body, key, target)
    except (NotImplementedError, KeyError, AssertionError):
        return None
    products = [x for nest in kernel.nests if isinstance(x := nest.body[0], Contraction)]
    return Trial(len(kernel.nests) == 1 and not kernel.temporaries, len(products), any(x.chunk for x in products),
                 len(kernel.checks), cost(kernel))

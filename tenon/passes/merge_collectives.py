"""Graph -> the same graph in which small sums between devices travel together, each as soon as its inputs are there.

    w1 = all_reduce(g1)                         g1 = ...
    w2 = all_reduce(g2)             ->          g2 = ...
    w3 = all_reduce(g3)                         w1, w2 = all_reduce_together(g1, g2)        about 1 MiB
                                                g3 = ...
                                                w3 = all_reduce(g3)

Larger ones travel alone, and early as well; the pass `schedule_collectives` says when they are waited for.
Gradients come one after the other; PyTorch's DDP (Li et al. 2020) gathers them in buckets likewise.  All ranks have one
graph, or graphs that were made of one: they choose alike, since shapes of what is summed are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.graph.op import OPS, using
from tenon.graph.partition import has_effect
from tenon.ops.collectives import all_reduce_op, all_reduce_together
from tenon.ops.shape import reshape_op
from tenon.records import dataclass, field, replace

BUCKET_BYTES = 1 << 20      # one message: larger ones gain nothing, and keep the first gradients waiting


def merge_collectives(graph: Graph) -> Graph:
    """Sum gradients early, and small ones together."""
    if sum(node.op is all_reduce_op for node in graph.nodes) < 2:
        return graph
    nodes = tuple(Buckets(early(graph.nodes)).merged())
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    values: dict[Value, Value] = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        for node in nodes:
            if isinstance(node, Bucket):
                _emit_bucket(builder, node, values)
            else:
                builder.loc = node.loc
                _note(node, builder.emit(node.op, tuple(values[x] if isinstance(x, Value) else x for x in node.inputs),
                                         node.attrs), values)
    return replace(graph, params=tuple(builder.params), nodes=tuple(builder.nodes),
                   results=tuple(values[r] for r in graph.results))


Place = tuple[int, int, int]        # the node behind which it comes, how many sums it is made of, its kind


def early(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with each sum right behind what it sums, but never before an effect that is no sum.

    Sums come in one order on all ranks, though the graph of some has reshapes and masks that others can do without.
    """
    places: dict[Node, Place] = {}
    barrier: Place = (-1, 0, 0)
    for k, node in enumerate(nodes):
        made = [places[x.node] for x in node.inputs if isinstance(x, Value) and x.node is not None]
        if is_sum(node):
            behind, depth, _ = max([barrier, *map(_without_shadows, made)])
            places[node] = behind, depth + 1, 2
        elif is_shadow(node):
            behind, depth, _ = max([(-1, 0, 0), *map(_without_shadows, made)])
            places[node] = behind, depth, 3 if depth else 1
        else:
            places[node] = k, 0, 0
            barrier = places[node] if has_effect(node) else barrier
    return sorted(nodes, key=places.__getitem__)        # stable: sums of one place stay in order


def is_shadow(node: Node) -> bool:
    """Whether this is one of the nodes that only some ranks have: no work, but for a mask."""
    if node.op is OPS["where"]:
        return isinstance(node.inputs[0], Literal) and not isinstance(node.inputs[2], Value)
    return node.op is reshape_op


def _without_shadows(place: Place) -> Place:
    behind, depth, _ = place
    return behind, depth, 2 if depth else 0


@dataclass(eq=False)
class Bucket:
    """Sums that become one."""

    over: tuple[str, ...]
    op: str
    kind: object                # of the elements
    nodes: list[Node] = field(default_factory=list)
    bytes: int = 0


class Buckets:
    """The nodes in order, and the buckets that are open: what reads a sum in one of them waits."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes = nodes
        self.open: list[Bucket] = []
        self.needs: dict[Node, frozenset[Node]] = {}    # the sums in open buckets that a node depends on
        self.waiting: list[Node] = []

    def merged(self) -> Iterator[Node | Bucket]:
        """Nodes and buckets, in an order in which everything comes after what it reads."""
        for node in self.nodes:
            held = frozenset(sum_ for bucket in self.open for sum_ in bucket.nodes)
            needed = self._needed(node) & held
            if needed and has_effect(node):
                yield from self._close([bucket for bucket in self.open if not needed.isdisjoint(bucket.nodes)])
                needed = frozenset()
            if is_small_sum(node):
                yield from self._add(node)
            elif needed:
                self.needs[node] = needed
                self.waiting.append(node)
            else:
                if has_effect(node) and not is_sum(node):
                    yield from self._close(self.open)
                yield node
        yield from self._close(self.open)

    def _needed(self, node: Node) -> frozenset[Node]:
        found: frozenset[Node] = frozenset()
        for x in node.inputs:
            if isinstance(x, Value) and x.node is not None:
                found |= frozenset((x.node,)) if x.node.op is all_reduce_op else self.needs.get(x.node, frozenset())
        return found

    def _add(self, node: Node) -> Iterator[Node | Bucket]:
        over, op, kind = node.attrs["over"], node.attrs["op"], node.output.dtype
        bucket = next((b for b in self.open if (b.over, b.op, b.kind) == (over, op, kind)), None)
        if bucket is not None and may_not_join(node, bucket) is not None:
            yield from self._close([bucket])
            bucket = None
        if bucket is None:
            bucket = Bucket(over, op, kind)
            self.open.append(bucket)
        bucket.nodes.append(node)
        bucket.bytes += bytes_of_sum(node.output)
        if bucket.bytes >= BUCKET_BYTES:
            yield from self._close([bucket])

    def _close(self, buckets: Sequence[Bucket]) -> Iterator[Node | Bucket]:
        """The buckets, and what waited for nothing else."""
        closed = [bucket for bucket in self.open if bucket in buckets]
        if not closed:
            return
        yield from closed
        self.open = [bucket for bucket in self.open if bucket not in closed]
        held = frozenset(sum_ for bucket in self.open for sum_ in bucket.nodes)
        waiting, self.waiting = self.waiting, []
        for node in waiting:
            self.needs[node] &= held
            if self.needs[node]:
                self.waiting.append(node)
            else:
                yield node


def is_sum(node: Node) -> bool:
    """Whether this is a sum between devices, of a tensor with a size."""
    return node.op is all_reduce_op and isinstance(node.inputs[0], Value) and bytes_of_sum(node.output) > 0


def is_small_sum(node: Node) -> bool:
    """Whether it is worth a place in a bucket."""
    return is_sum(node) and bytes_of_sum(node.output) <= BUCKET_BYTES


def may_not_join(node: Node, bucket: Bucket) -> str | None:
    """Why a sum cannot travel with those of a bucket of its kind; None where it can.

    It is legal where it depends on none of them (then the bucket was closed before, as every effect closes those that
    it reads from), and no other effect lies between: all are closed there.  It is worth while where it fits.
    """
    if bucket.bytes + bytes_of_sum(node.output) > BUCKET_BYTES:
        return f"the message would have more than {BUCKET_BYTES} bytes"
    return None


def bytes_of_sum(total: Value) -> int:
    """The bytes of a sum; 0 where only the data tell."""
    return total.size * total.dtype.itemsize if isinstance(total.size, int) else 0


def _emit_bucket(builder: Builder, bucket: Bucket, values: dict[Value, Value]) -> None:
    builder.loc = bucket.nodes[0].loc
    inputs = tuple(values[x] for node in bucket.nodes for x in node.inputs if isinstance(x, Value))
    if len(bucket.nodes) == 1:
        _note(bucket.nodes[0], builder.emit(all_reduce_op, inputs, bucket.nodes[0].attrs), values)
        return
    found = builder.emit(all_reduce_together, inputs, {"over": bucket.over, "op": bucket.op})
    for node, x in zip(bucket.nodes, found, strict=False):
        values[node.output] = x


def _note(node: Node, outputs: Value | tuple[Value, ...], values: dict[Value, Value]) -> None:
    values.update(zip(node.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))

"""A device's graph, what its nodes cost, and the groups it speaks to -> when each node runs: an event simulation.

A device has two streams, kernels and messages, each of which does one thing after the other, in the graph's order; a
node begins when its stream is free and what it reads is there.  Without `overlap` both are one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from tenon.graph.ir import Graph, Node, Value
from tenon.planning.collective_time import collective_seconds, sent_bytes
from tenon.planning.device_group import DeviceGroup
from tenon.planning.kernel_time import kernel_seconds
from tenon.planning.node_work import MessageWork, WorkRules
from tenon.records import dataclass

GroupOf = Callable[[tuple[str, ...]], DeviceGroup]


@dataclass(frozen=True)
class TimedNode:
    """A node, and when a device runs it; `sent` are the bytes it sends, over the cluster's level `level`."""

    node: Node
    start: float
    end: float
    is_message: bool
    sent: float = 0.0
    level: int = -1


@dataclass(frozen=True)
class DeviceTimeline:
    """What one device does, in order."""

    nodes: tuple[TimedNode, ...]

    @property
    def seconds(self) -> float:
        """When all of it is done."""
        return max((x.end for x in self.nodes), default=0.0)

    @property
    def computing(self) -> float:
        """Seconds in which kernels run."""
        return sum(x.end - x.start for x in self.nodes if not x.is_message)

    def of(self, nodes: Collection[Node]) -> float:
        """Seconds that these nodes take, one after the other."""
        return sum(x.end - x.start for x in self.nodes if x.node in nodes)

    def sent(self, levels: int) -> tuple[float, ...]:
        """Bytes that are sent, by level of the cluster."""
        return tuple(sum(x.sent for x in self.nodes if x.level == k) for k in range(levels))


def device_timeline(graph: Graph, rules: WorkRules, group_of: GroupOf, overlap: bool = False) -> DeviceTimeline:
    """Simulate one run of the graph."""
    free, ready = [0.0, 0.0], dict.fromkeys(graph.params, 0.0)
    timed: list[TimedNode] = []
    for node in graph.nodes:
        seconds, messages = _cost(node, rules, group_of)
        stream = int(bool(messages) and overlap)
        needed = max((ready[x] for x in node.uses()), default=0.0)
        start = max(free[stream], needed) if seconds else needed
        end = start + seconds
        if seconds:
            free[stream] = end
        ready.update(dict.fromkeys(node.outputs, end))
        sent = sum(size for size, _ in messages)
        timed.append(TimedNode(node, start, end, bool(messages), sent, max((k for _, k in messages), default=-1)))
    return DeviceTimeline(tuple(timed))


def _cost(node: Node, rules: WorkRules, group_of: GroupOf) -> tuple[float, list[tuple[float, int]]]:
    """Seconds of a node, and for each message (the bytes that the device sends, the level that they go over)."""
    seconds, messages = 0.0, []
    for work in rules.of(node):
        if isinstance(work, MessageWork):
            group = group_of(work.over)
            seconds += collective_seconds(work.kind, work.bytes, group)
            messages.append((sent_bytes(work.kind, work.bytes, group.size), group.outermost))
        else:
            seconds += kernel_seconds(work, rules.chip)
    return seconds, messages


def ancestors(graph: Graph, values: Sequence[Value]) -> set[Node]:
    """The nodes that some values are computed from."""
    found: set[Node] = set()
    wanted = set(values)
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            found.add(node)
            wanted.update(_read(node))
    return found


def _read(node: Node) -> Iterator[Value]:
    return (x for x in node.inputs if isinstance(x, Value))

"""Cheap values that are stored for other kernels -> computed again by those, where that moves less memory.

    y = x * a, stored; s = sum(y); z = exp(y)    ->    s = sum(x * a); z = exp(x * a)

A value that is computed again becomes what a view is: it belongs to whoever reads it.
"""

from __future__ import annotations

from tenon.graph.ir import Node, Value
from tenon.loops.cost import OPERATION
from tenon.passes.fusion.fusion_groups import bytes_of
from tenon.passes.fusion.fusion_partition import Groups
from tenon.records import dataclass, field

MAX_REPEATED = 8        # nodes between a value and what lies in memory
SMALL_VALUE_RATIO = 16  # times smaller than a value is what need not be computed again for it


@dataclass
class Repeat:
    """What computing a value again takes: these nodes, of what lies in memory and what then must."""

    nodes: list[Node] = field(default_factory=list)
    sources: set[Value] = field(default_factory=set)
    stored: set[Value] = field(default_factory=set)


def repeat_cheap(groups: Groups) -> None:
    """Change the partition where it pays."""
    for node in groups.graph.nodes:
        if _may_repeat(node, groups):
            repeat = _repeat_of(node, groups)
            if repeat is not None and _pays(node, repeat, groups):
                groups.inline(repeat.nodes)
    groups.refresh()


def _may_repeat(node: Node, groups: Groups) -> bool:
    """Whether the node is cheap work on elements, stored for other kernels of plain loops only."""
    if not _is_cheap(node, groups) or groups.is_stored(node.output):
        return False
    readers = groups.readers(node.output) - {groups.group_of(node)}
    return bool(readers) and all(reader.kinds <= {"map", "reduce"} for reader in readers)


def _is_cheap(node: Node, groups: Groups) -> bool:
    kind = groups.kinds[node]
    return kind.name == "map" and node.op.elementwise and not kind.expensive and not kind.checks


def _repeat_of(node: Node, groups: Groups) -> Repeat | None:
    """The shortest way to the value from memory; None if it is long."""
    home, repeat, stack = groups.group_of(node), Repeat(), [node]
    while stack:
        current = stack.pop()
        if current in repeat.nodes:
            continue
        if groups.is_core(current):
            repeat.nodes.append(current)
        if len(repeat.nodes) > MAX_REPEATED:
            return None
        for x in current.inputs:
            if not isinstance(x, Value):
                continue
            if x.node is not None and groups.kinds[x.node].name == "view":
                stack.append(x.node)
            elif x.node is None or groups.kinds[x.node].name == "opaque" or groups.group_of(x.node) is not home \
                    or groups.is_needed(x, home):
                repeat.sources.add(x)
            elif _is_cheap(x.node, groups) and bytes_of(x) * SMALL_VALUE_RATIO > bytes_of(node.output):
                stack.append(x.node)
            else:
                repeat.sources.add(x)
                repeat.stored.add(x)
    return repeat


def _pays(node: Node, repeat: Repeat, groups: Groups) -> bool:
    """Whether less memory is moved; a store counts twice."""
    x, home = node.output, groups.group_of(node)
    gain = 2 * bytes_of(x)
    loss = sum(2.0 * bytes_of(y) for y in repeat.stored)
    for reader in groups.readers(x) - {home}:
        read = groups.inputs_of(reader)
        gain += bytes_of(x)
        loss += sum(bytes_of(y) for y in repeat.sources - read) + len(repeat.nodes) * OPERATION * bytes_of(x)
    return loss < gain

"""What an FX graph changes at its end -> in which results of the last program arguments get their new elements.

Functionalization leaves one kind of change: `copy_(argument, value)` behind all that reads the argument.  The program
that runs last may write a value straight into the memory of its argument, as a donated one; others are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tenon.torch.memory_order import MemoryOrder

Step = Callable[[list[Any]], None]
COPY = torch.ops.aten.copy_.default


def is_mutation(node: fx.Node) -> bool:
    """Whether a node changes an argument, and no other reads what it gives."""
    return (isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
            and all(user.op == "output" for user in node.users))


def mutations(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that change arguments, in order."""
    return [node for node in graph.nodes if is_mutation(node)]


def updates(inputs: Sequence[fx.Node], outputs: Sequence[fx.Node],
            orders: Mapping[fx.Node, MemoryOrder]) -> tuple[tuple[int, int], ...]:
    """(an input of the last program, the output that becomes its elements), where both lie in memory alike and nobody
    else is given the output."""
    place = {node: k for k, node in enumerate(inputs)}
    return tuple((place[argument], k) for k, value in enumerate(outputs)
                 if (argument := _argument_of(value)) in place and _lie_alike(argument, value, orders))


def _argument_of(value: fx.Node) -> Any:
    """The argument that is given these elements, the first of several; None where the graph returns them too."""
    if any(user.op == "output" for user in value.users):
        return None
    return next((user.args[0] for user in value.users if user.target is COPY and user.args[1] is value), None)


def _lie_alike(argument: fx.Node, value: fx.Node, orders: Mapping[fx.Node, MemoryOrder]) -> bool:
    order = orders[argument]
    return order == orders[value] and not order.repeated and argument.meta["val"].dtype == value.meta["val"].dtype


def mutation_step(node: fx.Node, slot: Mapping[fx.Node, int]) -> Step | None:
    """What copies a value into its argument, unless it lies there; None for other kinds of changes."""
    if node.target is not COPY or not isinstance(node.args[1], fx.Node):
        return None
    argument, value = (slot[x] for x in node.args[:2])

    def step(slots: list[Any]) -> None:
        if slots[argument] is not slots[value]:
            slots[argument].copy_(slots[value])
    return step

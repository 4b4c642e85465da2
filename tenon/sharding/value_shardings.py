"""How the values of a graph are split as it is propagated, and what it costs to move one.

A value is made with one sharding; what is moved for a reader is there for others too.  A view may be made once more of
what is easier to move: rows before they are repeated, say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tenon.graph.ir import Input, Value
from tenon.sharding.axis_layout import WHOLE, Layout, ValueSharding, numbers_of, reshaped
from tenon.sharding.localize import fits
from tenon.sharding.mesh import Mesh
from tenon.sharding.reshard import cost_of
from tenon.sharding.rules import rule_of


class ValueShardings:
    """What there is of each value on a mesh."""

    def __init__(self, mesh: Mesh, cuts: Mapping[Value, Mapping[int, int]]):
        self.mesh = mesh
        self.cuts = cuts                                        # where axes of values will be taken apart
        self.made: dict[Value, ValueSharding] = {}
        self.have: dict[Value, list[ValueSharding]] = {}        # also what was made of it for others
        self.wanted: dict[Value, Sequence[Layout]] = {}         # what a value will meet
        self.readers: Counter[Value] = Counter()                # how many nodes read a value
        self.again: dict[tuple[Value, ValueSharding], Value] = {}      # views that were made once more

    def make(self, value: Value, sharding: ValueSharding) -> None:
        """Note how a value is made."""
        self.made[value] = sharding
        self.have[value] = [sharding]

    def before_view(self, value: Value, target: ValueSharding) -> ValueSharding | None:
        """The sharding of what a value is a view of, with which the view is as the target; None where there is none."""
        node = value.node
        if node is None or node.op.moves != "view" or target.partial or not isinstance(node.inputs[0], Value):
            return None
        x = node.inputs[0]
        if node.op.name == "reshape":
            kept, found = reshaped(target.layouts, numbers_of(value), numbers_of(x), self.mesh)
            return ValueSharding(found) if kept == target.layouts else None
        rule = rule_of(node)
        if None in [label for label, layout in zip(rule.outputs[0], target.layouts, strict=True) if layout]:
            return None
        split = dict(zip(rule.outputs[0], target.layouts, strict=True))
        before = ValueSharding(tuple(WHOLE if label is None else split[label] for label in rule.inputs[0]))
        return before if fits(node, (before,), (target,), self.mesh) else None

    def direct(self, value: Value, target: ValueSharding) -> int:
        """What is sent to make the target of what there is of a value."""
        elements = min(cost_of(source, target, numbers_of(value), self.mesh) for source in self.have[value])
        return elements * bytes_of(value)

    def cost(self, value: Value, target: ValueSharding, depth: int = 4) -> int:
        """The same, where views may be made again."""
        direct = 0 if (value, target) in self.again else self.direct(value, target)
        if direct == 0 or depth == 0 or (before := self.before_view(value, target)) is None:
            return direct
        assert value.node is not None
        return min(direct, self.cost(value_of(value.node.inputs[0]), before, depth - 1))

    def nearest(self, value: Value, target: ValueSharding) -> ValueSharding:
        """That of the shardings there are of a value from which the target is made by sending least."""
        return min(self.have[value], key=lambda source: cost_of(source, target, numbers_of(value), self.mesh))


def value_of(x: Input) -> Value:
    """An input that is no number."""
    assert isinstance(x, Value)
    return x


def bytes_of(value: Value) -> int:
    """Of one element."""
    return max(1, value.dtype.bits // 8)

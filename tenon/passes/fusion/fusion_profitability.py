"""Whether one kernel costs less than two: where its loops come out as one nest, or by what it moves.

The body is lowered to see, once for equal bodies; where the result is plain before, it is not.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from tenon.graph.ir import Node, Value
from tenon.loops.cost import STORE
from tenon.ops.slice_pad_concat import concat_op
from tenon.passes.fusion.fusion_groups import FusionGroup, Trial, bytes_of, try_nodes
from tenon.passes.fusion.kernel_bodies import outside_of

if TYPE_CHECKING:
    from tenon.passes.fusion.fusion_partition import Groups

MAX_INPUTS = 24
MAX_COST_RATIO = 0.95   # the part of what two kernels cost that one may cost
OF_A_PRODUCT = 0.02         # the part of what the kernel of a product and sums costs that these save, at least
NEGLIGIBLE_SAVING_RATIO = 4     # times what is saved at most that would still be too little
ONE_NEST = 2.0              # the same where its loops come out as one nest: what is estimated wrongly is not moved


class FusionProfit:
    """What the kernels of groups cost, each found once, while the groups stay what they are."""

    def __init__(self, groups: Groups):
        self.groups = groups
        self.known: dict[FusionGroup, Trial | None] = {}
        self.sums: dict[FusionGroup, set[Value]] = {}

    def pays(self, before: FusionGroup, after: FusionGroup, merged: FusionGroup) -> bool:
        """Whether one kernel is better than two."""
        if self.is_hopeless(before, after, merged):
            return False
        nodes, results = self.groups.with_views(merged)
        if len(outside_of(nodes)) > MAX_INPUTS:
            return False
        trial = try_nodes(nodes, results, self.groups.target)
        if trial is None or trial.checks < sum(self.groups.kinds[node].checks for node in merged.nodes):
            return False
        if "contraction" in merged.kinds:
            if "reduce" in merged.kinds:
                return trial.adds_up and self.handed(before, after) >= OF_A_PRODUCT * trial.cost
            return trial.one_nest and trial.products > 0
        worth = ONE_NEST if trial.one_nest else MAX_COST_RATIO
        return (trial.cost < worth * (self.stored(before) + self.stored(after))     # which often says enough
                or trial.cost < worth * (self.cost(before) + self.cost(after)))

    def handed(self, before: FusionGroup, after: FusionGroup) -> int:
        """The bytes that the first stores and the second reads."""
        read = self.groups.inputs_of(after)
        return sum(bytes_of(x) for x in self.groups.with_views(before)[1] if x in read)

    def is_hopeless(self, before: FusionGroup, after: FusionGroup, merged: FusionGroup) -> bool:
        """Whether it is known without a trial that one kernel does not pay: it is not one nest, and little is saved.

        Most pairs are like that: the numbers that an optimizer's steps read and one of the steps, or the sums of a
        norm and what they scale.
        """
        groups = self.groups
        read, stored = groups.inputs_of(after), groups.with_views(merged)[1]
        if "contraction" in merged.kinds or any(bytes_of(x) == 0 for x in stored):      # an empty result has no loops
            return False
        handed = [x for x in groups.with_views(before)[1] if x in read]
        if self.is_joined_and_summed(before, after, stored):
            saved = sum(bytes_of(x) * (1 if x in stored else 1 + STORE) for x in handed)
            if saved <= sum(map(bytes_of, groups.inputs_of(before))):       # which are read once more for the sums
                return True
        apart = self.are_apart(before, after, merged)
        little = sum(bytes_of(x) * (1 if x in stored else 1 + STORE) for x in handed)       # where nests stay apart
        much = (1 + STORE) * sum(map(bytes_of, handed)) + sum(map(bytes_of, groups.inputs_of(before) & read))
        if _is_much(little if apart else much, self.moved(before) + self.moved(after)):
            return False
        late = apart and self.is_late(before, after, merged)
        if late and not _is_much(little, self.stored(before) + self.stored(after)):     # a part of what they cost
            return True
        one_each = all(trial is None or trial.one_nest for trial in map(self.trial, (before, after)))
        if one_each and not apart:
            return False
        return not _is_much(little if one_each or late else much, self.cost(before) + self.cost(after))

    def are_apart(self, before: FusionGroup, after: FusionGroup, merged: FusionGroup) -> bool:
        """Whether no result of one can be stored in the loops of the other: their shapes begin differently.

        Sums are added up in any loops, but what reads one of them waits for all that is added up in the same loops.
        """
        nodes, stored = self.groups.with_views(merged)
        inside = set(nodes)
        summed = self.summed(before)
        first = [x for x in self.groups.with_views(before)[1] if x in stored or x in summed]

        def is_apart(y: Value) -> bool:
            others = [x for x in first if _begin_differently(x, y)]
            return any(x in summed and _reads(y, x, inside) for x in others) or (
                len(others) == len(first) and all(map(self.is_map, first)))
        return bool(first) and all(self.is_map(y) and is_apart(y) for y in self.groups.with_views(after)[1])

    def is_late(self, before: FusionGroup, after: FusionGroup, merged: FusionGroup) -> bool:
        """Whether what the second stores comes after all nests of the first: it is made of every sum that is made of
        others, and no sum, and nothing stored that is made of some, begins like it.
        """
        nodes, stored = self.groups.with_views(merged)
        inside, summed = set(nodes), self.summed(before)
        sums = {node.output: node for node in before.nodes if self.groups.kinds[node].name == "reduce"}
        last = [x for x, node in sums.items() if not summed.isdisjoint(node.uses())]
        others = [x for x in self.groups.with_views(before)[1] if x in stored and x in summed]
        return after.kinds == {"map"} and all(
            all(_begin_differently(x, y) for x in (*sums, *others)) and all(_reads(y, x, inside) for x in last)
            for y in self.groups.with_views(after)[1])

    def is_joined_and_summed(self, before: FusionGroup, after: FusionGroup, stored: Container[Value]) -> bool:
        """Whether one stores what is joined, which is done interval by interval, and the other adds up across these."""
        kept = [x for x in self.groups.with_views(before)[1] if x in stored]
        joined = before.kinds == {"map"} and any(node.op is concat_op for node in before.nodes)
        return (joined and "reduce" in after.kinds
                and any(_begin_differently(x, y) for x in kept for y in self.groups.with_views(after)[1]))

    def is_map(self, x: Value) -> bool:
        """Whether each element is computed by itself."""
        return x.node is not None and self.groups.kinds[x.node].name == "map"

    def summed(self, group: FusionGroup) -> set[Value]:
        """The values of the group that are sums, or are made of some."""
        if group not in self.sums:
            found: set[Value] = set()
            for node in self.groups.with_views(group)[0]:
                if self.groups.kinds[node].name == "reduce" or not found.isdisjoint(node.uses()):
                    found.update(node.outputs)
            self.sums[group] = found
        return self.sums[group]

    def trial(self, group: FusionGroup) -> Trial | None:
        """What the kernel of the group is."""
        if group not in self.known:
            self.known[group] = try_nodes(*self.groups.with_views(group), self.groups.target)
        return self.known[group]

    def is_one_nest(self, group: FusionGroup) -> bool:
        """Whether the loops of the group's kernel stand in one another."""
        trial = self.trial(group)
        return trial is not None and trial.one_nest

    def moved(self, group: FusionGroup) -> int:
        """The bytes that the kernel of the group reads and writes."""
        return sum(map(bytes_of, self.groups.inputs_of(group))) + self.stored(group)

    def stored(self, group: FusionGroup) -> int:
        """The part of its cost that is known before it is lowered: what it stores."""
        return STORE * sum(map(bytes_of, self.groups.with_views(group)[1]))

    def cost(self, group: FusionGroup) -> float:
        """Of the group as a kernel of its own."""
        trial = self.trial(group)
        return 0.0 if trial is None else trial.cost


def _is_much(saved: float, cost: float) -> bool:
    """Whether saving as much, or a little more, would pay."""
    return NEGLIGIBLE_SAVING_RATIO * saved >= (1 - MAX_COST_RATIO) * cost


def _begin_differently(x: Value, y: Value) -> bool:
    """Whether neither shape is how the other begins; axes of one element are none."""
    one, other = ([n for n in value.shape if n != 1] for value in (x, y))
    shared = min(len(one), len(other))
    return one[:shared] != other[:shared] or bool(one) != bool(other)


def _reads(y: Value, x: Value, inside: Container[Node]) -> bool:
    """Whether the first is made of the second, by these nodes."""
    seen: set[Node] = set()
    stack = [y.node]
    while stack:
        node = stack.pop()
        if node is None or node in seen or node not in inside:
            continue
        if node is x.node:
            return True
        seen.add(node)
        stack += [z.node for z in node.inputs if isinstance(z, Value)]
    return False

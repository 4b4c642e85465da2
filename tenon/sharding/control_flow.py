"""A branch or loop whose operands are split -> how its graphs are computed part by part.

What a loop carries is split alike before every round and behind it: that is a fixed point, found by going round.  A sum
of parts is carried as one, so that the gradient of a weight is added up once, behind the loop.  What a constant is made
in every round is made of it once, before.  Splitting is weighed against every device doing all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.control_flow_nodes import BRANCHES, Control
from tenon.records import dataclass, replace
from tenon.sharding.axis_layout import WHOLE, ValueSharding, numbers_of, replicated
from tenon.sharding.mesh import MICRO_AXIS, Mesh
from tenon.sharding.reshard import ACROSS_MICRO_AXIS, cost_of, is_zero
from tenon.sharding.sharding_plan import ControlSharding, ShardingPlan
from tenon.types import stack

ROUNDS = 3          # how often what is carried may change, until what still does is whole
GUESSED_ROUNDS = 8  # of a loop whose length the data decide

Shardings = tuple[ValueSharding, ...]
Split = Callable[[Graph, Shardings, Sequence[ValueSharding]], ShardingPlan]     # a graph, its parameters, its results


@dataclass(frozen=True)
class ControlSearch:
    """What the search for one node is given: how graphs are split, and what it costs to make a sharding of an input."""

    mesh: Mesh
    split: Split
    moved: Callable[[Input, ValueSharding], float]

    def best(self, node: Node, made: Shardings) -> ControlSharding:
        """The cheapest way to compute a branch or loop whose inputs are split so."""
        control = Control.of(node)
        way = self._branches if node.op in BRANCHES else self._loop
        whole = tuple(replicated(len(s.layouts)) for s in made)
        return min((way(node, control, given) for given in dict.fromkeys((made, whole))), key=lambda found: found.cost)

    # ------------------------------------------------------------ branches

    def _branches(self, node: Node, control: Control, given: Shardings) -> ControlSharding:
        operands = given[1:]
        plans = [self.split(graph, operands, ()) for graph in control.graphs]
        results = tuple(self._agreed(node.outputs[k], [plan.results[k] for plan in plans])
                        for k in range(len(node.outputs)))
        plans = [plan if plan.results == results else self.split(graph, operands, results)
                 for graph, plan in zip(control.graphs, plans, strict=True)]
        return self._found(node, (replicated(0), *operands), results, dict(zip(control.graphs, plans, strict=True)),
                           max(map(self._cost_within, plans)))

    def _agreed(self, value: Value, found: Sequence[ValueSharding]) -> ValueSharding:
        """The one sharding of what several branches make."""
        def cost(target: ValueSharding) -> int:
            return sum(self._between(value, source, target) for source in found) + self._pending(value, target)
        return min(dict.fromkeys([*found, replicated(value.ndim)]), key=cost)

    # ------------------------------------------------------------ loops

    def _loop(self, node: Node, control: Control, given: Shardings) -> ControlSharding:
        k, n = len(control.constants), len(control.constants) + len(control.carried)
        constants, carried = tuple(ValueSharding(s.layouts) for s in given[:k]), given[k:n]
        sequences = tuple(replace(s, layouts=(WHOLE, *s.layouts[1:])) for s in given[n:])
        slices = tuple(replace(s, layouts=s.layouts[1:]) for s in sequences)
        body = control.graphs[-1]
        carried = tuple(map(self._begun, node.inputs[k:n], carried))
        carried = self._fixed_point(node, body, constants, carried, slices)
        length = control.rest.get("length", GUESSED_ROUNDS)

        def found(read: Shardings) -> ControlSharding:
            plans = {graph: self.split(graph, (*read, *carried), (replicated(0),)) for graph in control.graphs[:-1]}
            plans[body] = self.split(body, (*read, *carried, *slices), carried)
            stacked = tuple(replace(s, layouts=(WHOLE, *s.layouts)) for s in plans[body].results[n - k:])
            return self._found(node, (*read, *carried, *sequences), (*carried, *stacked), plans,
                               length * sum(map(self._cost_within, plans.values())))
        read = self._as_read(self.split(body, (*constants, *carried, *slices), carried), constants)
        return min(map(found, dict.fromkeys((read, constants))), key=lambda found: found.cost)

    def _begun(self, x: Input, sharding: ValueSharding) -> ValueSharding:
        """What is tried first for a carried value: zeros are a sum of parts, which all micro-batches have alike."""
        begins = MICRO_AXIS in self.mesh.axes and isinstance(x, Value) and is_zero(x) and sharding == replicated(x.ndim)
        return replace(sharding, partial=(MICRO_AXIS,)) if begins else sharding

    def _fixed_point(self, node: Node, body: Graph, constants: Shardings, carried: Shardings,
                     slices: Shardings) -> Shardings:
        """How what is carried is split before every round and behind it."""
        for turn in range(ROUNDS + 1):
            back = self.split(body, (*constants, *carried, *slices), ()).results[:len(carried)]
            now = tuple(self._kept(value, old, new, turn) for value, old, new in zip(
                node.outputs, carried, back, strict=False))
            if now == carried:
                break
            carried = now
        return tuple(replace(old, held=new.held) for old, new in zip(carried, back, strict=True))

    def _kept(self, value: Value, old: ValueSharding, new: ValueSharding, turn: int) -> ValueSharding:
        """What is tried next for a carried value that came in as `old` and went out as `new`.  A stack stays empty:
        what is pushed is known when all else is."""
        if old == new or value.dtype is stack:
            return old
        if turn >= ROUNDS - 1:
            return replicated(value.ndim)
        return ValueSharding(new.layouts) if new.partial and new.combine != "add" else new

    def _as_read(self, plan: ShardingPlan, constants: Shardings) -> Shardings:
        """How constants are split if each that a round moves is made before what the round makes of it: the one thing
        that all nodes read, or the whole."""
        found = list(constants)
        moved = {_viewed(x) for (node, i), wanted in plan.needs.items() if isinstance(x := node.inputs[i], Value)
                 and self._between(x, plan.made[x], wanted)}
        for k, p in enumerate(plan.graph.params[:len(constants)]):
            if p in moved:
                read = {plan.needs[node, i] for node in plan.graph.nodes for i, x in enumerate(node.inputs) if x is p}
                found[k] = read.pop() if len(read) == 1 else replicated(p.ndim)
        return tuple(found)

    # ------------------------------------------------------------ what it costs

    def _found(self, node: Node, inputs: Shardings, outputs: Shardings, plans: dict[Graph, ShardingPlan],
               within: float) -> ControlSharding:
        entering = sum(self.moved(x, s) for x, s in zip(node.inputs, inputs, strict=True))
        pending = sum(self._pending(x, s) for x, s in zip(node.outputs, outputs, strict=True))
        return ControlSharding(inputs, outputs, plans, within + entering + pending)

    def _cost_within(self, plan: ShardingPlan) -> float:
        """What a graph costs each time; micro-batches of one device cannot meet there."""
        return plan.cost + sum(ACROSS_MICRO_AXIS * (1 + c.bytes) for c in plan.collectives if MICRO_AXIS in c.over)

    def _pending(self, value: Value, sharding: ValueSharding) -> int:
        """What it costs to add up the parts of a value, some time."""
        return self._between(value, sharding, ValueSharding(sharding.layouts)) if sharding.partial else 0

    def _between(self, value: Value, source: ValueSharding, target: ValueSharding) -> int:
        return cost_of(source, target, numbers_of(value), self.mesh) * max(1, value.dtype.bits // 8)


def _viewed(x: Value) -> Value:
    """What a value is a view of."""
    while x.node is not None and x.node.op.moves == "view" and isinstance(x.node.inputs[0], Value):
        x = x.node.inputs[0]
    return x

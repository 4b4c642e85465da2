"""A graph and the shardings of its parameters -> how every value is split, and where collectives have to be.

Values are visited in order.  A node may be computed with any of the splits that its inputs bring along (GSPMD, Xu et
al. 2021); among these that one is chosen for which the fewest bytes are sent, work that devices repeat counted as well
(Alpa, Zheng et al. 2022, has the costs).  A sum of parts stays one through what is linear.  A composite operator is
opened where an axis is split along which it cannot be computed part by part.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.errors import CaptureError, Location
from tenon.graph.axis_rule import AxisRule, Label
from tenon.graph.build import Builder, expansion, types_of
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import OPS
from tenon.graph.partition import has_effect, needed
from tenon.graph.size_stages import is_sized_by_data
from tenon.graph.structural_key import Exact
from tenon.ops.control_flow_nodes import BRANCHES, is_control
from tenon.ops.gradient_stacks import pop, push
from tenon.records import replace
from tenon.sharding.axis_layout import (
    WHOLE,
    Layout,
    ValueSharding,
    axes_of,
    layouts_of,
    local_shape,
    numbers_of,
    replicated,
    reshaped,
)
from tenon.sharding.control_flow import ControlSearch
from tenon.sharding.localize import fits
from tenon.sharding.meeting_layouts import met_layouts
from tenon.sharding.mesh import TURNS, Mesh
from tenon.sharding.reshard import cost_of, elements_sent, stages_between
from tenon.sharding.ring_attention import RING, elements_round, ring_axes, ring_rule
from tenon.sharding.rules import ground, rule_of, whole_rule
from tenon.sharding.sharding import Axes, Sharding
from tenon.sharding.sharding_plan import NodeSharding, PlannedCollective, ShardingPlan
from tenon.sharding.stacked_axes import cuts_of, pieces_apart, within_pieces
from tenon.types import stack

OPERATIONS_PER_BYTE = 1         # how many operations that a device repeats cost as much as a byte that is sent
VIEWS = "view", "same"          # no work
ELSEWHERE = frozenset({"to_device", "send", "recv"})
MOST_CHOICES = 512


Given = Sharding | ValueSharding | None
Known = dict[Any, Any]      # the choices for nodes that were seen before, on one mesh


def propagate(graph: Graph, shardings: Sequence[Given], mesh: Mesh,
              results: Sequence[Given | str] = (), known: Known | None = None) -> ShardingPlan:
    """How to compute a graph whose parameters are split so (None: replicated).

    A result is returned as `results` says: by a sharding, replicated (None), or "found": as it is made, where that is a
    split of axes.  Results that are not named are "found".  Who propagates again and again gives one dict `known`.

    Raises CaptureError for sizes that are symbols or that the data decide, ShapeError for a sharding that does not fit.
    """
    return _Propagation(graph, mesh, {} if known is None else known).run(shardings, results)


class _Propagation:
    def __init__(self, graph: Graph, mesh: Mesh, known: Known):
        check_sizes_are_given(graph)
        if symbols := graph.symbols():
            raise CaptureError(f"{graph.name}: sizes are symbols ({', '.join(symbols)}), and a mesh splits numbers")
        self.source, self.mesh, self.known = pieces_apart(graph) if mesh.size > 1 else graph, mesh, known
        self.cuts = cuts_of(self.source)                        # where axes of values will be taken apart
        self.builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
        self.made: dict[Value, ValueSharding] = {}
        self.have: dict[Value, list[ValueSharding]] = {}        # also what was made of it for others
        self.rings: dict[Node, Axes] = {}
        self.meets: Mapping[Value, Sequence[Layout]] = {}       # of values of the source, and what was made of them
        self.wanted: dict[Value, Sequence[Layout]] = {}
        self.readers: Counter[Value] = Counter()                # how many nodes read a value
        self.again: dict[tuple[Value, ValueSharding], Value] = {}      # views that were made once more
        self.needs: dict[tuple[Node, int], ValueSharding] = {}
        self.collectives: list[tuple[Node | None, Value, PlannedCollective]] = []
        self.bodies: dict[Node, Mapping[Graph, ShardingPlan]] = {}
        self.cost = 0.0

    def run(self, shardings: Sequence[Given], results: Sequence[Given | str] = (), others: str = "found"
            ) -> ShardingPlan:
        """The plan; results that are not named are `others`: "found", or "made", as they are whatever that is."""
        replaced: dict[Value, Input] = {}
        for old, new, sharding in zip(self.source.params, self.builder.params, shardings, strict=True):
            replaced[old] = new
            self._make(new, self._given(new, sharding))
        live = needed(self.source, self.source.results, has_effect)
        given = {p: self.made[_value(replaced[p])].layouts for p in self.source.params}
        self.meets = met_layouts(self.source, given, self.mesh)
        self._visit_all([node for node in self.source.nodes if node in live], replaced)
        returned = [replaced[r] for r in self.source.results]
        found = []
        for k, value in enumerate(returned):
            assert isinstance(value, Value)
            wanted = results[k] if k < len(results) else others
            found.append(self._returned(value, wanted))
            self._move(None, value, found[-1], "which is returned")
        graph = self.builder.finish([x for x in returned if isinstance(x, Value)])
        graph.notes = self.source.notes
        live = needed(graph, graph.results, has_effect)
        collectives = [c for node, _, c in self.collectives if node is None or node in live]
        return ShardingPlan(self.mesh, graph, self.made, self.needs, tuple(found), self.rings, collectives,
                            self.bodies, self.cost)

    def _given(self, value: Value, sharding: Given) -> ValueSharding:
        if isinstance(sharding, ValueSharding):
            return sharding
        return replicated(value.ndim) if sharding is None else ValueSharding(layouts_of(sharding, numbers_of(value)))

    def _returned(self, value: Value, wanted: Given | str) -> ValueSharding:
        if not isinstance(wanted, str):
            return self._given(value, wanted)
        made = self.made[value]
        if wanted == "made":
            return made
        met = self.wanted.get(value, made.layouts)      # of a gradient, as its parameter is split
        layouts = met if any(len(layout) > 1 for layout in made.layouts) else made.layouts
        return ValueSharding(tuple(layout if len(layout) <= 1 else WHOLE for layout in layouts))

    def _make(self, value: Value, sharding: ValueSharding) -> None:
        self.made[value] = sharding
        self.have[value] = [sharding]

    # ------------------------------------------------------------ nodes

    def _visit_all(self, nodes: Sequence[Node], replaced: dict[Value, Input], loc: Location | None = None) -> None:
        readers = Counter(x for node in nodes for x in dict.fromkeys(node.inputs) if isinstance(x, Value))
        for old, new in replaced.items():
            if isinstance(new, Value):
                self.readers[new] = max(self.readers[new], readers[old])
        for node in nodes:
            inputs = tuple(replaced[x] if isinstance(x, Value) else x for x in node.inputs)
            outputs = self._visit(node, inputs, loc or node.loc)
            for old, new in zip(node.outputs, outputs, strict=True):
                replaced[old] = new
                if isinstance(new, Value):
                    self.readers[new] = max(self.readers[new], readers[old])
                    if old in self.meets:
                        self.wanted[new] = self.meets[old]
                        self._move_once(new)

    def _visit(self, node: Node, inputs: tuple[Input, ...], loc: Location | None) -> tuple[Input, ...]:
        if node.op.name in ELSEWHERE:
            raise CaptureError(f"{node.op.name}: a function that runs on a mesh has no devices beside", where=loc,
                               hint="tn.distributed.shard says what each device of the mesh has")
        trial = Node(node.op, inputs, node.attrs, node.outputs, loc)
        if is_control(trial):
            return self._control(trial)
        choice = self._best(trial)
        if node.op.expand is not None and (node.graphs or self._loses_a_split(trial, choice)):
            body = expansion(node.op, types_of(inputs), node.attrs)
            inner: dict[Value, Input] = dict(zip(body.params, (x for x in inputs if x is not None), strict=True))
            self._visit_all(body.nodes, inner, loc)
            return tuple(inner[r] for r in body.results)
        inputs = tuple(self._viewed(x, wanted) if isinstance(x, Value) and wanted is not None else x
                       for x, wanted in zip(inputs, choice.inputs, strict=True))
        out = self.builder.emit(node.op, inputs, node.attrs, loc)
        listed: tuple[Value, ...] = out if isinstance(out, tuple) else (out,)
        made = self.builder.nodes[-1]
        for k, (x, sharding) in enumerate(zip(inputs, choice.inputs, strict=True)):
            if isinstance(x, Value) and sharding is not None:
                self.needs[made, k] = sharding
                self._move(made, x, sharding, f"for {node.op.name} {self._shown(choice)}")
        if choice.ring:
            self._ring(made, choice)
        self.cost += choice.work
        for value, sharding in zip(listed, choice.outputs, strict=True):
            self._make(value, sharding)
        return listed

    def _move_once(self, value: Value) -> None:
        """What is split within pieces, and will be read beside state that is not, more than once, is moved now."""
        wanted = ValueSharding(tuple(self.wanted[value]))
        made = self.made[value]
        if self.readers[value] > 1 and not made.partial and any(len(layout) > 1 for layout in made.layouts) \
                and wanted.split_axes and wanted != made:
            self._move(value.node, value, wanted, "which meets state that is split so")
            self.have[value].remove(wanted)
            self.have[value].insert(0, wanted)

    def _control(self, node: Node) -> tuple[Value, ...]:
        """A branch or loop, whose graphs are split in their turn."""
        made = tuple(self.made[x] if isinstance(x, Value) else replicated(0) for x in node.inputs)
        choice = ControlSearch(self.mesh, self._split, self._entering).best(node, made)
        inputs = tuple(self._full(x, node.loc) if isinstance(x, Literal) and s.partial else x
                       for x, s in zip(node.inputs, choice.inputs, strict=True))
        out = self.builder.emit(node.op, inputs, node.attrs, node.loc)
        found = self.builder.nodes[-1]
        for k, (x, sharding) in enumerate(zip(inputs, choice.inputs, strict=True)):
            if isinstance(x, Value):
                self.needs[found, k] = sharding
                self._move(found, x, sharding, f"for {node.op.name}")
        times = node.attrs.get("length", 1)
        told = "in a branch" if node.op in BRANCHES else f"in {node.attrs.get('length', 'all')} rounds"
        for plan in choice.plans.values():
            self.collectives += [(found, found.output, replace(
                c, bytes=c.bytes * times, reason=f"{c.reason}, {told}")) for c in plan.collectives]
        self.bodies[found] = choice.plans
        self.cost += choice.cost
        for value, sharding in zip(found.outputs, choice.outputs, strict=True):
            self._make(value, sharding)
        return out if isinstance(out, tuple) else (out,)

    def _split(self, graph: Graph, params: Sequence[ValueSharding], results: Sequence[ValueSharding]) -> ShardingPlan:
        """The plan of a graph in a node."""
        key = graph, tuple(params), tuple(results)
        if key not in self.known:
            self.known[key] = _Propagation(graph, self.mesh, self.known).run(params, results, "made")
        plan: ShardingPlan = self.known[key]
        return plan

    def _entering(self, x: Input, target: ValueSharding) -> int:
        return self._direct(x, target) if isinstance(x, Value) else 0

    def _full(self, x: Literal, loc: Location | None) -> Value:
        """A number as a value: a term of a sum of parts, say."""
        made: Value = self.builder.emit(OPS["full_op"], (x,), {"shape": ()}, loc)
        self._make(made, replicated(0))
        return made

    def _ring(self, node: Node, choice: NodeSharding) -> None:
        self.rings[node] = choice.ring
        value = _value(node.inputs[1])
        self.collectives.append((node, value, PlannedCollective(
            "collective_permute", self._round(node, choice.inputs, choice.ring), choice.ring,
            f"keys and values of {node.op.name}", node.loc, f"computed as {choice.outputs[0]}")))

    def _round(self, node: Node, inputs: Sequence[ValueSharding | None], ring: Axes) -> int:
        """How many bytes a device passes on in a round of keys and values."""
        sizes = [0 if s is None else math.prod(local_shape(s, numbers_of(_value(x)), self.mesh, 0))
                 for x, s in zip(node.inputs, inputs, strict=True)]
        return elements_round(node, sizes) * _bytes(_value(node.inputs[1])) * (self.mesh.parts(ring) - 1)

    def _shown(self, choice: NodeSharding) -> str:
        return f"computed as {', '.join(map(str, choice.outputs))}"

    def _loses_a_split(self, node: Node, choice: NodeSharding) -> bool:
        """Whether an input has to be joined that some rank has a part of."""
        return any(isinstance(x, Value) and wanted is not None and not set(self.made[x].split_axes) <= set(
            wanted.split_axes) for x, wanted in zip(node.inputs, choice.inputs, strict=True))

    def _move(self, node: Node | None, value: Value, target: ValueSharding, reason: str) -> None:
        if target in self.have[value]:
            return
        source = self.nearest(value, target)
        self.cost += cost_of(source, target, numbers_of(value), self.mesh) * _bytes(value)
        for stage in stages_between(source, target, numbers_of(value), self.mesh):
            for move, count in elements_sent(stage, self.mesh):
                name = {"gather": "all_gather", "reduce": "all_reduce", "scatter": "reduce_scatter",
                        "exchange": "all_to_all"}[move.kind]
                what = value.node.op.name if value.node is not None else value.name or "an operand"
                where = node.loc if node is not None else value.node.loc if value.node is not None else None
                self.collectives.append((node, value, PlannedCollective(
                    name, count * _bytes(value), move.over, f"{what} {value.type}", where, reason)))
        self.have[value].append(target)

    def _viewed(self, value: Value, target: ValueSharding) -> Value:
        """The value, or the same view made once more of what is easier to move: rows before they are repeated, say."""
        if (value, target) in self.again:
            return self.again[value, target]
        if target in self.have[value]:
            return value
        before = self._before_view(value, target)
        if before is None or self._cost(value, target) >= self._direct(value, target):
            return value
        node = value.node
        assert node is not None
        source = self._viewed(_value(node.inputs[0]), before)
        again: Value = self.builder.emit(node.op, (source,), node.attrs, node.loc)
        self.needs[self.builder.nodes[-1], 0] = before
        self._move(self.builder.nodes[-1], source, before, f"for {node.op.name} computed as {target}")
        self._make(again, target)
        self.again[value, target] = again
        return again

    def _before_view(self, value: Value, target: ValueSharding) -> ValueSharding | None:
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

    def _direct(self, value: Value, target: ValueSharding) -> int:
        """What is sent to make the target of what there is of a value."""
        return min(cost_of(source, target, numbers_of(value), self.mesh) for source in self.have[value]) * _bytes(value)

    def _cost(self, value: Value, target: ValueSharding, depth: int = 4) -> int:
        """The same, where views may be made again."""
        direct = 0 if (value, target) in self.again else self._direct(value, target)
        if direct == 0 or depth == 0 or (before := self._before_view(value, target)) is None:
            return direct
        assert value.node is not None
        return min(direct, self._cost(_value(value.node.inputs[0]), before, depth - 1))

    def nearest(self, value: Value, target: ValueSharding) -> ValueSharding:
        """That of the shardings there are of a value from which the target is made by sending least."""
        return min(self.have[value], key=lambda source: cost_of(source, target, numbers_of(value), self.mesh))

    # ------------------------------------------------------------ choices

    def _best(self, node: Node) -> NodeSharding:
        key = self._key(node)
        found = self.known.get(key) if key is not None else None
        if found is None:
            found = self._searched(node)
            if key is not None:
                self.known[key] = found
        return found

    def _key(self, node: Node) -> Any:
        """Equal for nodes with equal choices; None where these may depend on what made the inputs, as views do."""
        if node.op.name == "with_sharding":
            return None
        place: dict[Value, int] = {}
        parts: list[Any] = []
        for x in node.inputs:
            if not isinstance(x, Value):
                parts.append(ground(x))
                continue
            have, made = self.have[x], self.made[x]
            if x.node is not None and x.node.op.moves == "view" and not any(s.is_replicated for s in have):
                return None
            met = (tuple(self.wanted.get(x, ())), self.readers[x] <= 1) if made.partial else None
            parts.append((x.type, tuple(have), made, met, place.setdefault(x, len(place))))
        cuts = tuple(tuple(self.cuts.get(y, {}).items()) for y in node.outputs)
        return node.op, Exact(node.attrs), tuple(parts), cuts

    def _searched(self, node: Node) -> NodeSharding:
        rule = rule_of(node)
        found = [c for c in self._choices(node, rule) if c is not None]
        for choice in sorted(found, key=lambda c: (c.cost, c.order)):
            if fits(node, choice.inputs, choice.outputs, self.mesh):
                return choice
        return next(c for c in self._by_labels(node, whole_rule(node)) if c is not None)

    def _choices(self, node: Node, rule: AxisRule) -> Iterator[NodeSharding | None]:
        if node.op.handles and stack in [x.dtype for x in (*node.inputs, *node.outputs) if x is not None]:
            yield self._of_stack(node)
        elif node.op.name == "reshape":
            yield from self._of_reshape(node)
        elif node.op.name == "with_sharding":
            yield self._annotated(node)
        else:
            yield from self._by_labels(node, rule)
            if (round_about := ring_rule(node, rule)) is not None:
                yield from self._by_labels(node, round_about)

    def _of_stack(self, node: Node) -> NodeSharding:
        """A stack holds the parts that were pushed, and gives them back."""
        made = tuple(self.made[_value(x)] for x in node.inputs)
        if node.op is push:
            held = made[1:] if made[0].held is None else made[0].held
            return NodeSharding((made[0], *held), (replace(made[0], held=held),), 0, ())
        held = (made[0].held if made else None) or tuple(replicated(y.ndim) for y in node.outputs[1:])
        return NodeSharding(made, (made[0] if node.op is pop else replicated(0), *held)[:len(node.outputs)], 0, ())

    def _annotated(self, node: Node) -> NodeSharding:
        x = node.inputs[0]
        assert isinstance(x, Value)
        mesh = Mesh(dict(node.attrs["mesh"]))
        if mesh != self.mesh:
            raise CaptureError(f"shard: the mesh is {mesh!r}, and the function runs on {self.mesh!r}", where=node.loc,
                               hint="in a pipeline, whose turns are an axis too, give arguments that are split: "
                                    "step(shard(x, ...))" if TURNS in self.mesh.axes else None)
        wanted = ValueSharding(layouts_of(Sharding(mesh, node.attrs["spec"]), numbers_of(x)))
        return NodeSharding((wanted,), (wanted,), 0, ())

    def _of_reshape(self, node: Node) -> Iterator[NodeSharding]:
        x = node.inputs[0]
        assert isinstance(x, Value)
        for source in [*self.have[x], replicated(x.ndim)]:
            needed_layouts, found = reshaped(source.layouts, numbers_of(x), numbers_of(node.output),
                                              self.mesh)
            kept = source.partial if source.combine == "add" else ()
            for partial in {kept, ()}:
                yield self._choice(node, (ValueSharding(needed_layouts, partial),), (ValueSharding(found, partial),), 0)

    def _by_labels(self, node: Node, rule: AxisRule) -> Iterator[NodeSharding | None]:
        options = self._options(node, rule)
        labels = list(options)
        for layouts in itertools.islice(itertools.product(*options.values()), MOST_CHOICES):
            names = [name for layout in layouts for name in axes_of(layout)]
            if len(set(names)) < len(names):
                continue
            split = {label: layout for label, layout in zip(labels, layouts, strict=True) if layout}
            for kept in self._kept(node, rule, names):
                yield self._of(node, rule, split, kept)

    def _options(self, node: Node, rule: AxisRule) -> dict[Label, list[Layout]]:
        """For every label, the layouts that inputs bring along, and to be whole."""
        found: dict[Label, dict[Layout, None]] = {}
        for x, labels in zip(node.inputs, rule.inputs, strict=True):
            if not isinstance(x, Value):
                continue
            for k, label in enumerate(labels):
                if label is not None:
                    found.setdefault(label, {WHOLE: None}).update(
                        {have.layouts[k]: None for have in self.have[x]})
                    if self.made[x].partial and x in self.wanted:
                        found[label][self.wanted[x][k]] = None
        for y, labels in zip(node.outputs, rule.outputs, strict=True):
            for k, count in self.cuts.get(y, {}).items():
                for layout in list(found.get(labels[k], ())):
                    if (inner := within_pieces(layout, numbers_of(y)[k], count, self.mesh)) is not None:
                        found[labels[k]][inner] = None
        return {label: list(layouts) for label, layouts in found.items() if len(layouts) > 1}

    def _kept(self, node: Node, rule: AxisRule, used: Sequence[str]) -> Iterator[dict[str, tuple[int, ...]]]:
        """For mesh axes over which inputs are sums, the inputs that stay so; all ways to choose."""
        ways: dict[str, tuple[int, ...]] = {}
        for name in self.mesh.axes:
            inputs = {k for k, x in enumerate(node.inputs) if isinstance(x, Value) and any(
                name in have.partial and have.combine == "add" for have in self.have[x])}
            if inputs and name not in used and (together := _linear(rule, inputs, node)) is not None and (
                    name != TURNS or inputs.issuperset(together)):      # a turn takes part in sums of all of them only
                ways[name] = together
        for chosen in itertools.product((False, True), repeat=len(ways)):
            yield {name: inputs for (name, inputs), kept in zip(ways.items(), chosen, strict=True) if kept}

    def _of(self, node: Node, rule: AxisRule, split: Mapping[Label, Layout],
            kept: Mapping[str, tuple[int, ...]]) -> NodeSharding | None:
        """The choice that splits labels so; None where the rule does not allow it."""
        partial: dict[int, list[str]] = {}
        for name, inputs in kept.items():
            for k in inputs:
                partial.setdefault(k, []).append(name)
        kinds = {rule.combined[label] for label in split if label in rule.combined} | ({"add"} if kept else set())
        if len(kinds) > 1:
            return None
        combined = [name for label, layout in split.items() if label in rule.combined for name in axes_of(layout)]
        for label, layout in split.items():
            if label in rule.combined:
                if rule.combined[label] != "add" and any(n < self.mesh.parts(axes) for n, axes in layout):
                    return None         # nothing has no largest element
                for k in _beside(rule, label) if rule.combined[label] == "add" else ():
                    if not isinstance(node.inputs[k], Value):
                        return None
                    partial.setdefault(k, []).extend(axes_of(layout))
        ring = ring_axes(split, self.mesh)
        if ring is None and RING in split:
            return None
        needed_inputs = tuple(ValueSharding(tuple(split.get(label, WHOLE) for label in labels),
                                            self._ordered(partial.get(k, ()))) if isinstance(x, Value) else None
                              for k, (x, labels) in enumerate(zip(node.inputs, rule.inputs, strict=True)))
        over = self._ordered([*kept, *combined])
        kind = next(iter(kinds), "add")
        outputs = tuple(ValueSharding(tuple(split.get(label, WHOLE) for label in labels), over, kind)
                        for labels in rule.outputs)
        found = self._choice(node, needed_inputs, outputs, self._work(node, rule, split))
        return found if ring is None else replace(
            found, ring=ring, cost=found.cost + self._round(node, needed_inputs, ring))

    def _ordered(self, names: Sequence[str]) -> Axes:
        return tuple(name for name in self.mesh.axes if name in names)

    def _work(self, node: Node, rule: AxisRule, split: Mapping[Label, Layout]) -> float:
        """How many operations a device does for a node, about."""
        if node.op.moves in VIEWS:
            return 0
        sizes: dict[Label, float] = {}
        for x, labels in zip((*node.inputs, *node.outputs), (*rule.inputs, *rule.outputs), strict=True):
            for k, label in enumerate(labels):
                assert x is not None
                if label is not None:
                    parts = self.mesh.parts(axes_of(split.get(label, WHOLE)))
                    sizes[label] = numbers_of(x.type)[k] / parts
        others = max((math.prod(n for n, label in zip(numbers_of(y), labels, strict=True) if label is None)
                      for y, labels in zip(node.outputs, rule.outputs, strict=True)), default=1)
        return (2 if rule.combined else 1) * math.prod(sizes.values()) * others

    def _choice(self, node: Node, inputs: tuple[ValueSharding | None, ...], outputs: tuple[ValueSharding, ...],
                work: float) -> NodeSharding:
        cost = work / OPERATIONS_PER_BYTE
        moved: set[tuple[Value, ValueSharding]] = set()
        for x, wanted in zip(node.inputs, inputs, strict=True):
            if isinstance(x, Value) and wanted is not None and (x, wanted) not in moved:
                moved.add((x, wanted))
                cost += self._cost(x, wanted)
        for value, sharding in zip(node.outputs, outputs, strict=True):
            if sharding.partial:        # some time it is added up
                cost += _bytes(value) * cost_of(sharding, ValueSharding(sharding.layouts), numbers_of(value), self.mesh)
            for k, count in self.cuts.get(value, {}).items():       # some time it is joined
                if within_pieces(sharding.layouts[k], numbers_of(value)[k], count, self.mesh) is not None:
                    joined = ValueSharding((*sharding.layouts[:k], WHOLE, *sharding.layouts[k + 1:]), sharding.partial)
                    cost += _bytes(value) * cost_of(sharding, joined, numbers_of(value), self.mesh)
        degree = sum(len(sharding.split_axes) for sharding in outputs)
        partial = sum(len(sharding.partial) for sharding in outputs)
        if all(self.readers[x] <= 1 for x in node.inputs if isinstance(x, Value) and self.made[x].partial):
            partial = -partial          # it may meet others to be added up with; else it is added up once for all
        place = sum(k for sharding in outputs for k, layout in enumerate(sharding.layouts) if layout)  # the first axes
        return NodeSharding(inputs, outputs, cost, (partial, degree if node.op.moves in VIEWS else -degree, place),
                            work=work / OPERATIONS_PER_BYTE)


def check_sizes_are_given(graph: Graph) -> None:
    """Raise CaptureError where the data decide a size."""
    if is_sized_by_data(graph):
        node = next((node for node in graph.nodes if node.op.data_dependent), None)
        raise CaptureError(f"{graph.name}: the data decide a size here, and a mesh splits sizes that are known before",
                           where=None if node is None else node.loc,
                           hint="keep the shape: tn.where(mask, x, 0).sum() for x[mask].sum(); or call it outside of "
                                "the function that runs on the mesh")


def _value(x: Input) -> Value:
    assert isinstance(x, Value)
    return x


def _bytes(value: Value) -> int:
    return max(1, value.dtype.bits // 8)


def _linear(rule: AxisRule, inputs: set[int], node: Node) -> tuple[int, ...] | None:
    """These inputs, and others that must be sums of parts beside them, if the operator is linear in all of these."""
    if rule.terms is None or not rule.terms:
        return None
    together = set(inputs)
    for term in sorted(rule.terms, key=sorted):
        if not any(k in together for k, _ in term):
            linear = [k for k, power in sorted(term) if power == 1 and isinstance(node.inputs[k], Value)]
            if not linear:
                return None
            together.add(linear[0])
    return tuple(sorted(together)) if rule.is_linear_in(together) else None


def _beside(rule: AxisRule, label: Label) -> list[int]:
    """Of what is added to the terms that a label splits, an input each: it must count once."""
    indexed = {k for k, labels in enumerate(rule.inputs) if label in labels}
    return [min(k for k, power in term if power == 1) for term in rule.terms or ()
            if term and indexed.isdisjoint(k for k, _ in term)]

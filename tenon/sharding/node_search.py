"""A node and how its inputs are split -> how to compute it, with the fewest bytes sent.

Labels of the operator's rule take each split that an input brings along (GSPMD, Xu et al. 2021); bytes that are sent,
and work that devices repeat, are counted (Alpa, Zheng et al. 2022, has the costs).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.errors import CaptureError
from tenon.graph.axis_rule import AxisRule, Label
from tenon.graph.ir import Node, Value
from tenon.graph.structural_key import Exact
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
from tenon.sharding.localize import fits
from tenon.sharding.mesh import MICRO_AXIS, Mesh
from tenon.sharding.reshard import cost_of
from tenon.sharding.ring_attention import RING, elements_round, ring_axes, ring_rule
from tenon.sharding.rules import ground, rule_of, whole_rule
from tenon.sharding.sharding import Axes, Sharding
from tenon.sharding.sharding_plan import NodeSharding
from tenon.sharding.stacked_axes import within_pieces
from tenon.sharding.value_shardings import ValueShardings, bytes_of, value_of
from tenon.types import stack

OPERATIONS_PER_BYTE = 1         # how many operations that a device repeats cost as much as a byte that is sent
VIEWS = "view", "same"          # no work
MAX_CHOICES = 512

Known = dict[Any, Any]      # the choices for nodes that were seen before, on one mesh


class NodeSearch:
    """The choices for nodes whose inputs are split so."""

    def __init__(self, values: ValueShardings, known: Known):
        self.values, self.mesh, self.known = values, values.mesh, known

    def best(self, node: Node) -> NodeSharding:
        """The one that costs least."""
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
            have, made = self.values.have[x], self.values.made[x]
            if x.node is not None and x.node.op.moves == "view" and not any(s.is_replicated for s in have):
                return None
            met = (tuple(self.values.wanted.get(x, ())), self.values.readers[x] <= 1) if made.partial else None
            parts.append((x.type, tuple(have), made, met, place.setdefault(x, len(place))))
        cuts = tuple(tuple(self.values.cuts.get(y, {}).items()) for y in node.outputs)
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
        made = tuple(self.values.made[value_of(x)] for x in node.inputs)
        if node.op is push:
            held = made[1:] if made[0].held is None else made[0].held
            return NodeSharding((made[0], *held), (replace(made[0], held=held),), 0, ())
        held = (made[0].held if made else None) or tuple(replicated(y.ndim) for y in node.outputs[1:])
        return NodeSharding(made, (made[0] if node.op is pop else replicated(0), *held)[:len(node.outputs)], 0, ())

    def _annotated(self, node: Node) -> NodeSharding:
        x = node.inputs[0]
        assert isinstance(x, Value)
        mesh = Mesh(dict(node.attrs["mesh"]))
        if mesh != self.mesh and (
                MICRO_AXIS not in self.mesh.axes or not _is_within(self.mesh.without(MICRO_AXIS), mesh)):
            raise CaptureError(f"shard: the mesh is {mesh!r}, and the function runs on {self.mesh!r}", where=node.loc)
        layouts = layouts_of(Sharding(self.mesh, node.attrs["spec"]), numbers_of(x))
        kept = (at_hand if MICRO_AXIS in axes_of(at_hand) else said
                for at_hand, said in zip(self.values.have[x][0].layouts, layouts, strict=True))
        wanted = ValueSharding(tuple(kept))             # they stay what they are: no message goes from one to another
        return NodeSharding((wanted,), (wanted,), 0, ())

    def _of_reshape(self, node: Node) -> Iterator[NodeSharding]:
        x = node.inputs[0]
        assert isinstance(x, Value)
        for source in [*self.values.have[x], replicated(x.ndim)]:
            needed_layouts, found = reshaped(source.layouts, numbers_of(x), numbers_of(node.output),
                                              self.mesh)
            kept = source.partial if source.combine == "add" else ()
            for partial in {kept, ()}:
                yield self._choice(node, (ValueSharding(needed_layouts, partial),), (ValueSharding(found, partial),), 0)

    def _by_labels(self, node: Node, rule: AxisRule) -> Iterator[NodeSharding | None]:
        options = self._options(node, rule)
        labels = list(options)
        for layouts in itertools.islice(itertools.product(*options.values()), MAX_CHOICES):
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
                        {have.layouts[k]: None for have in self.values.have[x]})
                    if self.values.made[x].partial and x in self.values.wanted:
                        found[label][self.values.wanted[x][k]] = None
        for y, labels in zip(node.outputs, rule.outputs, strict=True):
            for k, count in self.values.cuts.get(y, {}).items():
                for layout in list(found.get(labels[k], ())):
                    if (inner := within_pieces(layout, numbers_of(y)[k], count, self.mesh)) is not None:
                        found[labels[k]][inner] = None
        return {label: list(layouts) for label, layouts in found.items() if len(layouts) > 1}

    def _kept(self, node: Node, rule: AxisRule, used: Sequence[str]) -> Iterator[dict[str, tuple[int, ...]]]:
        """For mesh axes over which inputs are sums, the inputs that stay so; all ways to choose."""
        ways: dict[str, tuple[int, ...]] = {}
        for name in self.mesh.axes:
            inputs = {k for k, x in enumerate(node.inputs) if isinstance(x, Value) and any(
                name in have.partial and have.combine == "add" for have in self.values.have[x])}
            if inputs and name not in used and (together := _linear(rule, inputs, node)) is not None and (
                    name != MICRO_AXIS or inputs.issuperset(together)):      # one takes part in sums of all only
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
            found, ring=ring, cost=found.cost + self.bytes_round(node, needed_inputs, ring))

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
                cost += self.values.cost(x, wanted)
        for value, sharding in zip(node.outputs, outputs, strict=True):
            if sharding.partial:        # some time it is added up
                total = ValueSharding(sharding.layouts)
                cost += bytes_of(value) * cost_of(sharding, total, numbers_of(value), self.mesh)
            for k, count in self.values.cuts.get(value, {}).items():       # some time it is joined
                if within_pieces(sharding.layouts[k], numbers_of(value)[k], count, self.mesh) is not None:
                    joined = ValueSharding((*sharding.layouts[:k], WHOLE, *sharding.layouts[k + 1:]), sharding.partial)
                    cost += bytes_of(value) * cost_of(sharding, joined, numbers_of(value), self.mesh)
        degree = sum(len(sharding.split_axes) for sharding in outputs)
        partial = sum(len(sharding.partial) for sharding in outputs)
        sums = [x for x in node.inputs if isinstance(x, Value) and self.values.made[x].partial]
        if all(self.values.readers[x] <= 1 for x in sums):
            partial = -partial          # it may meet others to be added up with; else it is added up once for all
        place = sum(k for sharding in outputs for k, layout in enumerate(sharding.layouts) if layout)  # the first axes
        return NodeSharding(inputs, outputs, cost, (partial, degree if node.op.moves in VIEWS else -degree, place),
                            work=work / OPERATIONS_PER_BYTE)

    def bytes_round(self, node: Node, inputs: Sequence[ValueSharding | None], ring: Axes) -> int:
        """How many bytes a device passes on in a round of keys and values."""
        sizes = [0 if s is None else math.prod(local_shape(s, numbers_of(value_of(x)), self.mesh, 0))
                 for x, s in zip(node.inputs, inputs, strict=True)]
        return elements_round(node, sizes) * bytes_of(value_of(node.inputs[1])) * (self.mesh.parts(ring) - 1)


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


def _is_within(inner: Mesh, mesh: Mesh) -> bool:
    """Whether all axes of the one are axes of the other, of the same sizes."""
    return all(name in mesh.axes and size == mesh.axis_size(name) for name, size in zip(inner.axes, inner.shape))

"""A captured step -> the tensors that it holds, in groups that are split alike: a weight of all layers, what an
optimizer keeps of it.

    groups = CapturedStep(jitted, captured).groups
    groups["net.blocks.*.up.weight"].members     # parameters of the graph

Tensors of one shape that meet element by element belong together, as a weight and its moments do.  So do those whose
names differ by numbers alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Held
from tenon.debug.value_names import Names
from tenon.graph.ir import Graph, Value
from tenon.locks import cached_property
from tenon.records import dataclass


@dataclass(frozen=True, eq=False)
class StateGroup:
    """Parameters of a graph that are split alike; `weights` has the first of each that belong together."""

    weights: tuple[Value, ...]
    members: tuple[Value, ...]

    @property
    def shape(self) -> tuple[Any, ...]:
        """That of all of them."""
        return self.members[0].shape

    @property
    def elements(self) -> int:
        """How many all of them have."""
        return sum(int(p.size) for p in self.members)


class CapturedStep:
    """A capture of a jitted step, and the groups of what it holds by name, those of the largest tensors first; where
    some tensors are `chosen`, of these and what meets them alone."""

    def __init__(self, jitted: Jitted, captured: Captured, chosen: Callable[[Any], bool] | None = None):
        self.jitted, self.captured, self.chosen = jitted, captured, chosen

    @cached_property
    def groups(self) -> dict[str, StateGroup]:
        """By names in which numbers are stars."""
        captured, names = self.captured, Names(self.jitted, self.captured).tensors
        found: dict[tuple[str, tuple[Any, ...]], list[list[Value]]] = {}
        place = {p: k for k, p in enumerate(captured.graph.params)}
        held = {p: source.holder for p, source in zip(captured.graph.params, captured.sources, strict=True)
                if isinstance(source, Held) and p.ndim and all(isinstance(n, int) for n in p.shape)}
        for members in meeting(captured.graph, list(held)):
            if self.chosen is not None and not any(self.chosen(held[p]) for p in members):
                continue
            name = re.sub(r"\d+", "*", names.get(place[members[0]]) or members[0].name or "")
            found.setdefault((name, members[0].shape), []).append(members)
        shapes = [name for name, _ in found]
        groups = {name if shapes.count(name) == 1 else f"{name} {list(shape)}":
                  StateGroup(tuple(m[0] for m in members), tuple(p for m in members for p in m))
                  for (name, shape), members in found.items()}
        return dict(sorted(groups.items(), key=lambda item: -item[1].elements))


def meeting(graph: Graph, held: Sequence[Value]) -> list[list[Value]]:
    """The values that are held, those together that meet element by element with one shape."""
    above = {p: p for p in held}
    of: dict[Value, Value] = dict(above)         # values, and one of those that they are made of

    def first(p: Value) -> Value:
        while above[p] is not p:
            p = above[p]
        return p
    for node in graph.nodes:
        if not node.op.elementwise:
            continue
        for y in node.outputs:
            met = [first(of[x]) for x in node.inputs if isinstance(x, Value) and x in of and x.shape == y.shape]
            for other in met[1:]:
                above[other] = met[0]
            if met:
                of[y] = met[0]
    order = {p: k for k, p in enumerate(held)}
    together: dict[Value, list[Value]] = {}
    for p in held:
        together.setdefault(first(p), []).append(p)
    return sorted((sorted(x, key=order.__getitem__) for x in together.values()), key=lambda x: order[x[0]])

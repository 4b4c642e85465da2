"""Graph -> the same graph in less memory: values are computed again where they are needed late, instead of being kept.

Runs last, on kernels, where the graph has a note `memory_budget` in bytes (`tn.jit(memory_budget=...)`).  At the step
where most memory is in use, some value was computed before and is read only after; a copy of its node just before that
next use frees its memory in between.  Of all such values the one that frees most for the least work is taken, again
and again until the budget holds or nothing helps (T. Chen et al., "Training deep nets with sublinear memory cost",
2016, do so by hand; P. Jain et al., "Checkmate", 2020, by an integer program).  Of a kernel with several results only a
part is computed again: what is still in memory of the others is where the copy starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tenon.graph.cut import has_effect
from tenon.graph.ir import MEMORY_BUDGET, Graph, Node, Value
from tenon.observe import emit
from tenon.ops.call import fused
from tenon.passes.bodies import body_of, has_loops
from tenon.passes.groups import elements
from tenon.passes.kinds import kind_of
from tenon.passes.partition import RENAMES

CALL = 1000         # elements that cost as much as one more kernel


def recompute(graph: Graph) -> Graph:
    """Keep what lives between kernels within the budget, as far as computing again can."""
    budget = graph.notes.get(MEMORY_BUDGET)
    if budget is None:
        return graph
    before = peak_bytes(graph)
    for _ in range(len(graph.nodes)):
        timeline = Timeline(graph)
        choice = timeline.best_choice() if timeline.peak > budget else None
        if choice is None:
            break
        graph = _with_copy(graph, choice)
    emit("recompute", graph=graph.name, budget=budget, before=before, after=peak_bytes(graph))
    return graph


def peak_bytes(graph: Graph) -> int:
    """The most memory in use at one node, beside parameters and results; symbolic sizes count as middling ones."""
    return Timeline(graph).peak


@dataclass(frozen=True)
class Life:
    """Memory that a node makes: where it is read, and how large it is.  Renamed values are one memory."""

    made: int
    reads: tuple[int, ...]
    size: int
    kept: bool          # a result, which has memory of its own, to the end

    def last(self, end: int) -> int:
        return end if self.kept else max(self.reads, default=self.made)


class Timeline:
    """Which memory is in use at which node."""

    def __init__(self, graph: Graph):
        self.graph, self.end = graph, len(graph.nodes)
        self.home: dict[Value, Value] = {}
        reads: dict[Value, list[int]] = {}
        made: dict[Value, int] = {}
        for k, node in enumerate(graph.nodes):
            renamed = node.inputs[0] if node.op in RENAMES else None
            for x in node.uses():
                reads.setdefault(self.home.get(x, x), []).append(k)
            for x in node.outputs:
                self.home[x] = self.home.get(renamed, renamed) if isinstance(renamed, Value) else x
                if self.home[x] is x:
                    made[x] = k
        results = {self.home.get(r, r) for r in graph.results}
        self.lives = {x: Life(k, tuple(reads.get(x, ())), elements(x.shape) * x.dtype.itemsize, x in results)
                      for x, k in made.items()}
        change = np.zeros(self.end + 2, np.int64)
        for life in self.lives.values():
            if not life.kept:
                change[life.made] += life.size
                change[life.last(self.end) + 1] -= life.size
        self.used = np.cumsum(change)[:max(1, self.end)]

    @property
    def peak(self) -> int:
        return int(self.used.max(initial=0))

    def best_choice(self) -> Choice | None:
        """What frees most bytes at the peak for the least work."""
        top = int(self.used.argmax())
        best: Choice | None = None
        for x, life in self.lives.items():
            until = next((k for k in life.reads if k > top), None)
            if life.kept or life.made >= top or top in life.reads or until is None:
                continue
            node = self.graph.nodes[life.made]
            if is_repeatable(node):
                inputs, body = self.source(node, x, until)
                gain = life.size - self.held_longer(inputs, until)
                merit = gain / (CALL + sum(map(work_of, body.nodes)))
                if gain > 0 and (best is None or merit > best.merit):
                    best = Choice(merit, x, until, inputs, body)
        return best

    def source(self, node: Node, x: Value, until: int) -> tuple[tuple[Value, ...], Graph]:
        """(what is in memory then, how to compute the value from it): a part of its kernel, which has other results."""
        if node.op is not fused:
            body, outside = body_of([node], [x])
            return outside, body
        inner: Graph = node.attrs["body"]
        outer = dict(zip(inner.params, node.inputs, strict=True))
        result = inner.results[x.index]
        known = {r: y for r, y in zip(inner.results, node.outputs, strict=True)
                 if r is not result and self.lives[y].last(self.end) >= until}
        needed, stack = set(), [result]
        while stack:
            made = stack.pop().node
            if made is not None and made not in needed:
                needed.add(made)
                stack += [y for y in made.uses() if y not in known]
        body, outside = body_of([made for made in inner.nodes if made in needed], [result])
        inputs = [outer[y] if y in outer else known[y] for y in outside]
        return tuple(y for y in inputs if isinstance(y, Value)), body

    def held_longer(self, inputs: Iterable[Value], until: int) -> int:
        """Bytes that would be kept for computing a value then, and are free before."""
        lives = [self.lives[x] for x in {self.home.get(x, x) for x in inputs} if x in self.lives]
        return sum(life.size for life in lives if life.last(self.end) < until)


@dataclass(frozen=True)
class Choice:
    """Compute `value` again before node `until`, by this body on these inputs; `merit` is bytes for work."""

    merit: float
    value: Value
    until: int
    inputs: tuple[Value, ...]
    body: Graph


def is_repeatable(node: Node) -> bool:
    """Whether a kernel computes the node, which may as well do so twice."""
    if node.op is fused:
        return not has_effect(node) and all(isinstance(x, Value) for x in node.inputs)
    return has_loops(node) and len(node.outputs) == 1


def work_of(node: Node) -> float:
    """About how many elements are computed or read; for a product of matrices, its multiplications."""
    sizes = [elements(x.shape) for x in (*node.outputs, *node.inputs) if x is not None]
    if kind_of(node).name == "contraction" and len(sizes) == 3:
        return math.sqrt(math.prod(sizes))
    return max(sizes, default=0)


def _with_copy(graph: Graph, choice: Choice) -> Graph:
    """The graph in which nodes from `until` on read a copy of the value, made just there."""
    value, nodes, before = choice.value, graph.nodes, choice.until
    made = Node(fused, choice.inputs, {"body": choice.body}, (), value.node.loc if value.node else None)
    made.outputs = (Value(value.type, made),)
    new = {value: made.output}
    late = [*_renamed_late(nodes, before, new), *(_copy(node, new) for node in nodes[before:])]
    return replace(graph, nodes=(*nodes[:before], made, *late), results=tuple(new.get(r, r) for r in graph.results))


def _renamed_late(nodes: Sequence[Node], before: int, new: dict[Value, Value]) -> Iterable[Node]:
    """Copies of the early renamings of the value that later nodes read."""
    needed = {x for node in nodes[before:] for x in node.uses()}
    renamings = [node for node in nodes[:before] if node.op in RENAMES]
    chain = {x for node in renamings for x in node.outputs if x in needed}
    for node in reversed(renamings):                # a renaming may read a renaming
        if not chain.isdisjoint(node.outputs):
            chain.update(x for x in node.inputs if isinstance(x, Value))
    for node in renamings:
        if node.inputs[0] in new and not chain.isdisjoint(node.outputs):
            yield _copy(node, new)


def _copy(node: Node, new: dict[Value, Value]) -> Node:
    """The node on new inputs where there are some; `new` learns its outputs where it is another one then."""
    inputs = tuple(new.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
    made = Node(node.op, inputs, node.attrs, (), node.loc, tuple(new.get(x, x) for x in node.after))
    made.outputs = tuple(Value(x.type, made, k, x.name) for k, x in enumerate(node.outputs))
    new.update(zip(node.outputs, made.outputs, strict=True))
    return made

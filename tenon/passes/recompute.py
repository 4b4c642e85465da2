"""Graph -> the same graph in less memory: values are computed again where they are needed late, instead of being kept.

Recomputation runs last, on kernels. At the step where most memory is in use, some value was computed before and is read
only after; a copy of its node just before that next use frees its memory in between.  Of all such values the one that
frees most for the least work is taken, again and again, until a budget (`tn.jit(memory_budget=...)`, a note of the
graph) holds or nothing helps.  Without a budget it is done where it costs little: in large graphs, for work element by
element alone, and as long as all of it is a small part of what the graph computes (T.  Chen et al., "Training deep nets
with sublinear memory cost", 2016, do so by hand; P. Jain et al., "Checkmate", 2020, by an integer program). Of a kernel
with several results only a part is computed again: what is still in memory of the others is where the copy starts.  A
copy becomes part of the kernel that reads it where the two are one nest of loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenon.graph.ir import MEMORY_BUDGET, Graph, Node, Value
from tenon.graph.partition import has_effect
from tenon.observe import emit
from tenon.ops.graph_calls import fused
from tenon.passes.fusion.classify_ops import kind_of, signature
from tenon.passes.fusion.fusion_groups import elements
from tenon.passes.fusion.kernel_bodies import body_of, has_loops
from tenon.passes.fusion.liveness import Timeline
from tenon.passes.rematerialize import cost_of, kernel_of, with_copy, without_unread
from tenon.records import dataclass
from tenon.target import GENERIC, Target

KERNEL_CALL_ELEMENTS = 1000     # elements that cost as much as one more kernel
MIN_KEPT_BYTES = 1 << 25  # bytes between kernels, below which nothing is computed again unasked
MAX_RECOMPUTED_TIME_SHARE = 0.015  # the part of a graph's time that computing again may take unasked
MAX_STEPS_WITHOUT_GAIN = 32     # values, each computed again unasked, after which the peak should be lower


def recompute(graph: Graph, target: Target = GENERIC) -> Graph:
    """Keep what lives between kernels within the budget, as far as computing again can; or do what costs little."""
    budget = graph.notes.get(MEMORY_BUDGET)
    before = Timeline(graph)
    if before.peak <= (MIN_KEPT_BYTES if budget is None else budget):
        return graph
    after = _where_cheap(before, target) if budget is None else _within(before, budget, target)
    emit("recompute", graph=graph.name, budget=budget, before=before.peak, after=after.peak)
    return after.graph


def _within(timeline: Timeline, budget: int, target: Target) -> Timeline:
    costs = Costs(target)
    for _ in range(len(timeline.graph.nodes)):
        choice = best_choice(timeline, costs) if timeline.peak > budget else None
        if choice is None:
            break
        timeline = Timeline(choice.made_in(timeline.graph, target))
    return timeline


def _where_cheap(timeline: Timeline, target: Target) -> Timeline:
    costs = Costs(target)
    left = MAX_RECOMPUTED_TIME_SHARE * costs.of(timeline.graph.nodes)
    best, since = timeline, 0
    while since < MAX_STEPS_WITHOUT_GAIN and (choice := best_choice(timeline, costs, cheap=True)) is not None:
        graph = choice.made_in(timeline.graph, target)
        left -= costs.added(timeline.graph, graph)
        if left < 0:
            break
        timeline = Timeline(graph)
        since = 0 if timeline.peak < best.peak else since + 1
        best = min(best, timeline, key=lambda x: x.peak)
    return best


@dataclass(frozen=True)
class RecomputeChoice:
    """Compute `value` again before node `until`, from its source; `merit` is bytes for work."""

    merit: float
    value: Value
    until: int
    source: RecomputeSource

    def made_in(self, graph: Graph, target: Target) -> Graph:
        """The graph that does so."""
        body, outside = body_of(self.source.nodes, [self.source.result])
        inputs = tuple(self.source.outer.get(x, x) for x in outside)
        return without_unread(with_copy(graph, self.value, self.until, inputs, body, target))


@dataclass(frozen=True)
class RecomputeSource:
    """How to compute a value from what is in memory: these nodes, the result among them, and what stands for values
    that they read, where they are nodes of a kernel."""

    nodes: Sequence[Node]
    result: Value
    outer: Mapping[Value, Value]

    def inputs(self) -> Iterator[Value]:
        """What is read that the nodes do not make."""
        made = {x for node in self.nodes for x in node.outputs}
        return (self.outer.get(x, x) for node in self.nodes for x in node.inputs
                if isinstance(x, Value) and x not in made)


def best_choice(timeline: Timeline, costs: Costs, cheap: bool = False) -> RecomputeChoice | None:
    """What frees most bytes at the peak for the least work."""
    best: RecomputeChoice | None = None
    for x, until in reads_after(timeline).items():
        node = timeline.graph.nodes[timeline.lives[x].made]
        if is_repeatable(node):
            found = source(timeline, node, x, until)
            gain = timeline.lives[x].size - held_longer(timeline, found.inputs())
            merit = gain / (KERNEL_CALL_ELEMENTS + sum(map(costs.work_of, found.nodes)))
            if gain > 0 and (best is None or merit > best.merit) and not (
                    cheap and not all(map(costs.is_elementwise, found.nodes))):
                best = RecomputeChoice(merit, x, until, found)
    return best


def reads_after(timeline: Timeline) -> dict[Value, int]:
    """Of what is in memory at the peak and not used there: where it is read next."""
    top = timeline.top
    return {x: min(k for k in life.reads if k > top) for x, life in timeline.lives.items()
            if not life.kept and life.made < top < max(life.reads, default=0) and top not in life.reads}


def source(timeline: Timeline, node: Node, x: Value, until: int) -> RecomputeSource:
    """How to compute the value from what is in memory then: a part of its kernel, which has other results."""
    if node.op is not fused:
        return RecomputeSource([node], x, {})
    inner: Graph = node.attrs["body"]
    outer = {p: y for p, y in zip(inner.params, node.inputs, strict=True) if isinstance(y, Value)}
    result = inner.results[x.index]
    known = {r: y for r, y in zip(inner.results, node.outputs, strict=True)
             if r is not result and timeline.lives[y].last(timeline.end) >= until}
    needed, stack = set(), [result]
    while stack:
        made = stack.pop().node
        if made is not None and made not in needed:
            needed.add(made)
            stack += [y for y in made.uses() if y not in known]
    return RecomputeSource([made for made in inner.nodes if made in needed], result, known | outer)


def held_longer(timeline: Timeline, inputs: Iterable[Value]) -> int:
    """Bytes that would be kept at the peak for computing a value later, and are free now."""
    homes = {timeline.home.get(x, x) for x in inputs}
    return sum(timeline.lives[x].size for x in homes if not timeline.lives_at(x, timeline.top))


# ---------------------------------------------------------------- what computing again costs

def is_repeatable(node: Node) -> bool:
    """Whether a kernel computes the node, which may as well do so twice."""
    if node.op is fused:
        return not has_effect(node) and all(isinstance(x, Value) for x in node.inputs)
    return has_loops(node) and len(node.outputs) == 1


class Costs:
    """About how long nodes take, in bytes that could be moved; equal ones are looked at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._known: dict[object, float] = {}
        self._work: dict[Node, float] = {}
        self._elementwise: dict[Node, bool] = {}

    def of(self, nodes: Iterable[Node]) -> float:
        """All of them together."""
        return sum(map(self._one, nodes))

    def added(self, before: Graph, after: Graph) -> float:
        """How much longer the second graph takes; most nodes are the same in both."""
        old, new = set(before.nodes), set(after.nodes)
        return self.of(x for x in after.nodes if x not in old) - self.of(x for x in before.nodes if x not in new)

    def work_of(self, node: Node) -> float:
        """About how many elements are computed or read."""
        if node not in self._work:
            self._work[node] = work_of(node)
        return self._work[node]

    def is_elementwise(self, node: Node) -> bool:
        """Whether an element takes a few others, and nothing is looked for at an index among the data."""
        if node not in self._elementwise:
            kind = kind_of(node)
            self._elementwise[node] = kind.name in ("view", "map") and not kind.checks
        return self._elementwise[node]

    def _one(self, node: Node) -> float:
        key = node.attrs["body"] if node.op is fused else signature(node)
        if key not in self._known:
            self._known[key] = cost_of(kernel_of(node), self.target)
        return self._known[key]


def work_of(node: Node) -> float:
    """About how many elements are computed or read; for a product of matrices, its multiplications."""
    sizes = [elements(x.shape) for x in (*node.outputs, *node.inputs) if x is not None]
    if kind_of(node).name == "contraction" and len(sizes) == 3:
        return math.sqrt(math.prod(sizes))
    return max(sizes, default=0)

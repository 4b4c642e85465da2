"""The nodes of a step -> the stage of each: balanced, and cut where few bytes cross.

Forward nodes keep their order; dynamic programming over the places between them finds those where the slowest stage,
its backward part and transfers included, is the quickest, and of these where the fewest bytes cross.  A node of a
gradient belongs where the values that it reads are, no later stage than the gradients that it reads; what is behind all
micro-batches belongs where the most of what it reads is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import evaluate
from tenon.errors import DevicePlanError
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.pipelining.step_parts import StepParts, is_meeting, sources
from tenon.program.kernel import node_work
from tenon.records import dataclass, replace

AS_GOOD = 0.01              # how much slower the slowest stage may be where fewer bytes cross
BYTES_IN_TRANSFER = 0.25    # what it costs to move a byte to another device, in elements that are gone through

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Stages:
    """The stage of each node for a micro-batch, and of each node behind all of them."""

    count: int
    of: Mapping[Node, int]
    work: tuple[float, ...]         # of each stage, for a micro-batch, forward and backward
    crossing: tuple[int, ...]       # bytes of a micro-batch that go from each stage to those behind it

    def on(self, graph: Graph, other: Graph) -> Stages:
        """The same stages of another rank's graph.  Its nodes are those of `graph` one by one, of other sizes; but what
        one rank holds, others may put zeros for (`where`), which are made beside what they stand for."""
        if other is graph:
            return self
        own = (node for node in graph.nodes if not _is_mask(node))
        of: dict[Node, int] = {}
        for node in other.nodes:
            x = node.inputs[1] if _is_mask(node) else None
            like, found = (x.node, of) if isinstance(x, Value) else (next(own), self.of)
            if like is not None and like in found:
                of[node] = found[like]
        readers, soonest = other.users(), dict[Node, int]()
        for node in reversed(other.nodes):          # zeros for what all stages have: beside who reads them
            there = [soonest[user] for x in node.outputs for user in readers[x] if user in soonest]
            if node not in of and _is_mask(node):
                of[node] = min(there, default=0)
            if node in of or there:
                soonest[node] = of.get(node, min(there, default=0))
        return replace(self, of=of)


def _is_mask(node: Node) -> bool:
    """Whether a node puts zeros for a value that another rank holds (tenon.sharding.reshard)."""
    return node.op.name == "where" and isinstance(node.inputs[0], Literal) and isinstance(node.inputs[1], Value)


def stages_of_step(parts: StepParts, count: int, begins: Sequence[int] | None = None) -> Stages:
    """The stages of a step.  `begins` names, for each stage but the first, a parameter of the graph: the stage begins
    with the first node that reads it.

    Raises DevicePlanError where there are fewer nodes than stages, or the named parameters are not read in that order.
    """
    graph, forward = parts.graph, parts.forward
    if len(forward) < count:
        raise DevicePlanError(f"pipeline: {graph.name} has {len(forward)} operations on its batch, too few for {count} "
                            "stages", hint="use fewer stages")
    crossing = _crossing(parts, forward)
    work = _work_of_both_ways(parts)
    cuts = _balanced(work, crossing, count) if begins is None else _at_parameters(parts, forward, begins)
    bounds = [0, *cuts, len(forward)]
    of = {node: k for k in range(count) for node in forward[bounds[k]:bounds[k + 1]]}
    _place_backward(parts, of, count)
    _place_late(parts, of)
    return Stages(count, of, tuple(float(sum(work[a:b])) for a, b in itertools.pairwise(bounds)),
                  tuple(int(crossing[k]) for k in cuts))


def _work_of_both_ways(parts: StepParts) -> list[float]:
    """The work of each forward node, and of the backward nodes that would be with it if it were a stage."""
    of = {node: k for k, node in enumerate(parts.forward)}
    _place_backward(parts, of, len(parts.forward))
    found = [0.0] * len(parts.forward)
    for node, k in of.items():
        found[k] += node_work(node, {})
    return found


def size_in_bytes(x: Value) -> int:
    """The bytes of a value whose sizes are numbers."""
    size = x.type.size
    return (size if isinstance(size, int) else evaluate(size, {})) * x.dtype.itemsize


def _crossing(parts: StepParts, forward: Sequence[Node]) -> list[int]:
    """For each place between forward nodes, the bytes that are made before it and read behind it."""
    made = {x: k for k, node in enumerate(forward) for x in node.outputs}
    last: dict[Value, int] = {}
    for k, node in enumerate(forward):
        last.update((x, k) for x in parts.reads(node) if x in made)
    change = [0] * (len(forward) + 1)
    for x, end in last.items():
        change[made[x] + 1] += size_in_bytes(x)
        change[end + 1] -= size_in_bytes(x)
    return list(np.cumsum(change))


def _balanced(work: Sequence[float], crossing: Sequence[int], count: int) -> list[int]:
    """Where the stages but the first begin: the slowest is about the quickest that it can be, and the fewest bytes
    cross."""
    until = np.concatenate([[0.0], np.cumsum(work)])
    move = np.asarray(crossing, float) * BYTES_IN_TRANSFER

    def times(j: int) -> Array:
        """Of a stage that ends before node j, for each node that it may begin with."""
        found: Array = until[j] - until[:j] + move[:j] + move[j]
        return found
    slowest, _ = _cuts(len(work), count, lambda best, j: np.maximum(best, times(j)))
    limit = slowest * (1 + AS_GOOD)
    _, cuts = _cuts(len(work), count, lambda best, j: np.where(times(j) <= limit, best + move[:j], np.inf))
    return cuts


def _cuts(n: int, count: int, cost: Callable[[Array, int], Array]) -> tuple[float, list[int]]:
    """(the least cost, where the stages but the first begin); `cost(best, j)`: of one more stage, that ends before node
    j, for each node that it may begin with, where `best` is the cost of the stages before it."""
    best, chosen = np.full(n + 1, np.inf), []
    best[0] = 0.0
    for _ in range(count):
        longer, place = np.full(n + 1, np.inf), np.zeros(n + 1, int)
        for j in range(1, n + 1):
            found = cost(best[:j], j)
            place[j] = k = int(np.argmin(found))
            longer[j] = found[k]
        best = longer
        chosen.append(place)
    cuts, j = list[int](), n
    for place in reversed(chosen):
        j = int(place[j])
        cuts.insert(0, j)
    return float(best[n]), cuts[1:]


def _at_parameters(parts: StepParts, forward: Sequence[Node], begins: Sequence[int]) -> list[int]:
    """Where the nodes begin that read these parameters."""
    cuts: list[int] = []
    for p in begins:
        x = parts.graph.params[p]
        k = next((k for k, node in enumerate(forward) if x in _all_sources(parts, node)), None)
        if k is None or k <= (cuts[-1] if cuts else 0):
            raise DevicePlanError(f"pipeline: no stage can begin where {x.name}: {x.type} is first read",
                                hint="name what stages begin with in the order in which the step reads it")
        cuts.append(k)
    return cuts


def _all_sources(parts: StepParts, node: Node) -> list[Value]:
    early = frozenset(n for n in parts.graph.nodes if not any(x in parts.micro or x in parts.late for x in n.outputs))
    return sources([x for x in node.inputs if isinstance(x, Value)], parts.repeated | early)


def _place_backward(parts: StepParts, of: dict[Node, int], count: int) -> None:
    """The last stage, no later than those of the gradients it reads, that has the most of what a node reads."""
    there: dict[Value, set[int]] = {}       # stages that have a value when their forward nodes are done
    for node, stage in of.items():
        for x in node.outputs:
            there.setdefault(x, set()).add(stage)
        for x in parts.reads(node):
            there.setdefault(x, set()).add(stage)
    gradients = frozenset(parts.backward)
    for node in parts.backward:
        reads = parts.reads(node)
        before = [of[x.node] for x in reads if x.node in gradients]
        last = min(before, default=count - 1)
        bytes_there = Counter({last: 0})
        for x in reads:
            for stage in there.get(x, ()):
                if stage <= last:
                    bytes_there[stage] += size_in_bytes(x)
        of[node] = max(bytes_there, key=lambda stage: (bytes_there[stage], stage))


def _place_late(parts: StepParts, of: dict[Node, int]) -> None:
    """What is behind all micro-batches: where the most bytes of what it reads are."""
    home = {x.value: of[x.part.node] for x in parts.sums if x.part.node in of}
    for node in parts.graph.nodes:
        if is_meeting(node) or not any(x in parts.late for x in node.outputs) or node in parts.repeated:
            continue
        weight: Counter[int] = Counter()
        for x in parts.reads(node):
            if x in home:
                weight[home[x]] += size_in_bytes(x)
        of[node] = max(weight, key=lambda stage: (weight[stage], -stage)) if weight else 0
        home.update(dict.fromkeys(node.outputs, of[node]))

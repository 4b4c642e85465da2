"""The stages of a step -> graphs, one for each action of a stage, and what is behind all micro-batches in levels.

    first[s]    a micro-batch's part of the sums that are known before all (how many targets count)
    setup[s]    once, before: what micro-batches read and need not compute again
    F, B (or I and W)[s]        a micro-batch
    late[s][k]  once, behind: the optimizer; level k reads of other stages what their levels below k make

What is early is computed by every stage that reads it, so that nothing is sent before the first micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import copy_nodes, has_effect
from tenon.pipelining.schedules import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from tenon.pipelining.stages import Stages
from tenon.pipelining.step_parts import Accumulated, StepParts, is_meeting
from tenon.records import dataclass


@dataclass(frozen=True, eq=False)
class Segment:
    """A graph that computes `makes` of `reads`, both values of the graph of the step.

    Behind these it takes and returns `sums` so far, if it adds to any (`tenon.pipelining.add_in_place`).
    """

    graph: Graph
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    sums: tuple[Accumulated, ...] = ()


@dataclass(frozen=True, eq=False)
class Segments:
    """All that the stages of a step do."""

    parts: StepParts
    count: int
    first: Mapping[int, Segment]
    setup: Mapping[int, Segment]
    actions: Mapping[tuple[str, int], Segment]          # (kind, stage)
    late: Mapping[tuple[int, int], Segment]             # (stage, level)
    sums: Mapping[Accumulated, int]                     # known behind all, and the stage that adds each up
    home: Mapping[Value, int]                           # the stage that makes a value
    results: tuple[tuple[Value, int | None], ...]       # and the stage that has each; None: every one

    @property
    def levels(self) -> int:
        return 1 + max((level for _, level in self.late), default=-1)


def segments_of(parts: StepParts, stages: Stages, split_backward: bool) -> Segments:
    """The graphs of a step in stages; backward actions are in two where `split_backward`."""
    return _Cutter(parts, stages, split_backward).cut()


class _Cutter:
    def __init__(self, parts: StepParts, stages: Stages, split_backward: bool):
        self.parts, self.stages, self.graph = parts, stages, parts.graph
        self.split_backward = split_backward
        self.place = {node: k for k, node in enumerate(self.graph.nodes)}
        self.early = frozenset(node for node in self.graph.nodes if not is_meeting(node) and not any(
            x in parts.micro or x in parts.late for x in node.outputs))
        self.inputs = {*self.graph.params, *parts.rows,
                       *(x.value for x in parts.sums if x.how != "only")}       # no segment makes them

    def cut(self) -> Segments:
        parts, count = self.parts, self.stages.count
        groups = self._groups()
        level = self._levels()
        late_groups: dict[tuple[int, int], list[Node]] = {}
        for node, k in level.items():
            late_groups.setdefault((self.stages.of[node], k), []).append(node)
        sums = {x: self._home_of_sum(x) for x in parts.sums if x not in parts.first}
        known = {x.value for x in parts.first}
        early_results = [r for r in dict.fromkeys(self.graph.results) if r.node in self.early or r in known]
        last_level = max(level.values(), default=0)
        if early_results:
            for stage in range(count):
                late_groups.setdefault((stage, last_level), [])
        if effects := [node for node in self.graph.nodes if node in self.early and has_effect(node)]:
            late_groups.setdefault((0, last_level), []).extend(effects)

        wanted = self._wanted(groups, late_groups, sums)
        actions = {key: self._segment(f"{key[0]}{key[1]}", nodes, wanted, parts.repeated)
                   for key, nodes in groups.items()}
        repeated = parts.repeated | self.early
        late = {}
        for (stage, k), nodes in sorted(late_groups.items()):
            more = early_results if k == last_level else []
            late[stage, k] = self._segment(f"late{stage}_{k}", nodes, wanted, repeated, more)
        setup, first = {}, {}
        for stage in range(count):
            reads = {x for (_, s), segment in actions.items() if s == stage for x in segment.reads}
            reads |= {parts.rows[x].whole for x in reads if x in parts.rows}
            made = [x for x in self._ordered(reads) if x.node is not None and x.node in self.early]
            if made:
                setup[stage] = self._segment(f"setup{stage}", [], wanted, repeated, made)
            reads |= {x for segment in [setup.get(stage), *(late[key] for key in late if key[0] == stage)] if segment
                      for x in segment.reads}
            if needed := [x.part for x in parts.sums if x in parts.first and x.value in reads]:
                first[stage] = self._first(stage, needed)
        home = {x: self.stages.of[node] for node in self.stages.of for x in node.outputs}
        home |= {x.value: stage for x, stage in sums.items()}
        results = tuple((r, None if r in self.graph.params or r in early_results else home.get(r))
                        for r in self.graph.results)
        return Segments(parts, count, first, setup, actions, late, sums, home, results)

    # ------------------------------------------------------------ which nodes are together

    def _groups(self) -> dict[tuple[str, int], list[Node]]:
        """The nodes of each action, for each stage."""
        parts, of = self.parts, self.stages.of
        kinds = [FORWARD, *((INPUT_GRADIENT, WEIGHT_GRADIENT) if self.split_backward else (BACKWARD,))]
        found: dict[tuple[str, int], list[Node]] = {(kind, s): [] for kind in kinds for s in range(self.stages.count)}
        weights = self._weight_gradients() if self.split_backward else set()
        for node in parts.forward:
            found[FORWARD, of[node]].append(node)
        for node in parts.backward:
            found[WEIGHT_GRADIENT if node in weights else kinds[1], of[node]].append(node)
        return found

    def _weight_gradients(self) -> set[Node]:
        """The backward nodes that lead to the sum of one gradient alone: nobody else waits for them."""
        ends = {x.part: k for k, x in enumerate(self.parts.sums)}
        reached: dict[Value, set[int]] = {}
        elsewhere = -1          # another stage, or two sums
        found, gradients = set(), frozenset(self.parts.backward)
        for node in reversed(self.parts.backward):
            here: set[int] = set()
            for x in node.outputs:
                here |= reached.get(x, set()) | ({ends[x]} if x in ends else set())
            if len(here) <= 1 and elsewhere not in here:
                found.add(node)
            for x in self.parts.reads(node):
                if x.node in gradients:
                    assert x.node is not None
                    other = self.stages.of[x.node] != self.stages.of[node]
                    reached.setdefault(x, set()).update({elsewhere} if other else here)
        return found

    def _levels(self) -> dict[Node, int]:
        """How many stages in a row have to be through before each node behind all micro-batches."""
        parts, of = self.parts, self.stages.of
        found: dict[Node, int] = {}
        home = {x.value: self._home_of_sum(x) for x in parts.sums if x not in parts.first}
        for node in self.graph.nodes:
            if is_meeting(node) or node in parts.repeated or not any(x in parts.late for x in node.outputs):
                continue
            level = 0
            for x in parts.reads(node):
                if x.node in found:
                    level = max(level, found[x.node] + (of[x.node] != of[node]))
                elif x in home:
                    level = max(level, int(home[x] != of[node]))
            found[node] = level
        return found

    def _home_of_sum(self, x: Accumulated) -> int:
        return self.stages.of.get(x.part.node, 0) if x.part.node is not None else 0

    # ------------------------------------------------------------ graphs

    def _wanted(self, groups: Mapping[tuple[str, int], Sequence[Node]],
                late: Mapping[tuple[int, int], Sequence[Node]], sums: Collection[Accumulated]) -> Callable[..., bool]:
        """Whether a value that some nodes make is read by others."""
        users: dict[Value, set[Node]] = {}
        for node in (node for nodes in (*groups.values(), *late.values()) for node in nodes):
            for x in self.parts.reads(node):
                users.setdefault(x, set()).add(node)
        ends = {x.part for x in sums} | set(self.graph.results)
        return lambda x, inside: x in ends or not inside.issuperset(users.get(x, ()))

    def _segment(self, name: str, nodes: Sequence[Node], wanted: Callable[..., bool], repeated: Collection[Node],
                 also: Sequence[Value] = ()) -> Segment:
        """The graph of some nodes, and of those among `repeated` that they read, to what others read and `also`."""
        inside = frozenset(nodes)
        makes = [x for node in nodes for x in node.outputs if wanted(x, inside)]
        return self._graph(name, [*makes, *also], inside, repeated)

    def _first(self, stage: int, wanted: Sequence[Value]) -> Segment:
        """A micro-batch's part of what has to be known before all of them."""
        return self._graph(f"first{stage}", list(dict.fromkeys(wanted)), frozenset(),
                           frozenset(node for node in self.graph.nodes if not is_meeting(node)))

    def _graph(self, name: str, makes: Sequence[Value], inside: frozenset[Node],
               repeated: Collection[Node]) -> Segment:
        needed: set[Node] = set(inside)
        reads: dict[Value, None] = {}
        pending = [*makes, *(x for node in inside for x in node.inputs if isinstance(x, Value))]
        seen: set[Value] = set()
        while pending:
            x = pending.pop()
            if x in seen:
                continue
            seen.add(x)
            if x.node is not None and x not in self.inputs and (x.node in inside or x.node in repeated):
                needed.add(x.node)
                pending.extend(y for y in x.node.inputs if isinstance(y, Value))
            else:
                reads[x] = None
        ordered = self._ordered(reads)
        builder = Builder(f"{self.graph.name}_{name}", rewriting=True)
        values = {x: builder.parameter(x.type, x.name) for x in ordered}
        copy_nodes(sorted(needed, key=self.place.__getitem__), builder, values)
        return Segment(builder.finish([values[x] for x in makes]), tuple(ordered), tuple(makes))

    def _ordered(self, values: Iterable[Value]) -> list[Value]:
        """As the graph has them."""
        return sorted(values, key=lambda x: (-1, self.graph.params.index(x)) if x.node is None else
                      (self.place[x.node], x.index))

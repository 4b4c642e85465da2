"""A jitted call -> the values within it, by the names of the user's program, from the compiled program as it is.

    with tn.debug.watch(step, "hidden", "loss") as w:
        step(x, y)
    w["hidden"].value, w["hidden"].grad, w["net.fc1.weight"].before

Nothing is captured or compiled anew.  What a kernel stores is taken as it is stored; what fusion removed is computed
by the interpreter, from what the call was given, when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tenon.autodiff import inner_gradients
from tenon.capture.captured import Captured
from tenon.debug.looked_at import jitted_of, looked_at
from tenon.debug.summary import Summary, summary_of
from tenon.debug.value_names import Named, Names, all_nodes, span_of
from tenon.errors import ArgumentError, Location
from tenon.graph.compare import difference
from tenon.graph.interpret import interpret, witnessed
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import needed
from tenon.jit import Jitted, Run
from tenon.ops.call import fused
from tenon.program.steps import HostStep, KernelStep, LookStep
from tenon.records import dataclass, field, replace
from tenon.runtime.frame import Frame
from tenon.runtime.looking import copy_of, outputs_of
from tenon.tensor import Tensor
from tenon.tensor_state import in_memory

Array = np.ndarray[Any, Any]
KEPT = "kept by the compiled program"
COMPUTED = "computed by the interpreter from what the call was given"


@dataclass(frozen=True, eq=False, repr=False)
class WatchedValue:
    """A value of one call: an array for every time that the program came by.  `grad` is the gradient of what
    `backward()` was called on; `before` is what a tensor held before the call, `value` what it holds after it."""

    name: str
    where: Location | None
    turns: tuple[Array, ...]
    source: str
    grad: Array | None = None
    before: Array | None = None

    @property
    def value(self) -> Array:
        """Of the last turn."""
        if not self.turns:
            raise ArgumentError(f"{self.name}: this call did not come by", where=self.where)
        return self.turns[-1]

    @property
    def summary(self) -> Summary:
        """Least, largest, mean, NaN count and histogram of the last turn."""
        return summary_of(self.value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self.value, dtype)

    @property
    def _place(self) -> str:
        return "" if self.where is None or str(self.where) in self.name else f" at {self.where}"

    def __repr__(self) -> str:
        turns = f" ({len(self.turns)} turns)" if len(self.turns) > 1 else ""
        told = str(summary_of(self.turns[-1], bins=0)) if self.turns else "the call did not come by"
        return f"{self.name}{turns}{self._place}: {told}; {self.source}"


@dataclass(frozen=True, repr=False)
class TakenBranch:
    """A branch that a call took, or a loop that it left: `taken` is the condition or index, or how many turns."""

    where: Location | None
    kind: str
    taken: Any

    def __repr__(self) -> str:
        return f"{self.kind} at {self.where}: {self.taken}{' turns' if self.kind == 'loop' else ''}"


@dataclass(eq=False)
class WatchedCall:
    """What one call was given, and what its program stored."""

    captured: Captured
    names: Names
    arrays: list[Array]
    after: list[Array] = field(default_factory=list)
    stored: list[tuple[Location, Array]] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)


class Watched:
    """What `tn.debug.watch` saw.  `w[name]` is the value of that name in the last call, or a tuple of several."""

    def __init__(self, jitted: Jitted, patterns: Sequence[str], line: str | None, keep: int):
        self.jitted, self.patterns, self.line, self.keep = jitted, tuple(patterns), line, keep
        self.calls: list[WatchedCall] = []
        self.summaries: dict[str, Summary] = {}

    # ------------------------------------------------------------ asking

    def __getitem__(self, name: str) -> Any:
        found = self.all(name)
        if not found:
            known = sorted({name for call in self._last() for name in (*(x.short for x in call.names.values),
                                                                       *call.names.tensors.values())})
            raise ArgumentError(f"watch: nothing is called {name!r} in {self.jitted.__name__}",
                                hint=f"there are {', '.join(known[:20])}{' ...' if len(known) > 20 else ''}")
        return found[0] if len(found) == 1 else tuple(found)

    def all(self, pattern: str = "*") -> list[WatchedValue]:
        """The values of the last call that a name or pattern fits, among those that are watched."""
        found: dict[str, list[WatchedValue]] = {}
        for call in self._last():           # a later piece of a function that is split is right about a name
            fresh: dict[str, list[WatchedValue]] = {}
            for x in self._all_of(call, pattern):
                fresh.setdefault(x.name, []).append(x)
            found |= fresh
        return [x for listed in found.values() for x in listed]

    def _all_of(self, call: WatchedCall, pattern: str) -> list[WatchedValue]:
        chosen = [x for x in call.names.values if _fits(x, pattern)]
        return [*self._of_values(call, [x for x in chosen if x.value.node is not None]),
                *self._of_tensors(call, pattern)]

    def lines(self) -> list[WatchedValue]:
        """Every value that was made at the watched line, by operator."""
        found: list[WatchedValue] = []
        for call in self._last():
            nodes = [node for node in call.names.nodes if _at_line(node, self.line)]
            named = [Named(f"{node.op.name} at {node.loc}", node.op.name, node.output) for node in nodes]
            found += self._of_values(call, named)
        return found

    def by_node(self) -> Iterator[tuple[Node, int, WatchedValue]]:
        """The watched values of the last call, each with the node that makes it, and how many nodes that are like this
        one, of the same place in the source, come before it."""
        for call in self._last():
            before: dict[Any, int] = {}
            order: dict[Node, int] = {}
            for node in call.names.nodes:
                place = (node.loc and span_of(node.loc), node.loc is not None and node.loc.derives is not None,
                         node.op, tuple(str(x.type) for x in node.outputs))
                order[node] = before[place] = before.get(place, -1) + 1
            chosen = [x for x in call.names.values if x.value.node in order
                      and any(_fits(x, pattern) for pattern in self.patterns)]
            for named, value in zip(chosen, self._of_values(call, chosen), strict=True):
                assert named.value.node is not None
                yield named.value.node, order[named.value.node], value

    @property
    def branches(self) -> list[TakenBranch]:
        """The branches taken and the turns of loops, in the order in which the last call came to them."""
        return [x for call in self._last() for x in self._branches_of(call)]

    @staticmethod
    def _branches_of(call: WatchedCall) -> list[TakenBranch]:
        found = list[TakenBranch]()
        turns: dict[Node, int] = {}
        firsts = {node.attrs["body"].nodes[0]: node for node in all_nodes(call.captured.graph)
                  if node.op.name in ("while_loop", "scan") and node.attrs["body"].nodes}

        def see(node: Node, given: Sequence[Any], made: Sequence[Any]) -> None:
            if node in firsts:
                turns[firsts[node]] = turns.get(firsts[node], 0) + 1
            if node.op.name in ("cond", "switch"):
                taken = bool(given[0]) if node.op.name == "cond" else int(given[0])
                found.append(TakenBranch(node.loc, "if" if node.op.name == "cond" else "switch", taken))
            elif node.op.name in ("while_loop", "scan"):
                found.append(TakenBranch(node.loc, "loop", turns.pop(node, 0)))
        with witnessed(see):
            interpret(_quiet(call.captured.graph, {x for n in call.captured.graph.nodes for x in n.outputs}),
                      call.arrays)
        return found

    def __repr__(self) -> str:
        found = [x for pattern in self.patterns for x in self.all(pattern)] + (self.lines() if self.line else [])
        return "\n".join(map(repr, found)) or f"nothing of {self.jitted.__name__} is watched"

    def _last(self) -> list[WatchedCall]:
        """The last call; of a function that is split the last run of each of its pieces, in order."""
        if self.calls:
            of = {captured: piece for piece in self.jitted.with_pieces() for record in piece.records.values()
                  for captured in (*record.captures, *record.bound)}
            last = {of.get(call.captured): call for call in self.calls}     # a later one takes the place of one before
            return [call for call in self.calls if last[of.get(call.captured)] is call]
        reasons = [str(r.eager or r.full) for r in self.jitted.records.values() if r.eager or r.full]
        raise ArgumentError(f"watch: no compiled call of {self.jitted.__name__} was seen"
                            + (f"; it runs by part: {reasons[-1]}" if reasons else ""),
                            hint="in what runs by part Python has the values: print(x) shows them" if reasons else
                            "call it inside of the `with`")

    # ------------------------------------------------------------ finding values

    def _of_values(self, call: WatchedCall, chosen: Sequence[Named]) -> Iterator[WatchedValue]:
        derived = call.captured.derived
        wanted = {x.value for x in chosen} | {derived[x.value] for x in chosen if x.value in derived}
        made = _values(call.captured.graph, wanted, call.arrays)
        outside = self._gradients_outside(call, [x.value for x in chosen if x.value not in derived])
        for x in chosen:
            turns, node = made.get(x.value, []), x.value.node
            loc = None if node is None else node.loc
            stored = [] if loc is None else [a for place, a in call.stored if place == loc]
            kept = _agreeing(turns, stored)
            grad = made.get(derived[x.value], [None])[-1] if x.value in derived else outside.get(x.value)
            yield WatchedValue(x.full, loc, tuple(kept or turns), KEPT if kept else COMPUTED, grad)

    def _gradients_outside(self, call: WatchedCall, values: Sequence[Value]) -> dict[Value, Array]:
        """The gradients of values where `backward()` was called outside of the function."""
        if not call.gradients or not values:
            return {}
        graph = inner_gradients(call.captured.graph, values)
        count = len(call.captured.graph.params)
        seeds = call.gradients[-1][-(len(graph.params) - count):]
        found = interpret(graph, [*call.arrays, *seeds])
        return dict(zip(values, found, strict=True))

    def _of_tensors(self, call: WatchedCall, pattern: str) -> Iterator[WatchedValue]:
        """Parameters, buffers, optimizer state and arguments."""
        gradients = {id(source): position for source, position in call.captured.gradients}
        for k, name in call.names.tensors.items():
            if not _matches(name, pattern):
                continue
            holder = getattr(call.captured.sources[k], "holder", None)
            grad = holder.grad if isinstance(holder, Tensor) and id(call.captured.sources[k]) in gradients else None
            yield WatchedValue(name, None, (call.after[k],), KEPT, None if grad is None else grad.numpy(),
                               call.arrays[k])


def _values(graph: Graph, wanted: set[Value], arrays: Sequence[Array]) -> dict[Value, list[Array]]:
    """What values are in a run of the interpreter, an array a turn."""
    found: dict[Value, list[Array]] = {}
    if wanted:
        def see(node: Node, _: Sequence[Any], made: Sequence[Any]) -> None:
            for x, array in zip(node.outputs, made, strict=True):
                if x in wanted:
                    found.setdefault(x, []).append(np.array(array))
        with witnessed(see):
            interpret(_quiet(graph, wanted), arrays)
    return found


def _quiet(graph: Graph, wanted: set[Value]) -> Graph:
    """The graph with no more than what leads to these values, which may lie in graphs inside of it."""
    holding = {node for node in graph.nodes if any(not wanted.isdisjoint(x.outputs) for g in node.graphs
                                                   for x in all_nodes(g))}
    ends = [x for node in graph.nodes for x in node.outputs if x in wanted or node in holding]
    nodes = needed(graph, ends)
    return replace(graph, nodes=tuple(node for node in graph.nodes if node in nodes), results=())


def _agreeing(turns: Sequence[Array], stored: Sequence[Array]) -> list[Array] | None:
    """What the program stored, where it is as the interpreter says: then it is what was meant."""
    if not turns or not stored:
        return None
    stored, found = list(stored), []
    for turn in turns:
        k = next((k for k, x in enumerate(stored) if x.shape == turn.shape and x.dtype == turn.dtype
                  and difference(turn, x) is None), None)
        if k is None:
            return None
        found.append(stored.pop(k))
    return found


def _fits(x: Named, pattern: str) -> bool:
    return _matches(x.full, pattern) or fnmatchcase(x.short, pattern)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits a name; brackets stand for themselves."""
    plain = pattern.replace("[", "[[]")
    return fnmatchcase(name, plain) or fnmatchcase(name.partition(".")[2], plain)


def _at_line(node: Node, line: str | None) -> bool:
    loc = node.loc
    return line is not None and loc is not None and str(loc) == line


# ---------------------------------------------------------------- watching

@contextmanager
def watch(function: Any, *patterns: str, line: str | None = None, keep: int = 1,
          summaries: bool = False) -> Iterator[Watched]:
    """See values of the compiled calls of a jitted function, by name: variables, paths of modules, parameters and
    optimizer state, or all at a `line` such as "train.py:14".  Patterns are those of file names.

    `keep` calls are kept.  With `summaries`, `w.summaries` has those of all that the program stores of these names in
    the last call, and no arrays are kept.  Raises ArgumentError for a function without `@tn.jit`.

    >>> @tn.jit
    ... def f(x):
    ...     hidden = x * 2
    ...     return (hidden + 1).sum()
    >>> with tn.debug.watch(f, "hidden") as w:
    ...     y = f(tn.tensor([1.0, 2.0]))
    >>> w["hidden"].value
    array([2., 4.], dtype=float32)
    """
    jitted = jitted_of(function, "watch")
    watched = Watched(jitted, patterns or ("*",), line, max(1, keep))
    looker = _Keeper(watched, summaries)

    def around(run: Run, captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> Any:
        call = looker.begin(captured, leaves)
        result = run(captured, leaves, containers)
        looker.end(call, leaves)
        return result
    with looked_at(jitted, (looker,), around, looker.hear_gradients):
        yield watched


class _Keeper:
    """Copies, or sums up, what kernels store at the places of the watched values."""

    def __init__(self, watched: Watched, summaries: bool):
        self.watched, self.summaries, self.keeps = watched, summaries, False
        self.names: dict[Captured, Names] = {}
        self.places: dict[Any, list[Named]] = {}
        self.call: WatchedCall | None = None

    def begin(self, captured: Captured, leaves: Sequence[Any]) -> WatchedCall:
        """A call is about to run."""
        if captured not in self.names:
            self.names[captured] = names = Names(self.watched.jitted, captured)
            for named in names.values:
                if any(_fits(named, p) for p in self.watched.patterns) and (key := _place_of(named.value)) is not None:
                    self.places.setdefault(key, []).append(named)
        self.call = WatchedCall(captured, self.names[captured], [] if self.summaries else _given(captured, leaves))
        if self.summaries:
            self.watched.summaries = {}
        return self.call

    def end(self, call: WatchedCall, leaves: Sequence[Any]) -> None:
        """The call is over, and has done what it does."""
        if not self.summaries:
            call.after = [np.asarray(in_memory(x.own.payload)) for x in call.captured.inputs.holders(leaves)]
            self.watched.calls = _kept([*self.watched.calls, call], self.watched.keep, self.watched.jitted.is_split)

    def hear_gradients(self, arrays: Sequence[Array]) -> None:
        """The program of a gradient is run, with these arguments."""
        if self.watched.calls:
            self.watched.calls[-1].gradients.append(list(arrays))

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        return False, any(map(self._is_wanted, _made(step)))

    def _is_wanted(self, x: Value) -> bool:
        return _place_of(x) in self.places or (x.node is not None and not self.summaries
                                               and _at_line(x.node, self.watched.line))

    def see(self, frame: Frame, look: LookStep) -> None:
        """A kernel has stored what it makes."""
        if self.call is None:
            return
        for x, array in zip(_made(look.step), outputs_of(frame, look.step), strict=False):
            if not self._is_wanted(x):
                continue
            if self.summaries:
                self._sum_up(self.places[_place_of(x)], array)
            elif x.node is not None and x.node.loc is not None:
                self.call.stored.append((x.node.loc, array.copy()))

    def _sum_up(self, named: Sequence[Named], array: Array) -> None:
        """The first of the names for this place that is free: layers and turns come in order."""
        known = self.watched.summaries
        names = [x.full for x in named] + [f"{named[-1].full} ({k})" for k in range(2, len(known) + 3)]
        known[next(name for name in names if name not in known)] = summary_of(array)


def _kept(calls: Sequence[WatchedCall], count: int, in_pieces: bool) -> list[WatchedCall]:
    """The last calls; of a function that is split the last runs of each capture."""
    if not in_pieces:
        return list(calls[-count:])
    return [call for k, call in enumerate(calls) if sum(x.captured is call.captured for x in calls[k:]) <= count]


def _given(captured: Captured, leaves: Sequence[Any]) -> list[Array]:
    """What a call is given.  What it updates in place is copied: who held it would keep it from being updated there."""
    donated = frozenset(captured.donations)
    return [copy_of(np.asarray(in_memory(x.own.payload))) if k in donated else np.asarray(in_memory(x.own.payload))
            for k, x in enumerate(captured.inputs.holders(leaves))]


def _place_of(x: Value) -> Any:
    """Where a value comes from, and what it is like; None for gradients, which come from where they are asked for."""
    loc = None if x.node is None else x.node.loc
    return None if loc is None or loc.derives is not None else (span_of(loc), x.dtype, x.ndim)


def _made(step: KernelStep | HostStep) -> tuple[Value, ...]:
    """The outputs of a step: of a kernel, as its body makes them."""
    node = step.node
    return node.attrs["body"].results if node.op is fused else node.outputs

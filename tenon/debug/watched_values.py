"""A jitted call -> the values within it, by the names of the user's program, from the compiled program as it is.

    with tn.debug.watch(step, "hidden", "loss") as w:
        step(x, y)
    w["hidden"].value, w["hidden"].grad, w["net.fc1.weight"].before

Nothing is captured or compiled anew.  What a kernel stores is taken as it is stored; what fusion removed is computed
by the interpreter, from what the call was given, when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tenon.autodiff import inner_gradients
from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.debug.array_summary import Summary, summary_of
from tenon.debug.interpreted_values import agreeing, leading_to, values_of
from tenon.debug.value_names import Named, Names, span_of
from tenon.errors import ArgumentError, Location
from tenon.graph.interpret import interpret, witnessed
from tenon.graph.ir import Node, Value
from tenon.graph.partition import all_nodes
from tenon.records import dataclass, field
from tenon.tensor import Tensor

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
        chosen = [x for x in call.names.values if fits(x, pattern)]
        return [*self._of_values(call, [x for x in chosen if x.value.node is not None]),
                *self._of_tensors(call, pattern)]

    def lines(self) -> list[WatchedValue]:
        """Every value that was made at the watched line, by operator."""
        found: list[WatchedValue] = []
        for call in self._last():
            nodes = [node for node in call.names.nodes if at_line(node, self.line)]
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
                      and any(fits(x, pattern) for pattern in self.patterns)]
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
            interpret(leading_to(call.captured.graph, {x for n in call.captured.graph.nodes for x in n.outputs}),
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
                            + (f"; it runs with graph breaks: {reasons[-1]}" if reasons else ""),
                            hint="with graph breaks Python has the values: print(x) shows them" if reasons else
                            "call it inside of the `with`")

    # ------------------------------------------------------------ finding values

    def _of_values(self, call: WatchedCall, chosen: Sequence[Named]) -> Iterator[WatchedValue]:
        derived = call.captured.derived
        wanted = {x.value for x in chosen} | {derived[x.value] for x in chosen if x.value in derived}
        made = values_of(call.captured.graph, wanted, call.arrays)
        outside = self._gradients_outside(call, [x.value for x in chosen if x.value not in derived])
        for x in chosen:
            turns, node = made.get(x.value, []), x.value.node
            loc = None if node is None else node.loc
            stored = [] if loc is None else [a for place, a in call.stored if place == loc]
            kept = agreeing(turns, stored)
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


def fits(x: Named, pattern: str) -> bool:
    return _matches(x.full, pattern) or fnmatchcase(x.short, pattern)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits a name; brackets stand for themselves."""
    plain = pattern.replace("[", "[[]")
    return fnmatchcase(name, plain) or fnmatchcase(name.partition(".")[2], plain)


def at_line(node: Node, line: str | None) -> bool:
    loc = node.loc
    return line is not None and loc is not None and str(loc) == line

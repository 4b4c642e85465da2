"""One capture of a call: its graph, what it needs to hold, and what is done with its results.

`conclude` makes it when the function has returned; `tenon.capture.replay` compares it with a call, and runs it.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from tenon.backends.base import Executable
from tenon.capture.constants import WithConstants, array_of
from tenon.capture.convert.choice import Choice
from tenon.capture.convert.several import FirstRows, Several
from tenon.capture.effects import MISSING, Effect
from tenon.capture.guards import Guards, is_atom
from tenon.capture.leaves import FromContainers, FromGraph, FromOutside, FromSize, Nest, OneOf, RowsOf, Shared
from tenon.capture.numbers import Number, one_kind
from tenon.capture.presence import use
from tenon.capture.reach import Reach
from tenon.capture.residuals import Halves, halves
from tenon.capture.trace import Argument, Capture, GradientOf, Held, Source, capturing
from tenon.capture.tree import flatten, unfold
from tenon.capture.watch import UnsafeCall
from tenon.dims import Assumptions, SymbolicDim
from tenon.eager import program_of
from tenon.graph.ir import Graph, Value
from tenon.tensor import Tensor
from tenon.types import TensorType

SHARED = (type, types.ModuleType, types.BuiltinFunctionType)


@dataclass(eq=False)
class Captured:
    """One capture: the graph, what it needs to hold, and what to do with its results."""

    graph: Graph
    sources: list[Source]
    types: list[TensorType]                     # of the leaves of the arguments that are tensors
    guards: Guards
    assumptions: Assumptions
    output: Nest                                # what is returned; where there are effects, what they store behind it
    assigned: list[tuple[Source, int, bool]]    # tensor <- result, and whether it then carries a gradient
    gradients: list[tuple[Source, int | OneOf | None]]  # tensor.grad <- result, or None
    effects: list[tuple[Effect, int | None]]    # a store, and the number of the argument that it is made into
    flags: list[tuple[Source, bool]]            # tensor.requires_grad <- flag
    differentiable: bool
    wanted: tuple[int, ...]                     # the inputs that require a gradient
    held: list[tuple[Tensor, bool, bool, TensorType]]   # tensors from outside: requires_grad, .grad is None, type
    same: list[tuple[int, Tensor]]              # arguments that are such a tensor too: the leaf, and which tensor
    inputs: Inputs                              # the sources, as a call wants them
    outside: frozenset[int]                     # identities of the other tensors that can be reached from outside
    apart: frozenset[int]                       # identities of what must not be a container among the arguments
    codes: frozenset[CodeType]                  # that ran
    constants: tuple[int, ...] = ()             # the inputs of which something may be made before a call
    by_data: tuple[tuple[int, int], ...] = ()   # inputs that get a gradient where a result of the graph says so
    failed: int | None = None                   # the result that says that the call has to run eagerly after all
    calls: int = 0                              # that went the long way
    failures: int = 0                           # calls in which the graph failed
    succeeded: bool = False                     # whether there was another one
    short: Any = None                           # the short way of calls like an earlier one (`tenon.capture.warm`)
    checked: int = -1                           # the state of `tenon.tensor.changes` when the held tensors were right

    @cached_property
    def program(self) -> Executable:
        """What a call runs, compiled when it is first wanted."""
        if self.halves is not None:
            return program_of(self.halves.forward)
        holders = {k: source.holder for k in self.constants if isinstance(source := self.sources[k], Held)
                   and isinstance(array_of(source.holder), np.ndarray)}
        return WithConstants(self.graph, holders, self.constants_changed) if holders else program_of(self.graph)

    def constants_changed(self) -> None:
        """The short way does not hold any more, and a new one is wanted soon."""
        self.calls = 0

    @cached_property
    def halves(self) -> Halves | None:
        """The programs for the results and for the gradients, of a capture that is recorded on the tape."""
        return halves(self.graph, self.wanted) if self.differentiable else None

    @cached_property
    def uses_containers(self) -> bool:
        """Whether a call stores to a container among its arguments, or hands one on."""
        return any(number is not None for _, number in self.effects) or any(
            isinstance(x, FromContainers) for x in self.output.leaves)

    @cached_property
    def donations(self) -> tuple[int, ...]:
        """The inputs that the program assigns: they may give their memory to the results."""
        if self.failed is not None:
            return ()
        position = {id(source): k for k, source in enumerate(self.sources)}
        return tuple([position[id(source)] for source, _, carries in self.assigned
                      if not carries and id(source) in position])


def holder_of(source: Source, leaves: Sequence[Any]) -> Any:
    """The tensor (or array) that a source stands for in a call with these leaves."""
    if isinstance(source, Argument):
        return leaves[source.position]
    if isinstance(source, Held):
        return source.holder
    return holder_of(source.source, leaves).own.grad


class Inputs:
    """Where the inputs of a program come from, sorted once, so that a call need not look at every one."""

    def __init__(self, sources: Sequence[Source]):
        self.fixed: list[Any] = [None] * len(sources)
        self.moving: list[tuple[int, Source]] = []      # which are gradients
        self.arguments: list[tuple[int, int]] = []
        for k, source in enumerate(sources):
            if isinstance(source, Argument):
                self.arguments.append((k, source.position))
            elif isinstance(source, Held):
                # A tensor around an array shares its memory: what is written there is read.
                self.fixed[k] = source.holder if isinstance(source.holder, Tensor) else Tensor(source.holder)
            else:
                self.moving.append((k, source))

    def holders(self, leaves: Sequence[Any]) -> list[Tensor]:
        """The tensor of every input, in a call with these leaves."""
        holders = self.fixed.copy()
        for k, position in self.arguments:
            holders[k] = leaves[position]
        for k, source in self.moving:
            holders[k] = holder_of(source, leaves)
        return holders


def conclude(capture: Capture, result: Any, changes: list[Effect], types: list[TensorType], reach: Reach,
             known: Container[int], arguments: Sequence[Any], assumptions: Assumptions) -> Captured:
    """Everything the captured call leaves behind, as results of the graph and places for them.

    `arguments` are the containers among them.  Raises UnsafeCall when the function leaves an object that is new in
    every call, and not among those `known` before.
    """
    values: dict[Value, int] = {}
    tracked: list[Tensor] = []
    numbers = {id(x): k for k, x in enumerate(arguments)}
    left = _Left(known, (result, *(change.value for change in changes)) if changes else result)
    gradients_now = {id(seen.state.grad): seen for seen in capture.seen.values() if seen.state.grad is not None}

    def index_of(tensor: Tensor) -> int:
        payload = tensor.own.payload
        assert isinstance(payload, Value)
        return values.setdefault(payload, len(values))

    def one_of(x: Choice) -> OneOf:
        return OneOf(tuple((leaf(p), left.opened_later(y, leaf)) for p, y in x.options))

    def leaf(x: Any) -> Any:
        if id(x) in capture.seen:
            return FromOutside(capture.seen[id(x)].source)
        if id(x) in numbers:
            return FromContainers(numbers[id(x)])
        if id(x) in gradients_now:
            source = gradients_now[id(x)].source
            assert not isinstance(source, GradientOf)
            return FromOutside(GradientOf(source))
        if type(x) is SymbolicDim:
            return FromSize(x)
        if type(x) in (Several, FirstRows):
            rows = x.rows if type(x) is Several else (x.rows,)
            return RowsOf(tuple(map(leaf, rows)), leaf(x.count), x.form if type(x) is Several else None)
        if id(x) in left.shared:
            return left.share(x, leaf)
        if type(x) is Choice:
            return one_of(x)
        if not isinstance(x, Tensor) or not isinstance(x.own.payload, Value):
            if not (is_atom(x) or id(x) in known or x is MISSING or isinstance(x, SHARED)):
                raise UnsafeCall(f"the function makes an object of type {type(x).__name__}, new in every call")
            return x
        tracked.append(one_kind(x))
        node, own = x.own.node, type(x) not in (Tensor, Number)
        if own and getattr(x, "__dict__", None):
            raise UnsafeCall(f"the function makes a tensor of class {type(x).__name__}, which has attributes")
        return FromGraph(index_of(x), x.own.requires_grad, node is not None and node.released,
                         left.name(x), x.weak is not None, type(x) if own else None, node is None,
                         None if x.own.grad is None else leaf(x.own.grad))

    output = Nest(left.structure, tuple(map(leaf, left.leaves)), bool(changes))
    effects = [(change, numbers.get(id(change.holder))) for change in changes]
    assigned, gradients, flags = [], [], []
    for seen in capture.seen.values():
        state = seen.state
        if seen.assigned:
            assert isinstance(state.payload, Value)
            carries = state.node is not None and not state.node.released
            assigned.append((seen.source, values.setdefault(state.payload, len(values)), carries))
        if seen.grad_changed:
            kept: Any = state.grad
            gradients.append((seen.source, one_of(kept) if type(kept) is Choice else
                              None if kept is None else index_of(kept)))
        if state.requires_grad != seen.tensor.own.requires_grad:
            flags.append((seen.source, state.requires_grad))
    nodes = [x.own.node for x in tracked if x.own.node is not None]
    differentiable = any(not node.released for node in nodes) or any(carries for _, _, carries in assigned)
    failed = None if capture.failed is False else index_of(capture.failed)
    ends = [x for x in tracked if x.own.node is not None and not x.own.node.released] + \
           [seen.tensor for seen in capture.seen.values()
            if seen.assigned and seen.state.node is not None and not seen.state.node.released]
    with capturing(capture):
        _refuse_new_leaves(tracked, ends)
        flowing = [values[p] for x in ends if isinstance(p := x.payload, Value) and p in values]
        there = {source: index_of(flag) for source, flag in capture.gradients_by_data(ends).items()}
    graph, sources = capture.finish(list(values))
    requiring = {id(seen.source) for seen in capture.seen.values() if seen.tensor.own.requires_grad}
    wanted = tuple(k for k, source in enumerate(sources) if id(source) in requiring and any(
        use(graph, k, result) is not False for result in flowing))
    by_data = tuple((k, there[id(source)]) for k, source in enumerate(sources) if id(source) in there)
    held = [(seen.tensor, seen.tensor.own.requires_grad, seen.tensor.own.grad is None, seen.start.type)
            for seen in capture.seen.values() if isinstance(seen.source, Held)]
    same = [(seen.source.position, seen.tensor) for key, seen in capture.seen.items()
            if isinstance(seen.source, Argument) and key in reach.tensors]
    outside = reach.tensors.union(id(x) for x, *_ in held).difference(id(x) for _, x in same)
    found = {id(g.holder) for g in reach.groups}.union(id(change.holder) for change in changes)
    apart = frozenset(found.difference(numbers)) if arguments else frozenset()
    return Captured(graph, sources, types, reach.guards(), assumptions, output, assigned, gradients, effects, flags,
                    differentiable, wanted, held, same, Inputs(sources), frozenset(outside), apart,
                    frozenset(reach.codes or ()),
                    () if capture.recorded or differentiable else _constants(sources, assigned), by_data, failed)


def _refuse_new_leaves(left: Sequence[Tensor], ends: Sequence[Tensor]) -> None:
    """A call on the tape gives gradients to its inputs, not to a leaf that the function made and left."""
    made = {id(x) for x in left if x.node is None and x.requires_grad}
    for end in ends if made else ():
        nodes = [] if end.node is None else end.node.tape()
        if any(id(x.slot) in made for node in nodes for x in node.inputs if isinstance(x, Tensor) and x.requires_grad):
            raise UnsafeCall("the function leaves a tensor that requires a gradient, beside what it computed from it",
                             passing=True)


def _constants(sources: Sequence[Source], assigned: Sequence[tuple[Source, int, bool]]) -> tuple[int, ...]:
    """The inputs that every call finds as they are and leaves so: tensors from outside, such as weights."""
    own = {id(source) for source, _, _ in assigned}
    return tuple(k for k, source in enumerate(sources) if isinstance(source, Held) and id(source) not in own
                 and (source.own or isinstance(source.holder, Tensor)))


class _Left:
    """What a function left behind, opened: containers from outside stay whole, and what it made is found once."""

    def __init__(self, known: Container[int], tree: Any):
        self.known, self.opened = known, set[int]()
        self.shared: dict[int, Any] = {}
        self.nests: dict[int, Shared] = {}
        self._count(tree, Counter(), Counter(), False)
        self.leaves, self.structure, made = unfold(tree, self.is_whole)
        self.opened.update(map(id, made))
        tensors = [x for x in self.leaves if isinstance(x, Tensor)]
        self.places = Counter(map(id, [*tensors, *{id(x): x.own.grad for x in tensors}.values()]))

    def is_whole(self, container: Any) -> bool:
        """Whether a container was there before."""
        if id(container) in self.known or type(container) is SymbolicDim or id(container) in self.shared:
            return True
        if id(container) in self.opened:
            raise UnsafeCall("the function leaves one container in two places, as the data decide")
        return False

    def _count(self, x: Any, seen: Counter[int], chosen: Counter[int], by_data: bool) -> None:
        """Note the containers that stand in several places, in one of them as the data decide."""
        if type(x) is Choice:
            for _, option in x.options:
                self._count(option, seen, chosen, True)
            return
        inside = flatten(x, lambda c: c is not x)[0]
        if id(x) in self.known or (len(inside) == 1 and inside[0] is x):
            return      # a leaf
        if not isinstance(x, tuple):
            chosen[id(x)] += by_data
            seen[id(x)] += 1
            if seen[id(x)] > 1:
                if chosen[id(x)]:
                    self.shared[id(x)] = x
                return
        for part in inside:
            self._count(part, seen, chosen, by_data)

    def share(self, x: Any, leaf: Callable[[Any], Any]) -> Shared:
        """A container that is made once."""
        if id(x) not in self.nests:
            leaves, structure, made = unfold(x, lambda c: c is not x and self.is_whole(c))
            self.opened.update(map(id, made))
            self.nests[id(x)] = Shared(id(x), Nest(structure, tuple(map(leaf, leaves))))
        return self.nests[id(x)]

    def opened_later(self, tree: Any, leaf: Callable[[Any], Any]) -> Nest:
        """One of several things that a leaf may be."""
        leaves, structure, made = unfold(tree, self.is_whole)
        self.opened.update(map(id, made))
        return Nest(structure, tuple(map(leaf, leaves)))

    def name(self, tensor: Tensor) -> int | None:
        """A name for a tensor that is left in several places."""
        return id(tensor) if self.places[id(tensor)] > 1 else None

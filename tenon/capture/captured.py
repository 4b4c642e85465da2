"""One capture of a call: what the function left behind, whether another call fits it, and running its graph.

`conclude` makes it when the function has returned, `holds` compares it with a call, `run` does what the function did:
results, assignments, gradients, effects.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from tenon.autodiff import call
from tenon.backends.base import Executable
from tenon.capture.constants import WithConstants, array_of
from tenon.capture.convert.choice import Choice
from tenon.capture.convert.several import FirstRows, Several, element
from tenon.capture.donation import are_alone
from tenon.capture.effects import MISSING, Effect
from tenon.capture.guards import Guards, is_atom
from tenon.capture.numbers import one_kind
from tenon.capture.reach import Reach
from tenon.capture.residuals import Halves, halves, recorded_call
from tenon.capture.trace import Argument, Capture, GradientOf, Held, Source
from tenon.capture.tree import Structure, flatten, unfold
from tenon.capture.watch import UnsafeCall
from tenon.dims import Assumptions, Dim, SymbolicDim, evaluate, learn
from tenon.eager import program_of
from tenon.errors import CaptureError, TenonError
from tenon.graph.ir import Graph, Value
from tenon.recording import is_grad_enabled
from tenon.state import TensorState, changed, changes
from tenon.tape import RELEASED
from tenon.tensor import Tensor
from tenon.types import TensorType

SHARED = (type, types.ModuleType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class FromGraph:
    """A leaf of the returned nest that is a result of the graph."""

    index: int
    requires_grad: bool
    released: bool      # it requires a gradient, and backward() has been through its tape
    name: int | None = None     # of a tensor that is left in several places, and is one tensor in all of them
    number: bool = False        # a Python number


@dataclass(frozen=True)
class OneOf:
    """A leaf that is one of several things: the first whose condition, a result of the graph, holds."""

    options: tuple[tuple[Any, Nest], ...]


@dataclass(frozen=True)
class Shared:
    """A leaf that is a container left in several places, one of them only where the data decide so."""

    name: int
    nest: Nest


@dataclass(frozen=True)
class RowsOf:
    """A leaf that is the first rows of results of the graph: a tensor of them, or elements of the list around it."""

    rows: tuple[Any, ...]
    count: Any
    form: Any = None        # of an element


@dataclass(frozen=True)
class FromOutside:
    """A leaf that is an outside tensor itself, or its gradient."""

    source: Source


@dataclass(frozen=True)
class FromContainers:
    """A leaf that is a container among the arguments, by its number."""

    number: int


@dataclass(frozen=True)
class FromSize:
    """A leaf that is a size, which may be another number in every call."""

    size: SymbolicDim


@dataclass(frozen=True)
class Nest:
    """A nest of leaves that are filled in after a run."""

    structure: Structure
    leaves: tuple[Any, ...]
    apart: bool = False         # the outermost tuple is none of the program's

    @cached_property
    def undecided(self) -> bool:
        """Whether the data decide how many elements containers have."""
        return self.structure.kind is not None and any(isinstance(x, RowsOf) or (isinstance(x, OneOf) and any(
            nest.leaves == (MISSING,) for _, nest in x.options)) for x in self.leaves)

    def build(self, fill: Callable[[Any], Any]) -> Any:
        return self.structure.build(map(fill, self.leaves), self._those_there if self.undecided else None)

    def _those_there(self, structure: Structure, children: list[Any]) -> Structure:
        """What a container is with the elements that are there, and with all the rows that a loop left."""
        if self.apart and structure is self.structure:
            return structure
        labels = structure.labels
        if len(labels) == len(children):
            labels = tuple([label for label, x in zip(labels, children, strict=True) if x is not MISSING])
        children[:] = [y for x in children if x is not MISSING for y in (x if type(x) is Rows else (x,))]
        return Structure(structure.kind, labels)


class Rows(list[Any]):
    """Elements of the list around it."""


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
    gradients: list[tuple[Source, int | None]]  # tensor.grad <- result, or None
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
    failed: int | None = None                   # the result that says that the call has to run eagerly after all
    calls: int = 0                              # that went the long way
    failures: int = 0                           # calls in which the graph failed
    succeeded: bool = False                     # whether there was another one
    ran: bool = False
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


# ---------------------------------------------------------------- after the function has returned

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
            return OneOf(tuple((leaf(p), left.opened_later(y, leaf)) for p, y in x.options))
        if not isinstance(x, Tensor) or not isinstance(x.own.payload, Value):
            if not (is_atom(x) or id(x) in known or x is MISSING or isinstance(x, SHARED)):
                raise UnsafeCall(f"the function makes an object of type {type(x).__name__}, new in every call")
            return x
        tracked.append(one_kind(x))
        node = x.own.node
        return FromGraph(index_of(x), x.own.requires_grad, node is not None and node.released,
                         left.name(x), x.weak is not None)

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
            gradients.append((seen.source, None if state.grad is None else index_of(state.grad)))
        if state.requires_grad != seen.tensor.own.requires_grad:
            flags.append((seen.source, state.requires_grad))
    nodes = [x.own.node for x in tracked if x.own.node is not None]
    differentiable = any(not node.released for node in nodes) or any(carries for _, _, carries in assigned)
    failed = None if capture.failed is False else index_of(capture.failed)
    graph, sources = capture.finish(list(values))
    requiring = {id(seen.source) for seen in capture.seen.values() if seen.tensor.own.requires_grad}
    wanted = tuple(k for k, source in enumerate(sources) if id(source) in requiring)
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
                    () if capture.recorded or differentiable else _constants(sources, assigned), failed)


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
        self.places = Counter(id(x) for x in self.leaves if isinstance(x, Tensor))

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


# ---------------------------------------------------------------- a call that fits

def holds(captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> bool:
    """Whether this capture is right for a call with these leaves in these containers."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    pairs = [(type, x.own.payload.shape) for type, x in zip(captured.types, tensors, strict=True)]
    return (all(fits(type, shape, sizes) for type, shape in pairs)
            and (not sizes or all(fits(type, shape, sizes) for type, shape in pairs))   # all symbols are known now
            and captured.assumptions.hold(sizes)
            and not any(id(x) in captured.outside for x in tensors)
            and all(leaves[k] is x for k, x in captured.same)
            and captured.apart.isdisjoint(map(id, containers))
            and captured.guards.hold()
            and (captured.checked == changes() or held_tensors_hold(captured, leaves)))


def held_tensors_hold(captured: Captured, leaves: Sequence[Any]) -> bool:
    """Whether the tensors held have the types and flags that they had; remembered until one of any changes."""
    now = changes()
    for x, requires_grad, without_grad, type in captured.held:
        own = x.own
        if own.requires_grad is not requires_grad or (own.grad is None) is not without_grad or \
                own.payload.dtype != type.dtype.numpy or own.payload.shape != type.shape:
            return False
    if not all(source_holds(s, p, leaves) for s, p in zip(captured.sources, captured.graph.params, strict=True)):
        return False
    if not any(isinstance(s, GradientOf) or isinstance(getattr(s, "holder", None), np.ndarray)
               for s in captured.sources):
        captured.checked = now
    return True


def fits(type: TensorType, shape: Sequence[Dim], sizes: dict[str, int]) -> bool:
    """Whether the shape matches the type, as far as can be told; `sizes` collects the symbols."""
    return all(dim == size if isinstance(dim, int) else learn(dim, int(size), sizes)
               for dim, size in zip(type.shape, shape, strict=True))


def sizes_of(types: Sequence[TensorType], leaves: Sequence[Any]) -> dict[str, int]:
    """The numbers behind the symbols, in a call that fits."""
    sizes: dict[str, int] = {}
    for type, x in zip(types, (x for x in leaves if isinstance(x, Tensor)), strict=True):
        fits(type, x.own.payload.shape, sizes)
    return sizes


def source_holds(source: Source, param: Value, leaves: Sequence[Any]) -> bool:
    """Whether a tensor held by the capture still has the type it had."""
    if isinstance(source, Argument):
        return True
    array = read(source, leaves)
    return array is not None and array.dtype == param.dtype.numpy and \
        (isinstance(source, GradientOf) or array.shape == param.shape)


def holder_of(source: Source, leaves: Sequence[Any]) -> Any:
    """The tensor (or array) that a source stands for in a call with these leaves."""
    if isinstance(source, Argument):
        return leaves[source.position]
    if isinstance(source, Held):
        return source.holder
    return holder_of(source.source, leaves).own.grad


def read(source: Source, leaves: Sequence[Any]) -> Any:
    """The array of a source now."""
    holder = holder_of(source, leaves)
    return holder.own.payload if isinstance(holder, Tensor) else holder


class Stopped(Exception):
    """The function raised while it was captured, or its graph failed; nothing outside was changed.

    So it can be called, to do what it does before it raises, or where it deals with the error.
    """

    def __init__(self, error: Exception):
        super().__init__(error)
        self.error = error


def run(captured: Captured, leaves: Sequence[Any], containers: Sequence[Any] = ()) -> Any:
    """Run the graph, then do what the function did: assignments, gradients, effects, the returned value.

    Raises Stopped where the graph fails, since the function may catch the error, or have done things before it.
    """
    holders = captured.inputs.holders(leaves)
    try:
        if captured.differentiable and is_grad_enabled():
            parts = captured.halves
            out = call(*holders, body=captured.graph) if parts is None else \
                recorded_call(captured.graph, parts, holders)
            results: Any = out if isinstance(out, tuple) else (out,)
        else:
            arrays: Any = [x.own.payload for x in holders]
            given = captured.donations if captured.ran else ()      # the first run has code without donation
            donated = given if given and are_alone(holders, arrays, given) else ()
            results = Results(captured.program.run(arrays, donated))
            captured.ran = True
    except TenonError as error:
        raise Stopped(error) from error
    return settle(captured, leaves, results, captured.assigned, containers)


def settle(captured: Captured, leaves: Sequence[Any], results: Any,
           assigned: Sequence[tuple[Source, int, bool]], containers: Sequence[Any] = ()) -> Any:
    """Do what the function did, given the results of its graph; returns what it returned."""
    if captured.failed is not None and results[captured.failed].own.payload:
        raise Stopped(CaptureError("the call takes a way that its graph does not hold"))

    fill = _Fill(captured, leaves, results, containers)
    given: list[tuple[Any, int, bool]] = [
        (source.holder if type(source) is Held else holder_of(source, leaves), k, carries)
        for source, k, carries in assigned]
    for source, position in captured.gradients:
        holder_of(source, leaves).own.grad = None if position is None else results[position].detach()
    for holder, k, carries in given:
        own = holder.own
        if carries:
            new = results[k].own
            holder.own = TensorState(new.payload, own.requires_grad, own.grad, new.node, new.index)
        else:
            array = results.arrays[k] if type(results) is Results else results[k].own.payload
            if array is not own.payload or own.node is not None:        # else it was updated in place
                holder.own = TensorState(array, own.requires_grad, own.grad)
    for source, flag in captured.flags:
        holder = holder_of(source, leaves)
        own = holder.own
        holder.own = TensorState(own.payload, flag, own.grad, own.node, own.index)
    if captured.gradients or captured.flags:
        changed()
    if not captured.effects:
        return captured.output.build(fill)
    result, *values = captured.output.build(fill)
    for (effect, number), value in zip(captured.effects, values, strict=True):
        (effect if number is None else replace(effect, holder=containers[number])).make(value)
    return result


class _Fill:
    """Leaves of a nest -> what they stand for after a run.  An object, since a nested function that calls itself would
    keep the results until Python looks for cycles."""

    def __init__(self, captured: Captured, leaves: Sequence[Any], results: Any, containers: Sequence[Any]):
        self.captured, self.leaves, self.results, self.containers = captured, leaves, results, containers
        self.made: dict[int, Any] = {}

    def __call__(self, leaf: Any) -> Any:
        if isinstance(leaf, FromGraph):
            if leaf.name is None:
                return finished(self.results[leaf.index], leaf)
            if leaf.name not in self.made:
                self.made[leaf.name] = finished(self.results[leaf.index], leaf)
            return self.made[leaf.name]
        if isinstance(leaf, OneOf):
            return next(nest for p, nest in leaf.options if p is True or (p and self(p))).build(self)
        if isinstance(leaf, Shared):
            if leaf.name not in self.made:
                self.made[leaf.name] = leaf.nest.build(self)
            return self.made[leaf.name]
        if isinstance(leaf, RowsOf):
            count = self(leaf.count)
            rows = [self(x)[:count] for x in leaf.rows]
            return rows[0] if leaf.form is None else Rows(
                [element(leaf.form, iter(row)) for row in zip(*rows, strict=True)])
        if isinstance(leaf, FromSize):
            return evaluate(leaf.size, sizes_of(self.captured.types, self.leaves))
        if isinstance(leaf, FromContainers):
            return self.containers[leaf.number]
        return holder_of(leaf.source, self.leaves) if isinstance(leaf, FromOutside) else leaf


@dataclass
class Results:
    """The arrays that a program returned; a tensor is made of one only where somebody asks."""

    arrays: Sequence[np.ndarray]

    def __getitem__(self, k: int) -> Tensor:
        return Tensor(self.arrays[k])


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


def finished(result: Tensor, leaf: FromGraph) -> Any:
    """A result of the graph as the function would have returned it."""
    if leaf.number:
        return result.item()
    if leaf.requires_grad and not leaf.released and result.node is not None:
        return result
    tensor = Tensor(result.own.payload)
    tensor.own = TensorState(result.own.payload, leaf.requires_grad, None, RELEASED if leaf.released else None)
    return tensor


def why_not(captured: Captured, leaves: Sequence[Any]) -> str:
    """The first condition of a capture that a call does not meet, in words."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    for x, type in zip(tensors, captured.types, strict=True):
        if not fits(type, x.own.payload.shape, sizes):
            return f"an argument was {type} and is {x.type}"
    if not captured.assumptions.hold(sizes):
        return "a comparison of sizes came out differently"
    return captured.guards.failing() or "a tensor changed its type, or whether it requires a gradient"

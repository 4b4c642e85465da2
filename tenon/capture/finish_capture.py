"""A function that has returned -> its capture: what it leaves behind as results of the graph, and places for them."""

from __future__ import annotations

import types
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tenon.capture.argument_roots import on_argument, roots_of
from tenon.capture.captured import Captured, Inputs
from tenon.capture.changing_inputs import ChangingInputs
from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.code_names import module_of, names_of
from tenon.capture.collect_results import CollectedResults
from tenon.capture.conditional_gradients import goes_through_released, use
from tenon.capture.convert.converting_capture import ConvertingCapture
from tenon.capture.convert.phi_merge import TakenTensor
from tenon.capture.convert.tensor_list import FirstRows, TensorList
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.effects import MISSING, Effect
from tenon.capture.frame_locals import FrameLocals
from tenon.capture.guard_discovery import Reach
from tenon.capture.guard_places import CHANGING
from tenon.capture.guards import GuardGroup, is_atom
from tenon.capture.leaf_keys import aliases, leaf_key
from tenon.capture.opened_objects import is_made_of_attributes
from tenon.capture.output_effects import OutputEffects, Text, closed
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.pytree import LEAF, unfold
from tenon.capture.result_leaves import (
    FromArguments,
    FromContainers,
    FromGraph,
    FromOutside,
    FromSize,
    OneOf,
    ResultNest,
    RowsOf,
    Written,
)
from tenon.capture.runtime_numbers import RuntimeNumber, one_kind
from tenon.capture.symbolic_numbers import SYMBOLIC, SymNumber
from tenon.capture.trace import Capture, capturing
from tenon.dims.element_count import Size
from tenon.dims.size_assumptions import Assumptions
from tenon.dims.symbolic_dim import PinnedSize, SymbolicDim, is_by_data
from tenon.eager.gradient_hooks import place_of_hooks
from tenon.eager.tape import TapeNode
from tenon.graph.ir import SIZES, Graph, Value
from tenon.graph.value_devices import result_devices
from tenon.records import replace
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState, leaf_hooks
from tenon.types import TensorType

Choice: TypeAlias = "Tensor | tuple[Tensor, Choice, Choice]"
SMALLEST_IDENTITY = 1 << 16     # no object lies below: an address
SHARED = (type, types.ModuleType, types.BuiltinFunctionType, types.GenericAlias)


def conclude(capture: Capture, result: Any, changes: list[Effect], types: list[TensorType], reach: Reach,
             known: Container[int], tables: Container[int], arguments: Sequence[Any], assumptions: Assumptions,
             moving: ChangingInputs, sightings: FrameLocals) -> Captured:
    """Everything the captured call leaves behind, as results of the graph and places for them.

    `arguments` are the containers among them.  Raises UnsafeCall when the function leaves an object that is new in
    every call, and not among those `known` before, or one of the `tables` of their attributes.
    """
    left = CollectedResults(known, tables, (result, *(change.value for change in changes)) if changes else result)
    keys = [*(change.key for change in changes), *left.structure.all_labels()]
    if any(type(key) in SYMBOLIC for key in keys):
        raise UnsafeCall("a number or text that changes is a key")
    leaves = _Leaves(capture, moving, left, known, arguments)
    if any(map(leaves.is_made_anew, keys)):
        raise UnsafeCall("an object that is new in every call is a key")
    identities = _kept_identities(reach)
    if identities is not None:
        leaves.refuse_identities([*identities, *left.leaves, *(change.key for change in changes)])
    output = ResultNest(leaves.left.structure, tuple(map(leaves.leaf, leaves.left.leaves)), bool(changes))
    effects = [(change, number) if (number := leaves.numbers.get(id(change.holder))) is not None else
               leaves.on_place(change) or on_argument(change, leaves.roots) for change in changes]
    assigned, gradients = leaves.stores()
    differentiable = any(leaves.reaches(x.own) for x in leaves.tracked) or any(carries for _, _, carries in assigned)
    failed = None if capture.failed is False else leaves.index_of(capture.failed)
    output_effects = leaves.output_effects()
    ends = leaves.ends()
    with capturing(capture):
        _refuse_new_leaves(leaves.tracked, ends)
        _refuse_changed_leaves(capture, ends)
        _refuse_hooks(ends)
        flowing = [leaves.values[p] for x in ends if isinstance(p := x.payload, Value) and p in leaves.values]
        there = {source: leaves.index_of(flag) for source, flag in capture.gradients_by_data(ends).items()}
    graph, sources = capture.finish(list(leaves.values))
    if assumptions.by_data:
        graph.notes = {**graph.notes, SIZES: assumptions.by_data}
    held = [(seen.tensor, seen.tensor.own.requires_grad, seen.without_grad, seen.start.type,
             capture.devices.params.get(seen.start))
            for seen in capture.seen.values() if isinstance(seen.source, Held)]
    same = [(seen.source.position, seen.tensor) for key, seen in capture.seen.items()
            if isinstance(seen.source, Argument) and key in reach.tensors]
    further = moving.further()
    listed = [*moving.leaves, *(x for _, x in moving.tensors)]
    outside = reach.tensors.union(id(x) for x, *_ in held).difference(id(x) for _, x in same).union(identities or ())
    places = result_devices(graph)
    if places is not None and differentiable:
        raise UnsafeCall("a gradient goes back through a graph of several devices, from outside of it",
                         hint="call backward() in the function too")
    constants = () if capture.recorded or differentiable or capture.sized or places else _constants(sources, assigned)
    by_data = tuple((k, there[id(source)]) for k, source in enumerate(sources) if id(source) in there)
    wanted = _wanted(capture, graph, sources, flowing)
    if gradients:           # a hook of one of these leaves is to be called from now on
        reach.groups.append(GuardGroup(dict.values, leaf_hooks, tuple(leaf_hooks.values()), "hooks", sized=True))
    guards = reach.guards(leaves.roots)
    return Captured(graph, sources, [*types, *further.types], guards, assumptions, output, assigned,
                    gradients, effects, _flags(capture), differentiable, wanted, held, same, Inputs(sources),
                    frozenset(outside), _apart(reach, changes, leaves.numbers).union(identities or ()),
                    frozenset(reach.codes or ()),
                    constants, by_data, output_effects, failed,
                    values=tuple((k, x) for k, x in enumerate(moving.leaves) if type(x) in CHANGING),
                    prologue=further.prologue(guards.groups), further=further,
                    found=tuple((type(x), leaf_key(x)) for _, x in moving.tensors), aliases=aliases(listed),
                    sightings=sightings, derived=capture.gradients,
                    chosen=any(capture.may_be_another(x) for x in leaves.tracked), raising=_raised(capture))


def _raised(capture: Capture) -> tuple[BaseException | str, ...]:
    """What calls raise that run eagerly, or words for it where the data decide its text, or whether it is raised."""
    found: dict[Any, BaseException | str] = {}
    for x in getattr(capture, "raising", ()):
        if x is None:
            found[None] = ""
        elif all(type(arg) in (str, int, float, bool) for arg in x.args):
            found[type(x), x.args] = x.with_traceback(None)
        else:
            found[type(x)] = f"{type(x).__name__} with a text of the data"
    return tuple(found.values())


class _Leaves:
    """What the leaves of results and effects are to a call: results of the graph, tensors from outside, values."""

    def __init__(self, capture: Capture, moving: ChangingInputs, left: CollectedResults, known: Container[int],
                 arguments: Sequence[Any]):
        self.capture, self.moving, self.left, self.known = capture, moving, left, known
        self.values: dict[Value, int] = {}      # the results of the graph
        self.tracked: list[Tensor] = []
        self.numbers = {id(x): k for k, x in enumerate(arguments)}
        self.roots = roots_of(moving.leaves)
        self._released: dict[Any, bool] = {}
        self._reaching: dict[TapeNode, bool] = {}
        self._containers: dict[int, FromArguments] = {}
        self.taken = Taken(capture, left)
        self._gradients = {id(seen.state.grad): seen for seen in capture.seen.values() if seen.state.grad is not None}

    def index_of(self, tensor: Tensor) -> int:
        """Which result of the graph a tensor is."""
        payload = tensor.own.payload
        assert isinstance(payload, Value)
        return self.values.setdefault(payload, len(self.values))

    def is_made_anew(self, key: object) -> bool:
        """Whether a key means an object that another call has another one for."""
        target = key() if (is_weak := isinstance(key, weakref.ref)) else key
        if id(target) in self.numbers or (is_weak and (target is None or id(target) in self.roots)):
            return True
        if is_atom(target) or isinstance(target, SHARED) or id(target) in self.known:
            return False
        return is_weak or type(key).__hash__ is object.__hash__ or self._holds_new(key)

    def _holds_new(self, key: object) -> bool:
        """Whether a key that is equal to others is left elsewhere too, or holds what is new in every call."""
        leaves = unfold((key,), classes={type(key)} if is_made_of_attributes(key) else ())[0]
        own = {id(x) for x in self.moving.leaves}
        return id(key) in self.left.opened or any(
            type(x) in SYMBOLIC or (isinstance(x, Tensor) and (id(x) in own or id(x) not in self.known))
            for x in leaves)

    def refuse_identities(self, kept: Iterable[Any]) -> None:
        """The identity of an argument that is kept says nothing in a call with another one."""
        arguments = {id(x) for x in self.moving.leaves if not is_atom(x)}.union(self.numbers)
        if not arguments.isdisjoint(x for x in _flat(kept) if type(x) is int):
            raise UnsafeCall("the identity of an argument is kept")

    def one_of(self, x: UnionValue) -> OneOf:
        """A value that is one of several."""
        return OneOf(tuple((self.leaf(p), self.left.opened_later(y, self.leaf)) for p, y in x.options))

    def leaf(self, x: Any) -> Any:
        """What a leaf is to a call."""
        seen = self.capture.seen
        if id(x) in seen:
            return FromOutside(seen[id(x)].source)
        if id(x) in self.numbers:
            return FromContainers(self.numbers[id(x)])
        if id(x) in self.moving.copies:
            return self.container(x)
        if id(x) in self._gradients:
            source = self._gradients[id(x)].source
            assert not isinstance(source, GradientOf)
            return FromOutside(GradientOf(source))
        if issubclass(type(x), SymbolicDim):
            return self._counted(x) if is_by_data(x) else FromSize(x, getattr(x, "axes", None))
        if type(x) in SYMBOLIC:
            return x.value if x.numbers.is_specialized(x) else self.result(x)
        if type(x) in (TensorList, FirstRows):
            rows = x.rows if type(x) is TensorList else (x.rows,)
            return RowsOf(tuple(map(self.leaf, rows)), self.leaf(x.count), x.form if type(x) is TensorList else None)
        if id(x) in self.left.shared:
            return self.left.share(x, self.leaf)
        if type(x) is UnionValue:
            return self.one_of(x)
        if not (isinstance(x, Tensor) and isinstance(x.own.payload, Value)):
            return self._plain(x)
        return self._chosen(self.taken.of(x), x)

    def _chosen(self, choice: Choice, x: Tensor) -> Any:
        """A merged tensor, which may be another that is there too."""
        if not isinstance(choice, tuple):
            return self._made(x) if choice is x else self.leaf(choice)
        condition, *sides = choice
        then, other = [ResultNest(LEAF, (self._chosen(side, x),)) for side in sides]
        return OneOf(((self.leaf(RuntimeNumber(condition)), then), (True, other)))

    def _counted(self, x: SymbolicDim) -> FromGraph:
        """A size that the data decide."""
        with capturing(self.capture):
            return self._made(self.capture.seen_by_user(x))

    def result(self, x: SymNumber) -> FromArguments:
        """A number that is computed before the graph runs."""
        return FromArguments(self.moving.result(x))

    def container(self, x: Any) -> FromArguments:
        """A container that is another one in every call, as it stands in its place."""
        if id(x) not in self._containers:
            self._containers[id(x)] = FromArguments(self.moving.result(self.moving.copies[id(x)]))
        return self._containers[id(x)]

    def on_place(self, effect: Effect) -> tuple[Effect, int] | None:
        """An effect on such a container."""
        if id(effect.holder) not in self.moving.copies:
            return None
        return replace(effect, holder=None), -1 - self.container(effect.holder).position

    def output_effects(self) -> OutputEffects | None:
        """What the function printed."""
        found = list(enumerate(self.capture.output_effects))
        if not found:
            return None
        always = [(k, replace(x, leaves=tuple(map(self.given, x.leaves)))) for k, x in found if not x.noted]
        return OutputEffects(tuple(always), {k: x for k, x in found if x.noted})

    def given(self, x: Any) -> Any:
        """What belongs into a text: a number or size, or a tensor as it was then."""
        if not isinstance(x, Tensor):
            return self.leaf(x)
        number = type(x) is RuntimeNumber
        return FromGraph(self.index_of(x), x.own.requires_grad and not number, False, number=number,
                         kind=None if type(x) in (Tensor, RuntimeNumber) else type(x), is_leaf=True)

    def _written(self, text: Text) -> Written:
        given: list[Any] = []
        form = closed(text, given)
        return Written(form, tuple(map(self.given, given)))

    def _plain(self, x: Any) -> Any:
        if type(x) is Text:
            return self._written(x)
        if type(x) is Size:
            return x
        if x is SymbolicDim:
            raise UnsafeCall("a size is asked for its type", convertible=True)
        if id(x) in self.roots:
            return FromArguments(self.roots[id(x)])
        if type(x) is slice:
            self._check_slice(x)
        if not (is_atom(x) or id(x) in self.known or x is MISSING or isinstance(x, SHARED)
                or module_of(type(x)) == "typing"):
            raise UnsafeCall(f"the function makes an object of type {type(x).__name__}, new in every call")
        return x

    def _check_slice(self, x: slice) -> None:
        """That a slice is the same in every call; its sizes have to be numbers."""
        for part in (x.start, x.stop, x.step):
            if issubclass(type(part), SymbolicDim):
                raise PinnedSize(part)
            if not is_atom(part):
                raise UnsafeCall(f"the function makes a slice of a {type(part).__name__}, new in every call")

    def _made(self, x: Tensor) -> FromGraph:
        """A tensor that the function made."""
        self.tracked.append(one_kind(x))
        node, own = x.own.node, type(x) not in (Tensor, RuntimeNumber)
        if own and getattr(x, "__dict__", None):
            raise UnsafeCall(f"the function makes a tensor of class {type(x).__name__}, which has attributes")
        return FromGraph(self.index_of(x), x.own.requires_grad, node is not None and not self.carries(x.own),
                         self.left.name(x), x.weak is not None, type(x) if own else None, node is None,
                         None if x.own.grad is None else self.leaf(x.own.grad),
                         self.carries(x.own) and not self.reaches(x.own))

    def stores(self) -> tuple[list[tuple[Source, int, bool]], list[tuple[Source, int | OneOf | None]]]:
        """The tensors from outside that get new elements (and whether these carry a gradient), or another `.grad`."""
        assigned: list[tuple[Source, int, bool]] = []
        gradients: list[tuple[Source, int | OneOf | None]] = []
        for seen in self.capture.seen.values():
            if seen.assigned:
                payload = seen.state.payload
                assert isinstance(payload, Value)
                index = self.values.setdefault(payload, len(self.values))
                assigned.append((seen.source, index, self.carries(seen.state)))
            if seen.grad_changed:
                kept: Any = seen.state.grad
                gradients.append((seen.source, self.one_of(kept) if type(kept) is UnionValue else
                                  None if kept is None else self.index_of(kept)))
        return assigned, gradients

    def ends(self) -> list[Tensor]:
        """The tensors from which gradients flow back through the call."""
        outside = [seen.tensor for seen in self.capture.seen.values() if seen.assigned and self.carries(seen.state)]
        return [x for x in self.tracked if self.carries(x.own)] + outside

    def carries(self, state: TensorState) -> bool:
        """Whether a gradient can flow back: there is a tape, and backward() has not been through any of it."""
        return state.node is not None and not goes_through_released(state.node, self._released, self.capture.released)

    def reaches(self, state: TensorState) -> bool:
        """Whether it can flow to a tensor from outside, and not to leaves alone that the function made."""
        if state.node is None or not self.carries(state):
            return False
        if state.node not in self._reaching:
            self._reaching[state.node] = any(
                isinstance(x, Tensor) and x.own.requires_grad and x.own.node is None
                and id(x.slot) in self.capture.seen for node in state.node.tape() for x in node.inputs)
        return self._reaching[state.node]


class Taken:
    """Merged tensors that are left, and which of two each is, where another name for that can be told from a copy."""

    def __init__(self, capture: Capture, left: CollectedResults):
        self.capture, self.places = capture, left.places
        merged = isinstance(capture, ConvertingCapture) and bool(capture.taken)
        self.outer = {x for node in capture.builder.nodes for x in node.outputs} if merged else set()
        for x in left.tensors if merged else ():
            self._count(self.of(x), x)

    def of(self, x: Tensor) -> Choice:
        """What a tensor is: itself, or under a condition one and else another, each again such a choice."""
        found = self.capture.taken_for(x) if isinstance(self.capture, ConvertingCapture) else None
        return x if found is None else self._choice(found, x)

    def _choice(self, found: TakenTensor, x: Tensor) -> Choice:
        if found.condition.own.payload not in self.outer:
            return x
        then, other = self._side(found.then(), found.of_then, x), self._side(found.other(), found.of_other, x)
        return x if then is x and other is x else (found.condition, then, other)

    def _side(self, side: Tensor | None, merged: TakenTensor | None, x: Tensor) -> Choice:
        if side is not None and (id(side) in self.capture.seen or self.places[id(side)]):
            return side
        return x if merged is None else self._choice(merged, x)

    def _count(self, choice: Choice, x: Tensor) -> None:
        """Count what a merged tensor may be among what is left in several places."""
        if isinstance(choice, tuple):
            self._count(choice[1], x)
            self._count(choice[2], x)
        elif choice is not x:
            self.places[id(choice)] += 1


def _flags(capture: Capture) -> list[tuple[Source, bool]]:
    """The tensors from outside whose `requires_grad` is set."""
    return [(seen.source, seen.state.requires_grad) for seen in capture.seen.values()
            if seen.state.requires_grad != seen.tensor.own.requires_grad]


def _wanted(capture: Capture, graph: Graph, sources: Sequence[Source], flowing: Sequence[int]) -> tuple[int, ...]:
    """The inputs that require a gradient, and may get one."""
    requiring = {id(seen.source) for seen in capture.seen.values() if seen.tensor.own.requires_grad}
    late = {id(seen.source) for seen in capture.seen.values() if seen.state.requires_grad}.difference(requiring)
    found = [k for k, source in enumerate(sources) if (id(source) in requiring or id(source) in late) and any(
        use(graph, k, result) is not False for result in flowing)]
    if any(id(sources[k]) in late for k in found):
        raise UnsafeCall("the function sets requires_grad of a tensor, and leaves what it computed from it on the tape")
    return tuple(found)


def _kept_identities(reach: Reach) -> set[int] | None:
    """What may be the identity of something, among the integers that the code finds; None where it asks for none."""
    if not any("id" in names_of(code).global_names for code in reach.codes or ()):
        return None
    return {x for group in reach.groups for x in _flat(group.expected) if type(x) is int and x > SMALLEST_IDENTITY}


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and those in tuples."""
    for x in values:
        yield from _flat(x) if type(x) is tuple else (x,)


def _apart(reach: Reach, changes: Sequence[Effect], arguments: Mapping[int, int]) -> frozenset[int]:
    """The identities of what must not be a container among the arguments."""
    found = {id(g.holder) for g in reach.groups}.union(id(change.holder) for change in changes)
    return frozenset(found.difference(arguments)) if arguments else frozenset()


def _refuse_new_leaves(left: Sequence[Tensor], ends: Sequence[Tensor]) -> None:
    """A call on the tape gives gradients to its inputs, not to a leaf that the function made and left."""
    made = {id(x) for x in left if x.node is None and x.requires_grad}
    for end in ends if made else ():
        nodes = [] if end.node is None else end.node.tape()
        if any(id(x.slot) in made for node in nodes for x in node.inputs if isinstance(x, Tensor) and x.requires_grad):
            raise UnsafeCall("the function leaves a tensor that requires a gradient, beside what it computed from it",
                             passing=True)


def _refuse_changed_leaves(capture: Capture, ends: Sequence[Tensor]) -> None:
    """What a leaf was assigned has the gradient of the leaf; so it has where the graph says so."""
    changes = any(seen.assigned and seen.tensor.own.requires_grad for seen in capture.seen.values())
    for end in ends if changes else ():
        for x in (x for node in ([] if end.node is None else end.node.tape()) for x in node.inputs):
            seen = capture.changed_leaf(x, x.own) if isinstance(x, Tensor) and x.own.requires_grad else None
            if seen is not None and (seen.start, x.own.payload) not in capture.as_leaves:
                raise UnsafeCall("the function assigns a tensor that requires a gradient, and leaves what it computed "
                                 "from it on the tape")


def _refuse_hooks(ends: Sequence[Tensor]) -> None:
    """Gradients that come from outside pass by no hook."""
    for end in ends:
        place = None if end.node is None else place_of_hooks(end.node.tape())
        if place is not None:
            unsafe = UnsafeCall("the hook of a gradient is left on the tape", where=place[0], convertible=True,
                                hint="call backward() in the function too")
            unsafe.stack = place[1]
            raise unsafe


def _constants(sources: Sequence[Source], assigned: Sequence[tuple[Source, int, bool]]) -> tuple[int, ...]:
    """The inputs that every call finds as they are and leaves so: tensors from outside, such as weights."""
    own = {id(source) for source, _, _ in assigned}
    return tuple(k for k, source in enumerate(sources) if isinstance(source, Held) and id(source) not in own
                 and (source.own or isinstance(source.holder, Tensor)))

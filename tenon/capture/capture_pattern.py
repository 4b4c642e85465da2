"""A capture made for some objects among the arguments -> the same capture for others of equal structure.

Everything that guards read from such an object is numbered in the order in which it is found; a pattern names objects
by number and keeps none.  To bind it to others, the same is read from them: plain values must be equal, what is no part
of the object must be the same, parts must be of the same classes, and distinct where they were distinct.  What guards
do not describe (`tenon.capture.interchangeable_objects`) must be the same too.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenon.capture.argument_roots import direct, reference, roots_of, weakly
from tenon.capture.captured import Captured, Inputs
from tenon.capture.effects import MISSING
from tenon.capture.guard_places import (
    ARGUMENT,
    CHANGING,
    PART,
    SIZE,
    GuardPlace,
    changed,
    group_at,
    root_of,
    swapped,
    without,
)
from tenon.capture.guards import CLASS, GuardGroup, Guards, is_atom, same_atom
from tenon.capture.interchangeable_objects import interchangeable
from tenon.capture.parameter_sources import GradientOf, Held
from tenon.capture.prologue import Further
from tenon.capture.result_leaves import FromArguments, FromContainers, FromGraph, FromOutside, FromSize, OneOf
from tenon.records import dataclass, replace

ANY = object()      # what nobody looks at
SIMPLE = (FromGraph, FromOutside, FromArguments, FromContainers, FromSize)


@dataclass(frozen=True)
class Nth:
    """An object that belongs to the arguments, by its number."""

    number: int


@dataclass(frozen=True)
class GuardedRead:
    """`read(holder)` gives `expected`, among it numbered objects; the group says how it is called."""

    group: GuardGroup                # without its holder and what it expected
    holder: Nth
    expected: tuple[Any, ...]
    guarded: bool               # whether it is a condition, or only a way to further objects


class CapturePattern:
    """A capture without the objects that it was made for."""

    def __init__(self, captured: Captured, leaves: Sequence[Any]):
        finder = _found(captured, leaves)
        self.roots, self.reads, self.classes = finder.roots, finder.reads, finder.classes
        self.fixed, self.strangers = finder.fixed, finder.strangers
        numbers = finder.numbers
        self._sources: dict[int, Any] = {}

        def named(x: Any) -> Any:
            return Nth(numbers[id(x)]) if id(x) in numbers else x

        def ids(found: Iterable[int]) -> tuple[Any, ...]:
            return tuple([Nth(numbers[k]) if k in numbers else k for k in found])
        self.absent = [(named(table), names, path) for table, names, path in captured.guards.absent]
        self.sources = [self._source(s, named) for s in captured.sources]
        self.assigned = [(self._source(s, named), k, carries) for s, k, carries in captured.assigned]
        self.gradients = [(self._source(s, named), k) for s, k in captured.gradients]
        self.flags = [(self._source(s, named), flag) for s, flag in captured.flags]
        self.effects = [(replace(e, holder=named(e.holder), value=MISSING if e.value is MISSING else None), number)
                        for e, number in captured.effects]
        self.held = [(named(x), *more) for x, *more in captured.held]
        self.same = [(k, named(x)) for k, x in captured.same]
        self.outside, self.apart = ids(captured.outside), ids(captured.apart)
        self.leaves = [FromOutside(self._source(x.source, named)) if type(x) is FromOutside else named(x)
                       for x in captured.output.leaves]
        further = captured.further
        self.further = further and _replaced(further, named)
        self.base = replace(captured, sources=[], guards=Guards([]), assigned=[], gradients=[], effects=[], flags=[],
                            held=[], same=[], inputs=Inputs([]), constants=(), prologue=None, further=None, calls=0,
                            failures=0, fast_call=None, checked=-1, output=replace(captured.output, leaves=()),
                            outside=frozenset(), apart=frozenset())
        del self._sources

    def _source(self, source: Any, named: Callable[[Any], Any]) -> Any:
        """A source with its holder by number; one object for each, as before."""
        if id(source) not in self._sources:
            if isinstance(source, GradientOf):
                made: Any = GradientOf(self._source(source.source, named))
            else:
                made = Held(named(source.holder), source.own) if isinstance(source, Held) else source
            self._sources[id(source)] = made
        return self._sources[id(source)]

    def bind(self, leaves: Sequence[Any], arguments: Sequence[Any] = (),
             more: Sequence[GuardGroup] = ()) -> Captured | None:
        """The capture for the objects among these leaves, under more conditions; None where they are of another
        structure."""
        objects = self._objects(leaves, lambda expected, value: False)
        return None if objects is None else _Binding(self, objects, [*leaves, *arguments], more).captured()

    def keeps_argument(self) -> bool:
        """Whether an argument is like no other, which nothing outside keeps alive: nor shall the pattern."""
        return any(type(x) is not Nth and id(x) not in self.strangers for x, _ in self.roots)

    def changed(self, leaves: Sequence[Any]) -> list[GuardPlace]:
        """Where other numbers stand than in the objects before, if that is all that is different."""
        objects = self._objects(leaves, may_be_inputs)
        if objects is None:
            return []
        groups = [replace(r.group, holder=objects[r.holder.number], expected=r.expected)
                  for r in self.reads if r.guarded]
        arguments = [GuardPlace(ARGUMENT, None, k) for k, value in self.base.values
                     if type(leaves[k]) in CHANGING and not same_atom(leaves[k], value)]
        return [*arguments, *(place for place, before in changed(groups) if type(before) in CHANGING)]

    def _objects(self, leaves: Sequence[Any], may_differ: Callable[[Any, Any], bool]) -> list[Any] | None:
        objects: list[Any] = [None] * len(self.classes)
        taken: dict[int, int] = {}

        def fits(expected: Any, value: Any) -> bool:
            if type(expected) is not Nth:
                return expected is ANY or same_atom(value, expected) or may_differ(expected, value)
            n = expected.number
            if objects[n] is None and id(value) not in taken and type(value) is self.classes[n]:
                objects[n], taken[id(value)] = value, n
            return objects[n] is value and id(value) not in self.strangers
        if not all(fits(nth, leaves[k]) for nth, k in self.roots):
            return None
        for read in self.reads:
            try:
                values = tuple(read.group.read(objects[read.holder.number]))
            except Exception:
                return None
            if len(values) != len(read.expected) or not all(map(fits, read.expected, values)):
                return None
        return objects


def _found(captured: Captured, leaves: Sequence[Any]) -> _Finder:
    """What belongs to the arguments: all that is found from them, and in no other way."""
    shared: frozenset[int] = frozenset()
    while True:
        finder = _Finder(captured, leaves, shared)
        more = finder.strangers.intersection(finder.numbers)
        if not more:
            return finder
        shared |= more


class _Finder:
    """Numbers all that guards find from the arguments, but for what is `shared` with others."""

    def __init__(self, captured: Captured, leaves: Sequence[Any], shared: frozenset[int]):
        groups, self._shared = list(map(direct, captured.guards.groups)), shared
        self.numbers: dict[int, int] = {}
        self.classes: list[type] = []
        self.reads: list[GuardedRead] = []
        self._objects: list[Any] = []
        self._by_holder: dict[int, list[GuardGroup]] = {}
        further = captured.further
        places = [root_of(place) for place in [
            *further.tensors, *(place for place, _ in [*further.numbers, *further.nests])]] if further else []
        self._tables = {id(table) for table, _, _ in captured.guards.absent if type(table) is dict}
        self._tables |= {id(place.holder) for place in places if not isinstance(place.holder, type)}
        for group in groups:
            self._by_holder.setdefault(id(group.holder), []).append(group)
        self.roots = [(self.named(x), k) for k, x in enumerate(leaves) if reference(x) is not None]
        for n, x in enumerate(self._objects):       # which grows meanwhile
            self.open(Nth(n), x)
        self.fixed = [g for g in groups if id(g.holder) not in self.numbers]
        values = [x for g in self.fixed for x in (g.holder, *g.expected)]
        values += [x for read in self.reads for x in read.expected if type(x) is not Nth and not is_atom(x)]
        self.strangers = frozenset(map(id, values))

    def named(self, x: Any) -> Any:
        """A value by its number, where it belongs to the arguments; itself where it is to be the same for all."""
        if id(x) in self.numbers:
            return Nth(self.numbers[id(x)])
        belongs = interchangeable(x, id(x) in self._by_holder or id(x) in self._tables)
        lasting = type(x) is dict and "__builtins__" in x       # the globals of a module
        return self.number(x) if belongs and not (lasting or is_plain(x) or id(x) in self._shared) else x

    def number(self, x: Any) -> Nth:
        """The number of an object, the next one where it has none."""
        if id(x) not in self.numbers:
            self.numbers[id(x)] = len(self._objects)
            self._objects.append(x)
            self.classes.append(type(x))
        return Nth(self.numbers[id(x)])

    def open(self, nth: Nth, x: Any) -> None:
        """Note what is read of an object."""
        for group in self._by_holder.get(id(x), ()):
            if group.read is CLASS and type(group.expected[1]) is dict:
                self.number(group.expected[1])
            self.note(group, nth, group.expected, True)
        if isinstance(x, types.FunctionType):
            table, *others = parts_of_function(x)
            looked = id(table) in self._by_holder or id(table) in self._tables
            self.note(GuardGroup(parts_of_function, None, (), ""), nth, [table if looked else ANY, *others], False)
        elif isinstance(x, (tuple, types.MethodType)):
            read: Callable[[Any], Any] = tuple if isinstance(x, tuple) else parts_of_method
            self.note(GuardGroup(read, None, (), ""), nth, read(x), False)

    def note(self, group: GuardGroup, nth: Nth, expected: Sequence[Any], guarded: bool) -> None:
        bare = replace(group, holder=None, expected=())
        self.reads.append(GuardedRead(bare, nth, tuple(map(self.named, expected)), guarded))


class _Binding:
    """A pattern with objects in the place of numbers."""

    def __init__(self, pattern: CapturePattern, objects: Sequence[Any], leaves: Sequence[Any],
                 more: Sequence[GuardGroup]):
        self.pattern, self.objects, self.leaves, self.more = pattern, objects, leaves, more
        self._sources: dict[int, Any] = {}

    def of(self, x: Any) -> Any:
        return self.objects[x.number] if type(x) is Nth else x

    def source(self, source: Any) -> Any:
        if id(source) not in self._sources:
            if isinstance(source, GradientOf):
                made: Any = GradientOf(self.source(source.source))
            else:
                made = Held(self.of(source.holder), source.own) if isinstance(source, Held) else source
            self._sources[id(source)] = made
        return self._sources[id(source)]

    def ids(self, found: Iterable[Any]) -> frozenset[int]:
        return frozenset(id(self.of(x)) if type(x) is Nth else x for x in found)

    def further(self) -> Further | None:
        given = self.pattern.further
        return given and _replaced(given, self.of)

    def guards(self) -> Guards:
        made = [replace(r.group, holder=self.of(r.holder), expected=tuple(map(self.of, r.expected)))
                for r in self.pattern.reads if r.guarded]
        absent = [(self.of(table), names, path) for table, names, path in self.pattern.absent]
        return Guards(weakly([*made, *self.pattern.fixed, *self.more], roots_of(self.leaves)), absent)

    def captured(self) -> Captured:
        pattern, further, guards = self.pattern, self.further(), self.guards()
        sources = list(map(self.source, pattern.sources))
        output = replace(pattern.base.output, leaves=tuple([
            FromOutside(self.source(x.source)) if type(x) is FromOutside else self.of(x) for x in pattern.leaves]))
        return replace(
            pattern.base, sources=sources, inputs=Inputs(sources), guards=guards, output=output,
            assigned=[(self.source(s), k, carries) for s, k, carries in pattern.assigned],
            gradients=[(self.source(s), k) for s, k in pattern.gradients],
            flags=[(self.source(s), flag) for s, flag in pattern.flags],
            effects=[(replace(e, holder=self.of(e.holder)), number) for e, number in pattern.effects],
            held=[(self.of(x), *more) for x, *more in pattern.held],
            same=[(k, self.of(x)) for k, x in pattern.same],
            outside=self.ids(pattern.outside), apart=self.ids(pattern.apart), further=further,
            prologue=further and further.prologue(guards.groups))


def pattern_of(captured: Captured, leaves: Sequence[Any]) -> CapturePattern | None:
    """The pattern of a capture; None where it belongs to these arguments alone."""
    if not roots_of(leaves) or captured.places is not None:
        return None
    left = captured.output.leaves
    simple = all(type(x) in SIMPLE or type(x).__module__ != FromGraph.__module__ for x in left)
    chosen = any(isinstance(x, FromGraph) and x.grad is not None for x in left) or any(
        type(k) is OneOf for _, k in captured.gradients)
    told = captured.output_effects is not None and captured.output_effects.objects
    pattern = CapturePattern(captured, leaves) if simple and not chosen and not told else None
    return None if pattern is None or pattern.keeps_argument() else pattern


def may_be_inputs(x: Any, y: Any) -> bool:
    """Whether two values are numbers, or texts, of one type."""
    return type(x) in CHANGING and type(x) is type(y)


def rebound(captured: Captured, leaves: Sequence[Any]) -> Captured | None:
    """The capture for objects that now stand in places outside of the arguments; None where that is not possible."""
    groups = list(map(direct, captured.guards.groups))
    found = {place.name: (place, before) for place, before in swapped(groups)}
    if not found:
        return None
    rest = Guards(without(groups, found), captured.guards.absent)
    pattern = pattern_of(replace(captured, guards=rest), [before for _, before in found.values()])
    now = [place.read() for place, _ in found.values()]
    more = [group_at(place, x) for (place, _), x in zip(found.values(), now, strict=True)]
    return None if pattern is None else pattern.bind(now, leaves, more)


def is_plain(x: Any) -> bool:
    """Whether equality says all about a value."""
    return all(map(is_plain, x)) if type(x) is tuple else is_atom(x)


def _replaced(further: Further, other: Callable[[Any], Any]) -> Further:
    """What is read anew, with other objects in the place of these."""
    return replace(further, tensors=[_place(p, other) for p in further.tensors],
                   numbers=[(_place(p, other), x) for p, x in further.numbers],
                   nests=[(_place(p, other), form) for p, form in further.nests],
                   fixed=[(_place(p, other), other(x)) for p, x in further.fixed])


def _place(place: GuardPlace, other: Callable[[Any], Any]) -> GuardPlace:
    holder = _place(place.holder, other) if place.kind in (PART, SIZE) else other(place.holder)
    return replace(place, holder=holder)


def parts_of_function(function: types.FunctionType) -> tuple[Any, ...]:
    """All that a function is made of, its attributes first."""
    return (vars(function), function.__globals__, function.__code__, function.__defaults__, function.__kwdefaults__,
            function.__name__, function.__qualname__, *(function.__closure__ or ()))


def parts_of_method(method: types.MethodType) -> tuple[Any, ...]:
    return method.__self__, method.__func__

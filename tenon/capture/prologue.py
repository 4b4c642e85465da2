"""What a capture reads anew in every call -> one Python function that gives it to the graph, as further arguments.

    tensors, numbers, results = found in their places, computed for the graph, computed for what the call leaves

The function is source text made of the operations that `Numbers` noted, without those that nobody needs.  It gives None
where a condition does not hold, where the type of a number is another one, or where Python raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.capture.argument_roots import direct
from tenon.capture.changing_containers import ContainerForm
from tenon.capture.guard_places import ARGUMENT, CELL, CLASS, LENGTH, PART, SIZE, SLOT, GuardPlace
from tenon.capture.guard_readers import entry_of, looks_up_itself
from tenon.capture.guards import GuardGroup, same_atom
from tenon.capture.number_steps import NEVER_RAISES, Asked, Computed, Numbers, scalar
from tenon.capture.symbolic_numbers import SYMBOLIC, SymNumber
from tenon.graph.build import MAX_FINITE
from tenon.records import dataclass
from tenon.types import TensorType, float64

Prologue = Callable[[Sequence[Any]], "tuple[Any, ...] | None"]
SYMBOLS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&",
    operator.or_: "|", operator.xor: "^", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=",
}


@dataclass(frozen=True, eq=False)
class Further:
    """What is read anew in every call: tensors in places, numbers in places, and what is computed from these."""

    tensors: Sequence[GuardPlace]
    numbers: Sequence[tuple[GuardPlace, SymNumber]]
    read: Sequence[tuple[SymNumber, TensorType]]    # by the graph: as scalars, or as sizes of what nobody looks into
    results: Sequence[SymNumber | GuardPlace]       # that the call leaves, or changes
    program: Numbers                                # how they are computed
    nests: Sequence[tuple[GuardPlace, ContainerForm]]    # that hold some of them, and their forms
    fixed: Sequence[tuple[GuardPlace, Any]]              # what else these hold

    def form_at(self, place: GuardPlace) -> ContainerForm:
        """The form of the container in a place."""
        return next(form for other, form in self.nests if other.name == place.name)

    @property
    def types(self) -> list[TensorType]:
        """Of what the graph reads."""
        return [type for _, type in self.read]

    @property
    def copied(self) -> list[GuardPlace]:
        """The places of containers that can be changed."""
        return [place for place, form in self.nests if not issubclass(form.kind, tuple)]

    def prologue(self, guards: Sequence[GuardGroup]) -> Prologue | None:
        """The function of a call's leaves; None where there is nothing to do.

        A container that can be changed is none of those which the guards are about, which would be told apart from it.
        """
        moving = [x for _, x in self.numbers if not self.program.is_specialized(x)]
        needed = self.tensors or self.nests or self.read or self.results or moving
        apart = frozenset(id(direct(group).holder) for group in guards) if self.copied else frozenset()
        return _PrologueWriter(self, apart).function() if needed else None


class _PrologueWriter:
    """Writes the source text of a prologue; `scope` holds what it names."""

    def __init__(self, further: Further, apart: frozenset[int]):
        self.further, self.numbers, self.apart = further, further.program, apart
        self.scope: dict[str, Any] = {"array": np.array}
        self._names: dict[int, str] = {}

    def function(self) -> Prologue:
        further = self.further
        moving = [(place, x) for place, x in further.numbers if not self.numbers.is_specialized(x)]
        asked = [(place, x.value) for place, x in further.numbers
                 if place.kind == PART and self.numbers.is_specialized(x)]
        held = [self.held(place, form) for place, form in further.nests]
        held += [f"if not {self.name(same_atom)}({self.read(place)}, {self.name(value)}): return None"
                 for place, value in [*further.fixed, *asked]]
        held += self.told_apart()
        reads = [f"n{x.index} = {self.read(place)}" for place, x in moving]
        kinds = [f"if type(n{x.index}) is not {self.name(x.kind)}: return None" for _, x in moving]
        results = [*(self.read(place) for place in further.tensors),
                   *(self.converted(x, type) for x, type in further.read), *map(self.left, further.results)]
        lines = [*held, *reads, *kinds, *self.steps(), f"return ({', '.join(results)}{',' * (len(results) == 1)})"]
        body = "\n".join(f"        {line}" for line in lines)
        source = f"def prologue(leaves):\n    try:\n{body}\n    except Exception:\n        return None\n"
        exec(compile(source, "<tenon prologue>", "exec"), self.scope)
        made: Prologue = self.scope["prologue"]
        return made

    def read(self, place: GuardPlace) -> str:
        """The expression that reads a place."""
        if place.kind == ARGUMENT:
            return f"leaves[{place.key}]"
        if place.kind == PART:
            by_name = self.further.form_at(place.holder).has_attributes
            return f"{self.read(place.holder)}{'.__dict__' if by_name else ''}[{place.key!r}]"
        if place.kind == SIZE:
            return f"{self.read(place.holder)}.shape[{place.key}]"
        holder = self.name(place.holder)
        if place.kind == LENGTH:
            return f"len({holder})"
        if place.kind == CELL:
            return f"{holder}.cell_contents"
        if place.kind == SLOT:
            return f"{self.name(partial(GuardPlace.read, place))}()"
        if place.kind == CLASS:
            return f"{holder}.__dict__[{place.key!r}]"
        key = self.constant(place.key)
        return f"{self.name(entry_of)}({holder}, {key})" if looks_up_itself(place.holder) else f"{holder}[{key}]"

    def told_apart(self) -> list[str]:
        """The condition that there is one way to each container that can be changed."""
        read = [f"id({self.read(place)})" for place in self.further.copied]
        if not read:
            return []
        lines = [f"s = {{{', '.join(read)}}}", f"if not {self.name(self.apart)}.isdisjoint(s): return None"]
        return [*lines, f"if len(s) != {len(read)}: return None"] if len(read) > 1 else lines

    def left(self, x: SymNumber | GuardPlace) -> str:
        """A number or container that the call leaves."""
        return self.read(x) if isinstance(x, GuardPlace) else self.text(x)

    def held(self, place: GuardPlace, form: ContainerForm) -> str:
        """The condition that a container of this form stands in a place."""
        read = self.read(place)
        other = f"(*{read}{'.__dict__' if form.has_attributes else ''},) != {self.name(form.keys)}" \
            if form.kind is dict or form.has_attributes else f"len({read}) != {len(form.keys)}"
        return f"if type({read}) is not {self.name(form.kind)} or {other}: return None"

    def steps(self) -> list[str]:
        """What is computed and asked, as far as somebody needs it, or would notice that it raises."""
        left = [x for x in self.further.results if isinstance(x, SymNumber)]
        wanted = {x.index for x in [*left, *(x for x, _ in self.further.read)]}
        lines: list[str] = []
        for step in reversed(self.numbers.steps):
            moves = [x for x in step.args if type(x) in SYMBOLIC and not self.numbers.is_specialized(x)]
            if isinstance(step, Asked):
                needed = bool(moves) or any(type(x) in SYMBOLIC and x.index in self.numbers.specialized and
                                            x.roots != {x.index} for x in step.args)
            else:
                needed = step.index in wanted or (bool(moves) and step.function not in NEVER_RAISES)
            if not needed:
                continue
            wanted.update(x.index for x in step.args if type(x) in SYMBOLIC)
            lines += reversed(self.step(step))
        return list(dict.fromkeys(reversed(lines)))     # what is asked twice is asked once

    def step(self, step: Computed | Asked) -> list[str]:
        call = self.call(step.function, step.args)
        if isinstance(step, Computed):
            name = f"n{step.index}"
            checks = [f"if type({name}) is not {self.name(step.kind)}: return None"] if step.kind else []
            return [f"{name} = {call}", *checks]
        if isinstance(step.answer, bool):
            return [f"if not ({call}): return None" if step.answer else f"if {call}: return None"]
        return [f"if ({call}) != {self.constant(step.answer)}: return None"]

    def call(self, function: Callable[..., Any], args: Sequence[Any]) -> str:
        texts = list(map(self.text, args))
        if function in SYMBOLS:
            return f"{texts[0]} {SYMBOLS[function]} {texts[1]}"
        return f"{self.name(function)}({', '.join(texts)})"

    def text(self, x: Any) -> str:
        """A number: its variable, or what it is in all calls."""
        if type(x) not in SYMBOLIC:
            return self.constant(x)
        return self.constant(x.value) if x.roots <= self.numbers.specialized else f"n{x.index}"

    def constant(self, x: Any) -> str:
        plain = type(x) in (int, bool, str) or (type(x) is float and abs(x) < float("inf"))
        return f"({x!r})" if plain else self.name(x)

    def name(self, x: Any) -> str:
        if id(x) not in self._names:
            self._names[id(x)] = f"c{len(self._names)}"
            self.scope[self._names[id(x)]] = x
        return self._names[id(x)]

    def converted(self, x: SymNumber, type: TensorType) -> str:
        """The array of a number that the graph reads."""
        if type.shape:
            return f"{self.name(np.empty)}({self.text(x)}, bool)"
        dtype = type.dtype
        text, slowly = self.text(x), f"{self.name(scalar)}({self.text(x)}, {self.name(dtype)})"
        if dtype.kind in "iu" and x.kind is int:
            info = np.iinfo(dtype.numpy)
            return f"array({text}, {self.name(dtype.numpy)}) if {info.min} <= {text} <= {info.max} else {slowly}"
        if dtype.kind == "f" and dtype.numpy in MAX_FINITE:
            most = self.constant(MAX_FINITE[dtype.numpy])
            number = text if x.kind is float else f"float({text})"
            return f"array({number}, {self.name(dtype.numpy)}) if -{most} <= {text} <= {most} else {slowly}"
        if dtype is float64:
            return f"array(float({text}))"
        return slowly

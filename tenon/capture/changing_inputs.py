"""Places whose values change from call to call -> inputs of a capture, for the time of it.

A number is replaced by a `SymNumber` where it stands, and put back afterwards; a tensor stays, and is declared as one
more argument of the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.capture.changing_containers import ContainerForm, is_movable, part_at, part_keys, rebuilt
from tenon.capture.class_inspection import has_own
from tenon.capture.guard_places import ARGUMENT, CHANGING, LENGTH, PART, SIZE, GuardPlace, Key, root_of
from tenon.capture.number_steps import Numbers
from tenon.capture.prologue import Further
from tenon.capture.symbolic_numbers import SymNumber, Unmoved
from tenon.tensor import Tensor
from tenon.types import Shape


class ChangingInputs:
    """The inputs of one capture that stand in places, behind the `leaves` of the call's own arguments."""

    def __init__(self, places: Iterable[GuardPlace], leaves: Sequence[Any]):
        self.numbers, self.leaves = Numbers(), list(leaves)
        self.tensors: list[tuple[GuardPlace, Tensor]] = []
        self.found: list[tuple[GuardPlace, SymNumber]] = []
        self.results: list[SymNumber | GuardPlace] = []
        self.fixed: list[tuple[GuardPlace, Any]] = []        # what else stands in containers that change
        self.nests: list[tuple[GuardPlace, ContainerForm]] = []
        self.made: list[Any] = []                       # that stand in for these
        self.copied: list[tuple[GuardPlace, Any]] = []      # those that can be changed
        self.copies: dict[int, GuardPlace] = {}     # identity of what stands in for one of these
        self._put_in: list[tuple[GuardPlace, Any, Any]] = []
        for place in places:
            value = value_in(place, leaves)
            other = self._stand_in(place, value)
            if other is not value:
                self._put_in.append((place, other, value))

    def _stand_in(self, place: GuardPlace, value: Any) -> Any:
        """What stands in a place for the time of the capture."""
        if type(value) in CHANGING:
            self.found.append((place, self.numbers.input(value, place)))
            return self.found[-1][1]
        if is_free(value):
            self.tensors.append((place, value))
        elif type(value) is tuple or (value is not None and is_movable(value)):
            keys = part_keys(value)
            self.nests.append((place, ContainerForm(type(value), keys or ())))
            made = rebuilt(value, [self._stand_in(GuardPlace(PART, place, key), part_at(value, key))
                                   for key in keys or ()])
            self.made.append(made)
            if not isinstance(value, tuple):
                self.copied.append((place, value))
                self.copies[id(made)] = place
            return made
        elif place.kind == PART:
            self.fixed.append((place, value))
        return value

    @contextmanager
    def placed(self) -> Iterator[None]:
        """A block in which the numbers that change stand in their places."""
        try:
            for place, other, _ in self._put_in:
                self._put(place, other)
            yield
        finally:
            self.numbers.end()
            for place, _, value in self._put_in:
                self._put(place, value)

    def settle(self) -> None:
        """Let those that the program asked for be ordinary numbers again, and lengths that nobody asked for."""
        for place, x in self.found:
            if place.kind == LENGTH and id(place.holder) not in self.numbers.counted:
                self.numbers.know(x)
            if self.numbers.is_specialized(x) and place.kind != PART:
                self._put(place, x.value)

    def _put(self, place: GuardPlace, value: Any) -> None:
        if place.kind == ARGUMENT:
            self.leaves[place.key] = value
        elif place.kind == LENGTH:
            self.numbers.lengths[id(place.holder)] = value, len(place.holder)
        else:
            place.put(value)

    def size(self, tensor: int, axis: int, size: int) -> SymNumber:
        """A number that is the size of an axis of a tensor, by its place among the arguments and those in places."""
        arguments = [GuardPlace(ARGUMENT, None, k) for k, x in enumerate(self.leaves) if isinstance(x, Tensor)]
        place = GuardPlace(SIZE, [*arguments, *(place for place, _ in self.tensors)][tensor], axis)
        self.found.append((place, self.numbers.input(size, place)))
        return self.found[-1][1]

    @property
    def base(self) -> int:
        """How many arguments stand before the numbers that the graph reads."""
        return len(self.leaves) + len(self.tensors)

    @property
    def names(self) -> frozenset[Key]:
        """The places that every call reads anew."""
        numbers = [place for place, x in self.found if not self.numbers.is_specialized(x)]
        others = [place for place, _ in [*self.tensors, *self.nests]]
        return frozenset(place.name for place in [*numbers, *others] if place.kind != PART)

    def refuse_aliases(self, known: Container[int]) -> None:
        """What is copied for the time of the capture must not be found in another way."""
        counts = Counter(id(value) for _, value in self.copied)
        found = [root_of(place) for place, value in self.copied if id(value) in known or counts[id(value)] > 1]
        if found:
            raise Unmoved(found, "a container that changes from call to call is found elsewhere too")

    def result(self, x: SymNumber | GuardPlace) -> int:
        """Which argument is a number that the call leaves, or a container from a place; to be asked for when all that
        the graph reads is known."""
        self.results.append(x)
        return self.base + len(self.numbers.read) + len(self.results) - 1

    def further(self) -> Further:
        """What calls read anew."""
        read = [(x, type) for x, type, _ in self.numbers.read.values()]
        return Further([place for place, _ in self.tensors], self.found, read, self.results, self.numbers,
                       self.nests, self.fixed)


def value_in(place: GuardPlace, leaves: Sequence[Any]) -> Any:
    """What stands in a place in this call; None where that is gone."""
    try:
        return leaves[place.key] if place.kind == ARGUMENT else place.read()
    except Exception:
        return None


def tensors_in(places: Iterable[GuardPlace], leaves: Sequence[Any]) -> list[tuple[GuardPlace, Tensor]]:
    """The tensors that calls read anew, in the order in which they are arguments."""
    return ChangingInputs(places, leaves).tensors


def shapes_in(place: GuardPlace, value: Any) -> Iterator[tuple[Key, Shape]]:
    """The shapes of a tensor, or of those in a container, by the places that they are found in."""
    if isinstance(value, Tensor):
        yield place.name, value.own.payload.shape
    elif type(value) is tuple or is_movable(value):
        for key in part_keys(value) or ():
            yield from shapes_in(GuardPlace(PART, place, key), part_at(value, key))


def is_free(value: Any) -> bool:
    """Whether another tensor may be in the place of this one."""
    return isinstance(value, Tensor) and not has_own(value)

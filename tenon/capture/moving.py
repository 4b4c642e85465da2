"""Places whose values change from call to call -> inputs of a capture, for the time of it.

A number is replaced by a `SymNumber` where it stands, and put back afterwards; a tensor stays, and is declared as one
more argument of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.capture.classes import has_own
from tenon.capture.guard_places import ARGUMENT, LENGTH, NUMBERS, PART, GuardPlace, Key
from tenon.capture.prologue import Further
from tenon.capture.symbolic_numbers import Numbers, SymNumber
from tenon.tensor import Tensor


class Moving:
    """The inputs of one capture that stand in places, behind the `leaves` of the call's own arguments."""

    def __init__(self, places: Iterable[GuardPlace], leaves: Sequence[Any]):
        self.numbers, self.leaves = Numbers(), list(leaves)
        self.tensors: list[tuple[GuardPlace, Tensor]] = []
        self.found: list[tuple[GuardPlace, SymNumber]] = []
        self.results: list[SymNumber] = []
        self.fixed: list[tuple[GuardPlace, Any]] = []        # what else stands in tuples that change
        self.tuples: list[tuple[GuardPlace, int]] = []
        self.made: list[Any] = []                       # that stand in for these
        self._put_in: list[tuple[GuardPlace, Any, Any]] = []
        for place in places:
            value = value_in(place, leaves)
            other = self._stand_in(place, value)
            if other is not value:
                self._put_in.append((place, other, value))

    def _stand_in(self, place: GuardPlace, value: Any) -> Any:
        """What stands in a place for the time of the capture."""
        if type(value) in NUMBERS:
            self.found.append((place, self.numbers.input(value, place)))
            return self.found[-1][1]
        if is_free(value):
            self.tensors.append((place, value))
        elif type(value) is tuple:
            self.tuples.append((place, len(value)))
            made = tuple([self._stand_in(GuardPlace(PART, place, k), x) for k, x in enumerate(value)])
            self.made.append(made)
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
            if self.numbers.is_settled(x) and place.kind != PART:
                self._put(place, x.value)

    def _put(self, place: GuardPlace, value: Any) -> None:
        if place.kind == ARGUMENT:
            self.leaves[place.key] = value
        elif place.kind == LENGTH:
            self.numbers.lengths[id(place.holder)] = value, len(place.holder)
        else:
            place.put(value)

    @property
    def base(self) -> int:
        """How many arguments stand before the numbers that the graph reads."""
        return len(self.leaves) + len(self.tensors)

    @property
    def names(self) -> frozenset[Key]:
        """The places that every call reads anew."""
        numbers = [place for place, x in self.found if not self.numbers.is_settled(x)]
        others = [place for place, _ in [*self.tensors, *self.tuples]]
        return frozenset(place.name for place in [*numbers, *others] if place.kind != PART)

    def result(self, x: SymNumber) -> int:
        """Which argument is a number that the call leaves; to be asked for when all that the graph reads is known."""
        self.results.append(x)
        return self.base + len(self.numbers.scalars) + len(self.results) - 1

    def further(self) -> Further:
        """What calls read anew."""
        scalars = [(x, dtype) for x, dtype, _ in self.numbers.scalars.values()]
        return Further([place for place, _ in self.tensors], self.found, scalars, self.results, self.numbers,
                       self.tuples, self.fixed)


def value_in(place: GuardPlace, leaves: Sequence[Any]) -> Any:
    """What stands in a place in this call; None where that is gone."""
    try:
        return leaves[place.key] if place.kind == ARGUMENT else place.read()
    except Exception:
        return None


def tensors_in(places: Iterable[GuardPlace], leaves: Sequence[Any]) -> list[tuple[GuardPlace, Tensor]]:
    """The tensors that calls read anew, in the order in which they are arguments."""
    return Moving(places, leaves).tensors


def is_free(value: Any) -> bool:
    """Whether another tensor may be in the place of this one."""
    return isinstance(value, Tensor) and not has_own(value)

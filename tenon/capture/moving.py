"""Places whose values change from call to call -> inputs of a capture, for the time of it.

A number is replaced by a `SymNumber` where it stands, and put back afterwards; a tensor stays, and is declared as one
more argument of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.capture.classes import has_own
from tenon.capture.places import ARGUMENT, NUMBERS, Key, Place
from tenon.capture.prologue import Further
from tenon.capture.symnumber import Numbers, SymNumber
from tenon.tensor import Tensor


class Moving:
    """The inputs of one capture that stand in places, behind the `leaves` of the call's own arguments."""

    def __init__(self, places: Iterable[Place], leaves: Sequence[Any]):
        self.numbers, self.leaves = Numbers(), list(leaves)
        self.tensors: list[tuple[Place, Tensor]] = []
        self.found: list[tuple[Place, SymNumber]] = []
        self.results: list[SymNumber] = []
        for place in places:
            value = value_in(place, leaves)
            if type(value) in NUMBERS:
                self.found.append((place, self.numbers.input(value, place)))
            elif is_free(value):
                self.tensors.append((place, value))

    @contextmanager
    def placed(self) -> Iterator[None]:
        """A block in which the numbers that change stand in their places."""
        try:
            for place, x in self.found:
                self._put(place, x)
            yield
        finally:
            self.numbers.end()
            for place, x in self.found:
                self._put(place, x.value)

    def settle(self) -> None:
        """Let those that the program asked for be ordinary numbers again."""
        for place, x in self.found:
            if self.numbers.is_settled(x):
                self._put(place, x.value)

    def _put(self, place: Place, value: Any) -> None:
        if place.kind == ARGUMENT:
            self.leaves[place.key] = value
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
        return frozenset(place.name for place in [*numbers, *(place for place, _ in self.tensors)])

    def result(self, x: SymNumber) -> int:
        """Which argument is a number that the call leaves; to be asked for when all that the graph reads is known."""
        self.results.append(x)
        return self.base + len(self.numbers.scalars) + len(self.results) - 1

    def further(self) -> Further:
        """What calls read anew."""
        return Further([place for place, _ in self.tensors], self.found,
                       [(x, dtype) for x, dtype, _ in self.numbers.scalars.values()], self.results, self.numbers)


def value_in(place: Place, leaves: Sequence[Any]) -> Any:
    """What stands in a place in this call; None where that is gone."""
    try:
        return leaves[place.key] if place.kind == ARGUMENT else place.read()
    except Exception:
        return None


def is_free(value: Any) -> bool:
    """Whether another tensor may be in the place of this one."""
    return isinstance(value, Tensor) and not has_own(value)

"""Comprehensions, generators and `filter` with conditions on tensors -> elements that are there or not.

    [f(v) for v in x if v > 0]    ->    _tenon.filtered([_tenon.perhaps(v > 0, lambda: f(v)) for v in x])
    (f(v) for v in x if v > 0)    ->    _tenon.filtering(_tenon.perhaps(v > 0, lambda: f(v)) for v in x)

What takes such a generator in whole (`sum`, `list`, `max`) gets a list of its elements; `any`, `all` and `next` look at
one after the other, each only where the program would.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall, place_of
from tenon.capture.convert.capture_branches import decide
from tenon.capture.convert.optional_elements import either, is_perhaps, negated, presence, present, refused
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.effects import MISSING
from tenon.errors import user_location

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

END = object()


def perhaps_made(capture: ConvertingCapture | None, condition: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives where the condition holds, else MISSING."""
    if capture is None or not capture.is_data(condition):
        return make() if condition else MISSING
    return where_it_holds(capture, condition, make)


def where_it_holds(capture: ConvertingCapture, condition: Any, make: Callable[[], Any]) -> Any:
    """An element that there is, at most, where a condition of the graph holds; no variable can be MISSING."""
    found = decide(capture, condition, lambda: _with(UNBOUND, MISSING, make()), lambda: UNBOUND)
    capture.irregular = capture.undecided = True
    return _with(MISSING, UNBOUND, found)


def _with(new: Any, old: Any, x: Any) -> Any:
    """An element with another word for that it is not there."""
    if type(x) is UnionValue:
        return UnionValue(tuple([(p, new if option is old else option) for p, option in x.options]))
    return new if x is old else x


def without_missing(items: list[Any]) -> list[Any]:
    """The elements that are or may be there."""
    return [x for x in items if x is not MISSING]


class Filtered:
    """An iterator some of whose elements are there or not; Python itself can go through those that are."""

    def __init__(self, raw: Iterator[Any]):
        self.raw, self.passed = raw, 0

    def __iter__(self) -> Filtered:
        return self

    def __next__(self) -> Any:
        while True:
            x = self.step()
            if x is END:
                raise StopIteration
            if is_perhaps(x):
                raise refused("Python goes through a generator")
            if x is not MISSING:
                return x

    def __reduce__(self) -> Any:
        return Filtered, (self.passed, place_of(self.raw))

    @property
    def gi_frame(self) -> types.FrameType | None:
        """Where the generator stands."""
        return getattr(self.raw, "gi_frame", None)

    def step(self) -> Any:
        """The next element, MISSING where there is none for this item, END behind the last."""
        self.passed += 1
        return next(self.raw, END)

    def rest(self) -> list[Any]:
        """All elements that are left."""
        return without_missing(list(self.raw))


def opened(x: Any) -> Any:
    """A filtering generator as the list of its elements; anything else as it is."""
    return x.rest() if type(x) is Filtered else x


# ---------------------------------------------------------------- one element after the other

class ComprehensionSteps(OfCapture):
    """An iterator that only one question is put to, so that nobody sees how far it is."""

    def __init__(self, capture: ConvertingCapture, iterable: Iterable[Any], fresh: bool):
        self.capture, self.of, self.ended = capture, iter(iterable), False
        self.held = self.of is iterable and not fresh       # somebody may ask it again

    def next(self) -> Any:
        """The next element, or END."""
        x = self.of.step() if type(self.of) is Filtered else next(self.of, END)
        self.ended = self.ended or x is END
        return x

    def next_where(self, condition: Any) -> Any:
        """The next element where the condition of the graph holds, else MISSING."""
        def step() -> Any:
            x = self.next()
            return MISSING if x is END else x
        if self.held:
            raise UnsafeCall("how far a generator is depends on the data", where=user_location(),
                             hint="make the generator where it is used: any(... for x in items)")
        return where_it_holds(self.capture, condition, step)


def quantified(capture: ConvertingCapture, iterable: Iterable[Any], fresh: bool, ends: bool,
               truth: Callable[[Any], Any]) -> Any:
    """`any` (which ends with a true element) or `all` (with a false one)."""
    items = ComprehensionSteps(capture, iterable, fresh)
    hit: Any = False        # whether there was an element that ends it
    while True:
        if hit is False:
            x = items.next()
        else:
            x = items.next_where(negated(hit))
        if items.ended:
            return hit if ends else negated(hit)
        found = ends_with(capture, x, ends, truth)
        hit = either(hit, found)
        if hit is True:
            return ends


def ends_with(capture: ConvertingCapture, x: Any, ends: bool, truth: Callable[[Any], Any]) -> Any:
    """Whether an element, if it is there, ends the question."""
    there = presence(capture, x) if x is not MISSING else False
    if there is False:
        return False

    def ask() -> Any:
        found = truth(present(capture, x))
        return found if ends else negated(found)
    return ask() if there is True else decide(capture, there, ask, lambda: False)


def first(capture: ConvertingCapture, items: Filtered, fresh: bool, default: Any) -> Any:
    """`next(items, default)`; without a default, calls in which there is no element run eagerly."""
    steps, found, value = ComprehensionSteps(capture, items, fresh), False, UNBOUND
    while found is not True:
        x = steps.next() if found is False else steps.next_where(negated(found))
        if steps.ended:
            break
        there = presence(capture, x) if x is not MISSING else False
        if there is not False:
            value, found = chosen(capture, there, present(capture, x), value), either(found, there)
    if found is False and default is UNBOUND:
        raise StopIteration
    if default is UNBOUND:
        capture.fail_if_not(found)
        return value
    return default if found is False else value if found is True else chosen(capture, found, value, default)


def chosen(capture: ConvertingCapture, condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`."""
    return a if b is UNBOUND else decide(capture, condition, lambda: a, lambda: b)


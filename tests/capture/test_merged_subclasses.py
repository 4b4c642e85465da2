"""A container of a user's or a library's class that both arms of a condition make keeps class, items and attributes."""

import collections
from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn


class Named(dict):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.made = 1


class Listed(list):
    extra = 5


class Pair(tuple):
    def __new__(cls, a: Any, b: Any) -> Any:
        return super().__new__(cls, (a, b))


class Doubling(dict):
    def update(self, *args: Any, **named: Any) -> None:
        super().update(*args, **named)
        super().__setitem__("updates", super().get("updates", 0) + 1)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value * 2)


class Tenfold(list):
    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, [x * 10 for x in value] if isinstance(index, slice) else value * 10)

    def __iter__(self) -> Any:
        return iter([1, 2])


def equal_counters(x: Any) -> Any:
    if x.sum() > 7:
        found = collections.Counter([3, 3])
    else:
        found = collections.Counter([3, 3])
    return found


def counters(x: Any) -> Any:
    if x.sum() > 7:
        found = collections.Counter("ab")
    else:
        found = collections.Counter("aab")
    return found, sum(found.values())


def attributes_of_dictionaries(x: Any) -> Any:
    if x.sum() > 7:
        found = Named(a=1)
    else:
        found = Named(a=1)
        found.made = 2
    return found["a"] + found.made


def attributes_of_lists(x: Any) -> Any:
    if x.sum() > 7:
        found = Listed([x, x])
        found.extra = 1
    else:
        found = Listed([x, x + 1])
        found.extra = x.sum()
    return found[1] + found.extra, len(found)


def pairs(x: Any) -> Any:
    if x.sum() > 7:
        found = Pair(x, 1)
    else:
        found = Pair(x, 2)
    return isinstance(found, Pair), found[1] * x, type(found).__name__, found


def methods_of_dictionaries(x: Any) -> Any:
    if x.sum() > 7:
        found = Doubling(a=1)
    else:
        found = Doubling(a=2)
    found["b"] = x.sum()
    found.update(c=3)
    return sorted(dict.items(found))


def methods_of_lists(x: Any) -> Any:
    if x.sum() > 7:
        found = Tenfold([x.sum(), 3])
    else:
        found = Tenfold([x.mean(), 4])
    found[0] = x.max()
    found[0:1] = [x.min()]
    return found[0], found[1], len(found)


def pairs_in_a_loop(x: Any) -> Any:
    found = Pair(x, 1)
    while x.sum() > 7:
        x = x - 3
        found = Pair(x, found[1] + 1)
    return found[0], found[1], isinstance(found, Pair)


@pytest.mark.parametrize("function", [equal_counters, counters, attributes_of_dictionaries, attributes_of_lists, pairs,
                                      methods_of_dictionaries, methods_of_lists, pairs_in_a_loop])
def test_as_eagerly(function: Callable[..., Any]) -> None:
    jitted = tn.jit(function)
    for values in ([3.0, 3.0], [9.0, 9.0], [3.0, 3.0], [1.0, 1.0], [9.0, 1.0]):
        want, got = (f(tn.tensor(values)) for f in (function, jitted))
        assert repr(want) == repr(got) and type(want) is type(got)

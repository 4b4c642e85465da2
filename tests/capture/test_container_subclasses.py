"""Dictionaries, lists, queues and sets whose class says in Python what is read and stored: as without `@tn.jit`."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn

Make = Callable[[], Callable[[Any], Any]]


class Doubled(dict):
    """What is read is twice what is held."""

    def __getitem__(self, key):
        return super().__getitem__(key) * 2

    def get(self, key, default=None):
        return super().get(key, default)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)

    def __missing__(self, key):
        self[key] = 7.0
        return 7.0


class Quick(dict):
    """The same by other means, and attributes."""

    def __getitem__(self, key):
        return self.get(key, 0.0) * 2

    def __getattr__(self, key):
        return self[key]

    def __setattr__(self, key, value):
        self[key] = value


class Tagged(list):
    def append(self, value):
        super().append(value * 2)

    def __getitem__(self, key):
        return super().__getitem__(key)

    def pop(self, *at):
        return super().pop(*at)


class Odd(list):
    """What is gone through is not what is held."""

    def __getitem__(self, key):
        return self.copy()[key] * 2

    def __iter__(self):
        return iter([9.0])


class Front(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().move_to_end(key, last=False)


class Window(collections.deque):
    def append(self, value):
        super().append(value)

    def popleft(self):
        return super().popleft()


def reading() -> Callable[[Any], Any]:
    d = Doubled(x=2.0)
    return lambda x: x * d["x"] + len(d)


def a_number() -> Callable[[Any], Any]:
    d = Doubled(x=1.0)

    def f(x):
        d["x"] = d["x"] / 2 + 1
        return x * d["x"], d.get("x"), dict(d.items())
    return f


def a_tensor() -> Callable[[Any], Any]:
    d = Doubled(h=tn.zeros(2))

    def f(x):
        d["h"] = d["h"] * 0.25 + x
        return d["h"], d.get("h")
    return f


def attributes() -> Callable[[Any], Any]:
    q = Quick(t=tn.ones(()))

    def f(x):
        q.t = q.t + x.sum()
        q.n = q.t * 1
        return q.t, q.get("t"), len(q)
    return f


def a_list() -> Callable[[Any], Any]:
    items = Tagged([1.0])

    def f(x):
        items.append(x.sum())
        if len(items) > 3:
            items.pop(0)
        return items[0] + x, len(items), list(items)
    return f


def an_odd_list() -> Callable[[Any], Any]:
    items = Odd([1.0, tn.ones(())])

    def f(x):
        items.append(items[0])
        return x * items[1], len(items), list(items), items.copy()
    return f


def in_order() -> Callable[[Any], Any]:
    table = Front(x=1.0)

    def f(x):
        table["a"] = x.sum()
        table["b"] = table["x"]
        return list(table), table["a"]
    return f


def a_queue() -> Callable[[Any], Any]:
    queue = Window([1.0], maxlen=3)

    def f(x):
        queue.append(x.sum())
        queue.append(2.0)
        return queue.popleft(), list(queue)
    return f


@pytest.mark.parametrize("make", [reading, a_number, a_tensor, attributes, a_list, an_odd_list, in_order, a_queue])
def test_what_a_class_makes_of_its_items(make: Make) -> None:
    jitted, eager = tn.jit(make()), make()
    for k in range(6):
        x = tn.ones(2) * (k % 3)
        assert repr(jitted(x)) == repr(eager(x))


@pytest.mark.parametrize("make", [reading, a_number, a_tensor])
def test_super_is_no_act(make: Make) -> None:
    jitted = tn.jit(make())
    for _ in range(6):
        jitted(tn.ones(2))
    told = str(tn.explain(jitted)).splitlines()[0]
    assert told in ("function: 1 capture", "f: 2 captures", "f: 3 captures")

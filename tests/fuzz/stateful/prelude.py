"""What random programs stand on: it is copied before each, so that every program has globals and classes of its own."""

import bisect
import collections
import contextlib
import copy
import dataclasses
import functools
import heapq
import itertools
import math
import operator
import statistics
from contextlib import contextmanager
from typing import Any, NamedTuple

import tenon as tn

COUNT = [0]
LEVEL = 1
USED = (bisect, contextlib, copy, functools, heapq, itertools, math, operator, statistics)      # by the programs


class Odd(ValueError):
    pass


@dataclasses.dataclass
class Config:
    k: int = 1
    gain: float = 0.5


class Pair(NamedTuple):
    left: Any
    right: Any


class Net(tn.nn.Module):
    def __init__(self) -> None:
        self.linear = tn.nn.Linear(3, 3)
        for p in self.parameters():
            p.assign(tn.ones(p.shape) * 0.25)
        self.calls, self.hidden = 0, None
        self.register_buffer("mean", tn.zeros(3))

    def forward(self, x, keep=False):
        self.calls += 1
        y = tn.tanh(self.linear(x.float()))
        if self.training:
            self.mean = self.mean * 0.9 + y.detach().reshape(-1, 3).mean(0) * 0.1
        if keep:
            self.hidden = y if self.hidden is None else self.hidden * 0.5 + y.mean()
            y = y + self.hidden.mean()
        return y.double()


class Bag:
    def __init__(self):
        self.things, self.seen = {"a": 1, "b": 2}, []

    def __getitem__(self, key):
        self.seen.append(key)
        return self.things.get(key, 0)

    def __setitem__(self, key, value):
        self.things[key] = value

    def __contains__(self, key):
        return key in self.things

    def __len__(self):
        return len(self.things)

    def __call__(self, t, *more, scale=1):
        return t * scale + len(more)


class Base:
    scale = 1.5

    def __init__(self):
        self.count, self.rate, self.memory, self.items, self.steps, self.name = 0, 0.5, None, [], {"b": 2}, "step"
        self.flag = False
        self.w = tn.tensor([0.5, -1.0, 2.0], dtype=tn.float64)
        self.total = tn.tensor(0.0, dtype=tn.float64)
        self.p = tn.nn.Parameter(tn.tensor([1.0, 2.0], dtype=tn.float64))
        self.opt = tn.optim.SGD([self.p], lr=0.1)
        self._prop = 1.0

    def touch(self, t):
        self.count += 1
        return t + self.count

    @property
    def prop(self):
        return self._prop * 2

    @prop.setter
    def prop(self, value):
        self._prop = value


class Thing(Base):
    def __init__(self):
        super().__init__()
        self.config, self.pair, self.net, self.bag = Config(), Pair(1, 2.0), Net(), Bag()
        self.queue, self.tally = collections.deque([1, 2], maxlen=3), collections.Counter()

    def touch(self, t):
        return super().touch(t) * self.scale


class Scope:
    def __init__(self, thing):
        self.thing = thing

    def __enter__(self):
        self.thing.count += 10
        return self

    def __exit__(self, kind, error, trace):
        self.thing.count -= 9
        return kind is Odd


@contextmanager
def faster(thing):
    thing.rate += 1.0
    try:
        yield thing
    finally:
        thing.rate -= 1.0


def bump(by=1):
    global LEVEL
    LEVEL += by


def helper(t, k=1):
    return t - k if k > 2 else t * k + LEVEL


def walk(t, n):
    for i in range(n):
        if i > 3:
            return
        yield t * i


def many(*tensors, scale=1.0, **more):
    total = tensors[0].sum() * scale
    for t in tensors[1:]:
        total = total + t.mean()
    return total + len(more) + more.get("extra", 0)


def deep(t, n):
    return t if n <= 0 else deep(tn.sin(t) + n, n - 1)


def risky(t, n):
    if n > 2:
        raise Odd(f"n is {n}")
    return t * n


def final(t, n):
    try:
        return t * 2 if n > 1 else t
    finally:
        COUNT[0] += 1


@dataclasses.dataclass(slots=True)
class Slot:
    n: int
    t: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float = 0.5
    t: Any = 1.0


class Tracked:
    def __init__(self):
        self.__dict__.update(seen=[], value=0)

    def __setattr__(self, name, value):
        self.seen[:] = [*self.seen[-2:], name]
        self.__dict__[name] = value


class Limited:
    """A number in an object, between -2 and 2."""
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, thing, owner=None):
        return self if thing is None else thing.__dict__.get(self.name, 0.25)

    def __set__(self, thing, value):
        thing.__dict__[self.name] = min(max(value, -2.0), 2.0)


class Shelf(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


@functools.singledispatch
def describe(value):
    return 1


@describe.register
def _(value: int):
    return value + 2


def ticking():
    n = 0
    while True:
        yield n
        n += 1


def ticker(n=0):
    def tick(by):
        nonlocal n
        n += by
        return n
    return tick


class Keeping(Thing):
    kinds = (1,)
    limited = Limited()

    def __init__(self):
        super().__init__()
        self.words, self.scores, self.groups = {}, {"0.5": 0.5}, collections.defaultdict(list)
        self.chain = collections.ChainMap({"a": 1}, {"b": 2, "c": 3})
        self.heap, self.ranks, self.order = [2, 5], [0, 3], collections.OrderedDict(a=1, b=2, c=3)
        self.members, self.slot, self.frozen = {1, 2}, Slot(1, self.w * 2), Frozen(1)
        self.ticks, self.tick, self.tracked, self.best = ticking(), ticker(), Tracked(), 9.0
        self.table, self.past, self.log = {0: self.w}, collections.deque([self.w], maxlen=3), []
        self.act, self.shelf, self.grown = tn.sin, Shelf(), helper

    def __getattr__(self, name):
        if name == "ghost":
            return self.count + 7
        raise AttributeError(name)

    @functools.cached_property
    def area(self):
        return self.count * 2

"""What random programs stand on: it is copied before each, so that every program has globals and classes of its own."""

import collections
import dataclasses
import functools
import itertools
import math
import operator
from contextlib import contextmanager
from typing import Any, NamedTuple

import tenon as tn

COUNT = [0]
LEVEL = 1
USED = (functools, itertools, math, operator)       # by the programs


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

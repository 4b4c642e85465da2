"""The length of a list that the data prolong, beside numbers that change from call to call."""

import collections
import itertools
import math
from typing import Any

import pytest

import tenon as tn

INPUTS = [[1.0, -2.0], [3.0, 4.0], [-1.0, -1.0], [0.5, 0.1], [-3.0, 9.0], [-3.0, -3.0], [1.0, 1.0]]


class Holder:
    def __init__(self) -> None:
        self.listed: list[Any] = []


def kept(o: Holder, x: Any, n: int) -> Any:
    if x.sum() > 1:
        o.listed.append(x.sum())
    return x * n + len(o.listed)


def made(o: Holder, x: Any, n: int) -> Any:
    found = [v for v in x if v > 0] or [x[0]]
    return len(found) * n


def replaced(o: Holder, x: Any, n: int) -> Any:
    o.listed = [v for v in x if v > 0]
    return x * len(o.listed) + n


@pytest.mark.parametrize("f", [kept, made, replaced], ids=lambda f: f.__name__)
def test_a_length_is_that_of_this_call(f: Any) -> None:
    jitted = tn.jit(f)
    one, other = Holder(), Holder()
    for n, data in enumerate(INPUTS * 2):
        expected, found = f(one, tn.tensor(data), n), jitted(other, tn.tensor(data), n)
        assert getattr(found, "tolist", lambda x=found: x)() == getattr(expected, "tolist", lambda x=expected: x)()
        assert len(one.listed) == len(other.listed)


def positive(x: Any) -> list[Any]:
    return [v for v in x if v > 0]


class Counts(collections.Counter):
    pass


class Listed(list):
    pass


OF_OTHERS = {
    "pairwise": lambda x: list(itertools.pairwise(positive(x))),
    "chain": lambda x: sum(1 for _ in itertools.chain([v for v in x if v > 0], [1])),
    "accumulate": lambda x: list(itertools.accumulate([v for v in x if v > 0])),
    "Counter": lambda x: dict(Counts([1 for v in x if v > 0])),
    "fsum": lambda x: math.fsum([v for v in x if v > 0]),
    "hstack": lambda x: tn.hstack([v for v in x if v > 0] or [x[0]]),
    "Listed": lambda x: len(Listed(positive(x))),
}


@pytest.mark.parametrize("f", OF_OTHERS.values(), ids=OF_OTHERS)
def test_an_argument_is_the_first_that_the_data_prolong(f: Any) -> None:
    jitted = tn.jit(f)
    for data in INPUTS:
        assert str(jitted(tn.tensor(data))) == str(f(tn.tensor(data)))


def test_an_argument_has_as_many_elements_as_a_number_says() -> None:
    def f(x: Any, n: int) -> Any:
        return list(itertools.accumulate([x * k for k in range(n)]))
    jitted = tn.jit(f)
    for n in (1, 2, 3, 2):
        assert str(jitted(tn.ones(2), n)) == str(f(tn.ones(2), n))

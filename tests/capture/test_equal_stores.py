"""What a function sets to the value that is there already is set by later calls too, which find another one there."""

from typing import Any

import pytest

import tenon as tn

LEVEL: Any = 0


class Plain:
    shared: Any = 0

    def __init__(self) -> None:
        self.k, self.h, self.x = 0, None, None


class Slotted:
    __slots__ = ("h", "k", "x")

    def __init__(self) -> None:
        self.k, self.h, self.x = 0, None, None


def number(o, x, n):
    o.k = 0
    if n < 1:
        o.k = 1
    return x * 2


def nothing(o, x, n):
    o.h = None
    if float(n) < 0.5:
        o.h = x - 1
    return x


def flag(o, x, n):
    o.k = False
    if n < 1:
        o.k = True
    return x + 1


def computed(o, x, n):
    o.k = n * 0
    if n < 1:
        o.k = n + 5
    return x


def of_a_class(o, x, n):
    Plain.shared = 0
    if n < 1:
        Plain.shared = 7
    return x * 2


def of_the_module(o, x, n):
    global LEVEL
    LEVEL = 0
    if n < 1:
        LEVEL = 1
    return x * 2


def by_a_name(o, x, n):
    setattr(o, "k", 0)  # noqa: B010
    if n < 1:
        o.k = 4
    return x


def the_argument(o, x, n):
    o.h = x
    return x * 2


def by_the_data(o, x, n):
    o.k = 0
    if x.sum() > n:
        o.k = 1
    return x * 2


def run(f: Any, make: Any) -> list[Any]:
    global LEVEL
    LEVEL = Plain.shared = 0
    o, log = make(), []
    tensors = [tn.tensor([1.0, 2.0]), tn.tensor([3.0, 4.0])]
    for k, n in enumerate((2, 2, 0, 2, 2, -1, 3, 0, 0, 5)):
        result = f(o, tensors[k // 2 % 2], n)
        log.append((LEVEL, Plain.shared, o.k, type(o.k), o.h if o.h is None else o.h.tolist(), result.tolist()))
        if k == 6:
            o.h = tensors[0]
    return log


@pytest.mark.parametrize("make", [Plain, Slotted], ids=["attributes", "slots"])
@pytest.mark.parametrize("f", [number, nothing, flag, computed, of_a_class, of_the_module, by_a_name, the_argument,
                               by_the_data], ids=lambda f: f.__name__)
def test_a_store_that_changes_nothing_is_a_store(f: Any, make: Any) -> None:
    jitted = tn.jit(f)
    assert run(jitted, make) == run(f, make)
    assert sum(len(record.captures) for record in jitted.records.values()) <= 7

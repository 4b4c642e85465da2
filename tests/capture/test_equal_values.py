"""Python values that are equal, and not the same: whichever comes first, each means what it means in eager code."""

import gc
from fractions import Fraction
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

import tenon as tn
from tenon.cpython import object_layout

EQUAL = [(0, 0.0, -0.0, False, np.int64(0)), (1, 1.0, True, np.float64(1)), (np.float32(0), np.float32(-0.0)),
         (np.float16(-0.0), np.float16(0)), (0j, complex(-0.0, 0.0))]
held = {}


def scaled(x, number):
    return x * number, repr(number)


def same(found, wanted):
    """Whether results are the same to the bit, and of one type."""
    return found[0].dtype is wanted[0].dtype and found[0].numpy().tobytes() == wanted[0].numpy().tobytes() \
        and found[1] == wanted[1]


@pytest.mark.parametrize("function, argument", [
    (scaled, lambda number: number),
    (lambda x, pair: scaled(x, pair[1]), lambda number: (2, number)),
    (lambda x, table: scaled(x, next(iter(table))), lambda number: {number: None}),
    (lambda x, table: scaled(x, next(iter(table["a"]))[0]), lambda number: {"a": {(number, 1): None}}),
    (lambda x, number: scaled(x, held["number"]), lambda number: held.update(number=number)),
    (lambda x, number: scaled(x, next(iter(held["number"]))), lambda number: held.update(number=frozenset([number]))),
], ids=["argument", "in a tuple", "key", "key in a tuple", "global", "frozen set"])
@pytest.mark.parametrize("numbers", EQUAL, ids=str)
def test_equal_numbers_are_told_apart(function, argument, numbers):
    x = tn.tensor([1, 2, 3], dtype=tn.int32)
    for first, then in permutations(numbers, 2):
        jitted = tn.jit(function)
        for number in (first, then, then, first):
            given = argument(number)
            assert same(jitted(x, given), function(x, given)), (first, then, number)


def test_a_range_is_more_than_what_is_in_it():
    """range(0, 3, 2) == range(0, 4, 2)."""
    jitted = tn.jit(lambda x, numbers: x + numbers.stop)
    assert [jitted(tn.tensor([1]), range(0, stop, 2)).tolist() for stop in (3, 4, 3)] == [[4], [5], [4]]


def test_nan_is_captured_once():
    """nan != nan."""
    jitted = tn.jit(lambda x: x + held["number"])
    for _ in range(4):
        held["number"] = np.float32("nan")
        assert np.isnan(jitted(tn.tensor([1.0])).numpy()).all()
    assert sum(len(record.captures) for record in jitted.records.values()) == 1


def test_keys_that_cannot_be_compared_are_other_keys():
    jitted = tn.jit(lambda x, table: x + len(table))
    for key in (1, np.int64(1), Fraction(1), np.int64(1)):
        assert jitted(tn.tensor([1.0]), {key: None}).tolist() == [2.0]


def test_a_text_that_is_gone_is_not_told_apart_by_its_address():
    holder = SimpleNamespace(mode="".join(["a", "b"]))
    f = tn.jit(lambda x: x * (1 if holder.mode == "ab" else 2))
    for _ in range(4):
        f(tn.ones(1))
    address, holder.mode = id(holder.mode), "".join(["a", "b"])     # equal, and another object
    f(tn.ones(1))
    gc.collect()
    others = ["".join(["b", "a"]) for _ in range(10_000)]
    for other in [x for x in others if id(x) == address] or others[:1]:
        holder.mode = other
        assert f(tn.ones(1)).item() == 2.0


RATE = {"half": 0.5}


class Schedule:
    factor = 0.0


SCHEDULE, TABLE = Schedule(), {"factor": 0.0, "name": "x"}


@pytest.mark.skipif(not object_layout.READABLE, reason="this Python's objects cannot be read natively")
@pytest.mark.parametrize("place", ["argument", "keyword", "attribute", "item", "closure"])
def test_a_value_that_is_made_anew_for_each_call_takes_the_fast_path(place, monkeypatch):
    factor = 0.0

    def scaled(x, by=None):
        return x * {"attribute": SCHEDULE.factor, "item": TABLE["factor"], "closure": factor}.get(place, by)
    jitted, x, seen = tn.jit(scaled), tn.ones(3), []
    inner = jitted._find_and_run

    def call():
        nonlocal factor
        factor = SCHEDULE.factor = TABLE["factor"] = RATE["half"] * 0.5
        given = {"argument": (RATE["half"] * 0.5,)}.get(place, ())
        return jitted(x, *given, **({"by": RATE["half"] * 0.5} if place == "keyword" else {})).tolist()
    for _ in range(8):
        assert call() == [0.25] * 3
    monkeypatch.setattr(jitted, "_find_and_run", lambda *given: seen.append(1) or inner(*given))
    assert [call() for _ in range(4)] == [[0.25] * 3] * 4
    assert not seen
    monkeypatch.setitem(RATE, "half", -0.0)
    factor = SCHEDULE.factor = TABLE["factor"] = -0.0
    assert repr(jitted(x, -0.0)) == repr(scaled(x, -0.0)) and seen      # -0 is another value than 0


@pytest.mark.skipif(not object_layout.READABLE, reason="this Python's objects cannot be read natively")
def test_many_values_each_have_a_fast_path(monkeypatch):
    def named(x, name, flag):
        return x * len(name) if flag else x + {"a": 1, "bb": 2}.get(name, 3)
    jitted, x, seen = tn.jit(named), tn.ones(2), []
    calls = [(name, flag) for name in ("a", "bb", "ccc", "dddd", "eeeee") for flag in (True, False)]

    def right(given):
        return repr(jitted(x, *given)) == repr(named(x, *given))
    assert all(right(given) for _ in range(5) for given in calls)
    inner = jitted._find_and_run
    monkeypatch.setattr(jitted, "_find_and_run", lambda *given: seen.append(1) or inner(*given))
    assert all(right(given) for given in calls) and not seen
    assert right(("a", 1)) and right(("a", 0.0)) and right(("bb", tn.tensor(True))) and seen     # other types
    assert right(("a", True))


@pytest.mark.parametrize("function, makes", [
    (lambda x, s: x[s], [lambda: slice(0, 2), lambda: slice(0, 2.0 and 1), lambda: slice(None, 2)]),
    (lambda x, r: x[list(r)], [lambda: range(2), lambda: range(1, 3)]),
    (lambda x, z: x * z.real + z.imag, [lambda: complex(1, 2), lambda: complex(1, -0.0), lambda: complex(1, 0.0)]),
    (lambda x, s: x * len(s), [lambda: frozenset({1}), lambda: frozenset({1, 2}), lambda: frozenset({True})]),
    (lambda x, b: x * b[0], [lambda: bytes([1]), lambda: bytes([2])]),
])
def test_values_made_anew_for_each_call_take_a_fast_path(function, makes):
    jitted, x = tn.jit(function), tn.tensor([1.0, 2.0, -3.0])
    for k in range(6 * len(makes)):
        value = makes[k % len(makes)]()
        assert repr(jitted(x, value)) == repr(function(x, value))
    counts = [captured.calls for record in jitted.records.values() for captured in record.captures]
    assert max(counts) <= 3 and all(r.captures[-1].fast_call is not None for r in jitted.records.values())

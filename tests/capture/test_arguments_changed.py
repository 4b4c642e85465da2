"""Containers among the arguments: what the function changes in them it changes in the caller's, in every call."""

from collections import namedtuple
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pytest

import tenon as tn
from capture.both import outcome, same, vector
from tenon.capture.pytree import flatten, unfold
from tenon.errors import CaptureError

LOG = []


def check(function, make, calls=4, fullgraph=True):
    """Call the function eagerly and jitted, on arguments made anew and on those of the call before."""
    jitted = tn.jit(function, fullgraph=fullgraph)
    left, right = make(0), make(0)
    for k in range(calls):
        same(outcome(partial(function, *left)), outcome(partial(jitted, *right)), f"call {k}")
        same(left, right, f"arguments after call {k}")
        if k % 2:
            left, right = make(k), make(k)
    if fullgraph:
        assert all(record.eager is None for record in jitted.records.values())


@dataclass
class Point:
    x: object
    n: int = field(init=False)
    scale: ClassVar[float] = 2.0

    def __post_init__(self):
        self.n = 1


def test_lists_dictionaries_and_dataclasses():
    def f(items, table, point, x):
        items.append(x * 2)
        items[0] = items[0] + 1
        table["a"] = table.pop("b") + x
        point.x = point.x * point.n
        point.n += 1
        return len(items) * items[-1]
    check(f, lambda k: ([1.0 + k], {"b": vector(1.0), "c": 3}, Point(vector(2.0 + k)), vector(3.0)), calls=1)
    check(lambda items, x: items.append(x * len(items)), lambda k: ([], vector(1.0 + k)))


def test_under_a_condition_on_a_tensor():
    def f(items, x):
        if x.sum() > 0:
            items[0] = x * 2
        else:
            items[0] = items[1] * 3
        return items[0]
    check(f, lambda k: ([vector(1.0, 2.0), vector(3.0, 4.0)], vector(1.0 - k, 0.5)))


def test_the_container_itself_is_returned_or_kept():
    class Box:
        last = None

    box = Box()

    def f(items, x):
        items += [x]
        box.last = items
        return items, {"again": items}
    items = [1]
    first, second = tn.jit(f, fullgraph=True)(items, vector(1.0))
    assert first is items and second["again"] is items and box.last is items and len(items) == 2


def test_one_container_in_two_places():
    def f(a, b, x):
        a.append(x)
        return x * len(b) if a is b else -x * len(b)
    x = vector(1.0, 2.0)
    jitted = tn.jit(f, fullgraph=True)
    for _ in range(2):
        one = [1]
        assert jitted(one, one, x).tolist() == [2.0, 4.0] and len(one) == 2
        one, two = [1], [1]
        assert jitted(one, two, x).tolist() == [-1.0, -2.0] and (len(one), len(two)) == (2, 1)


def test_a_new_container_left_in_two_places_is_one():
    class Box:
        last = None

    box = Box()

    @tn.jit(fullgraph=True)
    def f(x):
        made = [x * 2]
        box.last = made
        return made, {"again": made}
    for _ in range(3):
        left, right = f(vector(1.0))
        assert left is right["again"] and left is box.last


def test_a_container_that_the_function_also_finds_elsewhere():
    def f(items, x):
        LOG.append(2)
        return x * len(items)
    jitted = tn.jit(f)
    for _ in range(3):
        LOG[:] = [1]
        assert jitted([7], vector(1.0)).tolist() == [1.0]
        assert jitted(LOG, vector(1.0)).tolist() == [3.0]
        assert LOG == [1, 2, 2]


def test_a_dataclass_is_what_it_is_now():
    def f(point):
        return point.x * point.n * point.scale + getattr(point, "extra", 0)
    jitted, point = tn.jit(f, fullgraph=True), Point(vector(1.0))
    assert jitted(point).tolist() == [2.0]
    point.n = 5
    assert jitted(point).tolist() == [10.0]
    point.extra = 3
    assert jitted(point).tolist() == [13.0]
    try:
        Point.scale = 7.0
        assert jitted(point).tolist() == [38.0]
    finally:
        Point.scale = 2.0


def test_methods_of_a_named_tuple_are_guarded():
    class Pair(namedtuple("Pair", "a b")):
        factor = 2.0

        def total(self):
            return (self.a + self.b) * self.factor
    jitted = tn.jit(lambda pair: pair.total(), fullgraph=True)
    assert jitted(Pair(vector(1.0), vector(2.0))).tolist() == [6.0]
    Pair.factor = 3.0
    assert jitted(Pair(vector(1.0), vector(2.0))).tolist() == [9.0]


def test_a_call_that_fails_has_changed_what_eager_code_changes():
    def f(items, x):
        items.append(x)
        if x.sum() > 0:
            raise ValueError("positive")
        items.append(x)
    check(f, lambda k: ([], vector(1.0 - 2 * (k % 3))))


def test_a_container_opened_once():
    inner = [1, 2]
    leaves, structure, found = unfold((inner, {"a": inner}))
    assert leaves == [1, 2] and found[0] is inner
    left, right = structure.build(leaves)
    assert left == inner and right["a"] is left
    assert flatten((inner, inner))[0] == [1, 2, 1, 2]


def test_what_cannot_be_told_apart_is_said():
    def f(items, x):
        LOG.append(x)
        return len(items)
    assert "elsewhere" in str(outcome(lambda: tn.jit(f, fullgraph=True)(LOG, vector(1.0))))
    assert outcome(lambda: tn.jit(f, fullgraph=True)(LOG, vector(1.0)))[0] is CaptureError


def averaged(state, x):
    state["mean"] = state["mean"] * 0.5 + x
    state["count"] += 1
    return state["mean"].sum() / state["count"]


def replaced(state, x):
    state["old"], state["mean"] = state["mean"], x * 2
    state["mean"][0] = 1.0
    return state["old"], state


def within(state, x):
    state["inner"][0].x = state["inner"][0].x + x
    state["inner"][0].n += 1
    state["inner"][1] = x.sum().item()
    return [state["inner"], x]


def appended_and_taken(state, x):
    state["inner"].append(x + 1)
    return state["inner"].pop(0)


@pytest.mark.parametrize("function", [averaged, replaced, within, appended_and_taken])
def test_calls_that_change_their_arguments_have_a_fast_path(function):
    def state():
        return {"mean": vector(0, 1), "old": vector(1, 1), "count": 1, "inner": [Point(vector(1, 2)), 0.5]}
    jitted, left, right = tn.jit(function, fullgraph=function is not appended_and_taken), state(), state()
    for k in range(12):
        if k == 8:
            left, right = state(), state()
        x = vector(k, 2)
        want, got = function(left, x), jitted(right, x)
        same(want, got, f"call {k}")
        same(left, right, f"state after call {k}")
        assert function is not replaced or (got[1] is right and got[0] is right["old"])
        assert function is not within or got[0] is right["inner"]
    if function is not appended_and_taken:
        assert jitted.records and all(r.captures[-1].fast_call is not None for r in jitted.records.values())


def test_a_fast_path_refuses_containers_that_are_one():
    def f(a, b, x):
        a["x"] = a["x"] + x
        b["x"] = b["x"] * 2
    jitted = tn.jit(f)
    for k in range(8):
        left, right = ({"x": vector(1, k)}, {"x": vector(2, k)}), ({"x": vector(1, k)}, {"x": vector(2, k)})
        if k == 6:
            left, right = (left[0], left[0]), (right[0], right[0])
        f(*left, vector(3, 4))
        jitted(*right, vector(3, 4))
        same(left, right, f"call {k}")


class Kept:
    best = None


def one_of_two(x, a, b):
    return a if x.sum() > 0 else b


def larger(x, a, b):
    return {"best": max(a, b, key=lambda item: float((item[0] * x).sum()))}


def those_that_fit(x, a, b):
    return [item for item in (a, b) if (item[0] * x).sum() > 0]


def argument_or_new(x, a, b):
    return a if x.sum() > 0 else [x]


def kept_on_an_object(x, a, b):
    Kept.best = a if x.sum() > 0 else b
    return x * 2


@pytest.mark.parametrize("function", [one_of_two, larger, those_that_fit, argument_or_new, kept_on_an_object])
def test_a_container_among_the_arguments_that_the_data_choose(function):
    jitted = tn.jit(function, fullgraph=True)
    for k in range(8):
        seen = []
        for called in (function, jitted):
            x, lists = vector(1.0, 2.0) * (-1) ** k, [[vector(1.0, 2.0)], [vector(-1.0, 3.0)]]
            found = called(x, *lists)
            whole = [found, Kept.best, *(found.values() if isinstance(found, dict) else found)]
            seen.append([[item is one for one in lists] for item in whole])
        assert seen[0] == seen[1], k

"""`id` of an argument: kept and looked up in another call, where it is that of another object."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest

import tenon as tn

CALLS = 12


@dataclasses.dataclass
class State:
    value: object


def x_of(k: int) -> tn.Tensor:
    return tn.tensor(np.arange(4, dtype=np.float32) + k)


def cached():
    found = {}

    def f(x):
        if id(x) not in found:
            found[id(x)] = x.sum()
        return found[id(x)] * x
    return f


def cached_of_state():
    found = {}

    def f(s):
        if id(s) not in found:
            found[id(s)] = s.value * 2
        return found[id(s)] + s.value
    return f


def same_as_last():
    last = [None]

    def f(x):
        same, last[0] = last[0] == id(x), id(x)
        return x * (2 if same else 1)
    return f


def without_repeats():
    def f(xs):
        seen, total = set(), 0
        for x in xs:
            if id(x) not in seen:
                seen.add(id(x))
                total = total + x
        return total
    return f


SHARED = x_of(3)


@pytest.mark.parametrize(("make", "new"), [
    (cached, x_of), (same_as_last, x_of), (cached_of_state, lambda k: State(x_of(k))),
    (without_repeats, lambda k: [SHARED, x_of(k), SHARED] if k % 2 else [x_of(k), x_of(k), SHARED])])
def test_identities_are_as_eager(make, new):
    def run(f):
        kept, found = [], []
        for k in range(CALLS):
            kept.append(new(k) if k % 3 != 2 else kept[-1] if k % 2 else kept[0])
            found.append(f(kept[-1]).tolist())
        return found
    assert run(tn.jit(make())) == run(make())


def test_shared_parameters_are_found_in_one_graph():
    compiled = tn.jit(without_repeats())
    for k in range(CALLS):
        compiled([SHARED, x_of(k), SHARED])
    assert sum(len(record.captures) for record in compiled.records.values()) == 1


def test_a_method_for_an_operator_that_a_class_gets_later():
    class Plain:
        pass
    given = Plain()
    f = tn.jit(lambda x: x * (2 if given else 1))
    assert f(tn.ones(1)).item() == f(tn.ones(1)).item() == f(tn.ones(1)).item() == 2
    Plain.__bool__ = lambda self: False
    assert f(tn.ones(1)).item() == 1


def test_the_dictionary_of_an_objects_attributes_is_left_as_it_is():
    class Counter:
        pass
    found = []
    for jit in (lambda f: f, tn.jit):
        counter, kept = Counter(), {}

        @jit
        def count(x, counter=counter, kept=kept):
            counter.n = getattr(counter, "n", 0) + x
            kept["all"] = counter.__dict__
            return vars(counter)
        for k in range(4):
            table = count(x_of(k))
            found.append((table is vars(counter), kept["all"] is table, table["n"].tolist()))
    assert found[:4] == found[4:]


@pytest.mark.parametrize("value", [1.0, 100.0])
def test_a_full_queue_that_grows_only_under_a_condition_keeps_what_it_had(value):
    queue = collections.deque([1, 2], maxlen=3)

    @tn.jit
    def step(x, queue):
        if x.sum() > 100:
            queue.append(7)
            queue.append(8)
        return x * 1
    step(tn.ones(3) * value, queue)
    assert list(queue) == ([2, 7, 8] if value == 100.0 else [1, 2])


@pytest.mark.parametrize("kind", [collections.Counter, lambda: collections.defaultdict(int)])
def test_a_key_that_is_set_only_under_a_condition_is_not_made_by_looking(kind):
    tally = kind()

    @tn.jit
    def step(x, tally, n):
        if x.sum() > 100:
            tally[n] += 1
        return x * 1
    for n in (1, 2, 3, 2):
        step(tn.ones(3) * (100.0 if n == 2 else 1.0), tally, n)
    assert dict(tally) == {2: 2}


def added_in_place(a, b, n):
    a += b * n
    b[0] = 7.0
    return a is b, a * 1, b.sum()


def a_product(a, b, n):
    return (a * b).sum() * n


def a_gradient(a, b, n):
    return tn.grad(lambda v: (v * b).sum() * n)(a)


def in_a_list(a, b, n):
    return sum(x.sum() for x in [a, b]) * n, [a, b]


@pytest.mark.parametrize("function", [added_in_place, a_product, a_gradient, in_a_list])
@pytest.mark.parametrize("numbers", [(2.0,), (1.0, 2.0, 3.0)])
def test_one_tensor_given_twice_takes_a_fast_path(function, numbers):
    jitted = tn.jit(function)
    for k in range(24):
        left, right = ([tn.tensor([1.0 + k, 2.0]), tn.tensor([3.0, k])] for _ in range(2))
        if k % 6 > 1:
            left, right = [left[0]] * 2, [right[0]] * 2
        n = numbers[k % len(numbers)]
        want, got = function(*left, n), jitted(*right, n)
        assert repr(got) == repr(want) and repr(left) == repr(right)
        if function is in_a_list:
            assert got[1][0] is right[0] and got[1][1] is right[1]
    assert all(record.captures[-1].fast_call is not None for record in jitted.records.values())

"""Containers of the standard library among the arguments, made anew for each call."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque

import numpy as np
import pytest

import tenon as tn


def x_of(k: int) -> tn.Tensor:
    return tn.tensor(np.arange(4, dtype=np.float32) + k)


def ordered(k: int) -> OrderedDict:
    return OrderedDict(b=x_of(k), a=float(k))


def counting(k: int) -> defaultdict:
    return defaultdict(float, a=x_of(k), b=0.5 * k)


def queue(k: int) -> deque:
    return deque([x_of(k), x_of(k + 1), float(k)], maxlen=3)


def captures(function) -> int:
    return sum(len(record.captures) for record in function.records.values())


@pytest.mark.parametrize("make", [ordered, counting, queue])
def test_one_made_anew_for_each_call_is_no_further_capture(make):
    def total(parts):
        values = parts.values() if isinstance(parts, dict) else parts
        return sum(v * 2 for v in values), parts
    compiled = tn.jit(total)
    for k in range(9):
        given = make(k)
        (found, same), (expected, _) = compiled(given), total(make(k))
        assert same is given
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert captures(compiled) <= 2


@pytest.mark.parametrize("compiled", [False, True])
def test_changes_are_made_in_the_container_of_the_call(compiled):
    def change(ordered, counting, queue):
        ordered.move_to_end("b")
        ordered["c"] = ordered["b"] * 2
        counting["new"] += 1.5
        queue.append(queue[0] + 1)
        return len(queue)
    run = tn.jit(change) if compiled else change
    for k in range(4):
        a, b, c = ordered(k), counting(k), queue(k)
        assert run(a, b, c) == 3
        assert [*a] == ["a", "b", "c"] and b["new"] == 1.5 and c.maxlen == 3
        np.testing.assert_array_equal(a["c"].numpy(), x_of(k).numpy() * 2)
        np.testing.assert_array_equal(c[-1].numpy(), x_of(k).numpy() + 1)


def test_another_factory_or_length_is_another_function():
    read = tn.jit(lambda x, counts: x + counts["gone"])
    for k in range(3):
        assert read(x_of(k), defaultdict(int, a=1))[0].item() == k
        assert read(x_of(k), defaultdict(lambda: 3, a=1))[0].item() == k + 3
    push = tn.jit(lambda x, queue: (queue.append(x), queue)[1])
    for k in range(3):
        assert len(push(x_of(k), deque([x_of(1)], 1))) == 1 and len(push(x_of(k), deque([x_of(1)]))) == 2


def test_results_keep_their_class():
    @tn.jit
    def split(x):
        found = defaultdict(list)
        found["a"].append(x + 1)
        return OrderedDict(z=x, y=x * 2), found, deque([x, x + 1], 5)
    for k in range(3):
        first, second, third = split(x_of(k))
        assert type(first) is OrderedDict and [*first] == ["z", "y"]
        assert type(second) is defaultdict and second.default_factory is list and second["b"] == []
        assert type(third) is deque and third.maxlen == 5
        np.testing.assert_array_equal(third[1].numpy(), x_of(k).numpy() + 1)


def test_gradients_of_an_ordered_dict():
    found = tn.grad(lambda parts: (parts["w"] ** 2).sum())(OrderedDict(w=x_of(1)))
    assert type(found) is OrderedDict
    np.testing.assert_array_equal(found["w"].numpy(), 2 * x_of(1).numpy())

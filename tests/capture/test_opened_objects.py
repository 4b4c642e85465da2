"""Objects among the arguments, made anew for each call: batches, namespaces, bound methods, partial functions."""

from __future__ import annotations

import functools
import types
import weakref
from collections import ChainMap, UserDict

import numpy as np
import pytest

import tenon as tn

CALLS = 24


class Batch:
    def __init__(self, k):
        self.x, self.scale, self.name = x_of(k), float(k), "batch"

    def to_row(self):
        return self.x * self.scale


class Slots:
    __slots__ = ("scale", "x")

    def __init__(self, k):
        self.x, self.scale = x_of(k), float(k)


class Both(Slots):
    def __init__(self, k):
        super().__init__(k)
        self.further = x_of(k + 1)


class Table(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


def x_of(k: int) -> tn.Tensor:
    return tn.tensor(np.arange(4, dtype=np.float32) + k)


def captures(function) -> int:
    return sum(len(record.captures) for record in function.records.values())


def of_attributes(b):
    return b.x * b.scale + 1


def of_entries(b):
    return b["x"] * b["scale"] + len(b)


def of_both(b):
    return b.x * b.scale + b.further


def namespace(k):
    return types.SimpleNamespace(x=x_of(k), scale=float(k))


MADE = {
    "batch": (Batch, of_attributes), "slots": (Slots, of_attributes), "both": (Both, of_both),
    "namespace": (namespace, of_attributes),
    "table": (lambda k: Table(x=x_of(k), scale=float(k)), of_entries),
    "userdict": (lambda k: UserDict(x=x_of(k), scale=float(k)), of_entries),
    "chainmap": (lambda k: ChainMap({"x": x_of(k)}, {"scale": float(k), "x": 0.0}), of_entries),
    "method": (lambda k: Batch(k).to_row, lambda f: f() + 1),
    "partial": (lambda k: functools.partial(lambda a, b: a * b, x_of(k), b=float(k)), lambda f: f()),
    "partial_method": (lambda k: functools.partial(Batch.to_row, Batch(k)), lambda f: f() * 2),
}


@pytest.mark.parametrize("name", MADE)
def test_objects_made_anew_for_each_call_need_few_captures(name):
    make, function = MADE[name]
    compiled = tn.jit(function)
    for k in range(CALLS):
        np.testing.assert_array_equal(compiled(make(k)).numpy(), function(make(k)).numpy(), str(k))
    assert captures(compiled) <= 4


@pytest.mark.parametrize("name", ["batch", "slots", "both", "namespace", "table", "userdict"])
def test_what_is_set_is_set_in_the_object_of_the_call(name):
    make, _ = MADE[name]
    entries = name in ("table", "userdict")

    def change(b):
        if entries:
            b["x"], b["seen"] = b["x"] + 1, 1
            del b["scale"]
        else:
            b.x = b.x + 1
            del b.scale
        return b
    compiled = tn.jit(change)
    for k in range(CALLS):
        given, beside = make(k), make(k)
        assert compiled(given) is given
        change(beside)
        if entries:
            assert list(given) == list(beside) == ["x", "seen"]
            np.testing.assert_array_equal(given["x"].numpy(), beside["x"].numpy())
        else:
            assert not hasattr(given, "scale")
            np.testing.assert_array_equal(given.x.numpy(), beside.x.numpy())
    assert captures(compiled) <= 4


def test_a_tensor_of_the_object_is_changed_in_place():
    @tn.jit
    def step(b):
        b.x += b.scale
        return b.x.sum()
    for k in range(CALLS):
        given = Batch(k)
        held = given.x
        total = step(given)
        assert given.x is held
        np.testing.assert_array_equal(held.numpy(), np.arange(4) + 2 * k)
        assert total.item() == held.sum().item()


def test_gradients_reach_the_tensors_of_the_object():
    @tn.jit
    def loss(b):
        found = (b.x ** 2).sum()
        found.backward()
        return found.item()
    for k in range(CALLS):
        given = Batch(k)
        given.x.requires_grad_()
        loss(given)
        np.testing.assert_array_equal(given.x.grad.numpy(), 2 * given.x.detach().numpy())


def test_one_object_in_two_places_stays_one():
    @tn.jit
    def both(a, b):
        a.x = a.x * 2
        return a is b, b.x.sum()
    for k in range(CALLS):
        given, other = Batch(k), Batch(k)
        same, found = both(given, given)
        assert same and found.item() == given.x.sum().item() == 2 * (6 + 4 * k)
        same, found = both(given, other)
        assert not same and found.item() == 6 + 4 * k


def test_objects_that_contain_each_other_are_as_they_were():
    class Node:
        def __init__(self, k):
            self.x, self.peer = x_of(k), self

    @tn.jit
    def total(n):
        return (n.peer.x * 2).sum()
    assert [total(Node(k)).item() for k in range(CALLS)] == [2 * (6 + 4 * k) for k in range(CALLS)]


def test_attributes_that_are_there_in_some_calls_only():
    @tn.jit
    def total(b):
        return b.x * getattr(b, "weight", 1.0)
    for k in range(CALLS):
        given = namespace(k)
        if k % 3 == 0:
            given.weight = 2.0 + k
        np.testing.assert_array_equal(total(given).numpy(), (np.arange(4) + k) * getattr(given, "weight", 1.0))


def test_a_class_that_changes_is_seen():
    class Scaled:
        factor = 2.0

        def __init__(self, k):
            self.x = x_of(k)

        def row(self):
            return self.x * self.factor
    compiled = tn.jit(lambda b: b.row())
    for k in range(CALLS):
        if k == 12:
            Scaled.factor = 3.0
        if k == 18:
            Scaled.row = lambda self: self.x - self.factor
        given = Scaled(k)
        np.testing.assert_array_equal(compiled(given).numpy(), given.row().numpy(), str(k))


def test_properties_setters_and_descriptors_run():
    class Guarded:
        def __init__(self, k):
            self._x, self.reads = x_of(k), 0

        @property
        def x(self):
            self.reads += 1
            return self._x

        @x.setter
        def x(self, value):
            self._x = value * 10

    @tn.jit
    def step(b):
        b.x = b.x + 1
        return b.x.sum()
    for k in range(CALLS):
        given = Guarded(k)
        assert step(given).item() == 10 * (6 + 4 * (k + 1))
        assert given.reads == 2


def test_a_subclass_with_state_of_its_own_beside_its_entries():
    class Counted(dict):
        total = 0

        def __setitem__(self, key, value):
            self.total += 1
            super().__setitem__(key, value)

    @tn.jit
    def fill(table):
        table["y"] = table["x"] * 2
        return table.total
    for k in range(CALLS):
        given = Counted(x=x_of(k))
        assert fill(given) == 1 == given.total
        np.testing.assert_array_equal(given["y"].numpy(), 2 * (np.arange(4) + k))
        assert fill(given) == 2 == given.total


def test_a_method_of_the_other_object_is_of_that_object():
    class Model:
        def __init__(self, weight):
            self.weight = weight

        def forward(self, x):
            return x * self.weight
    first, second = Model(2.0), Model(5.0)

    @tn.jit
    def apply(f, x):
        return f(x)
    for k in range(CALLS):
        model = (first, second)[k % 2]
        np.testing.assert_array_equal(apply(model.forward, x_of(k)).numpy(), (np.arange(4) + k) * model.weight)
    first.weight = 7.0
    np.testing.assert_array_equal(apply(first.forward, x_of(0)).numpy(), np.arange(4) * 7)


def test_what_a_method_changes_in_its_object_stays():
    class Meter:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def update(self, x):
            self.total = self.total + x.sum()
            self.count += 1
    meter = Meter()

    @tn.jit
    def step(update, x):
        update(x)
        return x + 1
    for k in range(CALLS):
        step(meter.update, x_of(k))
    assert meter.count == CALLS and meter.total.item() == sum(6 + 4 * k for k in range(CALLS))


def test_objects_that_hold_arrays_of_numpy_keep_them():
    class Sample:
        def __init__(self, k):
            self.values, self.more = np.arange(3.0) + k, [np.ones(2)]

    @tn.jit
    def scaled(b):
        return b.values * 2, b.more[0]
    for k in range(CALLS):
        found, more = scaled(Sample(k))
        assert type(found) is type(more) is np.ndarray
        np.testing.assert_array_equal(found, (np.arange(3) + k) * 2)


def test_an_argument_that_is_referred_to_weakly_goes_with_its_last_reference():
    references = []

    @tn.jit
    def count(b):
        references.append(weakref.ref(b))
        return b.x * len([r for r in references if r() is not None])
    for k in range(6):
        np.testing.assert_array_equal(count(Batch(k)).numpy(), np.arange(4) + k)


def test_an_object_made_in_the_call_is_a_key():
    marks, weak = {}, weakref.WeakKeyDictionary()

    @tn.jit
    def mark(b):
        marks.clear()
        marks[object()] = weak[b] = 1
        return b.x * len(weak)
    for k in range(6):
        before = list(marks)
        np.testing.assert_array_equal(mark(Batch(k)).numpy(), np.arange(4) + k)
        assert len(marks) == 1 and list(marks) != before


@pytest.mark.parametrize("make", [lambda k: (x_of(i) for i in range(k + 1)), lambda k: iter([x_of(k)]),
                                  lambda k: zip([x_of(k)], [3.0], strict=True)])
def test_what_can_never_be_captured_is_not_tried_for_ever(make):
    def total(items):
        return sum(x[0] * x[1] if isinstance(x, tuple) else x for x in items)
    compiled = tn.jit(total)
    for k in range(CALLS):
        np.testing.assert_array_equal(compiled(make(k)).numpy(), total(make(k)).numpy())
    assert len(compiled.records) <= 3


def test_a_frozen_set_is_a_value():
    @tn.jit
    def size(x, s):
        return x * len(s | {1})
    for k in range(CALLS):
        s = frozenset([k % 2, 5])
        np.testing.assert_array_equal(size(x_of(k), s).numpy(), (np.arange(4) + k) * len(s | {1}))
    assert captures(size) == 2

"""In which order sets and ordered dictionaries hold what they hold: code that goes through them finds it."""

from collections import OrderedDict

import pytest

import tenon as tn
from tests.capture.both import outcome, vector


def both(make, steps):
    """What calls with these arguments give, and what is left, eagerly and jitted."""
    told = []
    for jit in (lambda f: f, tn.jit):
        function, left = make(jit)
        told.append([(repr(outcome(lambda f=function, x=x: f(*x))), left()) for x in steps])
    assert told[1] == told[0]


def in_turn(*members):
    made = set()
    for x in members:
        made.add(x)
    return made


def sparse(*members):
    """A set that had many more members: it is laid out in a larger table."""
    made = set(range(40))
    for x in range(40):
        if x not in members:
            made.discard(x)
    return made


def test_an_ordered_dictionary_is_moved_about():
    def make(jit):
        table = OrderedDict(a=1, b=2, c=3)
        function = jit(lambda x: x * next(iter(table.values())))
        def step(key):
            table.move_to_end(key)
            return function(vector(1.0))
        return step, lambda: list(table)
    both(make, [("c",), ("c",), ("c",), ("a",), ("a",), ("b",), ("c",)])


def test_the_order_of_a_set_outside():
    def make(jit):
        found = set()
        function = jit(lambda x: (x * next(iter(found)), list(found)))
        def step(members):
            found.clear()
            for x in members:
                found.add(x)
            return function(vector(1.0))
        return step, lambda: list(found)
    both(make, [([0, 8],), ([0, 8],), ([0, 8],), ([8, 0],), ([0.0, 8],), ([False, 8],), ([8, 0],)])


@pytest.mark.parametrize("kind", [set, frozenset])
def test_the_order_of_a_set_that_is_given(kind):
    given = [in_turn(0, 8), in_turn(0, 8), in_turn(8, 0), in_turn(8, 0), in_turn(0.0, 8), {1}, {True}, {1.0},
             in_turn(9, 16), sparse(9, 16)]
    def make(jit):
        return jit(lambda members: (vector(1.0) * next(iter(members)), list(members))), list
    both(make, [(kind(x) if kind is frozenset else x,) for x in given])


def test_the_order_of_a_set_in_an_object_that_is_given():
    class Batch:
        def __init__(self, members):
            self.x, self.members = vector(1.0), members

    def make(jit):
        function = jit(lambda batch: (batch.x * next(iter(batch.members)), list(batch.members)))
        return lambda members: function(Batch(members)), list
    both(make, [(x,) for x in (in_turn(0, 8), in_turn(0, 8), {1}, {True}, {1.0}, in_turn(9, 16), sparse(9, 16))])


def test_a_set_grows_and_shrinks_as_it_does_eagerly():
    def make(jit):
        found = set()
        @jit
        def step(x, k):
            found.add(k)
            found.discard(k - 5)
            return x * next(iter(found)), list(found)
        return lambda k: step(vector(1.0), k), lambda: list(found)
    both(make, [(k,) for k in (20, 3, 40, 17, 9, 33, 22, 4, 65, 14)])


def test_an_attempt_at_a_capture_leaves_a_set_as_it_was_laid_out():
    def make(jit):
        found = sparse(9, 16, 24, 33)
        @jit
        def step(x, more):
            if more:
                found.add(more)
            return x * next(iter(found)), list(found)
        return lambda more: step(vector(1.0), more), lambda: list(found)
    both(make, [(0,), (0,), (50,), (0,), (0,)])


def test_a_member_is_replaced_by_one_that_is_equal():
    def make(jit):
        found = {1, 2}
        @jit
        def step(x, member):
            found.discard(member)
            found.add(member)
            return x
        return lambda member: step(vector(1.0), member), lambda: repr(found)
    both(make, [(x,) for x in (1, True, 1.0, 1, 1.0, 2, 7)])

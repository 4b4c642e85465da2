"""`tn.tree`: nests are opened, put together again, and compared."""

from collections import namedtuple
from dataclasses import dataclass

import pytest

import tenon as tn
from tenon.errors import ArgumentError

Pair = namedtuple("Pair", "first second")


@dataclass
class State:
    weight: object
    more: list


NESTS = [3, [], [1, (2, {"a": None})], {"b": 1, "a": [2]}, Pair(1, [2, 3]), State(1, [Pair(2, 3)]), {1: 0, 1.5: 2}]


@pytest.mark.parametrize("nest", NESTS, ids=repr)
def test_what_was_opened_is_put_together_again(nest):
    leaves, structure = tn.tree.flatten(nest)
    assert tn.tree.unflatten(structure, leaves) == nest
    assert tn.tree.structure(nest) == structure and tn.tree.leaves(nest) == leaves
    assert tn.tree.map(lambda x: x, nest) == nest


def test_leaves_are_mapped_together_and_may_stand_for_nests():
    assert tn.tree.map(lambda p, g, h: (p, g, h), {"a": 1, "b": [2]}, {"a": 3, "b": [4]}, {"a": [5, 6], "b": [7]}) \
        == {"a": (1, 3, [5, 6]), "b": [(2, 4, 7)]}


@pytest.mark.parametrize("other", [[1, 2, 3], (1, 2), {"a": 1}, 1, [1, [2], 3]], ids=repr)
def test_other_structures_are_refused(other):
    with pytest.raises(ArgumentError, match="nest 1 of the others"):
        tn.tree.map(lambda x, y: x, [1, 2], other)


def test_too_few_leaves_are_refused():
    structure = tn.tree.structure([1, 2])
    with pytest.raises(ArgumentError, match="has 2 leaves, 1 are given"):
        tn.tree.unflatten(structure, [1])


def test_a_step_on_a_nest_of_parameters_is_one_graph():
    params = {"w": tn.ones(3), "b": [tn.zeros(())]}

    def step(params, x):
        grads = tn.grad(lambda p: ((x @ p["w"] + p["b"][0]) ** 2).mean())(params)
        return tn.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    x = tn.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    found = tn.jit(step, fullgraph=True)(params, x)
    assert tn.tree.structure(found) == tn.tree.structure(params)
    tn.testing.assert_close(found, step(params, x))


def test_leaves_are_reduced_and_asked():
    assert tn.tree.reduce(lambda a, b: a + b, {"a": 1, "b": (2, 3)}) == 6
    assert tn.tree.all([True, (1,)]) and not tn.tree.all([True, (0,)]) and tn.tree.all([])
    assert tn.tree.leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), 3]


def test_an_element_type_is_a_leaf_and_stays_itself():
    assert tn.tree.flatten((tn.float16, [tn.int32]))[0] == [tn.float16, tn.int32]
    jitted = tn.jit(lambda x, d: (x.to(d), x.to(d).dtype, {"of x": x.dtype}, tn.zeros(2, dtype=d), d is tn.float16))
    x = tn.arange(1, 6).astype("float32")       # another object like float16 gave zeros
    for dtype in (tn.float64, tn.float16, tn.int32, tn.bfloat16, tn.float16):
        y, its, of, zeros, is_half = jitted(x, dtype)
        assert y.tolist() == [1, 2, 3, 4, 5] and y.dtype is its is dtype is zeros.dtype
        assert of["of x"] is tn.float32 and is_half is (dtype is tn.float16)

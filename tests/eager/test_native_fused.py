"""Steps of recipes that machine code makes as one: the bits that NumPy gives step by step."""

import sys

import numpy as np
import pytest

import tenon as tn
from tenon.eager import recipes
from tenon.eager.recipes import recipe_of
from tenon.graph.build import Builder
from tenon.graph.interpret import interpret
from tenon.graph.op import using
from tenon.types import TensorType, as_dtype

pytestmark = pytest.mark.usefixtures("machine_code")
SPECIAL = [0.0, -0.0, 1.0, -1.5, 1e-42, 3e38, np.inf, -np.inf, np.nan, -np.nan]
SHAPES = [(), (1,), (7,), (1023,), (1024,), (1025,), (3, 700), (64, 64), (16384,), (2, 1, 5)]
BUILTIN = type(len)


def graph_of(function, *types):
    builder = Builder("f", rewriting=True)
    params = [builder.parameter(t) for t in types]
    with using(builder):
        out = function(*params)
    return builder.finish(list(out) if isinstance(out, tuple) else [out])


def drawn(shape, dtype, seed):
    random = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        x = np.where(random.random(shape) < 0.7, random.standard_normal(shape), random.choice(SPECIAL, shape)).astype(dtype)
    return np.asarray(x)


def sigmoid_of(x):
    e = tn.exp(-tn.abs(x))
    return tn.where(x >= 0, 1, e) / (e + 1)


def many_values(x, y):
    """More than there is room for, which are all read again at the end."""
    found = [x * float(k) + y for k in range(12)]
    total = found[0]
    for z in found[::-1]:
        total = total * z
    return total


FUNCTIONS = {
    "sigmoid": (sigmoid_of, 1), "two results": (lambda x, y: (x * 2.0 + y, (x - y) * (x - y) * 0.5), 2),
    "a result read again": (lambda x, y: (z := x * y, tn.sqrt(tn.abs(z)) + z), 2),
    "flags": (lambda x, y: (x > y, tn.where(x > y, x, y) - 1.0), 2), "products": (lambda x, y: (x * y + x) / (y - x), 2),
    "extremes": (lambda x, y: tn.minimum(tn.maximum(x, -1.0), 1.0) * tn.maximum(x, y), 2), "many values": (many_values, 2),
    "a view between": (lambda x: (x * 2.0 + 1.0).reshape(-1) * 3.0 + 1.0, 1),
    "one after the other": (lambda x: tn.sqrt(tn.exp(tn.negative(tn.abs(tn.negative(x))))) + x, 1),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_steps_made_as_one_give_the_bits_of_numpy(name, dtype):
    function, count = FUNCTIONS[name]
    for shape in SHAPES:
        graph = graph_of(function, *[TensorType(as_dtype(np.dtype(dtype)), shape)] * count)
        recipe, arrays = recipe_of(graph), [drawn(shape, dtype, k) for k in range(count)]
        kept = [x.copy() for x in arrays]
        for _ in range(2):
            with np.errstate(all="ignore"):
                expected = interpret(graph, arrays)
            for found, wanted in zip(recipe.run(arrays), expected, strict=True):
                assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes()), shape
        assert [x.tobytes() for x in arrays] == [x.tobytes() for x in kept]


def test_sigmoid_is_one_step_and_what_is_unusual_is_made_step_by_step():
    recipe = recipe_of(graph_of(sigmoid_of, TensorType(as_dtype("f4"), (6, 8))))
    one, = [x for name, x in recipe.function.__globals__.items() if name.startswith("f") and type(x) is BUILTIN]
    assert one.__name__ == "fused"
    x = drawn((12, 16), np.float32, 0)
    for view in (x[::2, ::2], x[:6, 8:], x.reshape(-1)[:48].reshape(8, 6).T, np.asfortranarray(x[:6, :8]), x[:6, :8][::-1],
                 np.broadcast_to(x[0, :8], (6, 8))):
        with np.errstate(all="ignore"):
            expected = interpret(graph_of(sigmoid_of, TensorType(as_dtype("f4"), (6, 8))), [view])[0]
        np.testing.assert_array_equal(recipe.run([view])[0], expected)
    with np.errstate(all="ignore"), pytest.raises((TypeError, ValueError, IndexError)):
        one()


def test_whole_numbers_are_made_as_one_too():
    graph = graph_of(lambda x: tn.where(tn.less(x, 0), x + 7, x) * 2, TensorType(as_dtype("i64"), (3, 11)))
    x = np.arange(-16, 17).reshape(3, 11)
    np.testing.assert_array_equal(recipe_of(graph).run([x])[0], np.where(x < 0, x + 7, x) * 2)


def test_a_recipe_written_before_there_was_machine_code_goes_on_with_it(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(recipes, "fusers", [])
        patch.setattr(recipes, "natives", {})
        recipe = recipe_of(graph_of(sigmoid_of, TensorType(as_dtype("f4"), (6, 8))))
    function, x = recipe.function, drawn((6, 8), np.float32, 0)
    with np.errstate(all="ignore"):
        before = function(x)
        names = dict(function.__globals__)
        recipe.use_natives()
        assert recipe.function is function and function(x).tobytes() == before.tobytes()
    assert any(type(x) is BUILTIN and x.__name__ == "fused" for x in function.__globals__.values())
    assert all(function.__globals__[name] is x for name, x in names.items() if name != "recipe")


def test_results_share_no_memory_with_each_other_or_with_inputs():
    function, _ = FUNCTIONS["a result read again"]
    recipe = recipe_of(graph_of(function, *[TensorType(as_dtype("f4"), (5,))] * 2))
    arrays = [drawn((5,), np.float32, k) for k in range(2)]
    made = [*recipe.run(arrays), *recipe.run(arrays), *arrays]
    assert not any(np.shares_memory(a, b) for k, a in enumerate(made) for b in made[:k])


def test_recipes_may_be_made_while_those_there_are_go_on_with_machine_code():
    graph = graph_of(sigmoid_of, TensorType(as_dtype("f4"), (7,)))
    made = [recipe_of(graph) for _ in range(3)]

    def make_another(frame, event, argument):       # whenever a function in Python is called, as another thread might
        sys.setprofile(None)
        made.append(recipe_of(graph))
        sys.setprofile(make_another)
    sys.setprofile(make_another)
    try:
        recipes.use_natives(dict(recipes.natives), recipes.fusers[0])
    finally:
        sys.setprofile(None)
    assert len(made) > 3

"""Calls that are remembered give what the function gives: on other data, after the third call, in every type."""

import numpy as np
import pytest

import tenon as tn
from operator_examples import arguments, first_examples
from tenon.eager import call_cache
from tenon.eager.call_table import cached_calls
from tenon.eager.recipes import recipe_of
from tenon.graph.build import Builder, trace
from tenon.graph.interpret import interpret
from tenon.graph.op import using
from tenon.graph.text import parse_example
from tenon.ops.placing import MOVES
from tenon.types import TensorType, float32

FUNCTIONS = {
    "x[0]": lambda x: x[0], "x[:, 1:3]": lambda x: x[:, 1:3], "x[None]": lambda x: x[None],
    "x[-1, ::2]": lambda x: x[-1, ::2], "x[..., i]": lambda x: x[..., tn.tensor([1, 0])],
    "x[mask]": lambda x: x[x > 0], "stack": lambda x: tn.stack([x, x + 1], 1),
    "concat": lambda x: tn.concat([x, x], axis=1), "split": lambda x: tn.split(x, 2, axis=1),
    "unbind": lambda x: tn.unbind(x), "flip": lambda x: tn.flip(x, 0), "roll": lambda x: tn.roll(x, 1, 0),
    "tile": lambda x: tn.tile(x, (2, 1)), "tril": lambda x: tn.tril(x), "pad": lambda x: tn.pad(x, [(0, 1), (2, 0)]),
    "topk": lambda x: tn.topk(x, 2), "einsum": lambda x: tn.einsum("ij,kj->ik", x, x), "norm": lambda x: tn.norm(x),
    "allclose": lambda x: tn.allclose(x, x), "quantile": lambda x: tn.quantile(x, 0.3, 0),
    "layer_norm": lambda x: tn.layer_norm(x, 4), "diag": lambda x: tn.diag(x),
    "itself": lambda x: tn.reshape(x, (3, 4)), "same": lambda x: tn.broadcast_to(x, (3, 4)),
    "cov": lambda x: tn.cov(x), "zeros": lambda x: tn.zeros((2, 3)) + x[0, 0], "eye": lambda x: tn.eye(3) @ x,
    "nonzero": lambda x: tn.nonzero(x > 0), "conv": lambda x: tn.conv(x[None, None], x[None, None, :2, :2]),
    "masked_fill": lambda x: tn.masked_fill(x, x > 0, -0.0), "where": lambda x: tn.where(x > 0, x, 0.0),
    "cross_entropy": lambda x: tn.cross_entropy(x, tn.tensor([0, 1, 3])), "softmax": lambda x: tn.softmax(x, axis=0),
    "std": lambda x: x.std(axis=1, correction=1), "var": lambda x: tn.var(x),
}


def numbers(found):
    listed = found if isinstance(found, (tuple, list)) else [found]
    return [np.asarray(x.astype("float32") if x.dtype is tn.bfloat16 else x) for x in listed]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_remembered_is_what_the_function_gives(name, dtype):
    rng = np.random.default_rng(0)
    given = [tn.tensor(rng.standard_normal((3, 4)), dtype=dtype) for _ in range(5)]
    for x in given:                             # the third is the first that a recipe makes
        found = FUNCTIONS[name](x)
        recorded = FUNCTIONS[name](tn.tensor(x.numpy(), requires_grad=True))        # operator by operator
        for a, b in zip(numbers(found), numbers(recorded), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("text", first_examples())
def test_a_definition_as_a_recipe_is_its_graph(text):
    example = parse_example(text)
    if not all(t is None or isinstance(t, TensorType) for t in example.inputs):
        pytest.skip("it has numbers among its inputs")
    if example.op in MOVES:
        pytest.skip("a call that moves a tensor is made in full")
    graph = trace(example.op, *example.inputs, **example.attrs)
    recipe, arrays = recipe_of(graph), arguments(example)
    assert recipe is not None or example.op.name in {"custom_call"}
    for a, b in zip(recipe.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_a_ufunc_writes_only_over_what_nobody_reads():
    builder = Builder("f", rewriting=True)
    x = builder.parameter(TensorType(float32, (256, 128)))
    with using(builder):
        a = x * 2.0
        turned = tn.permute_dims(a, (1, 0))     # a view of it
        b = a + 1.0
        c = (b * 3.0 + 1.0) - b
        graph = builder.finish([c, turned, x + 0.0])
    given = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
    kept = given.copy()
    recipe = recipe_of(graph)
    assert any(into >= 0 for *_, into, _ in recipe.steps)
    for _ in range(2):
        for found, wanted in zip(recipe.run([given]), interpret(graph, [given]), strict=True):
            np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(given, kept)


def test_results_of_equal_calls_share_no_memory():
    for make in (lambda: tn.zeros((3,)), lambda: tn.eye(3), lambda: tn.tril_indices(3)[0]):
        made = [make().numpy() for _ in range(5)]
        assert not any(np.shares_memory(a, b) for k, a in enumerate(made) for b in made[:k])


def test_an_index_out_of_range_is_an_error_in_every_call():
    x, good, bad = tn.arange(3), tn.tensor([0, 2]), tn.tensor([0, 3])
    for _ in range(4):
        assert tn.take(x, good, axis=0).tolist() == [0, 2] and x[good].tolist() == [0, 2]
    with pytest.raises(IndexError, match="take"):
        tn.take(x, bad, axis=0)
    with pytest.raises(IndexError):
        x[bad]


def test_equal_numbers_of_other_kinds_are_other_calls():
    x = tn.tensor([1.0, -1.0])
    for number in (0.0, -0.0, 0, False, 1, True, 1.0) * 3:
        found = tn.full((2,), number)
        assert found.dtype.kind == np.asarray(number).dtype.kind and str(found.numpy()[0]) == str(type(number)(number))
        assert tn.clip(x, number, 2).tolist() == np.clip([1.0, -1.0], number, 2).tolist()


def test_gradients_and_autocast_see_no_memory_of_calls_without():
    x, w = tn.ones((2, 3)), tn.ones((2, 3)).requires_grad_()
    for _ in range(4):
        tn.norm(x)
        tn.var(x)
    tn.norm(w).backward()
    np.testing.assert_allclose(w.grad.numpy(), np.full((2, 3), 6 ** -0.5), rtol=1e-6)
    with tn.no_grad():
        assert not tn.norm(w).requires_grad
    for _ in range(4):
        tn.linear(x, x)
    with tn.autocast():
        assert tn.linear(x, x).dtype is tn.bfloat16
    assert tn.linear(x, x).dtype is tn.float32


def test_random_numbers_are_drawn_anew():
    assert len({tuple(tn.rand(3).tolist()) for _ in range(6)}) == 6
    x = tn.ones((64,))
    assert len({tuple(tn.dropout(x, 0.5).tolist()) for _ in range(6)}) == 6


def test_the_third_call_does_not_run_the_function():
    calls = []

    def counted(x, k):
        calls.append(k)
        return tn.flip.__wrapped__(x, k)
    def call(*args):
        return call_cache.remembered_call(counted, lambda args, keywords: counted(*args, **keywords), args, {})
    x = tn.ones((4, 5))
    for _ in range(5):
        assert call(x, 1).shape == (4, 5)
    assert calls == [1, 1, 1]               # twice, and once to record it
    x.requires_grad_()
    for _ in range(5):
        assert call(x, 1).requires_grad
    assert len(calls) == 6


def test_inputs_that_come_back_are_the_same_tensors():
    x = tn.ones((2, 3))
    assert len({tn.squeeze(x) is x for _ in range(4)}) == 1


def test_large_constants_are_not_kept():
    for make in (lambda: tn.zeros((300, 300)), lambda: tn.eye(300), lambda: tn.ones((300, 300)) * 2.0):
        for _ in range(5):
            made = make()
        assert made.shape == (300, 300)
        recipes = [known.recipe for known in cached_calls.values() if type(known) is call_cache.Remembered]
        kept = [x for recipe in recipes for x in recipe.function.__globals__.values() if isinstance(x, np.ndarray)]
        assert max(x.size for x in kept) < 4096

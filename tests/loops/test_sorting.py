"""Orders of rows and places in them: compiled == interpreted == NumPy, for every type, with equals and NaN."""

import numpy as np
import pytest

import tenon as tn
from loops.compiled import check
from loops.test_filling import graph_of
from tenon.loops.sorting import MAX_RANKED_ELEMENTS
from tenon.types import as_dtype

random = np.random.default_rng(0)
TYPES = ["bool", "u8", "i8", "i16", "i32", "i64", "u64", "f16", "bf16", "f32", "f64"]


def numbers(dtype, *shape):
    """Many of them equal; with all that is special of floating-point numbers."""
    x = random.integers(-9, 10, shape) * (random.random(shape) < 0.8) * 7.25
    found = (x > 0 if dtype == "bool" else abs(x) if dtype[0] == "u" else x).astype(as_dtype(dtype).numpy)
    if dtype[0] in "fb" and dtype != "bool":
        found[random.random(shape) < 0.2] = np.nan
        found[random.random(shape) < 0.1] = -np.float32(np.nan)
        found[random.random(shape) < 0.1] = -np.inf
        found[random.random(shape) < 0.1] = -0.0
    return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_places_in_order_of_every_type(dtype, descending):
    for count in (9, MAX_RANKED_ELEMENTS + 5):
        graph = graph_of(f"x: {dtype}[2, {count}]", f"argsort(x, axis=1, descending={descending}, stable=True)",
                         f"i64[2, {count}]")
        check(graph, numbers(dtype, 2, count))


@pytest.mark.parametrize("shape, axis", [((1,), 0), ((3, 1), 1), ((2, 5, 3), 1), ((70, 3), 0), ((70, 11), 0),
                                         ((2, 70, 3, 6), 1), ((9, 33), 0), ((2, 300), 1), ((0, 3), 0),
                                         ((3, 0), 0)])
def test_places_in_order_along_any_axis(shape, axis):
    graph = graph_of(f"x: f32{list(shape)}", f"argsort(x, axis={axis}, descending=False, stable=True)",
                     f"i64{list(shape)}")
    check(graph, numbers("f32", *shape))


def test_places_in_order_of_symbolic_sizes():
    graph = graph_of("x: f32[B, N]", "argsort(x, axis=1, descending=True, stable=True)", "i64[B, N]")
    for shape in [(2, 3), (3, 100)]:
        check(graph, numbers("f32", *shape))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_first_places_of_many(dtype, descending):
    """Few of a row that is not long, and more."""
    for x in (numbers(dtype, 1, 2113), np.zeros((1, 2113), as_dtype(dtype).numpy), numbers(dtype, 1, 1) + numbers(
            "u8", 1, 2113).astype(as_dtype(dtype).numpy)):
        for k in (5, 40):
            graph = graph_of(f"x: {dtype}[1, 2113]", f"first_places(x, k={k}, axis=1, descending={descending})",
                             f"i64[1, {k}]")
            check(graph, x, interpreted=False)


@pytest.mark.parametrize("k", [1, 5, 32])
def test_the_first_places_where_a_few_groups_hold_all_of_them(k):
    x = np.full((1, 4096), 9, np.float32)
    x[:, ::512] = np.arange(8)[::-1]
    graph = graph_of("x: f32[1, 4096]", f"first_places(x, k={k}, axis=1, descending=False)", f"i64[1, {k}]")
    check(graph, x, interpreted=False)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u64", "u8"])
@pytest.mark.parametrize("count, k", [(1, 0), (2, 1), (40, 7), (64, 32), (130, 9), (4097, 5)])
def test_few_places_where_most_are_equal_to_what_comes_last(count, k, dtype):
    """What was found is taken away, and may not be found again as one of these."""
    numpy = as_dtype(dtype).numpy
    x = np.full((1, count), np.nan if dtype[0] == "f" else np.iinfo(numpy).max, numpy)
    x[:, count // 2:count // 2 + 3] = 4
    graph = graph_of(f"x: {dtype}[1, {count}]", f"first_places(x, k={k}, axis=1, descending=False)", f"i64[1, {k}]")
    check(graph, x, interpreted=count < 100)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
def test_the_first_places_of_columns(dtype):
    graph = graph_of(f"x: {dtype}[2, 261, 19]", "first_places(x, k=3, axis=1, descending=True)", "i64[2, 3, 19]")
    check(graph, numbers(dtype, 2, 261, 19), interpreted=False)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_few_places_in_the_loops_interpreter(dtype):
    graph = graph_of(f"x: {dtype}[257]", "first_places(x, k=2, axis=0, descending=True)", "i64[2]")
    check(graph, numbers(dtype, 257))


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_the_first_places_of_many_in_the_loops_interpreter(dtype):
    graph = graph_of(f"x: {dtype}[2049]", "first_places(x, k=33, axis=0, descending=True)", "i64[33]")
    check(graph, numbers(dtype, 2049))


@pytest.mark.parametrize("descending", [False, True])
def test_compiled_sorts_and_their_gradients_are_those_of_eager_code(descending):
    x = tn.asarray(random.permutation(240).reshape(3, 80).astype(np.float32))

    def summed(x):
        ordered, (largest, places) = tn.sort(x, axis=1, descending=descending), tn.topk(x, 3, axis=0)
        return (ordered * tn.arange(80)).sum() + (largest * places).sum() + tn.kthvalue(x, 7, axis=1)[0].sum()
    for ours, eager in zip(tn.jit(tn.value_and_grad(summed))(x), tn.value_and_grad(summed)(x), strict=True):
        np.testing.assert_allclose(ours.numpy(), eager.numpy(), rtol=1e-5)


def test_each_example_of_a_batch_is_ordered():
    x = tn.asarray(numbers("f32", 2, 5, 90))
    found = tn.jit(tn.vmap(lambda x: (tn.argsort(x, axis=0), tn.topk(x, 4, axis=1)[1])))(x)
    for ours, eager in zip(found, (tn.argsort(x, axis=1), tn.topk(x, 4, axis=2)[1]), strict=True):
        np.testing.assert_array_equal(ours.numpy(), eager.numpy())


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_places_of_values_in_what_is_ordered(dtype, right):
    for count in (0, 1, 2, 37):
        x = tn.sort(tn.asarray(numbers(dtype, count))).numpy()
        graph = graph_of(f"x: {dtype}[{count}], values: {dtype}[2, 5]", f"searchsorted(x, values, right={right})",
                         "i64[2, 5]")
        check(graph, x, numbers(dtype, 2, 5))


def test_places_of_values_in_rows_of_symbolic_sizes():
    graph = graph_of("x: f32[3, N], values: f32[3, M]", "searchsorted(x, values, right=False)", "i64[3, M]")
    for n, m in ((2, 300), (7, 2)):
        check(graph, np.sort(numbers("f32", 3, n), axis=1), numbers("f32", 3, m), interpreted=n > 2)


def test_nan_in_bfloat16_comes_last_in_eager_code_too():
    x = tn.tensor([np.nan, 3.0, -1.0, np.nan, 2.0]).astype(tn.bfloat16)
    np.testing.assert_array_equal(tn.sort(x).astype(tn.float32).numpy(), [-1, 2, 3, np.nan, np.nan])
    np.testing.assert_array_equal(tn.argsort(x).numpy(), [2, 4, 1, 0, 3])
    assert tn.searchsorted(tn.sort(x), x).tolist() == [3, 2, 0, 3, 1]

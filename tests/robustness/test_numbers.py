"""NaN, infinities, empty and zero-dimensional tensors, integers that overflow: eager and jitted as NumPy."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn

NAN, INF = np.nan, np.inf
SPECIAL = np.array([1, NAN, 3, -INF, INF, 0.0, -0.0], np.float32)
CLEAN = np.array([3, 1, 2, 1, -INF, INF], np.float32)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def agrees(tenon, numpy, *arrays):
    """Eager, jitted and NumPy give the same elements, to the last bit but for rounding."""
    with np.errstate(all="ignore"):
        want = np.asarray(numpy(*arrays))
    for f in (tenon, tn.jit(tenon)):
        got = f(*map(tn.asarray, arrays)).numpy()
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want.astype(got.dtype), rtol=1e-5, equal_nan=True)
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sum", "prod", "mean", "std", "var", "any", "all"])
def test_reductions(name):
    for array in (SPECIAL, CLEAN, SPECIAL.reshape(1, 7), np.float32([NAN]), np.array(NAN, np.float32)):
        agrees(getattr(tn, name), getattr(np, name), array)


@pytest.mark.parametrize("name", ["isnan", "isfinite", "isinf", "sign", "abs", "floor", "ceil", "round", "sqrt"])
def test_elements(name):
    agrees(getattr(tn, name), getattr(np, name), SPECIAL)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sign_of_zero(dtype):
    names = ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "expm1", "log1p", "sqrt", "floor", "ceil",
             "round", "trunc", "sign", "abs", "negative", "square", "positive"]
    zeros = np.array([-0.0, 0.0, -0.0], dtype)
    for name, found in zip(names, tn.jit(lambda x: [getattr(tn, each)(x) for each in names])(tn.asarray(zeros))):
        want = np.signbit(getattr(np, name)(zeros))
        assert np.signbit(found.numpy()).tolist() == want.tolist(), name


@pytest.mark.parametrize("name", ["maximum", "minimum", "equal", "less", "greater_equal"])
def test_pairs(name):
    agrees(getattr(tn, name), getattr(np, name), SPECIAL, SPECIAL[::-1].copy())


def test_order():
    for array in (SPECIAL, CLEAN):
        agrees(lambda x: tn.sort(x, axis=0), np.sort, array)
        agrees(lambda x: tn.argsort(x, axis=0), lambda x: np.argsort(x, kind="stable"), array)
        agrees(lambda x: tn.cumsum(x, axis=0), np.cumsum, array)
        agrees(lambda x: tn.clip(x, -1, 1), lambda x: np.clip(x, -1, 1), array)


@pytest.mark.parametrize(("row", "want"), [([INF, 1, 2, 3, 4], [2, 3, 4]), ([-INF, 7, INF, 2, 1], [1, 2, 7]),
                                           ([NAN, 1, 2, 3, 4], [NAN, NAN, NAN])])
def test_the_middle_of_what_holds_infinities(row, want):
    def quarters(x):
        return tn.stack([tn.quantile(x, 0.25), tn.median(x), tn.quantile(x, 0.75)])
    for f in (quarters, tn.jit(quarters)):
        np.testing.assert_array_equal(f(tn.tensor(row)).numpy(), np.float32(want))


def test_the_gradient_of_a_loss_that_is_no_number_is_none():
    for g in (tn.grad(tn.logsumexp), tn.jit(tn.grad(tn.logsumexp))):
        assert np.isnan(g(tn.tensor([NAN, 1.0, 2.0])).numpy()).all()


def test_gradients_do_not_spread_what_was_not_chosen():
    def root(x):
        return tn.where(x > 0, tn.sqrt(tn.where(x > 0, x, 1.0)), 0.0).sum()
    for f, x, want in ((root, [4.0, -1.0], [0.25, 0.0]), (lambda x: tn.max(x), [1.0, 3.0, 2.0], [0.0, 1.0, 0.0]),
                       (lambda x: tn.sort(x, axis=0)[0], [3.0, 1.0], [0.0, 1.0])):
        for g in (tn.grad(f), tn.jit(tn.grad(f))):
            assert g(tn.tensor(x)).tolist() == want


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_empty_and_scalar(shape):
    array = np.zeros(shape, np.float32)
    for name in ("sum", "prod", "any", "all"):
        agrees(getattr(tn, name), getattr(np, name), array)
        if shape:
            agrees(lambda x, name=name: getattr(tn, name)(x, axis=0), lambda x, name=name: getattr(np, name)(x, axis=0),
                   array)
    if len(shape) == 2:
        for f in (lambda x: x @ x.T, lambda x: x.T @ x):
            agrees(f, f, array)
        agrees(lambda x: tn.concat([x, x], axis=1), lambda x: np.concatenate([x, x], axis=1), array)
        agrees(lambda x: tn.sort(x, axis=1), lambda x: np.sort(x, axis=1), array)
    if array.size == 0:
        for name in ("max", "min", "argmax"):
            for f in (getattr(tn, name), tn.jit(getattr(tn, name))):
                with pytest.raises(ValueError, match="is empty, there is no element to take"):
                    f(tn.asarray(array))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_divide_by_zero_as_numpys(dtype):
    info = np.iinfo(dtype)
    x, y = np.array([info.max, info.min, 1, 0, 7], dtype), np.array([1, info.max, info.max, 0, 2], dtype)
    for name in ("add", "subtract", "multiply", "floor_divide", "remainder"):
        agrees(getattr(tn, name), getattr(np, name), x, y)
        if info.min < 0:
            agrees(getattr(tn, name), getattr(np, name), x, np.full(5, -1, dtype))
    agrees(lambda x: x ** 3, lambda x: x ** 3, x)
    agrees(tn.sum, np.sum, x)
    for shift in ([0, 1, 7, 3, 5], [8, 16, 32, 64, 65]):
        agrees(lambda x, y: x << y, lambda x, y: x << y, x, np.array(shift, dtype))
        agrees(lambda x, y: x >> y, lambda x, y: x >> y, x, np.array(shift, dtype))
    if info.min < 0:
        agrees(tn.abs, np.abs, x)
        agrees(lambda x: -x, lambda x: -x, x)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_floats_outside_an_integer_type_go_to_its_ends(dtype, source):
    info = np.iinfo(dtype)
    array = np.array([NAN, INF, -INF, 1e20, -1e20, 1.9, 100.7], source)
    want = [0, info.max, info.min, info.max, info.min, 1, 100]
    if info.min < 0:
        array, want = np.append(array, source(-1.5)), [*want, -1]
    for f in (lambda x: x.astype(dtype), tn.jit(lambda x: x.astype(dtype))):
        assert f(tn.asarray(array)).tolist() == want


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pooled", [lambda y: nn.functional.adaptive_max_pool2d(y, (1, 3)),
                                    lambda y: tn.take(y, np.array([[0, 1], [1, 0]]), axis=2).max(axis=3),
                                    lambda y: tn.linalg.vector_norm(y, ord=np.inf, axis=(2, 3))])
def test_the_largest_element_is_the_same_where_it_is_computed_again(pooled, dtype):
    x, w, b = (np.random.default_rng(0).standard_normal(s).astype(dtype) for s in ((5, 8, 2, 1), (8, 1, 1), (8, 1, 1)))
    gradient = tn.grad(lambda x, w, b: (pooled(x * w + b) ** 2).sum(), argnums=(0, 1, 2))
    for found, expected in zip(tn.jit(gradient)(x, w, b), gradient(x, w, b)):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)

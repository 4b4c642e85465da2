"""Sums and extremes over axes in machine code: the bits that NumPy's `reduce` gives."""

import itertools

import numpy as np
import pytest

import tenon as tn
from tenon.eager import recipes
from tenon.errors import TenonError

pytestmark = pytest.mark.usefixtures("machine_code")
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, np.inf, -np.inf, np.nan, -np.nan, 3e38, 2.0])
SHAPES = [(), (1,), (2,), (7,), (9,), (17,), (130,), (4000,), (5000,), (16384,), (16385,), (100, 130), (2, 9000), (4, 33), (33, 4), (1, 5), (5, 1), (3, 5, 7), (2, 1, 3),
          (1, 1), (32, 128), (2, 3, 4, 5), (4, 1, 6), (100, 3), (3, 100), (1000, 2), (0,), (0, 3), (3, 0), (1,) * 9]


def axes(ndim):
    yield from (None, (), *range(-ndim, ndim))
    for count in range(1, ndim + 1):
        yield from itertools.permutations(range(ndim), count) if ndim < 4 else itertools.combinations(range(ndim), count)


def drawn(kind, shape, dtype):
    random, count = np.random.default_rng(0), int(np.prod(shape))
    return {"numbers": random.standard_normal(count), "zeros": np.where(random.random(count) < 0.5, 0.0, -0.0),
            "negative zeros": np.full(count, -0.0), "special": random.choice(SPECIAL, count)}[kind].astype(dtype).reshape(shape)


def outcome(call, *given):
    with np.errstate(all="ignore"):
        try:
            out = np.asarray(call(*given))
        except ValueError as error:
            return str(error)
    return out.dtype, out.shape, out.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["numbers", "zeros", "negative zeros", "special"])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.minimum], ids=lambda ufunc: ufunc.__name__)
def test_every_shape_and_axis_gives_what_numpy_gives(ufunc, kind, dtype):
    call = recipes.natives[ufunc.reduce]
    assert type(call) is type(len) and call is not ufunc.reduce
    for shape in SHAPES[:-1]:
        x = drawn(kind, shape, dtype)
        for axis, keep in itertools.product(axes(len(shape)), (False, True)):
            assert outcome(call, x, axis, None, None, keep) == outcome(ufunc.reduce, x, axis, None, None, keep)
            if ufunc is np.maximum:
                for least in (-np.inf, 0.5):
                    given = x, axis, None, None, keep, least
                    assert outcome(call, *given) == outcome(ufunc.reduce, *given)


def test_whatever_is_not_usual_is_numpys():
    for x in (np.arange(12).reshape(3, 4), np.arange(12, dtype=np.float16).reshape(3, 4), np.eye(3) > 0):
        for ufunc in (np.add, np.maximum):
            given = x, (1,), None, None, False
            assert outcome(recipes.natives[ufunc.reduce], *given) == outcome(ufunc.reduce, *given)
    add, x = recipes.natives[np.add.reduce], np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for given in ((x.T, 0, None, None, False), (x[:, ::2], None, None, None, True), (x, (1, 0), None, None, False),
                  (x, (0, 2), None, None, True), (x, 0, np.float64, None, False), (x, -1), (x, np.int64(1), None, None, False),
                  (x.reshape((1,) * 9 + (24,)), 9, None, None, False), (x, 3, None, None, False), (x.tolist(), 0, None, None, False),
                  (x, (0, 0), None, None, False), (x, True, None, None, False), (x, 2 ** 70, None, None, False),
                  (x, (2 ** 70,), None, None, False)):
        try:
            expected = np.add.reduce(*given)
        except Exception as error:
            with pytest.raises(type(error)):
                add(*given)
            continue
        found = add(*given)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
    out = np.zeros(4, np.float32)
    assert add(x[0], 0, None, out, False) is out and out.tolist() == x[0].sum(0).tolist()


@pytest.mark.parametrize("call", [
    lambda x: tn.softmax(x, axis=1), lambda x: tn.log_softmax(x, axis=0), lambda x: tn.sigmoid(x), lambda x: tn.silu(x),
    lambda x: tn.leaky_relu(x, 0.3), lambda x: tn.relu(x), lambda x: tn.rsqrt(x), lambda x: x.max(axis=1), lambda x: x.min(),
    lambda x: x.mean(axis=0), lambda x: x.prod(axis=1), lambda x: x.var(), lambda x: x.clip(-0.5, 0.5), lambda x: x.clip(0.0, -0.0), lambda x: tn.nn.functional.layer_norm(x, (5,))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_made_of_such_calls_have_the_bits_of_their_reference(call, dtype):
    for values in (drawn("special", (4, 5), dtype), drawn("numbers", (4, 5), dtype), drawn("zeros", (4, 5), dtype)):
        x = tn.tensor(values)
        first = call(x).numpy().tobytes()       # the reference, operator by operator
        assert [call(x).numpy().tobytes() for _ in range(4)] == [first] * 4


def test_empty_rows_have_no_largest_element_but_a_softmax():
    x = tn.ones((3, 0))
    assert [tn.softmax(x, axis=1).shape for _ in range(4)] == [(3, 0)] * 4
    for _ in range(4):
        with pytest.raises(TenonError):
            x.max(axis=1)

"""Arrays that broadcast, and parts of arrays, in machine code: the bits and the layout that NumPy gives."""

import itertools

import numpy as np
import pytest

import tenon as tn
from tenon.eager import native_fast_path, recipes
from tenon.eager.ufunc_fast_path import PRODUCT, SHORTS

pytestmark = pytest.mark.usefixtures("machine_code")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, np.inf, -np.inf, np.nan, -np.nan, 3e38, 2.0]
PLAIN = [0.5, -0.0, 1.0, -1.5, 2.0, 0.25, -3.0]
SHAPES = [(), (1,), (5,), (3, 5), (3, 1), (1, 5), (2, 3, 5), (2, 1, 5), (1, 3, 1), (4, 2, 3, 5), (4, 1, 3, 1), (0,), (3, 0),
          (37, 19), (37, 1), (19,), (64, 64), (1, 64), (7, 3, 33), (100, 2), (2,), (2, 1, 1, 1, 1, 1, 3)]


def whole(values, shape):
    return np.resize(values, shape)


def part(values, shape):
    return np.resize(values, [2 * n for n in shape])[tuple(slice(0, 2 * n, 2) for n in shape)]


def corner(values, shape):
    return np.resize(values, [n + 1 for n in shape])[tuple(slice(n) for n in shape)]


def backwards(values, shape):
    return np.resize(values, shape)[tuple(slice(None, None, -1) for _ in shape)]


def transposed(values, shape):
    return np.resize(values, shape[::-1]).T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lies", [whole, part, corner, backwards, transposed])
@pytest.mark.parametrize("ufunc", [np.add, np.divide, np.maximum, np.fmin, np.less], ids=lambda ufunc: ufunc.__name__)
def test_every_pair_of_shapes_gives_what_numpy_gives(ufunc, lies, dtype):
    call = recipes.natives[ufunc]
    assert type(call) is type(len)
    for values in (np.array(SPECIAL, dtype), np.array(PLAIN, dtype)):
        for one, other in itertools.product(SHAPES, SHAPES):
            a, b = lies(values, one), lies(np.roll(values, 1), other)
            with np.errstate(all="ignore"):
                try:
                    expected = np.asarray(ufunc(a, b))
                except ValueError:
                    with pytest.raises(ValueError, match="broadcast"):
                        call(a, b)
                    continue
                found = np.asarray(call(a, b))
            assert (found.dtype, found.strides, found.tobytes()) == (expected.dtype, expected.strides, expected.tobytes())


@pytest.mark.parametrize("wanted", [False, True])
def test_tensors_that_broadcast_have_the_gradients_that_they_have_in_python(wanted):
    x, row = tn.tensor(np.resize(PLAIN, (4, 6)).astype(np.float32), requires_grad=wanted), tn.ones(6, requires_grad=True)

    def run():
        x.grad = row.grad = None
        y = (x * row + x[:, :1]) / (row + 1.0)
        y.sum().backward()
        return [None if z is None else z.numpy().tobytes() for z in (y, x.grad, row.grad)]
    found = [run() for _ in range(3)][-1]
    native_fast_path.give_python(SHORTS, PRODUCT)
    try:
        assert run() == found
    finally:
        native_fast_path.give_native(SHORTS, PRODUCT)


def test_no_memory_is_read_that_is_not_theirs():
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.float32([1, 2, 4, 8])
    window = np.lib.stride_tricks.as_strided(a, (3, 3), (4, 4))         # rows that overlap
    unaligned = np.frombuffer(b"x" + b.tobytes(), np.float32, offset=1)
    add = recipes.natives[np.add]
    assert np.array_equal(add(window, b[:3]), window + b[:3]) and np.array_equal(add(a, unaligned), a + b)
    assert np.array_equal(add(a, b.astype(">f4")), a + b) and np.array_equal(add(a, b.astype(np.float64)), a + b)

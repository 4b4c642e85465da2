"""Loops of an array and a number in machine code: the bits that NumPy gives."""

import numpy as np
import pytest

from tenon.cpython.eager.scalar_operand_loops import OPERATIONS
from tenon.cpython.eager.ufunc_loops import inner_loop
from tenon.eager import recipes
from tenon.eager.native_fast_path import _machine

pytestmark = pytest.mark.usefixtures("machine_code")
SPECIAL = [0.0, -0.0, 1.0, -1.5, 1e-45, 3e38, np.inf, -np.inf, np.nan, -np.nan]
COUNTS = [1, 2, 7, 8, 9, 31, 32, 33, 41, 64, 71, 4097, 16384, 16385]
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]


def drawn(shape, dtype, special):
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype(dtype)
    with np.errstate(over="ignore"):
        return np.where(random.random(shape) < 0.5, x, random.choice(np.array(SPECIAL), shape).astype(dtype)) if special else x


def same(ufunc, *given):
    with np.errstate(all="ignore"):
        expected = ufunc(*given)
        found = recipes.natives[ufunc](*given)
    assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_there_is_such_a_loop(name, dtype):
    ufunc = getattr(np, name)
    assert _machine().loops[ufunc, dtype] != inner_loop(ufunc, dtype.char * 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_array_beside_a_number_gives_what_numpy_gives(name, dtype):
    ufunc = getattr(np, name)
    for count in COUNTS:
        x = drawn((count,), dtype, True)
        for number in np.array(SPECIAL, np.float64):
            with np.errstate(over="ignore"):
                n = np.asarray(number.astype(dtype))
            same(ufunc, x, n)
            same(ufunc, n, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_rows_beside_a_number_each_give_what_numpy_gives(name, dtype):
    ufunc = getattr(np, name)
    for rows, count in ((5, 7), (3, 33), (37, 130), (2, 8000)):
        for special in (False, True):
            x, n = drawn((rows, count), dtype, special), drawn((rows, 1), dtype, special)
            same(ufunc, x, n)
            same(ufunc, n, x)
            same(ufunc, x.reshape(1, rows, count), n)
            same(ufunc, x, x[0])


@pytest.mark.parametrize("shape", [(3, 1), (1, 5), (4, 1, 6), (2, 1, 1, 5), (3, 2, 1, 4), (1,)])
def test_axes_along_which_an_array_is_repeated_are_gone_through_in_order(shape):
    x = drawn(tuple(n if n > 1 else 3 for n in shape), DTYPES[0], False)
    y = drawn(shape, DTYPES[0], False)
    for parts in ((x, y), (y, x), (x[..., ::2], y[..., ::2]), (y, x[None])):
        same(np.subtract, *parts)
        same(np.multiply, *parts)

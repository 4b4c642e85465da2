"""Integers are put together with their places to be ordered: the order is NumPy's stable one."""

import numpy as np
import pytest

from tenon.ops.searching import argsort


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_many_integers_are_ordered_as_numpy_orders_them(dtype: str) -> None:
    ends, random = np.iinfo(dtype), np.random.default_rng(0)
    for shape, axis in (((3001,), 0), ((50, 61), 0), ((7, 31, 33), 1)):
        for low, high in ((ends.min, ends.max), (0, 5), (ends.max - 3, ends.max), (ends.min, ends.min + 3)):
            x = random.integers(low, high, shape, dtype=dtype, endpoint=True)
            back = shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
            for descending, expected in ((False, np.argsort(x, axis, kind="stable")), (True, back)):
                found = argsort.ref(x, axis=axis, descending=descending, stable=True)
                assert found.dtype == np.int64
                np.testing.assert_array_equal(found, expected)

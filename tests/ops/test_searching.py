"""Integers are put together with their places to be ordered: the order is NumPy's stable one."""

import numpy as np
import pytest

import tenon as tn
from tenon.ops.ordering import argsort


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


def test_different_elements_are_numpys_whether_counted_or_sorted() -> None:
    random = np.random.default_rng(0)
    some = [np.array([127, -128, 0, 127], np.int8), np.array([2**64 - 1, 2**64 - 3], np.uint64), np.zeros(0, np.int64),
            np.array(5), np.array([2**63 - 1, -2**63]), random.integers(-9, 9, (7, 31)), random.random((5, 9)) < 0.5,
            random.integers(-2**62, 2**62, 40)[random.integers(0, 40, 90)], random.standard_normal((6, 5)).round(),
            np.array([np.nan, 1, np.inf, np.nan, -0.0, 0.0, 1], np.float32), np.array([2 + 1j, 1 + 2j, 2 + 1j])]
    for x in some:
        expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
        for ours, theirs in zip(tn.unique_all(tn.tensor(x)), expected, strict=True):
            assert ours.numpy().dtype == theirs.dtype
            np.testing.assert_array_equal(ours.numpy(), theirs)
        np.testing.assert_array_equal(tn.unique_values(tn.tensor(x)).numpy(), expected[0])

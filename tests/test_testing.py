"""`tn.testing.assert_close` says where results part, as PyTorch's does."""

import numpy as np
import pytest

import tenon as tn

CLOSE = [
    (tn.tensor([1.0, 2.0]), tn.tensor([1.0, 2.0 + 1e-6])),
    (tn.ones(3, dtype=tn.bfloat16), tn.ones(3, dtype=tn.bfloat16) * 1.01),
    (tn.tensor([float("inf"), -float("inf")]), np.array([np.inf, -np.inf], np.float32)),
    (np.zeros((0, 3), np.float32), tn.zeros((0, 3))),
    (1.0, tn.tensor(1.0)), ([tn.ones(2), {"a": 1}], [tn.ones(2), {"a": 1}]), ("text", "text"),
    (tn.tensor([1 + 2j]), tn.tensor([1 + 2j])), (2**62 + 1, 2**62 + 1),
]
FAR = [
    (tn.tensor([1.0, 2.0]), tn.tensor([1.0, 2.1]), r"1 of 2 elements differ, the most at \(1,\)"),
    (tn.ones(2), tn.ones((2, 1)), r"the shape is \(2,\), \(2, 1\) is expected"),
    (tn.ones(2), tn.ones(2, dtype=tn.float64), "element type is float32, float64"),
    (tn.tensor([float("nan")]), tn.tensor([float("nan")]), "1 of 1 elements differ"),
    (tn.tensor([float("inf")]), tn.tensor([-float("inf")]), "1 of 1 elements differ"),
    (tn.tensor([2**62 + 1]), tn.tensor([2**62]), "1 of 1 elements differ"),
    ([tn.ones(2)], (tn.ones(2),), r"\[\*\] where \(\*,\) is expected"),
    ({"a": tn.ones(2), "b": tn.ones(1)}, {"a": tn.ones(2), "b": tn.zeros(1)}, "leaf 1 of"),
    ("text", "other", "'text' is not 'other'"), (None, tn.ones(1), "is not"), (True, False, "1 of 1"),
    (np.uint64(2**64 - 1), np.int64(-1), "element type"),
]


@pytest.mark.parametrize(("actual", "expected"), CLOSE)
def test_close(actual, expected):
    tn.testing.assert_close(actual, expected)


@pytest.mark.parametrize(("actual", "expected", "said"), FAR)
def test_far(actual, expected, said):
    with pytest.raises(AssertionError, match=said):
        tn.testing.assert_close(actual, expected)


def test_what_may_be_said():
    tn.testing.assert_close(tn.tensor([float("nan")]), tn.tensor([float("nan")]), equal_nan=True)
    tn.testing.assert_close(tn.ones(2), tn.ones(2, dtype=tn.float64), check_dtype=False)
    tn.testing.assert_close(tn.ones(2), tn.ones(2) * 1.5, rtol=0.5)
    with pytest.raises(AssertionError, match="the second layer\n2 of 2"):
        tn.testing.assert_close(tn.ones(2), tn.zeros(2), msg="the second layer")
    with pytest.raises(AssertionError, match="expected 3"):
        tn.testing.assert_close(np.array([1, 2]), np.array([1, 3]), rtol=0)

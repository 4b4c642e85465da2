"""An array that is an argument and is changed in place is changed for the caller, as without `@tn.jit`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import CaptureError


def an_item(a: Any, k: int) -> Any:
    a[0] = 7
    return k


def a_sum(a: Any, k: int) -> Any:
    a += k
    return tn.asarray(a) * 2


def a_mask(a: Any, k: int) -> Any:
    a[a > k] = 0
    return tn.asarray(a).sum()


def by_data(a: Any, k: int) -> Any:
    if a[0] > k:
        a[1] = -1
    else:
        a *= 2
    return k


def in_a_list(items: Any, k: int) -> Any:
    for x in items:
        x[:1] -= k
    return len(items)


def twice(a: Any, b: Any) -> Any:
    a += 1
    return tn.asarray(b) + 1


@pytest.mark.parametrize("function", [an_item, a_sum, a_mask, by_data])
def test_arrays(function: Callable[..., Any]) -> None:
    jitted = tn.jit(function)
    for k, dtype in ((1, np.float32), (1, np.float32), (1, np.float64), (2, np.float32), (2, np.int64), (1, np.float32)):
        want, got = (np.array([3, 1, 2], dtype) for _ in range(2))
        results = [np.asarray(f(x, k)) for f, x in ((function, want), (jitted, got))]
        np.testing.assert_array_equal(want, got)
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("function", [an_item, a_sum, a_mask, by_data])
def test_arrays_behind_tensors(function: Callable[..., Any]) -> None:
    """The graph that was captured of a tensor does for tensors alone."""
    jitted = tn.jit(function)
    for make in (tn.asarray, tn.asarray, np.asarray, tn.asarray, np.asarray, np.asarray, tn.asarray):
        want, got = (make(np.array([3, 1, 2], np.float32)) for _ in range(2))
        function(want, 1), jitted(got, 1)
        np.testing.assert_array_equal(np.asarray(want), np.asarray(got))


def test_in_containers_and_twice() -> None:
    jitted, both = tn.jit(in_a_list), tn.jit(twice)
    for _ in range(3):
        want, got = ([np.ones(2), np.full(3, 2.0)] for _ in range(2))
        assert in_a_list(want, 3) == jitted(got, 3)
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(a, b)
        x, y = np.ones(2), np.ones(2)
        np.testing.assert_array_equal(np.asarray(twice(x, x)), np.asarray(both(y, y)))
        np.testing.assert_array_equal(x, y)


def test_what_is_said_of_it() -> None:
    jitted = tn.jit(a_sum)
    jitted(np.ones(2), 1)
    assert "a is an array, which the function changes" in str(tn.explain(jitted))
    with pytest.raises(CaptureError, match="a is an array, which the function changes"):
        tn.jit(a_sum, fullgraph=True)(np.ones(2), 1)


def test_an_array_that_is_read_is_in_the_graph() -> None:
    @tn.jit(fullgraph=True)
    def read(a: Any) -> Any:
        a = a + 1
        a[0] = 5
        return a

    given = np.ones(2)
    for _ in range(3):
        np.testing.assert_array_equal(read(given).numpy(), [5, 2])
    np.testing.assert_array_equal(given, [1, 1])

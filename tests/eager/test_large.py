"""Large results of eager calls lie in memory that is leased, and given again when nobody holds what lay there."""

import numpy as np
import pytest

import tenon as tn
from tenon.eager.call_cache import TIMES
from tenon.runtime.buffer_pool import UNMAPPED_BYTES, Lease

COUNT = UNMAPPED_BYTES // 4
CALLS = {"unary": lambda x: tn.sqrt(x), "number": lambda x: x + 1, "two": lambda x: x * x,
         "broadcast": lambda x: x[:1] - x, "comparison": lambda x: x < x[:1], "remembered": lambda x: tn.softsign(x)}


def lies_in_a_lease(array):
    return array is not None and (isinstance(array, Lease) or lies_in_a_lease(getattr(array, "base", None)))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_large_results_are_right_and_lie_in_leased_memory(call):
    x = tn.arange(COUNT, dtype="float32")
    small = np.asarray(x[:1000])
    for k in range(6):
        y = call(x)
        assert np.array_equal(np.asarray(y[:1000]), np.asarray(call(tn.tensor(small)))) and y.shape == x.shape
        assert k <= TIMES[True] or lies_in_a_lease(np.asarray(y))


def test_a_result_that_is_held_or_seen_keeps_its_numbers():
    x = tn.ones(COUNT)
    held, seen = x + 1, (x + 2)[COUNT // 2:]
    for _ in range(5):
        _ = x * 9
    assert np.asarray(held).min() == np.asarray(held).max() == 2
    assert np.asarray(seen).min() == np.asarray(seen).max() == 3


def test_gradients_of_large_calls_are_right():
    x = tn.ones(COUNT, requires_grad=True)
    for _ in range(5):
        x.grad = None
        ((x * 3 + 1) * x).sum().backward()
        assert np.all(np.asarray(x.grad) == 7)

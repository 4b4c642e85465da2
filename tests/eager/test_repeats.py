"""A call gives the same bits whenever it is made: operator by operator, by a recipe, by machine code.

NumPy adds up elements in the order in which they lie, so results have to lie as they do the first time.
"""

import numpy as np
import pytest

import tenon as tn
from tenon.eager.call_table import cached_calls
from tenon.nn import functional as F

CASES = {
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "var": lambda x: x.var(axis=-1),
    "softmax": lambda x: tn.softmax(x, axis=-1),
    "log_softmax of a part": lambda x: tn.log_softmax(x[1:], axis=-1),
    "scaled": lambda x: (x / (x.abs().sum(axis=-1, keepdims=True) + 1)).mean(axis=-1),
    "normal": lambda x: ((x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)).sum(axis=-1),
    "product": lambda x: (x - x.mean(axis=-1, keepdims=True)) @ tn.ones((x.shape[-1], 5)),
    "gelu": lambda x: F.gelu(x * x.mean(axis=0)).sum(axis=-1),
}


@pytest.mark.parametrize("shape", [(8, 16, 3), (9, 5), (90, 70), (40, 30, 20)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_first_call_and_later_ones(case, shape):
    cached_calls.clear()
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def run():
        x = tn.tensor(numbers, requires_grad=True)
        y = CASES[case](x.T)
        y.backward(tn.ones_like(y))
        return y.numpy().tobytes(), x.grad.numpy().tobytes()

    first, *later = [run() for _ in range(5)]
    assert all(found == first for found in later)


def test_large_results_lie_where_a_first_call_lays_them():
    x = tn.tensor(np.random.default_rng(0).standard_normal((3001, 3003)).astype(np.float32)).T
    first, *later = [(x * x + x).sum(axis=-1).numpy().tobytes() for _ in range(4)]
    in_full = np.add(np.multiply(x.numpy(), x.numpy()), x.numpy()).sum(axis=-1).tobytes()
    assert all(found == first == in_full for found in later)


def test_what_is_broadcast_is_added_up_in_the_same_order():
    numbers = np.random.default_rng(0).standard_normal((1, 3, 5))
    x = tn.broadcast_to(tn.tensor(numbers), (2, 3, 5))
    cached_calls.clear()
    first, *later = [tn.var(x, axis=(0, 1)).numpy().tobytes() for _ in range(4)]
    assert all(found == first for found in later)

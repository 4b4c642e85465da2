"""Whole numbers in machine code: what NumPy gives, overflows too, and its errors where it raises them."""

import itertools

import numpy as np
import pytest

import tenon as tn
from tenon.eager import recipes
from tenon.eager.native_fast_path import ON_WHOLE, WHOLE

pytestmark = pytest.mark.usefixtures("machine_code")


def outcome(call, *given):
    try:
        out = np.asarray(call(*given))
    except Exception as error:
        return type(error)
    return out.dtype, out.shape, out.strides, out.tobytes()


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("ufunc", sorted(ON_WHOLE, key=str), ids=lambda ufunc: ufunc.__name__)
def test_every_pair_gives_what_numpy_gives(ufunc, dtype):
    ends = np.iinfo(dtype)
    numbers = np.array([ends.min, ends.min + 1, 0, 1, ends.max - 1, ends.max, 7], dtype)
    assert type(recipes.natives[ufunc]) is type(len)
    for a, b in itertools.product((numbers, numbers[:1], numbers[:, None], numbers[::-1], numbers[:0], numbers[3]), repeat=2):
        assert outcome(recipes.natives[ufunc], np.asarray(a), np.asarray(b)) == \
            outcome(ufunc, np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("number", [0, -1, 7, 2 ** 70, -2 ** 70, 0.5, float("nan"), True])
@pytest.mark.parametrize("call", [tn.less, tn.equal, tn.greater_equal, tn.add, tn.subtract, tn.multiply, tn.divide,
                                  tn.floor_divide, tn.remainder], ids=lambda call: call.__name__)
def test_a_number_of_pythons_beside_them_is_what_it_is_in_full(call, number):
    x = tn.tensor([-2 ** 63, -1, 0, 1, 7, 2 ** 63 - 1])

    def found(made):
        out = outcome(lambda: made().numpy())
        return out if type(out) is type else (out[0], out[1], out[3])
    for given in ((x, number), (number, x)):
        full = found(lambda given=given: call.full(given, {}))
        assert [found(lambda given=given: call(*given)) for _ in range(4)] == [full] * 4


def test_whole_numbers_have_no_gradient():
    x, y = tn.tensor([1, 2]), tn.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(4):
        assert not (x + x).requires_grad and not (x < 2).requires_grad
        assert (x + y).requires_grad

"""Epilogues of products whose columns are several axes: what they read and write in one run is one run of columns."""

import numpy as np
import pytest

import tenon as tn

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("sizes", [(7, 5), (14, 14), (3, 17), (1, 33)], ids=str)
@pytest.mark.parametrize("name", ["bias", "residual", "gradient", "row", "column", "turned"])
def test_what_is_done_with_the_result_of_a_convolution(name, sizes):
    x, w = normal(3, 8, *sizes), normal(19, 8, 3, 3)
    shapes = {"bias": (19, 1, 1), "residual": (3, 19, *sizes), "gradient": (3, 19, *sizes), "row": (sizes[0], 1),
              "column": (sizes[1],), "turned": (3, 19, *sizes[::-1])}
    other = normal(*shapes[name])

    def function(x, w, other):
        y = tn.conv2d(x, w, padding=1)
        if name == "gradient":
            return tn.where(other > 0, y, 0.0)
        return y + (other.swapaxes(2, 3) if name == "turned" else other)
    found = tn.jit(function)(*map(tn.asarray, (x, w, other)))
    plain = tn.conv2d(*map(tn.asarray, (x, w)), padding=1).numpy()
    wide = other.swapaxes(2, 3) if name == "turned" else other
    expected = np.where(wide > 0, plain, 0) if name == "gradient" else plain + wide
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_an_epilogue_may_ask_for_the_place_of_a_column():
    """The last index alone says where neighbours are, but not what it is itself."""
    x, w = normal(2, 8, 9, 11), normal(16, 8, 3, 3)

    def function(x, w):
        y = tn.conv2d(x, w, padding=1)
        return tn.where(tn.arange(11) < 4, y, 0.0)
    found = tn.jit(function)(tn.asarray(x), tn.asarray(w)).numpy()
    plain = tn.conv2d(tn.asarray(x), tn.asarray(w), padding=1).numpy()
    np.testing.assert_allclose(found, np.where(np.arange(11) < 4, plain, 0), rtol=1e-5, atol=1e-5)

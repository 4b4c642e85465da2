"""A reduction over a short axis, which goes element by element of that axis, is NumPy's."""

import numpy as np
import pytest

import tenon as tn
from tenon.ops import short_axis_reductions
from tenon.ops.short_axis_reductions import is_short, reduced


@pytest.mark.parametrize("shape, axis", [((300, 3), (1,)), ((300, 2), (0,)), ((257, 3, 3), (1, 2)), ((3, 301, 2), (0, 2)),
                                         ((9, 300), (0,)), ((300, 1, 9), (1, 2)), ((300, 10), (1,)), ((255, 3), (1,))])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "?"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_it_agrees_with_numpy(shape, axis, dtype, keepdims):
    x = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
    if x.dtype.kind == "f":
        x.flat[::7] = np.nan
    for y in (x, np.asfortranarray(x), x[::-1], x[:, ::-1]):
        for combine in (np.maximum, np.minimum) if dtype in "?u1" else (np.add, np.multiply, np.maximum, np.minimum):
            expected = combine.reduce(y, axis, keepdims=keepdims)
            found = reduced(combine, y, axis, keepdims)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected.astype(found.dtype), rtol=1e-5)


def test_what_is_short():
    assert is_short((256, 9), (1,)) and is_short((3, 256, 3), (0, 2))
    assert not is_short((256, 10), (1,)) and not is_short((255, 9), (1,)) and not is_short((256, 1), (1,))
    assert not is_short((0, 3), (1,)) and not is_short((256, 0), (1,))


def test_lines_that_lie_apart_are_left_to_numpy(monkeypatch):
    monkeypatch.setattr(short_axis_reductions.np, "ndindex", None)
    reduced(np.add, np.ones((3, 1000)), (0,), False)


def test_equal_calls_give_equal_results():
    x = tn.tensor(np.random.default_rng(0).standard_normal((1000, 7)).astype(np.float32))
    first = x.sum(axis=1).numpy()
    for _ in range(5):
        np.testing.assert_array_equal(x.sum(axis=1).numpy(), first)
    np.testing.assert_array_equal(x.T.sum(axis=0).numpy(), first)

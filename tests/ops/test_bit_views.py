"""`x.view(dtype)`: the bits of elements as another type, beside NumPy's, eager and compiled."""

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, ShapeError
from tenon.types import DTYPES

TYPES = [dtype for dtype in DTYPES if dtype.kind in "buifc"]


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_bits_are_numpys(source) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (3, 32)).astype(np.uint8)
    for target in TYPES:
        given = (raw & 1 if tn.bool in (source, target) else raw).view(source.numpy)
        for call in (lambda x: x.view(target), tn.jit(lambda x: x.view(target))):       # noqa: B023
            found = call(tn.tensor(given)).numpy()
            assert found.dtype == target.numpy and found.tobytes() == given.tobytes(), (source, target)


def test_names_of_types_are_told_from_shapes() -> None:
    x = tn.ones(2, 4)
    assert x.view(tn.int32).tolist() == x.view(np.int32).tolist() == x.view("int32").tolist() == [[0x3F800000] * 4] * 2
    assert x.view(tn.float64).shape == (2, 2) and x.view(4, 2).shape == x.view((-1, 2)).shape == (4, 2)
    assert tn.tensor(1.5).view(tn.int32).item() == 0x3FC00000
    sized = tn.jit(lambda x: x.view(tn.int32).view(tn.float32) * 2)
    assert [sized(tn.ones(n)).tolist() for n in (3, 4, 5)] == [[2.0] * n for n in (3, 4, 5)]
    with pytest.raises(ArgumentError, match="view: float says no width"):
        x.view(float)
    with pytest.raises(ShapeError, match=r"view: an element of float64 is 2 of float32, and the last axis of f32\[3\]"):
        tn.ones(3).view(tn.float64)

"""`np.where` in machine code: the bits, the type and the layout that NumPy gives, or NumPy itself."""

import itertools

import numpy as np
import pytest

from tenon.eager import recipes

pytestmark = pytest.mark.usefixtures("machine_code")
SPECIAL = [0.0, -0.0, 1.0, np.nan, -np.nan, np.inf, -np.inf, 1e-42, 3e38]
SHAPES = [(), (1,), (2,), (15,), (16,), (17,), (31,), (33,), (4096,), (4097,), (16384,), (16385,), (0,), (3, 0), (3, 5), (1, 5), (5, 1),
          (2, 3, 4), (64, 64)]
SIGNALLING = np.array([0x7F800001, 0xFF800001], np.uint32).view(np.float32)      # NaNs that arithmetic would change


def outcome(call, *given, **named):
    try:
        out = call(*given, **named)
    except (TypeError, ValueError) as error:
        return type(error)
    return [(x.dtype, x.shape, x.strides, x.tobytes()) for x in (out if isinstance(out, tuple) else [np.asarray(out)])]


def drawn(shape, dtype, seed):
    random = np.random.default_rng(seed)
    values = random.choice(np.array(SPECIAL) if dtype.kind == "f" else np.arange(-4, 5), shape)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(dtype)


def same(*given):
    assert outcome(recipes.natives[np.where], *given) == outcome(np.where, *given)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "?", "f2", "c8", ">f4"])
def test_every_pair_of_sizes_gives_what_numpy_gives(dtype):
    assert type(recipes.natives[np.where]) is type(len)
    dtype = np.dtype(dtype)
    for shape in SHAPES:
        condition = np.random.default_rng(0).random(shape) < 0.5
        for one, other in itertools.product({shape, (), (1,), shape[1:]}, repeat=2):
            same(condition, drawn(one, dtype, 1), drawn(other, dtype, 2))


def test_parts_of_arrays_and_turned_ones_give_what_numpy_gives():
    condition, x, y = (np.random.default_rng(k).standard_normal((6, 8)).astype(np.float32) for k in range(3))
    condition = condition > 0
    for view in (lambda x: x[::2], lambda x: x[:, 1:], lambda x: x[::-1], lambda x: x.T, np.asfortranarray,
                 lambda x: np.broadcast_to(x[0], (6, 8)), lambda x: x[:, :1], lambda x: x[3, 3]):
        same(view(condition), view(x), view(y))
        same(view(condition), view(x), np.float32(1))
        same(condition, view(x) if view(x).shape == (6, 8) else x, y)


def test_whatever_is_not_usual_is_numpys():
    where, x = recipes.natives[np.where], np.arange(6, dtype=np.float32)
    class Kind(np.ndarray):
        pass
    for given in ((x > 2,), (x, x, x), (x > 2, x), (x > 2, x, x, x), (x > 2, x, 0.5), (True, x, x), (x > 2, [0] * 6, x),
                  (x > 2, x, x.astype(np.float64)), ([0, 1] * 3, x, x), (x > 2, x.view(Kind), x), (None, None, None)):
        assert outcome(where, *given) == outcome(np.where, *given)
    assert type(where((x > 2).view(Kind), x, x)) is type(np.where((x > 2).view(Kind), x, x))
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32)
    same(x > 2, x, unaligned)


def test_bits_are_moved_as_they_are():
    flags = np.array([0, 1, 2, 255], np.uint8).view(bool)       # what is not zero holds
    x, y = np.resize(SIGNALLING, 4), np.arange(4, dtype=np.float32)
    same(flags, x, y)
    same(flags, y, np.asarray(SIGNALLING[1]))
    same(np.resize(flags, 35), np.resize(x, 35), np.resize(y, 35))


def test_the_result_is_new_memory():
    x, where = np.zeros(5, np.float32), recipes.natives[np.where]
    found = where(x == 0, x, x)
    found += 1
    assert x.tolist() == [0.0] * 5

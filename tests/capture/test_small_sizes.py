"""A compiled function of changing sizes meets one that is too small: it does what eager code does, errors included."""

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ShapeError, TenonError


def rolled(x):
    return tn.roll(x, -3, 2)


def rolled_gradient(x):
    return tn.grad(lambda a: tn.square(tn.roll(a, -3, 2)[..., 1:4]).sum())(x)


def windows(x):
    return tn.sliding_window(x, 3, 1, -1)


def pooled(x):
    return tn.max_pool1d(x, 3, 2)


def averaged(x):
    return tn.avg_pool1d(x[:1, :1], 4, 1)


def convolved(x):
    return tn.conv1d(x, tn.ones((2, 2, 3)))


def unfolded(x):
    return tn.unfold(x[:, :, None, :], (1, 3))


def third(x):
    return tn.kthvalue(x, 3, 2)


def largest(x):
    return tn.topk(x, 3, axis=2)


def narrowed(x):
    return tn.narrow(x, 2, 1, 3)


def cut(x):
    return tn.split(x[:1, :1], [2, 3], 2)


def outcome(function, size):
    x = tn.arange(4 * size).reshape(2, 2, size).astype("float32")
    try:
        found = function(x)
    except TenonError as error:
        return type(error)
    return [y.numpy() for y in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("function", [rolled, rolled_gradient, windows, pooled, averaged, convolved, unfolded, third, largest,
                                      narrowed, cut], ids=lambda f: f.__name__)
def test_small_sizes_after_large_ones(function):
    """`x[..., 3:]` and `x[..., :3]` of a roll were read for any size, once they were compiled for some."""
    compiled = tn.jit(function)
    for size in (7, 8, 9, 2, 5, 3, 1, 4):
        want, found = outcome(function, size), outcome(compiled, size)
        if isinstance(want, list):
            assert all(np.array_equal(a, b) for a, b in zip(want, found, strict=True)), size
        else:
            assert found is want, size


def test_sizes_that_are_large_enough_need_no_capture_of_their_own():
    compiled = tn.jit(rolled)
    for size in (7, 8, 9, 5, 4, 11):
        outcome(compiled, size)
    assert sum(len(record.captures) for record in compiled.records.values()) == 2


@pytest.mark.parametrize("function", [
    lambda x: x.max(1), lambda x: x.argmin(), lambda x: tn.linalg.norm(x, float("inf"), 1), lambda x: tn.cov(x)])
def test_what_is_empty_for_a_later_size_is_what_it_is_eagerly(function) -> None:
    """What a composite operator asks about sizes is asked in each capture, not in the first alone."""
    f = tn.jit(middle := lambda x: function(x.split([1, x.shape[1] - 1], 1)[1]))
    for shape in ((3, 5), (4, 7), (3, 2), (2, 2), (2, 6)):
        x = tn.ones(shape)
        try:
            wanted = middle(x).numpy()
        except ShapeError as error:
            with pytest.raises(ShapeError, match=str(error).partition(":")[0]):
                f(x)
        else:
            np.testing.assert_array_equal(f(x).numpy(), wanted)


def test_a_size_that_needs_its_number_leaves_nothing_to_those_that_take_its_symbol():
    f = tn.jit(lambda x, y: (tn.adaptive_avg_pool1d(x, 4), y))
    f(tn.ones(1, 1, 2), tn.arange(1))
    for columns, rest in ((8, 2), (8, 3), (12, 5)):
        pooled, same = f(tn.arange(8.0 * columns).reshape(8, 1, columns), tn.arange(rest))
        np.testing.assert_array_equal(pooled.numpy(), np.arange(8.0 * columns).reshape(8, 1, 4, -1).mean(3))
        assert same.shape == (rest,)
    assert not any(c.failures for record in f.records.values() for c in record.captures)


@pytest.mark.parametrize("squeezed", [tn.squeeze, lambda x: tn.squeeze(x, (2, 3)) if x.shape[2:] == (1, 1) else x.squeeze(3)])
def test_axes_that_become_one_are_squeezed(squeezed):
    """A size made of others, (N - 2) // 4 + 1, is 1 for some of those that a capture holds for."""
    def f(x):
        return squeezed(tn.max_pool2d(x, 4, 4, 1))
    compiled = tn.jit(f)
    for height, width in ((2, 2), (7, 3), (3, 3), (9, 9), (7, 3), (3, 11)):
        x = tn.randn(1, 1, height, width)
        np.testing.assert_array_equal(compiled(x).numpy(), f(x).numpy())

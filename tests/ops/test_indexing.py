"""Indexing against NumPy on random keys, reading and writing, with gradients; order and search."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tenon as tn
from compute_rule import check
from gradients import check_gradient
from tenon.errors import ArgumentError, CaptureError, DTypeError, GradientError, OutOfRange, ShapeError
from tenon.graph.build import trace
from tenon.ops.indexing import gather, one_hot, put, scatter_op, take, wrap_index
from tenon.ops.slicing import slice_update
from tenon.types import TensorType, float64

RNG = np.random.default_rng(0)
SHAPE = (3, 4, 2, 5)


def normal(shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


@st.composite
def keys(draw):
    """A shape and a key for it: basic items, with broadcasting index arrays or a mask in some places."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0 if draw(st.integers(0, 9)) == 0 else 1,
                                  max_side=4))
    broadcast = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    items, axis, dots = [], 0, False
    while axis < len(shape) and draw(st.integers(0, 5)):
        n = shape[axis]
        kind = draw(st.sampled_from(["slice", "integer", "array", "none", "dots", "mask"]))
        if kind == "slice":
            items.append(draw(st.slices(n)))
        elif kind == "integer" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and n:
            items.append(draw(hnp.arrays(np.int64, draw(st.sampled_from([broadcast, (), broadcast[-1:]])),
                                         elements=st.integers(-n, n - 1))))
        elif kind == "none":
            items.append(None)
            continue
        elif kind == "dots" and not dots:
            items.append(...)
            dots = True
            break
        elif kind == "mask" and axis == 0 and not items:
            ndim = draw(st.integers(1, len(shape)))
            items.append(draw(hnp.arrays(np.bool_, shape[:ndim])))
            axis += ndim
            continue
        else:
            continue
        axis += 1
    key = tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]
    try:
        elements(shape)[key]
    except IndexError:          # a mask and an array that select different numbers of elements
        assume(False)
    return shape, key


def ours(key):
    """The key with tensors for arrays."""
    listed = key if isinstance(key, tuple) else (key,)
    found = tuple(tn.tensor(item) if isinstance(item, np.ndarray) else item for item in listed)
    return found if isinstance(key, tuple) else found[0]


def elements(shape):
    return np.arange(1.0, 1 + int(np.prod(shape))).reshape(shape)


@settings(max_examples=200, deadline=None)
@given(keys())
def test_reading_is_numpys(case):
    shape, key = case
    x = elements(shape)
    for mine in (key, ours(key)):
        np.testing.assert_array_equal(tn.tensor(x)[mine].numpy(), x[key], strict=True)


@settings(max_examples=200, deadline=None)
@given(keys(), st.booleans())
def test_writing_is_numpys(case, scalar):
    shape, key = case
    x = elements(shape)
    value = -1.5 if scalar else -elements(x[key].shape)
    for mine in (key, ours(key)):
        y, expected = tn.tensor(x), x.copy()
        y[mine] = value
        expected[key] = value
        np.testing.assert_array_equal(y.numpy(), expected)


@settings(max_examples=60, deadline=None)
@given(keys())
def test_the_gradient_of_reading_counts_how_often_each_element_is_read(case):
    shape, key = case
    x = tn.tensor(elements(shape), requires_grad=True)
    y = x[ours(key)]
    (y * y).sum().backward()
    expected = np.zeros(shape)
    np.add.at(expected, key, 2 * x.numpy()[key])
    np.testing.assert_allclose(x.grad.numpy() if x.grad is not None else np.zeros(shape), expected)


@pytest.mark.parametrize("key", [
    np.s_[1:, ::-2], np.s_[0], np.s_[:, [0, 2, 2]], np.s_[[0, 1, 0], [2, 2, 2]], (np.array([[True, False, True]] * 3)),
], ids=str)
def test_gradients_of_writing(key):
    x, u = normal((3, 3)), normal(normal((3, 3))[key].shape)
    check_gradient(lambda x, u: tn.setitem(x * x, key, u * u), x, u)


@pytest.mark.parametrize(("key", "error"), [
    (5, OutOfRange), (-4, OutOfRange), ([0, 3], OutOfRange), (np.s_[0, 0, 0, 0, 0], OutOfRange), (np.s_[..., ...],
                                                                                                  OutOfRange),
    (1.0, DTypeError), ("a", DTypeError), (np.array([0.5]), DTypeError), (np.s_[::0], ShapeError),
    (np.s_[[0, 1], [0, 1, 2]], ShapeError),
], ids=str)
def test_keys_that_fit_nothing(key, error):
    x = tn.tensor(elements(SHAPE[:1] + (4, 2, 5)))
    with pytest.raises(error):
        x[key]
    with pytest.raises(error):
        x[key] = 0


def test_an_index_out_of_range_names_index_axis_and_size():
    x = tn.tensor(np.zeros((2, 3)))
    with pytest.raises(OutOfRange, match="index 7 is out of range for axis 1 of size 3"):
        x[:, tn.tensor([0, 7])]
    with pytest.raises(OutOfRange, match="take: index -4 is out of range for axis 1 of size 3"):
        tn.take(x, tn.tensor([-4]), axis=1)
    with pytest.raises(IndexError):
        x[2]


def test_the_one_place_of_an_axis_is_checked_too():
    places = tn.tensor(np.array([0, 1]))
    for call in (lambda x, i: tn.take(x, i, axis=0) * 2, lambda x, i: tn.exp(x)[i]):
        with pytest.raises(OutOfRange, match="index 1 is out of range for axis 0 of size 1"):
            tn.jit(call)(tn.ones((1, 3)), places)


def test_writing_rebinds_one_object_and_leaves_others():
    x = tn.tensor(np.zeros(3))
    y, z = x, x + 0
    x[1] = 5.0
    assert y.tolist() == [0, 5, 0] and z.tolist() == [0, 0, 0]
    x[0] += 2.0
    assert y.tolist() == [2, 5, 0]


def test_writing_into_a_leaf_that_requires_a_gradient_is_refused():
    x = tn.tensor(np.zeros(3), requires_grad=True)
    with pytest.raises(GradientError):
        x[0] = 1.0


def test_a_value_that_does_not_broadcast_is_refused():
    x = tn.tensor(np.zeros((2, 3)))
    for key in (0, [0, 1], np.array([True, False])):
        with pytest.raises(ShapeError):
            x[key] = tn.tensor(np.zeros(2))


def test_a_data_dependent_shape_cannot_be_captured_and_says_so():
    with pytest.raises(CaptureError, match="depends on the data"):
        trace(lambda x: tn.nonzero(x), TensorType(float64, (3,)))


def test_writing_by_a_mask_is_captured():
    graph = trace(lambda x: tn.setitem(x, x > 0, 0), TensorType(float64, (3,)))
    assert "where" in str(graph)


# ---------------------------------------------------------------- the operators

AT = RNG.integers(-4, 4, (2, 3))
REDUCTIONS = ["set", "add", "mul", "max", "min"]


def test_compute_rules():
    x = normal((3, 4, 2))
    check(take, x, AT, axis=1)
    check(take, x, np.array(-1), axis=1)
    check(gather, x, RNG.integers(-4, 4, (3, 5, 2)), axis=1)
    check(one_hot, AT, num_classes=4, dtype="f32")
    check(wrap_index, AT, size=4, axis=0)
    check(slice_update, normal((5, 6)), normal((2, 3)), start=(1, 5), step=(3, -2))
    check(slice_update, normal((5, 6)), normal((5, 2)), start=(0, 1), step=(1, 1))


def test_gradients_of_reading():
    x = normal((3, 4))
    check_gradient(lambda x: tn.take(x, AT, axis=1), x, order=2)
    check_gradient(lambda x: tn.gather(x, np.array([[0, 0], [3, 1]]), axis=1), x, order=2)
    check_gradient(lambda x: tn.take_along_axis(x, np.array([[0, 0, -1]]).T, axis=1), x)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_and_put_are_loops_and_have_gradients(reduce):
    fold = {"set": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduce]
    x, at = normal((4, 3)), np.array([[0, 1, -1], [0, 2, 3]])
    updates, expected = normal((2, 3)), x.copy()
    for i, j in np.ndindex(2, 3):
        expected[at[i, j], j] = fold(expected[at[i, j], j], updates[i, j])
    np.testing.assert_allclose(tn.scatter(tn.tensor(x), at, tn.tensor(updates), reduce=reduce).numpy(), expected)
    check_gradient(lambda x, u: scatter_op(x, at, u, axis=0, reduce=reduce), x, updates)

    rows, updates, expected = np.array([3, 0, -1, 3]), normal((4, 3)), x.copy()
    for k, row in enumerate(rows):
        expected[row] = fold(expected[row], updates[k])
    np.testing.assert_allclose(put(x, rows, updates, axis=0, reduce=reduce).numpy(), expected)
    check_gradient(lambda x, u: put(x, rows, u, axis=0, reduce=reduce), x, updates)


def test_functions_that_write_at_indices():
    x, at = tn.tensor(np.zeros((3, 2))), tn.tensor([0, 0, 2])
    assert tn.index_add(x, at, 1.0).tolist() == [[2, 2], [0, 0], [1, 1]]
    assert tn.index_copy(x, at, tn.tensor([[1.0, 2], [3, 4], [5, 6]])).tolist() == [[3, 4], [0, 0], [5, 6]]
    assert tn.index_fill(x, tn.tensor([1]), 7.0, axis=1).tolist() == [[0, 7]] * 3
    assert tn.index_select(x, at).shape == (3, 2)
    assert tn.masked_select(tn.tensor([[1, 2], [3, 4]]), tn.tensor([[True, False], [False, True]])).tolist() == [1, 4]
    assert tn.masked_fill(tn.tensor([1, 2]), tn.tensor([True, False]), 9).tolist() == [9, 2]
    with pytest.raises(ArgumentError):
        tn.scatter(x, at, 1.0, reduce="mean")


def test_one_hot():
    assert tn.one_hot(tn.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(OutOfRange):
        tn.one_hot(tn.tensor([3]), 3)


# ---------------------------------------------------------------- order and search

@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.bool_, np.complex128, np.uint8])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_both_ways(dtype, descending):
    x = RNG.integers(0, 3, (4, 50)).astype(dtype)
    expected = np.array([sorted(range(50), key=lambda k: (x[r, k].real, k) if not descending else (-1.0 * x[r, k].real,
                                                                                                   k))
                         for r in range(4)])
    np.testing.assert_array_equal(tn.argsort(x, axis=1, descending=descending).numpy(), expected)
    np.testing.assert_array_equal(tn.sort(x, axis=1, descending=descending).numpy(), np.take_along_axis(x, expected, 1))


def test_gradients_of_order():
    x = normal((3, 5))
    check_gradient(lambda x: tn.sort(x, axis=0, descending=True), x, order=2)
    check_gradient(lambda x: tn.topk(x, 2)[0], x)
    check_gradient(lambda x: tn.kthvalue(x, 3, axis=0)[0], x)
    check_gradient(lambda x: tn.median(x, axis=1), x)
    check_gradient(lambda x: tn.unique(x), x)


def test_quantiles_are_numpys():
    x = normal((4, 7))
    for q in (0.0, 0.3, 0.5, 1.0):
        np.testing.assert_allclose(tn.quantile(tn.tensor(x), q, axis=1).numpy(), np.quantile(x, q, axis=1))
    np.testing.assert_allclose(tn.median(tn.tensor(x)).numpy(), np.median(x))
    x[0, 0] = np.nan
    assert np.isnan(tn.median(tn.tensor(x), axis=1).numpy()).tolist() == [True, False, False, False]


def test_search():
    x, v = np.sort(normal(20)), normal((3, 4))
    for side in ("left", "right"):
        np.testing.assert_array_equal(tn.searchsorted(x, v, side=side).numpy(), np.searchsorted(x, v, side))
    rows = np.sort(normal((3, 9)), 1)
    expected = np.stack([np.searchsorted(a, b) for a, b in zip(rows, v)])
    np.testing.assert_array_equal(tn.searchsorted(rows, v).numpy(), expected)
    assert tn.bucketize(tn.tensor([3.0, 6.0]), tn.tensor([1.0, 3.0, 5.0])).tolist() == [1, 3]
    assert tn.bincount(tn.tensor([1, 3, 1]), minlength=6).tolist() == [0, 2, 0, 1, 0, 0]
    assert tn.bincount(tn.tensor([1, 0]), tn.tensor([0.5, 2.0])).tolist() == [2.0, 0.5]


def test_unique_and_nonzero_are_numpys():
    x = RNG.integers(0, 4, (3, 5))
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    found = tn.unique_all(tn.tensor(x))
    for mine, expected in zip(found, (values, first, inverse.reshape(x.shape), counts)):
        np.testing.assert_array_equal(mine.numpy(), expected)
    assert found.counts is found[3]
    for mine, expected in zip(tn.nonzero(tn.tensor(x)), np.nonzero(x)):
        np.testing.assert_array_equal(mine.numpy(), expected)
    assert len(tn.unique_values(tn.tensor([float("nan")] * 2)).numpy()) == 2


def test_the_tape_keeps_what_an_in_place_operation_replaces():
    x = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    z = y * y
    y *= 3.0
    y[0] = 0.0
    (z.sum() + y.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * x.numpy() ** 3 + [0, 12, 18])


@pytest.mark.parametrize(("shape", "axes"), [((3, 4), 2), ((3, 4), 1), ((0, 4), 1), ((5,), 1), ((2, 3, 4), 2),
                                             ((3, 0), 1)])
def test_rows_that_a_mask_chooses_and_their_gradient(shape, axes):
    rng = np.random.default_rng(0)
    given, chosen = rng.standard_normal(shape).astype(np.float32), rng.random(shape[:axes]) < 0.5
    for mask in (chosen, tn.asarray(chosen), *([chosen.tolist()] if chosen.size else [])):
        np.testing.assert_array_equal(tn.asarray(given)[mask].numpy(), given[chosen])
    x = tn.asarray(given).requires_grad_()
    x[tn.asarray(chosen)].sum().backward()
    wide = chosen.reshape(chosen.shape + (1,) * (len(shape) - axes))
    np.testing.assert_array_equal(x.grad.numpy(), np.broadcast_to(wide, shape))


def test_a_slice_of_nothing_has_a_gradient_of_zeros():
    x = tn.ones(3, requires_grad=True)
    (x[:0] * x[3:]).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("form", [lambda f: f, tn.jit])
def test_masked_scatter_takes_from_the_source_what_it_has(form):
    place = form(tn.masked_scatter)
    x, mask = tn.zeros(4), tn.tensor([False, True, False, True])
    assert place(x, mask, tn.tensor([5.0, 6.0])).tolist() == [0, 5, 0, 6]
    with pytest.raises(OutOfRange, match="index 1 is out of range for axis 0 of size 1"):
        place(x, mask, tn.tensor([5.0]))

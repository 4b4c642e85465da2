"""Reductions and running totals against NumPy: axis forms, empties, element types, gradients at special inputs."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from gradients import check_gradient
from tenon.errors import ShapeError

X = np.random.default_rng(0).normal(size=(2, 3, 4))
AXES: list[Any] = [None, 0, -1, (0, 2), (-1, -3), (), [1]]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "nansum", "nanmean",
                                  "amax", "count_nonzero"])
def test_every_form_of_axis(name: str, axis: Any, keepdims: bool) -> None:
    numpys = tuple(axis) if isinstance(axis, list) else axis
    expected = getattr(np, name)(X, axis=numpys, keepdims=keepdims)
    got = getattr(tn, name)(X, axis=axis, keepdims=keepdims)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str, axis: Any, keepdims: bool) -> None:
    for x in (X, np.array([[1.0, np.nan], [3, np.nan]]), np.array([[2, 2], [1, 1]])):
        got = getattr(tn, name)(x, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(got.numpy(), getattr(np, name)(x, axis=axis, keepdims=keepdims))
        assert got.dtype.name == "int64"


def test_nothing_to_reduce() -> None:
    empty = tn.zeros(2, 0)
    assert tn.sum(empty).item() == 0 and tn.prod(empty, axis=1).tolist() == [1, 1]
    assert not tn.any(empty) and tn.all(empty)
    assert np.isnan(tn.mean(empty).item()) and tn.logsumexp(empty, axis=1).tolist() == [-np.inf, -np.inf]
    assert tn.max(empty, axis=0).shape == (0,) and tn.sum(empty, axis=0).shape == (0,)
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ShapeError) as error:
            getattr(tn, name)(empty, axis=1)
        shown = str(error.value)
        assert f"{name}: axis 1 of f32[2, 0] is empty, there is no element to take" in shown
        assert "getattr(tn, name)(empty, axis=1)" in shown


def test_a_wrong_axis_is_an_error_at_the_users_line() -> None:
    x = tn.zeros(2, 3)
    with pytest.raises(ShapeError) as error:
        x.sum(axis=2)
    assert "axis 2 is out of range for a tensor of 2 dimensions" in str(error.value)
    assert "x.sum(axis=2)" in str(error.value) and "hint: axis runs from -2 to 1" in str(error.value)
    with pytest.raises(ShapeError, match="names an axis twice"):
        x.sum(axis=(0, -2))


@pytest.mark.parametrize(("given", "name", "expected"), [
    ("i8", "sum", "i64"), ("u8", "sum", "u64"), ("bool", "sum", "i64"), ("f16", "sum", "f16"), ("i32", "prod", "i64"),
    ("i64", "mean", "f32"), ("bf16", "mean", "bf16"), ("f16", "var", "f16"), ("c64", "var", "f32"), ("i8", "max", "i8"),
    ("i32", "cumsum", "i64"), ("i32", "logsumexp", "f32"), ("c64", "norm", "f32"), ("f16", "std", "f16"),
])
def test_element_types_of_results(given: str, name: str, expected: str) -> None:
    assert getattr(tn, name)(tn.ones(3, dtype=given)).dtype.short == expected


def test_the_element_type_can_be_chosen() -> None:
    assert tn.tensor([100, 100], dtype="i8").sum(dtype="i8").item() == -56
    assert tn.tensor([1, 2]).sum(dtype="f64").dtype.name == "float64"
    assert tn.tensor([1, 2]).cumsum(0, dtype="f32").tolist() == [1.0, 3.0]


def test_narrow_floats_are_summed_in_float32() -> None:
    x = tn.ones(4096, dtype="f16") * 32
    assert tn.mean(x).item() == 32.0                    # the sum alone would be infinite
    assert tn.var(x).item() == 0.0
    assert tn.sum(tn.full((4097,), 1.0, dtype="bf16")).item() == 4096.0


def test_var_with_correction() -> None:
    for correction in (0, 1, 0.5):
        np.testing.assert_allclose(tn.var(X, axis=1, correction=correction).numpy(), np.var(X, axis=1, ddof=correction))
    assert np.isnan(tn.var(tn.ones(1), correction=1).item())


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_prod_with_zeros_has_the_right_gradient(axis: Any) -> None:
    for x in ([[2.0, 0.0, 3.0], [1.0, 4.0, 5.0]], [[2.0, 0.0, 3.0], [0.0, 4.0, 5.0]]):
        check_gradient(lambda t: tn.prod(t, axis=axis), np.array(x))


def test_cumprod_with_zeros_has_the_right_gradient() -> None:
    for x in ([2.0, 0.0, 3.0, 4.0], [2.0, 0.0, 3.0, 0.0, 5.0], [0.0, 0.0], [1.5, 2.5]):
        check_gradient(lambda t: tn.cumprod(t, 0), np.array(x))


def test_equal_extremes_share_the_gradient() -> None:
    x = tn.tensor([1.0, 3.0, 3.0], requires_grad=True)
    x.max().backward()
    assert x.grad.tolist() == [0.0, 0.5, 0.5]


def test_logsumexp_of_large_and_of_infinite_numbers() -> None:
    assert tn.logsumexp(tn.tensor([1000.0, 1000.0])).item() == pytest.approx(1000 + np.log(2))
    x = tn.tensor([[-np.inf, -np.inf], [np.inf, 0.0], [-np.inf, 1.0]], requires_grad=True)
    y = tn.logsumexp(x, axis=1)
    assert y.tolist() == [-np.inf, np.inf, 1.0]
    y[2].backward()
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, -2, np.inf, -np.inf])
def test_norms_of_every_order(order: float) -> None:
    for axis in (0, 1, -1):
        np.testing.assert_allclose(tn.norm(X, order, axis=axis).numpy(), np.linalg.norm(X, order, axis=axis))
    if order:
        check_gradient(lambda t: tn.norm(t, order, axis=1), X)
    z = X + 1j * X[::-1]
    np.testing.assert_allclose(tn.norm(z, order, axis=2).numpy(), np.linalg.norm(z, order, axis=2))


def test_the_norm_of_zeros_has_gradient_zero() -> None:
    for order in (1, 2, 3, np.inf):
        x = tn.zeros(3, requires_grad=True)
        tn.norm(x, order).backward()
        assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_running_totals(name: str, axis: Any) -> None:
    np.testing.assert_allclose(getattr(tn, name)(X, axis).numpy(), getattr(np, name)(X, axis))
    assert getattr(tn, name)(np.zeros((0, 2)), 0).shape == (0, 2)


def test_running_extremes_and_logsumexp() -> None:
    x = np.array([[1.0, 3.0, 2.0, 3.0], [0.0, np.nan, 5.0, -1.0]])
    np.testing.assert_array_equal(tn.cummax(x, 1).numpy(), np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(tn.cummin(x, 0).numpy(), np.minimum.accumulate(x, 0))
    np.testing.assert_allclose(tn.logcumsumexp(X, 1).numpy(), np.logaddexp.accumulate(X, 1))
    t = tn.tensor([1.0, 3.0, 2.0], requires_grad=True)
    tn.cummax(t, 0).sum().backward()
    assert t.grad.tolist() == [1.0, 2.0, 0.0]


def test_cumulative_sum_with_its_start() -> None:
    assert tn.cumulative_sum(tn.tensor([1, 2]), include_initial=True).tolist() == [0, 1, 3]
    assert tn.cumulative_prod(tn.ones(2, 2) * 2, axis=0, include_initial=True).tolist() == [[1, 1], [2, 2], [4, 4]]


def test_differences_and_integrals() -> None:
    for n in (0, 1, 2, 5):
        np.testing.assert_allclose(tn.diff(X, n, axis=1).numpy(), np.diff(X, n, axis=1), rtol=1e-12)
    assert tn.diff(tn.tensor([1, 4]), prepend=0, append=tn.tensor([5, 5])).tolist() == [1, 3, 1, 0]
    points = np.array([0.0, 1.0, 4.0])
    np.testing.assert_allclose(tn.trapezoid(X, points, axis=1).numpy(), np.trapezoid(X, points, axis=1))
    np.testing.assert_allclose(tn.trapezoid(X, dx=0.5).numpy(), np.trapezoid(X, dx=0.5))


def test_reductions_of_scalars() -> None:
    for name in ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "var", "logsumexp"):
        assert getattr(tn, name)(tn.tensor(0.0)).shape == ()
    assert tn.argmax(tn.tensor(3.0), keepdims=True).shape == ()


def test_elements_before_an_infinite_logcumsumexp_get_nothing_from_it() -> None:
    gradient = tn.grad(lambda x: tn.logcumsumexp(x, 0)[1:].sum())(tn.tensor([900.0, -900.0, np.inf], dtype="float64"))
    np.testing.assert_array_equal(gradient.numpy(), [1, 0, np.nan])

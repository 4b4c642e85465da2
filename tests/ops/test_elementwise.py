"""Elementwise operators where examples cannot say it: special values, promotion, kinks, complex gradients, errors."""

import math
import platform
from typing import Any

import mpmath
import numpy as np
import pytest

import tenon as tn
from gradients import check_gradient
from tenon.errors import ArgumentError, DTypeError
from tenon.ops import special_reference

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float64)
NUMPY_UNARY = ["abs", "sign", "square", "negative", "positive", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite",
               "isposinf", "isneginf", "signbit", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt",
               "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "reciprocal", "rint", "deg2rad", "rad2deg",
               "nan_to_num", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "sinc"]
NUMPY_BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "maximum",
                "minimum", "fmax", "fmin", "hypot", "arctan2", "logaddexp", "logaddexp2", "copysign", "nextafter",
                "heaviside", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
                "logical_or"]


@pytest.mark.parametrize("name", NUMPY_UNARY)
def test_special_values_are_numpys(name: str) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(SPECIAL)
    np.testing.assert_allclose(getattr(tn, name)(SPECIAL).numpy(), expected, rtol=1e-15)


@pytest.mark.parametrize("name", NUMPY_BINARY)
def test_pairs_of_special_values_are_numpys(name: str) -> None:
    x, y = SPECIAL[:, None], SPECIAL[None, :]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    got = getattr(tn, name)(x, y).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    if got.dtype == np.float64:
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "gcd", "lcm", "bitwise_and", "bitwise_xor",
                                  "left_shift", "right_shift", "maximum"])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8])
def test_whole_numbers_are_numpys(name: str, dtype: Any) -> None:
    values = np.array([-7, -1, 0, 1, 3, 7, 100], np.int64).astype(dtype)
    if name in ("gcd", "lcm"):
        values = np.minimum(values, dtype(11))
    x, y = values[:, None], values[None, :]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(getattr(tn, name)(x, y).numpy(), getattr(np, name)(x, y))


@pytest.mark.parametrize(("x", "y", "expected"), [
    ("i32", 2, "i32"), ("i32", 2.0, "f32"), ("u8", "i8", "i16"), ("i64", "f16", "f16"), ("f16", "bf16", "f32"),
    ("f64", 1j, "c128"), ("f32", "c64", "c64"), ("bool", 1, "i64"), ("bool", "bool", "bool"), ("f32", True, "f32"),
])
def test_types_are_promoted_as_in_the_array_api(x: str, y: Any, expected: str) -> None:
    left = tn.ones(2, dtype=x)
    right = tn.ones(2, dtype=y) if isinstance(y, str) else y
    assert (left + right).dtype.short == expected
    assert tn.add(right, left).dtype.short == expected


def test_whole_numbers_divide_in_the_default_float() -> None:
    assert (tn.tensor([1, 2]) / 2).dtype is tn.tensor(1.0).dtype
    assert tn.exp(tn.tensor([1, 2], dtype="i8")).dtype.name == "float32"


def test_numpy_arrays_and_numbers_mix_with_tensors() -> None:
    array = np.array([1.0, 2.0], np.float32)
    assert (array * tn.tensor([3.0, 4.0])).tolist() == [3.0, 8.0]
    assert tn.add(array, 1).tolist() == (1 + tn.asarray(array)).tolist() == [2.0, 3.0]
    assert tn.hypot(3.0, 4.0).item() == 5.0


def test_powers_of_whole_numbers() -> None:
    x = tn.tensor([2, -1, 0, 3])
    assert (x ** 3).tolist() == [8, -1, 0, 27]
    assert (x ** tn.tensor([-1, -3, 0, 40])).tolist() == [0, -1, 1, 3 ** 40 - 2 ** 64]
    with pytest.raises(ArgumentError, match="negative integer power") as error:
        x ** -1
    assert "x ** -1" in str(error.value) and "hint: write x ** -1.0" in str(error.value)


def test_a_type_that_is_not_taken_is_an_error_at_the_users_line() -> None:
    mask = tn.tensor([True, False])
    with pytest.raises(DTypeError) as error:
        tn.negative(mask)
    shown = str(error.value)
    assert shown.startswith("negative: elements of type bool are not taken")
    assert "tn.negative(mask)" in shown and "^^^" in shown and "~x turns a mask round" in shown
    with pytest.raises(DTypeError, match="bitwise_and: elements of type float32"):
        tn.tensor([1.0]) & tn.tensor([2.0])


def test_what_is_no_tensor_is_an_error() -> None:
    with pytest.raises(DTypeError, match="expected a tensor, an array or a number, not str"):
        tn.exp("1")


@pytest.mark.parametrize(("fn", "at", "expected"), [
    (tn.abs, 0.0, 0.0), (lambda x: tn.clip(x, 0.0, 1.0), 1.0, 1.0), (lambda x: tn.clip(x, 0.0, 1.0), 1.5, 0.0),
    (lambda x: tn.maximum(x, 2.0), 2.0, 0.5), (lambda x: tn.minimum(x, 2.0), 3.0, 0.0), (tn.sinc, 0.0, 0.0),
    (lambda x: x ** 0, 0.0, 0.0), (lambda x: 2.0 ** x, 0.0, np.log(2)), (lambda x: tn.zeros(()) ** x, np.nan, np.nan),
    (lambda x: tn.zeros(()) ** x, 0.0, 0.0), (lambda x: tn.xlogy(0.0, x), 0.0, np.nan),
    (lambda x: tn.xlogy(x, 0.0), 0.0, 0.0), (lambda x: tn.xlogy(x, 0.25), 0.0, np.log(0.25)),
    (lambda x: tn.hypot(x, 1.0), 0.0, 0.0), (lambda x: tn.atan2(x, 0.0), 0.0, 0.0),
])
def test_gradients_at_kinks_follow_pytorch(fn: Any, at: float, expected: float) -> None:
    x = tn.tensor(at, dtype="f64", requires_grad=True)
    fn(x).backward()
    assert (x.grad is None and expected == 0) or np.isclose(x.grad.item(), expected, equal_nan=True)


def test_where_keeps_the_other_sides_nan_out_of_the_gradient() -> None:
    x = tn.tensor([0.0, 4.0], requires_grad=True)
    tn.where(x > 0, tn.sqrt(tn.where(x > 0, x, 1.0)), 0.0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "rsqrt", "square",
                                  "reciprocal", "asin", "acos", "atan", "asinh", "acosh", "atanh", "abs", "angle",
                                  "sign", "real", "imag", "conj", "exp2", "expm1", "log1p", "log2", "sigmoid",
                                  "prod", "sum", "mean", "var", "cumprod", "cumsum", "vector_norm"])
def test_complex_gradients_are_central_differences(name: str) -> None:
    rng = np.random.default_rng(3)
    check_gradient(getattr(tn, name), rng.uniform(0.2, 0.8, 3) + 1j * rng.uniform(0.2, 0.8, 3))


@pytest.mark.parametrize("name", ["multiply", "divide", "power", "subtract"])
def test_complex_gradients_of_pairs(name: str) -> None:
    rng = np.random.default_rng(4)
    z = [rng.uniform(0.5, 1, 3) + 1j * rng.uniform(0.2, 0.8, 3) for _ in range(2)]
    check_gradient(getattr(tn, name), *z)
    check_gradient(getattr(tn, name), z[0], rng.uniform(0.5, 1, 3))


def test_a_real_input_of_a_complex_product_has_a_real_gradient() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    tn.real(x * tn.tensor([1 + 2j, 3 - 1j])).sum().backward()
    assert x.grad.dtype.name == "float32" and x.grad.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(("name", "reference", "low", "high"), [
    ("erfinv", mpmath.erfinv, -0.999999, 0.999999), ("digamma", mpmath.digamma, -9.5, 20), ("erfc", mpmath.erfc, -3, 9),
    ("i0", lambda x: mpmath.besseli(0, x), -40, 40), ("i1", lambda x: mpmath.besseli(1, x), -40, 40),
    ("lgamma", lambda x: mpmath.log(abs(mpmath.gamma(x))), -9.5, 50),
])
def test_special_functions_against_mpmath(name: str, reference: Any, low: float, high: float) -> None:
    x = np.random.default_rng(5).uniform(low, high, 40)
    expected = np.array([float(reference(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(getattr(special_reference, name)(x), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_of_many_numbers_is_that_of_each(dtype: Any) -> None:
    x = np.concatenate([np.linspace(-7, 7, 3001), 10.0 ** -np.arange(0, 300, 7), [0.0, -0.0, np.inf, -np.inf, np.nan]])
    x = x.astype(dtype)
    with np.errstate(all="raise", under="ignore"):
        found, expected = special_reference.erf(x), np.array([math.erf(v) for v in x])
    np.testing.assert_array_max_ulp(found[:-1], expected[:-1], 2)
    assert np.isnan(found[-1]) and np.signbit(found[-4]) and found.dtype == np.float64
    assert special_reference.erf(x.reshape(-1, 1)).shape == (x.size, 1)


def test_polygamma_against_mpmath() -> None:
    for n in (1, 2, 3):
        x = np.random.default_rng(n).uniform(0.2, 20, 10)
        expected = [float(mpmath.polygamma(n, mpmath.mpf(float(v)))) for v in x]
        np.testing.assert_allclose(tn.polygamma(n, x).numpy(), expected, rtol=1e-13)


def test_special_functions_at_their_poles() -> None:
    x = np.array([0.0, -1.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(tn.lgamma(x).numpy(), [np.inf, np.inf, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(tn.digamma(x).numpy(), [-np.inf, np.nan, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(tn.erfinv(np.array([1.0, -1.0, 2.0])).numpy(), [np.inf, -np.inf, np.nan])


def test_round_with_decimals() -> None:
    x = np.array([0.5, 1.5, -2.345, 1234.5])
    for decimals in (0, 1, 2, -2):
        np.testing.assert_allclose(tn.round(x, decimals).numpy(), np.round(x, decimals))
    assert tn.round(tn.tensor([15, 25, 149]), -1).tolist() == [20, 20, 150]


def test_clip_broadcasts_and_takes_either_bound() -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(tn.clip(x, np.array([1.0, 2, 3])).numpy(), np.clip(x, [1.0, 2, 3], None))
    np.testing.assert_array_equal(tn.clip(x, max=3).numpy(), np.clip(x, None, 3))
    assert tn.clip(tn.arange(3)).tolist() == [0, 1, 2]
    check_gradient(lambda x, a, b: tn.clip(x, a, b), x + 0.1, np.full(3, 1.0), np.array([[2.0], [1.5]]))


def test_nan_to_num_of_every_float() -> None:
    for short in ("f16", "bf16", "f32", "f64"):
        y = tn.nan_to_num(tn.tensor([np.nan, np.inf, -np.inf, 1.0], dtype=short))
        assert tn.isfinite(y).all() and y.dtype.short == short
    z = np.array([complex(np.nan, 1), complex(2, -np.inf)])
    np.testing.assert_array_equal(tn.nan_to_num(z).numpy(), np.nan_to_num(z))
    assert tn.nan_to_num(tn.tensor([np.nan, np.inf]), nan=1.0, posinf=2.0).tolist() == [1.0, 2.0]


def test_aliases_are_the_same_function() -> None:
    for name, other in {"sub": "subtract", "mul": "multiply", "true_divide": "divide", "pow": "power", "eq": "equal",
                        "clamp": "clip", "arcsin": "asin", "absolute": "abs", "cat": "concat", "amax": "max",
                        "unsqueeze": "expand_dims", "permute_dims": "permute", "unbind": "unstack",
                        "neg": "negative"}.items():
        assert getattr(tn, name) is getattr(tn, other)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [3, -1, 2.5])
def test_powers_that_are_no_logarithms_when_compiled(exponent, dtype):
    ends = np.finfo(dtype)
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -3, ends.max, ends.tiny, ends.smallest_subnormal,
                       *np.random.default_rng(0).normal(0, 9, 200)], dtype)
    found = tn.jit(lambda x: x ** exponent)(tn.tensor(values)).numpy()
    with np.errstate(all="ignore"):
        exact = np.power(values.astype(np.longdouble), np.longdouble(exponent)).astype(dtype)
    np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(exact[:4]))
    np.testing.assert_array_max_ulp(np.nan_to_num(found, posinf=ends.max), np.nan_to_num(exact, posinf=ends.max), 2)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_power_of_a_half_is_a_root_eager_and_compiled(dtype):
    """As in PyTorch and NumPy: of -inf it is NaN, although `pow` in C says inf."""
    x = tn.tensor([-math.inf, -0.0, 0.0, -1.0, math.inf, math.nan, 2.0, 1e-3], dtype=dtype)
    for exponent, root in ((0.5, tn.sqrt), (-0.5, tn.rsqrt)):
        for power in (lambda x, n=exponent: x ** n, tn.jit(lambda x, n=exponent: x ** n)):
            assert str(power(x).tolist()) == str(root(x).tolist())      # with the signs of zeros


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_conversions_to_integers_end_where_the_type_does(source, target):
    info = np.iinfo(target)
    around = [float(end) + by for end in (info.min, info.max) for by in (-300, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 300)]
    special = [0.7, -0.7, np.inf, -np.inf, np.nan, 1e30, -1e30, -0.0]
    values = tn.tensor([*around, *special] * 3, dtype="float64").astype(source)
    found = tn.jit(lambda x: x.astype(target))(values)
    assert found.tolist() == values.astype(target).tolist()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="NumPy's extremes choose another zero here")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fn", [tn.relu, lambda x: tn.clip(x, 0, 1), lambda x: tn.clip(x, -1, 0)])
def test_a_zero_within_the_bounds_keeps_its_sign(fn: Any, dtype: str) -> None:
    x = tn.tensor([-0.0, 0.0] * 9, dtype=dtype)
    for result in (fn(x), tn.jit(fn)(x)):
        np.testing.assert_array_equal(np.signbit(result.numpy()), [True, False] * 9)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_the_cosine_of_vectors_whose_squares_are_no_numbers_is_a_number(size: float) -> None:
    x, y = (tn.tensor([[size, k * size]], dtype="float64") for k in (1, -2))
    assert np.isfinite(tn.cosine_similarity(x, y).numpy()).all()
    assert all(np.isfinite(g.numpy()).all() for g in tn.grad(lambda x, y: tn.cosine_similarity(x, y).sum(), (0, 1))(x, y))


@pytest.mark.parametrize("form", [lambda f: f, tn.jit])
def test_nan_goes_through_activations(form: Any) -> None:
    """As PyTorch's: a NaN that a model hides is found by nobody."""
    names = "relu relu6 leaky_relu elu celu selu gelu silu mish softplus softsign tanhshrink hardshrink softshrink " \
            "hardtanh hardswish hardsigmoid logsigmoid sigmoid tanh"
    functions = {name: getattr(tn, name) for name in names.split()}
    functions["threshold"] = lambda x: tn.threshold(x, 0.5, 9.0)
    x = tn.tensor([np.nan, 1.0])
    assert [name for name, f in functions.items() if np.isnan(form(f)(x).numpy()).tolist() != [True, False]] == []

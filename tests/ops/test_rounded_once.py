"""Operators of several steps are computed in float32 for inputs of 16 bits, and rounded once: half a unit, as PyTorch's."""

import numpy as np
import pytest

import tenon as tn
from tenon.nn import functional as F

NARROW = {"bfloat16": 8, "float16": 11}     # bits of the significand
HALF = 0.51                                 # of a unit in the last place; float32's own error is beside it

OF_ONE = {name: getattr(F, name) for name in (
    "softmax", "log_softmax", "softmin", "hardsigmoid", "hardswish", "silu", "mish", "elu", "selu", "celu", "gelu", "softplus",
    "softsign", "logsigmoid", "glu")}
LOSSES = ("mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy_with_logits")
OF_SEVERAL = {"lerp": tn.lerp, "addcmul": tn.addcmul, "addcdiv": tn.addcdiv}
SLOPES_OF_THE_RESULT = {"softmax", "softmin", "log_softmax", "glu"}      # which was rounded, or in two steps


def units(found, exact, dtype):
    """The largest error, in units in the last place."""
    found, exact = found.double().numpy(), exact.numpy()
    return np.max(np.abs(found - exact) / 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 2.0 ** -12))) - NARROW[dtype] + 1))


def inputs(dtype):
    rng = np.random.default_rng(1)
    arrays = rng.normal(size=(8, 32)), rng.normal(size=(8, 32)), rng.uniform(0.2, 2, (8, 32))
    return [tn.tensor(x).astype(dtype) for x in arrays]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", OF_ONE)
def test_a_function_and_its_slope_are_rounded_once(name, dtype, compiled):
    def value_and_slope(x, seed):
        value, pull = tn.vjp(OF_ONE[name], x)
        return value, pull(seed)[0]
    x, seed, _ = inputs(dtype)
    seed = seed[:, :16] if name == "glu" else seed
    exact = value_and_slope(x.double(), seed.double())
    value, slope = (tn.jit(value_and_slope) if compiled else value_and_slope)(x, seed)
    assert units(value, exact[0], dtype) < HALF
    assert name in SLOPES_OF_THE_RESULT or units(slope, exact[1], dtype) < HALF


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", [*OF_SEVERAL, *LOSSES])
def test_a_function_of_several_is_rounded_once(name, dtype, compiled):
    def function(x, y, z):
        return OF_SEVERAL[name](x, y, z) if name in OF_SEVERAL else getattr(F, name)(x, y, reduction="none")
    xs = inputs(dtype)
    value = (tn.jit(function) if compiled else function)(*xs)
    assert units(value, function(*(x.double() for x in xs)), dtype) < HALF


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_the_slope_far_below_zero_is_not_what_a_difference_from_one_leaves(name):
    found, exact = (tn.grad(lambda x: OF_ONE[name](x).sum())(tn.tensor([-20.0], dtype=dtype)).item() for dtype in ("float32", "float64"))
    assert found == pytest.approx(exact, rel=1e-6) and exact > 0

"""Operations that are rounded once have the same bits eagerly and compiled, in chains of any length."""

import numpy as np
import pytest

import tenon as tn

STEPS = {
    "products and sums": lambda x, y: x * 1.01 + y,
    "quotients": lambda x, y: (x - 0.3) / (y * y + 0.7),
    "roots": lambda x, y: tn.sqrt(tn.abs(x) + 0.1) * y - x,
    "choices": lambda x, y: tn.where(x > y, x * 1.1 - y, tn.maximum(x, 0.1) * y + 1),
    "rounding": lambda x, y: tn.floor(x * 7) * 0.3 + tn.round(y * 5) * x,
    "polynomials": lambda x, y: ((x * 0.1 + y) * 0.2 - 0.3) * y * y + 1 / 3,
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", STEPS)
def test_a_chain_has_the_same_bits_eagerly_and_compiled(name, dtype):
    def chain(x, y):
        for _ in range(10):
            x = STEPS[name](x, y)
        return x
    x, y = (tn.tensor(np.random.default_rng(k).standard_normal(1003), dtype=dtype) for k in range(2))
    one, other = (run(x, y).to(tn.float64).numpy() for run in (chain, tn.jit(chain)))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function", [
    lambda x: tn.sigmoid(tn.linalg.inv(x)), lambda x: tn.fft.rfft(x).abs().exp(),
    lambda x: tn.tanh(tn.linalg.solve(x, x + 1)),
    lambda x: tn.exp(tn.linalg.svd(x)[1]), lambda x: x[x > 0].tanh().sum(), lambda x: tn.log1p(tn.softmax(x @ x, -1)),
], ids=["inv", "rfft", "solve", "svd", "mask", "product"])
def test_warm_calls_have_the_bits_of_the_first(function):
    f, a = tn.jit(function), np.random.default_rng(0).standard_normal((17, 17)).astype(np.float32)
    assert len({f(tn.tensor(a)).numpy().tobytes() for _ in range(40)}) == 1

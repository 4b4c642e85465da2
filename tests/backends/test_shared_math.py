"""A kernel of many functions calls one of each, which all kernels share, with the bits of what is written inline."""

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu import shared_math
from tenon.llvm import machine_code, shared_functions

CHAINS = {
    "sines": ["sin"], "of all kinds": ["sin", "tanh", "exp", "sigmoid", "cos", "atan"],
    "errors and logarithms": ["erf", "gelu", "silu", "log1p", "softplus", "tan"],
}
HARD = [0.0, -0.0, 1e-40, -1.5, 2.0**20, 3e7, -1e30, np.inf, -np.inf, np.nan]     # angles near and far among them


def step(x, name):
    return getattr(tn, name)(x) * 0.9 + 0.3


def chained(names, count):
    def f(x):
        for k in range(count):
            x = step(x, names[k % len(names)])
        return x
    return f


@pytest.fixture
def compiled(monkeypatch):
    """The modules that LLVM is given."""
    given, compile = [], machine_code._compile

    def noted(text, form, target):
        given.append(text)
        return compile(text, form, target)
    monkeypatch.setattr(machine_code, "_compile", noted)
    return given


@pytest.mark.parametrize("size", [0, 1, 7, 33, 1009])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("names", CHAINS.values(), ids=CHAINS)
def test_a_chain_has_the_bits_of_its_functions_one_by_one(names, dtype, size):
    values = np.resize([*HARD, *np.linspace(-4, 4, 23)], size)
    with np.errstate(over="ignore"):
        x = tn.tensor(values.astype(dtype))
    expected, one = x, {name: tn.jit(lambda x, name=name: step(x, name)) for name in names}
    for k in range(2 * shared_math.MAX_INLINE):
        expected = one[names[k % len(names)]](expected)
    found = tn.jit(chained(names, 2 * shared_math.MAX_INLINE))(x)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_sums_and_rows_of_many_functions():
    x = tn.tensor(np.linspace(-3, 3, 7 * 45, dtype=np.float32).reshape(7, 45))
    f = chained(["sin", "exp", "tanh"], 12)
    g = tn.jit(lambda x: (f(x).sum(axis=-1), f(x).max(axis=0)))
    for found, expected in zip(g(x), (f(x).sum(axis=-1), f(x).max(axis=0)), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5)


def test_functions_of_two_operands():
    def once(x, y):
        return tn.atan2(x, y) + tn.fmod(x * 30, y) + tn.pow(tn.abs(x), y) * 0.1 + tn.hypot(x, y)

    def four_times(x, y):
        for _ in range(4):
            x = once(x, y)
        return x
    x, y = (tn.tensor(np.linspace(low, 3, 131, dtype=np.float32)) for low in (-3, 0.5))
    found, expected, one = tn.jit(four_times)(x, y), x, tn.jit(once)
    for _ in range(4):
        expected = one(expected, y)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_each_function_is_compiled_once_however_often_kernels_call_it(compiled):
    x = tn.tensor(np.linspace(-1, 1, 515, dtype=np.float32))
    tn.jit(chained(["sinh", "asinh"], 40))(x)
    pieces = [text for text in compiled if f'@"{shared_functions.PREFIX}' in text.split("define", 1)[1].splitlines()[0]]
    assert len(set(pieces)) == len(pieces) and sum(map(len, compiled)) < 400_000        # 1,500,000 inline


def test_a_few_functions_are_written_inline(compiled):
    x = tn.tensor(np.linspace(-1, 1, 517, dtype=np.float32))
    tn.jit(chained(["sinh", "acosh"], 4))(x)
    assert not any(shared_math.USED in text for text in compiled)

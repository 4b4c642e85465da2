"""Functions with the same bits eagerly and compiled, and what is drawn with them: their error and their distribution."""

import math

import numpy as np
import pytest

import tenon as tn
from tenon.graph.build import trace
from tenon.ops.bit_exact_math import DOUBLE, ON_ARRAYS, SINGLE, normal_quantile, portable_log, scaled, upper_quantile
from tenon.pipeline import compile
from tenon.types import TensorType, as_dtype

GENERATORS = {
    "rand": lambda n, dtype: tn.rand(n, dtype=dtype),
    "randn": lambda n, dtype: tn.randn(n, dtype=dtype),
    "uniform": lambda n, dtype: tn.uniform(-1.3, 0.7, (n,), dtype=dtype),
    "normal": lambda n, dtype: tn.normal(3.3, 0.7, (n,), dtype=dtype),
    "exponential": lambda n, dtype: tn.random.exponential(1.7, (n,), dtype=dtype),
    "truncated_normal": lambda n, dtype: tn.random.truncated_normal(-1.0, 2.5, (n,), dtype=dtype),
    "kaiming": lambda n, dtype: tn.nn.init.kaiming_normal_(tn.zeros((n, 3), dtype=dtype)),
}
OTHERS = {
    "complex": lambda n: tn.randn(n, dtype="c64"),
    "with tensors": lambda n: tn.normal(tn.arange(7.0) / 3, tn.full((7,), 0.3), (n, 7)),
    "categorical": lambda n: tn.categorical(tn.arange(9.0) / 3, (n,)),
    "multinomial": lambda n: tn.multinomial(tn.arange(9.0), n, replacement=True),
    "randint": lambda n: tn.randint(-3, 1000, (n,)),
    "randperm": lambda n: tn.randperm(n),
    "dropout": lambda n: tn.dropout(tn.arange(float(n)), 0.3),
    "bernoulli": lambda n: tn.bernoulli(0.3, (n,)),
}


def bits(draw):
    tn.manual_seed(3)
    return [draw().numpy().tobytes() for _ in range(2)]


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", GENERATORS)
def test_generators_draw_the_same_bits_eagerly_and_compiled(name, dtype):
    for n in (1, 17, 1003):
        def draw(n=n):
            return GENERATORS[name](n, dtype)
        assert bits(draw) == bits(tn.jit(draw, fullgraph=True)), n


@pytest.mark.parametrize("name", OTHERS)
def test_choices_are_the_same_eagerly_and_compiled(name):
    def draw():
        return OTHERS[name](203)
    assert bits(draw) == bits(tn.jit(draw, fullgraph=True))


def test_large_draws_and_draws_in_parts_have_the_same_bits():
    tn.manual_seed(1)
    large = tn.randn(1_000_003).numpy()         # machine code, one that is not captured
    tn.manual_seed(1)
    np.testing.assert_array_equal(tn.randn(50_000).numpy(), large[:50_000])
    tn.manual_seed(1)
    np.testing.assert_array_equal(tn.randn(3).numpy(), large[:3])


# ---------------------------------------------------------------- errors

SPECIAL = [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_logarithm_is_off_by_less_than_one_unit_of_the_last_place(dtype):
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 4001)), rng.uniform(0.5, 2, 4001),
                        [info.smallest_subnormal, info.tiny, info.max], SPECIAL]).astype(dtype)
    program = compile(trace(lambda x: portable_log(x), TensorType(as_dtype(x.dtype), x.shape)))
    with np.errstate(all="ignore"):
        exact = np.log(x.astype(np.longdouble))
    y = portable_log(tn.tensor(x)).numpy()
    known = np.isfinite(exact) & (exact != 0)
    unit = np.spacing(np.abs(exact[known]).astype(dtype)).astype(np.longdouble)
    assert np.max(np.abs(y[known] - exact[known]) / unit) < 1
    np.testing.assert_array_equal(y[~known], exact[~known].astype(dtype))
    np.testing.assert_array_equal(program.run([x])[0], y)


@pytest.mark.parametrize(("form", "smallest", "error"), [(SINGLE, 2.0 ** -33, 1e-6), (DOUBLE, 2.0 ** -54, 3e-15)])
def test_quantiles_have_the_probability_they_are_asked_for(form, smallest, error):
    """What is left of a quantile's error is what the distribution there says, over its density."""
    p = np.exp(np.linspace(math.log(smallest), math.log(0.5), 3001)).astype(form.dtype.numpy)
    z = upper_quantile(ON_ARRAYS, np.minimum(p, 0.5), form).astype(np.float64)
    exceeded = np.array([math.erfc(x / 2 ** 0.5) / 2 for x in z])
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    assert np.max(np.abs(exceeded - np.minimum(p, 0.5).astype(np.float64)) / density / np.maximum(z, 1)) < error


def test_quantiles_on_both_sides_and_at_the_ends():
    p = tn.tensor([0.0, 1e-7, 0.25, 0.5, 0.75, 1.0, 1.5, math.nan], dtype="f64")
    z = normal_quantile(p).numpy()
    np.testing.assert_allclose(z[:6], [-math.inf, -5.199337582192817, -0.6744897501960817, 0, 0.6744897501960817,
                                       math.inf], rtol=1e-14, atol=1e-15)
    program = compile(trace(lambda p: normal_quantile(p), p.type))
    np.testing.assert_array_equal(program.run([p.numpy()])[0], z)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_product_is_rounded_before_it_is_added_to(dtype):
    rng = np.random.default_rng(0)
    x, a, b = (tn.tensor(rng.normal(size=1003), dtype=dtype) for _ in range(3))
    program = compile(trace(lambda x, a, b: scaled(x, a, b), x.type, a.type, b.type))
    expected = x.numpy() * a.numpy() + b.numpy()
    np.testing.assert_array_equal(program.run([x.numpy(), a.numpy(), b.numpy()])[0], expected)
    np.testing.assert_array_equal(scaled(x, a, b).numpy(), expected)


# ---------------------------------------------------------------- the normal distribution

@pytest.mark.parametrize(("dtype", "count"), [("f32", 200_000), ("f64", 100_000)])
def test_normal_numbers_are_distributed_as_they_should_be(dtype, count):
    tn.manual_seed(11)
    x = np.sort(tn.randn(count, dtype=dtype).numpy().astype(np.float64))
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(x ** power) - moment) < 4 * (variance / count) ** 0.5
    share = np.array([0.5 * math.erfc(-v / 2 ** 0.5) for v in x])
    steps = np.arange(count + 1) / count
    distance = max(np.max(steps[1:] - share), np.max(share - steps[:-1]))        # Kolmogorov and Smirnov's
    assert distance < 1.63 / count ** 0.5


def test_tails_are_as_heavy_as_they_should_be():
    tn.manual_seed(12)
    x = tn.randn(1 << 21).numpy()
    for beyond in (3.0, 4.0, 4.5):
        for side in (x, -x):
            expected = len(x) * math.erfc(beyond / 2 ** 0.5) / 2
            assert abs(np.count_nonzero(side > beyond) - expected) < 4 * expected ** 0.5
    assert np.isfinite(x).all()

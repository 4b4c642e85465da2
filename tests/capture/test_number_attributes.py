"""A float that changes from call to call and is an attribute of an operator: one graph for all, and its gradient."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn

F = nn.functional
NUMBERS = (0.3, 0.31, 0.42, 0.5, 0.61, 0.17, 0.77)
X = np.random.default_rng(0).normal(size=(4, 6))
X[0, :3], X[1, :2] = 0.0, (0.3, -0.3)          # where the two sides of a rectifier meet

OPERATORS = [
    lambda x, a: F.leaky_relu(x, a), lambda x, a: F.elu(x, a), lambda x, a: F.celu(x, alpha=a),
    lambda x, a: F.softplus(x, a), lambda x, a: F.hardtanh(x, -a, a), lambda x, a: F.layer_norm(x, (6,), eps=a),
    lambda x, a: F.layer_norm(x, (6,), tn.arange(6.0).astype("float64"), None, eps=a),
    lambda x, a: F.rms_norm(x, (6,), eps=a), lambda x, a: F.batch_norm(x, None, None, training=True, eps=a),
    lambda x, a: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=a),
    lambda x, a: tn.linalg.vector_norm(x + 0.01, a + 1), lambda x, a: tn.logit(tn.sigmoid(x), a / 4),
    lambda x, a: F.elu(x, a) if x.sum() > 0 else F.leaky_relu(x, a),
    lambda x, a: sum(F.elu(row, a) for row in x),
    lambda x, a: tn.vmap(lambda row: F.celu(row, a))(x),
]


def loss(operator):
    return lambda x, a: (operator(x, a) * tn.sin(x.sum() + 1)).sum()


def by_tape(f):
    def step(x, a):
        x = x.detach().requires_grad_()
        y = f(x, a)
        y.backward()
        return y.detach() + x.grad
    return step


WAYS = [lambda f: (f, tn.jit(f)), lambda f: (tn.grad(f), tn.jit(tn.grad(f))), lambda f: (tn.grad(f), tn.grad(tn.jit(f))),
        lambda f: (by_tape(f), by_tape(tn.jit(f))), lambda f: (by_tape(f), tn.jit(by_tape(f)))]


@pytest.mark.parametrize("operator", range(len(OPERATORS)))
@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_number_is_what_it_is_eagerly_and_so_is_its_gradient(operator, way):
    eager, jitted = WAYS[way](loss(OPERATORS[operator]))
    x = tn.tensor(X)
    for a in NUMBERS:
        np.testing.assert_allclose(jitted(x, a).numpy(), eager(x, a).numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("operator", range(len(OPERATORS)))
def test_few_captures(operator):
    jitted = tn.jit(loss(OPERATORS[operator]), fullgraph=True)
    for a in NUMBERS:
        jitted(tn.tensor(X), a)
    assert sum(len(record.captures) for record in jitted.records.values()) <= 3


def test_second_derivatives():
    def f(x, a):
        return tn.grad(lambda x: (tn.grad(loss(OPERATORS[12]))(x, a) ** 2).sum())(x)
    jitted = tn.jit(f)
    for a in NUMBERS:
        np.testing.assert_allclose(jitted(tn.tensor(X), a).numpy(), f(tn.tensor(X), a).numpy(), rtol=1e-9)


def test_a_number_that_is_refused():
    jitted = tn.jit(lambda x, a: F.hardtanh(x, a, 0.4))
    for a in (0.1, 0.2, 0.3):
        jitted(tn.tensor(X), a)
    with pytest.raises(tn.errors.ArgumentError, match="is larger than max_val"):
        jitted(tn.tensor(X), 0.5)
    assert jitted(tn.tensor(X), 0.15).tolist() == F.hardtanh(tn.tensor(X), 0.15, 0.4).tolist()


def test_a_slope_that_is_annealed():
    class Rectifier(nn.Module):
        def __init__(self):
            self.slope = 0.3

        def forward(self, x):
            self.slope *= 0.9
            return F.leaky_relu(x, self.slope)
    eager, layer = Rectifier(), Rectifier()
    jitted = tn.jit(lambda x: layer(x), fullgraph=True)
    for _ in range(12):
        assert jitted(tn.tensor(X)).tolist() == eager(tn.tensor(X)).tolist()
    assert sum(len(record.captures) for record in jitted.records.values()) <= 3


@pytest.mark.parametrize("operator", [0, 3, 5, 7, 9])
def test_autocast_casts_as_eagerly(operator):
    def f(x, a):
        with tn.autocast("cpu", dtype=tn.bfloat16):
            return OPERATORS[operator](x @ tn.ones(6, 6), a)
    jitted, x = tn.jit(f), tn.tensor(X.astype(np.float32))
    for a in NUMBERS:
        assert jitted(x, a).dtype is f(x, a).dtype


def test_a_layers_slope_is_an_attribute_that_may_be_annealed():
    layer, x = nn.LeakyReLU(0.2), tn.tensor(X)
    step = tn.jit(lambda x: layer(x))
    for slope in NUMBERS:
        layer.negative_slope = slope
        np.testing.assert_array_equal(step(x).numpy(), F.leaky_relu(x, slope).numpy())
    assert layer.options == {"negative_slope": NUMBERS[-1]} and "2 captures" in str(tn.explain(step))


INTEGERS = [
    lambda x, n: F.leaky_relu(x, n), lambda x, n: F.elu(x, alpha=n), lambda x, n: F.hardtanh(x, -n, n),
    lambda x, n: F.layer_norm(x, (6,), eps=n), lambda x, n: x.std(correction=n), lambda x, n: x.var(1, correction=n),
    lambda x, n: tn.var_mean(x, correction=n / 2)[0], lambda x, n: tn.quantile(x, n / 20),
    lambda x, n: tn.quantile(x, n / 20, axis=1, keepdims=True),
    lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=n),
]


@pytest.mark.parametrize("operator", range(len(INTEGERS)))
def test_an_integer_for_a_float_and_what_is_no_attribute(operator):
    f = loss(INTEGERS[operator])
    eager, jitted = tn.grad(f), tn.jit(tn.grad(f), fullgraph=True)
    x = tn.tensor(X)
    for n in (1, 3, 2, 5, 4, 7, 11, 20, 3):
        np.testing.assert_allclose(jitted(x, n).numpy(), eager(x, n).numpy(), rtol=1e-9, atol=1e-12)
    assert sum(len(record.captures) for record in jitted.records.values()) <= 4     # a share may meet an element

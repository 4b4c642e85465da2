"""A value has the same bits wherever it is computed: what decides by the last bit finds no two that differ."""

import itertools

import numpy as np
import pytest

import tenon as tn

VALUES = {
    "product and sum": lambda x: x * x * 0.73 + x * 1.37,
    "polynomial": lambda x: ((x * 0.3 + 1.1) * x + 0.7) * x + 0.2,
    "quotient": lambda x: (x * 0.7 + 0.3) / (1.0 + x * x),
    "exponential": lambda x: tn.exp(x * 0.3 + 0.1) * x + 0.3 * x,
    "softmax": lambda x: tn.softmax(x * 1.3 + 0.1 * x * x, axis=0),
    "rows": lambda x: tn.sum(x * 1.3 + x * x, axis=-1, keepdims=True) * x,
    "windows": lambda x: tn.avg_pool2d(x.reshape(1, 1, *x.shape) * 0.7 + 0.1, 2, 1)[0, 0],
    "totals": lambda x: tn.cumsum(x * 0.3 + x * x, axis=-1)}


def line(y):
    return y.reshape(-1)


DECISIONS = {       # what is counted, which is 0 where an element has one value
    "some reach the maximum": lambda y: ~tn.any(y >= y.max()),
    "some reach the minimum": lambda y: ~tn.any(y <= y.min()),
    "not all are below the maximum": lambda y: tn.all(y < y.max()),
    "not all are above the minimum": lambda y: tn.all(y > y.min()),
    "none is beyond": lambda y: tn.any(y > y.max()) | tn.any(y < y.min()),
    "each column reaches its own": lambda y: tn.any(tn.sum(y >= tn.amax(y, axis=0, keepdims=True), axis=0) == 0),
    "each row reaches its own": lambda y: tn.any(tn.sum(y >= tn.amax(y, axis=-1, keepdims=True), axis=-1) == 0),
    "where argmax points": lambda y: tn.take(line(y), tn.argmax(line(y), axis=0), axis=0) != y.max(),
    "clipping at the maximum": lambda y: tn.any(tn.clip(y, max=y.max()) != y),
    "whole part of a share": lambda y: tn.all(tn.floor((y - y.min()) / (y.max() - y.min())) < 1),
    "sign of the distance": lambda y: tn.all(tn.sign(y - y.max()) < 0),
    "choice by the maximum": lambda y: tn.all(tn.where(y >= y.max(), 1.0, 0.0) == 0.0),
    "order and its places": lambda y: tn.any(tn.sort(line(y), axis=0)
                                             != tn.take(line(y), tn.argsort(line(y), axis=0), axis=0)),
    "first in order": lambda y: ~tn.any(y <= tn.sort(line(y), axis=0)[0]),
    "largest of the largest": lambda y: ~tn.any(y >= tn.topk(line(y), 1, axis=0)[0]),
    "found among its own": lambda y: tn.searchsorted(tn.sort(line(y), axis=0), line(y)).min() != 0,
    "within nothing": lambda y: ~tn.any(tn.isclose(y, y.max(), rtol=0.0, atol=0.0))}

CASES = [(value, decision) for k, (value, decision) in enumerate(itertools.product(VALUES, DECISIONS)) if k % 3 == 0]


def numbers(seed, shape, dtype):
    return tn.tensor(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize(("value", "decision"), CASES)
def test_what_decides_by_the_last_bit(value, decision):
    dtype = [tn.float32, tn.bfloat16, tn.float16, tn.float64][CASES.index((value, decision)) % 4]
    decide = tn.jit(lambda x: DECISIONS[decision](VALUES[value](x)))
    for shape, seed in itertools.product([(5, 12), (3, 7)], range(8)):
        x = numbers(seed, shape, dtype)
        assert not decide(x).item(), f"seed {seed}: {dtype} of {shape}"


def test_a_maximum_is_reached():
    def count(x):
        y = x * x * 0.73 + x * 1.37
        return (y >= y.max()).sum()
    compiled = tn.jit(count)
    assert all(compiled(numbers(seed, (5, 12), tn.float32)).item() == 1 for seed in range(30))


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64, tn.bfloat16, tn.float16])
@pytest.mark.parametrize("name", ["product and sum", "polynomial", "quotient"])
def test_arithmetic_has_the_bits_of_eager_code(name, dtype):
    x = numbers(0, (33, 7), dtype)
    found, expected = tn.jit(VALUES[name])(x), VALUES[name](x)
    assert found.numpy().tobytes() == expected.numpy().tobytes()


def test_gradient_of_an_extreme_of_short_numbers():
    def spread(x):
        y = tn.atanh(0.9 * tn.sin(x))
        return tn.amin(tn.deg2rad(y), axis=(0, -2, -1), keepdims=True).sum() + y.sum()
    x = numbers(1, (5, 1, 7), tn.bfloat16)
    found, expected = tn.jit(tn.grad(spread))(x), tn.grad(spread)(x)
    assert np.isfinite(found.numpy().astype(np.float32)).all()
    np.testing.assert_allclose(found.numpy().astype(np.float32), expected.numpy().astype(np.float32), rtol=0.02)

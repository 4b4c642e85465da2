"""Python's integers have no end: where one of the graph would need more than 64 bits, the call runs eagerly."""

import pytest

import tenon as tn


def tripled(x):
    k = 1
    while x.sum() > 1:
        x = x * 0.5
        k = k * 3
    return k


def fibonacci(x):
    a, b = 0, 1
    while x.sum() > 1:
        x = x - 1.0
        a, b = b, a + b
    return a


def shifted(x):
    k = 1
    for i in range(x.shape[0]):
        if x[i] > 0:
            k = k << 20
        else:
            k = k - 1
    return k


@pytest.mark.parametrize(("function", "inputs"), [
    (tripled, ([2.0], [2.0**30], [2.0**80], [4.0])), (fibonacci, ([5.0], [90.0], [150.0], [7.0])),
    (shifted, ([1.0, 1.0, -1.0], [1.0] * 5, [-1.0, 1.0, 1.0, -1.0, 1.0, 1.0]))])
def test_integers_are_pythons_own(function, inputs):
    jitted = tn.jit(function)
    for values in inputs:
        x = tn.tensor(values)
        assert jitted(x) == function(x) and type(jitted(x)) is int
    assert all(record.eager is None for record in jitted.records.values())

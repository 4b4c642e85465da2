"""A Python number that changes and bounds a slice, or is a size, is a symbolic size: few captures, same results."""

import pytest

import tenon as tn
from tenon.errors import ShapeError


def written(x, n):
    x = x.clone()
    x[:n] = 0.0
    return x


def gradient(x, n):
    w = x.detach().clone().requires_grad_()
    (w[:n] ** 2).sum().backward()
    return w.grad


CASES = [
    lambda x, n: x[:n].sum(), lambda x, n: x[:n] * 2, lambda x, n: x[-n:], lambda x, n: x[n:], written, gradient,
    lambda x, n: x[n * 2:(n + 1) * 2].reshape(2, -1).sum(0), lambda x, n: x[max(0, n - 4):n].sum(),
    lambda x, n: x[:x.shape[0] - n], lambda x, n: x[:n] + x[n:2 * n], lambda x, n: x[:n] if n < 5 else x[n:],
    lambda x, n: tn.cat([x, tn.zeros(n)]), lambda x, n: tn.arange(n) * x.sum(), lambda x, n: x[:n] @ tn.ones(n),
    lambda x, n: x.reshape(2, 20)[:, :n].mean(1), lambda x, n: (x[:n // 2], x[:min(n, 8)]),
    lambda x, n: x[:2 * n].reshape(-1, 2),
    lambda x, n: x.shape[0] * n + x[:n].sum(), lambda x, n: (x[:n].shape, x[:n].numel()),
]


@pytest.mark.parametrize("k", range(len(CASES)))
def test_few_captures(k):
    jitted, x = tn.jit(CASES[k]), tn.arange(40.0)
    for n in (1, 2, 7, 3, 9, 40, 12, 4, 50, 5, 0, 6, 9, 8, 10):
        n = n if k not in (6, 9, 13, 16) else min(n, 19)        # which raise beyond
        assert repr(jitted(x, n)) == repr(CASES[k](x, n))
    assert len(captures(jitted)) <= 6, tn.explain(jitted)


OPERATORS = [
    lambda x, n: tn.topk(x, n)[0], lambda x, n: x.kthvalue(n)[0], lambda x, n: tn.eye(n), lambda x, n: tn.tri(n, 4),
    lambda x, n: tn.roll(x, n), lambda x, n: tn.roll(x, -n, 0), lambda x, n: tn.pad(x, (n, 1)),
    lambda x, n: x[:3].reshape(1, 3).expand(n, -1), lambda x, n: tn.linspace(0, 1, n), lambda x, n: x[:3].repeat(n),
    lambda x, n: tn.one_hot(tn.arange(3) % n, num_classes=n), lambda x, n: tn.broadcast_to(x[:1], (n, 1)),
    lambda x, n: tn.nan_to_num(x / 0, nan=n), lambda x, n: tn.histc(x, bins=n),
]


@pytest.mark.parametrize("k", range(len(OPERATORS)))
def test_operators_of_a_changing_number(k):
    jitted, x = tn.jit(OPERATORS[k]), tn.arange(20.0)
    for n in (2, 7, 3, 9, 12, 4, 5, 1, 6, 20, 8, 10):
        assert repr(jitted(x, n)) == repr(OPERATORS[k](x, n))
    assert len(captures(jitted)) <= 4, tn.explain(jitted)      # one for 1, where that is no size, and one for all


DRAWS = [
    lambda x, n: tn.rand(n, 2), lambda x, n: tn.randn(n), lambda x, n: tn.randperm(n), lambda x, n: tn.randint(0, n, (5,)),
    lambda x, n: tn.randint(2, n + 2, (n,)), lambda x, n: tn.dropout(x, 1 / (n + 1)),
    lambda x, n: tn.nn.functional.alpha_dropout(x, 1 / (n + 1), True),
]


@pytest.mark.parametrize("k", range(len(DRAWS)))
def test_draws_of_a_changing_number(k):
    jitted, x = tn.jit(DRAWS[k]), tn.arange(20.0)
    for n in (2, 7, 3, 9, 12, 4, 5, 1, 6, 20, 8, 10):
        tn.manual_seed(n)
        found = repr(jitted(x, n))
        tn.manual_seed(n)
        assert found == repr(DRAWS[k](x, n))
    assert len(captures(jitted)) <= 3, tn.explain(jitted)


def test_eager_draws_of_other_shapes_make_no_capture_anew():
    """What a generator remembers of its eager draws was guarded."""
    jitted, x = tn.jit(lambda x: tn.dropout(x, 0.5)), tn.ones(4)
    for n in range(1, 8):
        tn.rand(n, n)
        jitted(x)
    assert len(captures(jitted)) == 1


def test_more_than_there_are():
    jitted, x = tn.jit(lambda x, k: tn.topk(x, k)[1]), tn.arange(6.0)
    for k in (2, 3, 4):
        jitted(x, k)
    with pytest.raises(tn.errors.ArgumentError, match="topk: k=7 of 6 elements along axis 0"):
        jitted(x, 7)


def test_narrow_of_a_changing_length():
    def start(x, n):
        return x.narrow(0, 0, n).sum()
    jitted = tn.jit(start)
    assert [jitted(tn.ones(4), n).item() for n in (1, 2, 3, 0, 4)] == [1, 2, 3, 0, 4]
    for function in (start, jitted):
        with pytest.raises(ShapeError, match="narrow: -2 positions from 0 on of axis 0"):
            function(tn.ones(4), -2)


def test_a_cache_that_fills():
    def attend(cache, p, x):
        cache[p] = x
        return cache[:p + 1].sum(0)
    jitted, cache, other = tn.jit(attend), tn.zeros(20, 3), tn.zeros(20, 3)
    for p in range(20):
        assert repr(jitted(cache, p, tn.ones(3) * p)) == repr(attend(other, p, tn.ones(3) * p))
    assert len(captures(jitted)) <= 3 and repr(cache) == repr(other)


def test_a_size_of_an_argument_that_agrees():
    def add(x, y, n):
        return x[:n] + y
    jitted, x = tn.jit(add), tn.arange(40.0)
    for n in range(1, 12):
        assert repr(jitted(x, tn.ones(n), n)) == repr(add(x, tn.ones(n), n))
    assert len(captures(jitted)) <= 2


def test_lengths_of_a_list():
    def means(x, lengths):
        return [x[k, :n].mean() for k, n in enumerate(lengths)]
    jitted, x = tn.jit(means), tn.arange(120.0).reshape(3, 40)
    for n in (3, 7, 2, 9, 12, 5):
        assert repr(jitted(x, [n, n + 2, n * 2])) == repr(means(x, [n, n + 2, n * 2]))
    assert len(captures(jitted)) <= 2


def captures(jitted):
    return [captured for record in jitted.records.values() for captured in record.captures]


def test_a_number_that_has_to_be_even_and_then_a_number():
    def halves(x, n):
        return x[:n].reshape(-1, 2), x[:n].view(n // 2, 2).sum()
    jitted, x = tn.jit(halves), tn.arange(40.0)
    for n in (2, 4, 6, 8):
        assert repr(jitted(x, n)) == repr(halves(x, n))

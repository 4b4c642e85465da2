"""`tn.debug.check(overflow=True)` finds what does not fit its type, and `repeatable=True` what does not repeat."""

import itertools

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.debug import BadNumber, NotRepeatable

I8, I32, U8 = tn.int8, tn.int32, tn.uint8


def ints(*values, dtype=tn.int32):
    return tn.tensor(np.array(values)).astype(dtype)


OVERFLOWS = [
    (lambda x: x * x, ints(3, 70000), "multiply: overflows int32, in 1 of 2"),
    (lambda x: (x * x + 1).sum(), ints(3, 70000), "multiply: overflows int32, in 1 of 2"),
    (lambda x: x + 1, ints(2 ** 31 - 1), "add: overflows int32"),
    (lambda x: x - 1, ints(0, 5, dtype=U8), "subtract: overflows uint8, in 1 of 2"),
    (lambda x: -x, ints(-128, 127, dtype=I8), "negative: overflows int8, in 1 of 2"),
    (lambda x: x ** 3, tn.tensor([3, 3_000_000]), "power: overflows int64, in 1 of 2"),
    (lambda x: x * x, tn.tensor([2 ** 32, 5]), "multiply: overflows int64, in 1 of 2"),
    (lambda x: x.prod(), tn.tensor([2 ** 32, 2 ** 32]), "prod: overflows int64"),
    (lambda x: x.cumsum(axis=0), tn.tensor([2 ** 62, 2 ** 62, 1]), "cumsum: overflows int64, in 2 of 3"),
    (lambda x: x @ x, ints(2 ** 16, 0, 0, 1).reshape(2, 2), "matmul: overflows int32, in 1 of 4"),
    (lambda x: x << 3, ints(2 ** 30, 1), "left_shift: overflows int32, in 1 of 2"),
    (lambda x: x.astype(I8), ints(300, 5), "cast: leaves the range of int8, in 1 of 2"),
    (lambda x: x.astype(U8), ints(-1, 5), "cast: leaves the range of uint8, in 1 of 2"),
    (lambda x: (x * 2.5).astype(I32), tn.tensor([1.0, 1e10, float("nan")]), "cast: leaves the range of int32, in 2 of 3"),
    (lambda x: x.astype(tn.float16), tn.tensor([1.0, 1e6]), "cast: overflows float16, in 1 of 2"),
    (lambda x: x.astype(tn.float32), tn.tensor([1e300], dtype=tn.float64), "cast: overflows float32"),
    (lambda x: x.astype(tn.float16), ints(70000, 5), "cast: overflows float16, in 1 of 2"),
]


@pytest.mark.parametrize(("f", "x", "said"), OVERFLOWS, ids=[said for _, _, said in OVERFLOWS])
def test_what_does_not_fit_is_named(f, x, said):
    step = tn.jit(f)
    with tn.debug.check(step, nan=False, inf=False, overflow=True), pytest.raises(BadNumber, match=said) as caught:
        step(x)
    assert caught.value.hint and "test_check_overflow.py" in str(caught.value)
    step(x)         # without the check it runs as ever


@pytest.mark.parametrize(("f", "x"), [
    (lambda x: x * x, ints(46340, -46340)),
    (lambda x: x * x - x, tn.tensor([3_037_000_499, -3_037_000_499])),
    (lambda x: x.astype(I8) + 1, ints(126, -128)),
    (lambda x: x.astype(tn.int64).sum() + x.prod(), ints(2 ** 31 - 1, 1, 1)),
    (lambda x: x.astype(I32), tn.tensor([2147483520.0, -2147483648.0])),
    (lambda x: x.astype(tn.bfloat16), tn.tensor([1e38, float("inf"), float("nan")])),
    (lambda x: x.astype(tn.float16), tn.tensor([65504.0, float("inf")])),
    (lambda x: x + tn.rand(3) + nn.functional.dropout(x, 0.5), tn.ones(3)),
    (lambda x: x.astype(tn.bool).astype(I8), tn.tensor([1e9])),
    (lambda x: x.sum(), tn.zeros((0,), dtype=I8)),
])
def test_what_fits_is_let_through(f, x):
    step = tn.jit(f)
    with tn.debug.check(step, nan=False, inf=False, overflow=True):
        step(x)


def test_in_a_loop_and_with_sizes_that_change():
    @tn.jit
    def factorial(n):
        product, k = ints(1), ints(1)
        while (k < n).all():
            k = k + 1
            product = product * k
        return product
    with tn.debug.check(factorial, overflow=True):
        assert int(factorial(ints(12))) == 479001600
        with pytest.raises(BadNumber, match="multiply: overflows int32"):
            factorial(ints(13))
    doubled = tn.jit(lambda x: x * 2)
    for size in (3, 4, 5):
        with tn.debug.check(doubled, overflow=True):
            doubled(ints(*range(size), dtype=I8))
            with pytest.raises(BadNumber, match=f"in 1 of {size}"):
                doubled(ints(*range(size - 1), 100, dtype=I8))


def test_a_training_step_is_the_same_under_all_checks():
    def made():
        tn.manual_seed(3)
        net = nn.Linear(4, 3)
        optimizer = optim.Adam(net.parameters(), lr=0.1)

        @tn.jit
        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(nn.functional.dropout(net(x), 0.5), y)
            loss.backward()
            optimizer.step()
            return loss
        return step
    x, y = tn.randn(5, 4), tn.tensor([0, 1, 2, 1, 0])
    plain, checked = made(), made()
    tn.manual_seed(5)
    wanted = [float(plain(x, y)) for _ in range(4)]
    tn.manual_seed(5)
    got = [float(checked(x, y))]
    with tn.debug.check(checked, overflow=True, repeatable=True, range=(-1e6, 1e6)):
        got += [float(checked(x, y)) for _ in range(2)]
    got += [float(checked(x, y))]
    assert got == wanted


def test_what_does_not_repeat_is_named_and_nothing_has_changed():
    turns = itertools.count()

    def noise(x):
        return x + np.float32(next(turns))
    noisy = tn.op("noisy_of_the_checks", ref=noise, type=lambda x: x)
    state = tn.zeros(3)

    @tn.jit
    def step(x):
        shifted = x * 2.0
        found = noisy(shifted)
        state.assign(state + found)
        return found.sum()
    step(tn.ones(3))
    before = state.numpy().copy()
    with tn.debug.check(step, repeatable=True), pytest.raises(NotRepeatable, match="noisy_of_the_checks") as caught:
        step(tn.ones(3))
    assert "found = noisy(shifted)" in str(caught.value)
    assert np.array_equal(state.numpy(), before)
    steady = tn.jit(lambda x: (x @ x.mT + tn.rand(3, 3)).sum())
    with tn.debug.check(steady, repeatable=True):
        steady(tn.ones((3, 4)))

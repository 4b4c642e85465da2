"""Sums in machine code, whose elements may be taken in any order."""

import numpy as np
import pytest

import tenon as tn

DIFFERENCES = {
    "of equal elements": lambda x: x - x,
    "of neighbours": lambda x: x[:, :-1] - x[:, 1:],
    "of both ends": lambda x: x - x[:, ::-1],
    "from a mean": lambda x: x - x.mean(axis=1, keepdims=True),
    "of negatives": lambda x: x + -x,
    "of scaled neighbours": lambda x: (x[:, :-1] - x[:, 1:]) * 3.0,
}


@pytest.mark.parametrize("name", DIFFERENCES)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 40])
def test_differences_that_are_added_up_do_not_cancel_what_is_infinite(name, width):
    x = np.arange(3.0 * width).reshape(3, width)
    x[1, -1], x[0, width // 2] = np.inf, np.nan if width % 2 else -np.inf
    for axis in (None, 0, 1):
        def total(x, axis=axis):
            return DIFFERENCES[name](x).sum(axis=axis)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(tn.jit(total)(tn.tensor(x)).numpy(), total(tn.tensor(x)).numpy(), rtol=1e-12)


@pytest.mark.parametrize("width", [1, 3, 6, 60])
def test_long_sums_of_short_rows_are_not_one_running_total(width: int) -> None:
    x, y = np.full((20_000, width), 0.1, np.float32), np.float32(0.7345)
    found = tn.jit(lambda x, y: (tn.pad(x, [(1, 0), (1, 1)]) + y).sum())(tn.asarray(x), tn.asarray(y))
    wanted = np.pad(x.astype(float), [(1, 0), (1, 1)]) + float(y)
    assert float(found) == pytest.approx(wanted.sum(), rel=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_running_totals_of_float32_are_kept_in_float64(axis: int) -> None:
    x = tn.full((300_000, 2) if axis == 0 else (2, 300_000), 0.1)
    for total in (lambda x: x.cumsum(axis), tn.jit(lambda x: x.cumsum(axis))):
        assert total(x).flatten()[-1].item() == pytest.approx(30_000, rel=1e-6)
    product = tn.jit(lambda x: (x * 0 + 1.0000001).cumprod(axis))(x).flatten()[-1].item()
    assert product == pytest.approx(np.float64(np.float32(1.0000001)) ** 300_000, rel=1e-6)
    logs = tn.jit(lambda x: tn.logcumsumexp(x, axis))(x).flatten()[-1].item()
    assert logs == pytest.approx(0.1 + np.log(300_000), rel=1e-6)

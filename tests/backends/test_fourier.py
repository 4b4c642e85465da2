"""Fourier transforms in machine code, beside NumPy's in more places."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu.fourier import fourier_kernel
from tenon.graph.interpret import type_of
from tenon.ops.fourier import fft_op, irfft_op, rfft_op

PRECISION = {np.dtype("c8"): 1e-6, np.dtype("c16"): 1e-14}
LENGTHS = 2, 3, 4, 5, 7, 11, 13, 30, 33, 64, 77, 243, 256, 260, 360, 1000, 1001, 2310, 4096


def numbers(dtype: Any, *shape: int) -> np.ndarray:
    random, dtype = np.random.default_rng(0), np.dtype(dtype)
    x = random.standard_normal(shape)
    return (x + 1j * random.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def compare(op: Any, x: np.ndarray, **attrs: Any) -> bool:
    """Whether machine code claims the call; it then gives what NumPy gives."""
    kernel = fourier_kernel(op, [type_of(x)], attrs)
    if kernel is None:
        return False
    found, expected = kernel.run(x, **attrs), op.ref(x.astype("c16" if x.dtype.kind == "c" else "f8"), **attrs)
    assert found.shape == expected.shape
    assert found.dtype == op.ref(x, **attrs).dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=PRECISION[np.dtype(f"c{x.dtype.alignment * 2}")]
                               * np.abs(expected).max())
    return True


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("n", LENGTHS)
def test_columns_rows_and_the_middle_of_three_axes_are_transformed_both_ways(n: int, dtype: str) -> None:
    for inverse in (False, True):
        for shape, axis in (((n, 19), 0), ((17, n), 1), ((4, n), 1), ((2, n, 5), 1)):
            assert compare(fft_op, numbers(dtype, *shape), axis=axis, inverse=inverse)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [36, 64, 66, 242, 512, 520, 720, 2002, 4096, 4608])
@pytest.mark.parametrize("rows", [4, 21])
def test_an_even_number_of_real_numbers_is_transformed_as_pairs(n: int, rows: int, dtype: str) -> None:
    complex_type = np.dtype(f"c{2 * np.dtype(dtype).itemsize}")
    claimed = compare(rfft_op, numbers(dtype, rows, n), axis=1)
    assert compare(irfft_op, numbers(complex_type, rows, n // 2 + 1), n=n, axis=1) == claimed
    assert claimed


def test_a_single_row_is_transformed_as_a_matrix() -> None:
    assert compare(fft_op, numbers("c8", 4096), axis=0, inverse=False)
    assert compare(rfft_op, numbers("f8", 1, 2310 * 2), axis=1)


def test_what_would_not_fill_vectors_and_large_prime_factors_are_left_to_numpy() -> None:
    for shape, axis in (((17 * 4, 19), 0), ((3, 7), 1), ((5, 1009), 1), ((0, 64), 1), ((8, 1), 1), ((64, 3), 0)):
        assert not compare(fft_op, numbers("c8", *shape), axis=axis, inverse=False)
    assert not compare(rfft_op, numbers("f4", 8, 1001), axis=1)
    assert not compare(rfft_op, numbers("f4", 64, 8), axis=0)
    assert not compare(rfft_op, numbers("f2", 8, 1024), axis=1)
    assert not compare(irfft_op, numbers("c8", 8, 33), n=70, axis=1)


def test_a_program_uses_it_time_after_time_and_leaves_what_it_reads() -> None:
    step, x = tn.jit(lambda x: tn.fft.irfft(tn.fft.rfft(x) * 2)), numbers("f4", 9, 1000)
    for seed in range(3):
        given = np.roll(x, seed)
        kept = given.copy()
        np.testing.assert_allclose(step(tn.asarray(given)).numpy(), 2 * kept, atol=1e-5)
        np.testing.assert_array_equal(given, kept)


def test_eager_and_compiled_transforms_of_much_data_are_the_same() -> None:
    x = tn.asarray(numbers("f4", 100, 1200))
    np.testing.assert_array_equal(tn.fft.rfft(x).numpy(), tn.jit(tn.fft.rfft)(x).numpy())


def test_gradients_go_through_it() -> None:
    x = numbers("f8", 5, 720)

    def energy(x: tn.Tensor) -> tn.Tensor:
        return (tn.abs(tn.fft.rfft(x)) ** 2).sum()
    found = tn.jit(tn.grad(energy))(tn.asarray(x)).numpy()
    ends, signs = np.fft.rfft(x)[:, [0, -1]].real, np.stack([np.ones(720), (-1.0) ** np.arange(720)])
    np.testing.assert_allclose(found, 720 * x + ends @ signs, rtol=1e-10)     # all others stand for two

"""tn.fft against numpy.fft, its gradients against central differences, and inside jit."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from gradients import check_gradient
from tenon.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(3)
REAL = RNG.standard_normal((2, 5, 4))
COMPLEX = REAL + 1j * RNG.standard_normal(REAL.shape)
ONE_AXIS = ["fft", "ifft", "irfft", "hfft"]
MANY_AXES = ["fftn", "ifftn", "irfftn", "fft2", "ifft2", "irfft2"]


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 3, 4, 7])
@pytest.mark.parametrize("name", [*ONE_AXIS, "rfft", "ihfft"])
def test_one_axis_as_numpy(name: str, n: Any, norm: Any) -> None:
    x = REAL if name in ("rfft", "ihfft") else COMPLEX
    expected = getattr(np.fft, name)(x, n, 1, norm)
    np.testing.assert_allclose(getattr(tn.fft, name)(tn.tensor(x), n=n, axis=1, norm=norm).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("name", [*MANY_AXES, "rfftn", "rfft2"])
def test_several_axes_as_numpy(name: str) -> None:
    x = REAL if name.startswith("r") else COMPLEX
    for options in ({}, {"axes": (0, 2)}, {"s": (3, 6), "axes": (1, 2)}, {"norm": "ortho"}):
        expected = getattr(np.fft, name)(x, **options)
        np.testing.assert_allclose(getattr(tn.fft, name)(tn.tensor(x), **options).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("n", [None, 4, 7])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_gradients(name: str, n: Any) -> None:
    x = REAL[0, :, :1] if name in ("rfft", "ihfft") else COMPLEX[0, :, :1]
    check_gradient(lambda t: getattr(tn.fft, name)(t, n=n, axis=0, norm="ortho"), x, order=2)


def test_inside_jit() -> None:
    x = tn.tensor(REAL)
    np.testing.assert_allclose(tn.jit(lambda t: tn.fft.irfft(tn.fft.rfft(t), 4))(x).numpy(), REAL, atol=1e-12)


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 5):
        np.testing.assert_allclose(tn.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(tn.fft.rfftfreq(n).numpy(), np.fft.rfftfreq(n), rtol=1e-6)
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 1, (0, 2)):
            expected = getattr(np.fft, name)(REAL, axes)
            np.testing.assert_array_equal(getattr(tn.fft, name)(tn.tensor(REAL), axes).numpy(), expected)


def test_what_cannot_be_transformed_says_so() -> None:
    x = tn.ones(3)
    with pytest.raises(ArgumentError, match="norm"):
        tn.fft.fft(x, norm="both")
    with pytest.raises(ShapeError, match="cannot be transformed"):
        tn.fft.fft(x, n=0)
    with pytest.raises(ShapeError, match="out of range"):
        tn.fft.fft(x, axis=1)
    with pytest.raises(DTypeError, match="rfft"):
        tn.fft.rfft(tn.tensor([1j]))

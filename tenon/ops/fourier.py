"""Discrete Fourier transforms: three operators that NumPy runs (fft, rfft, irfft), and functions made of them.

The operators do not scale: their adjoints are then each other, whatever `norm` the function was called with.
The functions are `tn.fft.<name>`; they are no `tn.<name>`, because `tn.fft` is the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.axis_rule import beside_axis
from tenon.graph.op import Op
from tenon.ops.comparison import equal, logical_or, where
from tenon.ops.complex_parts import conj, real
from tenon.ops.creation import arange, as_number, iota
from tenon.ops.define import canonical_axis, check_kind, define, lift, remembering
from tenon.ops.joining_and_axes import replaced
from tenon.ops.placing import on_device
from tenon.ops.repeating import roll
from tenon.ops.shape import cast
from tenon.ops.slice_pad_concat import pad_op
from tenon.ops.splitting import narrow
from tenon.types import (
    TensorType,
    as_dtype,
    complex_of,
    float32,
    floating_of,
    normalize_axes,
    normalize_axis,
    real_of,
)

NORMS = ("backward", "ortho", "forward")


def _check_length(name: str, n: Any, axis: int) -> None:
    if isinstance(n, int) and n < 1:
        raise ShapeError(f"{name}: {n} elements along axis {axis} cannot be transformed")


def _fft_type(x: TensorType, *, axis: int, inverse: bool) -> TensorType:
    check_kind("fft", x.dtype, "c")
    _check_length("fft", x.shape[axis], axis)
    return x


def _fft_ref(x: Any, axis: int, inverse: bool) -> Any:
    return np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis)


fft_op: Op = define(
    "fft", public=False, type=_fft_type, canonical=canonical_axis, ref=_fft_ref, axis_rule=beside_axis(),
    vjp=lambda g, y, x, axis, inverse: (fft_op(g, axis=axis, inverse=not inverse),),
    batch="axis",
    doc="y[k] = sum over j of x[j] * exp(-2 pi i j k / n) along an axis; +2 pi where inverse.  Nothing is divided.",
    examples=["fft(c64[2, 5], axis=1, inverse=False) -> c64[2, 5]",
              "fft(c128[4, 3], axis=0, inverse=True) -> c128[4, 3]",
              "fft(f32[5], axis=0, inverse=False) -> error"])


def _rfft_type(x: TensorType, *, axis: int) -> TensorType:
    check_kind("rfft", x.dtype, "f")
    _check_length("rfft", x.shape[axis], axis)
    return TensorType(complex_of(x.dtype), replaced(x.shape, axis, x.shape[axis] // 2 + 1))


def _rfft_vjp(g: Any, y: Any, x: Any, axis: int) -> tuple[Any]:
    """The gradient as the first half of a spectrum whose other half is zero."""
    whole = _sized(g, x.shape[axis], axis)
    return (real(fft_op(whole, axis=axis, inverse=True)),)


rfft_op = define(
    "rfft", public=False, type=_rfft_type, canonical=canonical_axis,
    ref=lambda x, axis: np.fft.rfft(x, axis=axis), vjp=_rfft_vjp, axis_rule=beside_axis(),
    batch="axis", doc="The first n // 2 + 1 elements of the fft of real numbers; the others are their conjugates.",
    examples=["rfft(f32[2, 5], axis=1) -> c64[2, 3]", "rfft(f64[4], axis=0) -> c128[3]"])


def _irfft_type(x: TensorType, *, n: Dim, axis: int) -> TensorType:
    check_kind("irfft", x.dtype, "c")
    _check_length("irfft", n, axis)
    return TensorType(real_of(x.dtype), replaced(x.shape, axis, n))


def _irfft_vjp(g: Any, y: Any, x: Any, n: Dim, axis: int) -> tuple[Any]:
    """What stands for itself and its conjugate counts twice: all but the first and, where n is even, the last."""
    at = iota(x.shape[axis], axis, x.ndim)
    once = logical_or(equal(at, 0), equal(at * 2, as_number(n, as_dtype("i64")) if not isinstance(n, int) else n))
    return (rfft_op(g, axis=axis) * where(once, 1.0, 2.0),)


irfft_op = define(
    "irfft", public=False, type=_irfft_type, canonical=canonical_axis,
    ref=lambda x, n, axis: np.fft.irfft(x, n, axis=axis, norm="forward"),
    vjp=_irfft_vjp, axis_rule=beside_axis(), batch="axis", doc="The n real numbers whose rfft is x, times n.",
    examples=["irfft(c64[2, 3], n=5, axis=1) -> f32[2, 5]", "irfft(c128[3], n=4, axis=0) -> f64[4]"])


# ---------------------------------------------------------------- one axis

def _sized(x: Any, n: Any, axis: int) -> Any:
    """Cut or filled with zeros at the end of an axis, so that it has n elements."""
    size = x.shape[axis]
    if size == n:
        return x
    if n < size:
        return narrow(x, axis, 0, n)
    return pad_op(x, 0, low=(0,) * x.ndim, high=replaced((0,) * x.ndim, axis, n - size))


def _scaled(y: Any, n: Any, norm: str | None, inverse: bool) -> Any:
    norm = norm or "backward"
    if norm not in NORMS:
        raise ArgumentError(f"fft: norm is 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == ("forward" if inverse else "backward"):
        return y
    count = as_number(n, real_of(y.dtype))
    return y / (count ** 0.5 if norm == "ortho" else count)


def _swapped(norm: str | None) -> str:
    """The norm seen from the other direction."""
    norm = norm or "backward"
    return {"backward": "forward", "forward": "backward"}.get(norm, norm)


def _length(name: str, x: Any, n: Any, axis: int, default: Any = None) -> Any:
    n = (x.shape[axis] if default is None else default) if n is None else n
    _check_length(name, n, axis)
    return n


def _complex(x: Any) -> Any:
    x = lift(x)
    return x if x.dtype.kind == "c" else cast(x, dtype=complex_of(floating_of(x.dtype)))


def _real(name: str, x: Any) -> Any:
    x = lift(x)
    check_kind(name, x.dtype, "buif")
    return x if x.dtype.kind == "f" else cast(x, dtype=float32)


def _transform(name: str, x: Any, n: Any, axis: int, norm: str | None, inverse: bool) -> Any:
    x = _complex(x)
    axis = normalize_axis(axis, x.ndim)
    n = _length(name, x, n, axis)
    return _scaled(fft_op(_sized(x, n, axis), axis=axis, inverse=inverse), n, norm, inverse)


@remembering
def fft(x: Any, n: Any = None, axis: int = -1, norm: str | None = "backward") -> Any:
    """The discrete Fourier transform along an axis, cut or filled with zeros to n elements.

    `norm` says which direction is divided: "backward" the inverse by n, "forward" this one, "ortho" both by sqrt(n).

    >>> tn.fft.fft(tn.tensor([1.0, 0.0, 0.0]))
    tensor([1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _transform("fft", x, n, axis, norm, False)


@remembering
def ifft(x: Any, n: Any = None, axis: int = -1, norm: str | None = "backward") -> Any:
    """The inverse of `fft`."""
    return _transform("ifft", x, n, axis, norm, True)


@remembering
def rfft(x: Any, n: Any = None, axis: int = -1, norm: str | None = "backward") -> Any:
    """The first n // 2 + 1 elements of the `fft` of real numbers; the others are their conjugates."""
    x = _real("rfft", x)
    axis = normalize_axis(axis, x.ndim)
    n = _length("rfft", x, n, axis)
    return _scaled(rfft_op(_sized(x, n, axis), axis=axis), n, norm, False)


@remembering
def irfft(x: Any, n: Any = None, axis: int = -1, norm: str | None = "backward") -> Any:
    """The inverse of `rfft`: n real numbers (an even number unless n says otherwise)."""
    x = _complex(x)
    axis = normalize_axis(axis, x.ndim)
    n = _length("irfft", x, n, axis, 2 * (x.shape[axis] - 1))
    return _scaled(irfft_op(_sized(x, n // 2 + 1, axis), n=n, axis=axis), n, norm, True)


@remembering
def hfft(x: Any, n: Any = None, axis: int = -1, norm: str | None = "backward") -> Any:
    """The `fft`, which is real, of n numbers of which the second half are the conjugates of the first, which is x."""
    return irfft(conj(_complex(x)), n, axis, _swapped(norm))


@remembering
def ihfft(x: Any, n: Any = None, axis: int = -1, norm: str | None = "backward") -> Any:
    """The inverse of `hfft`."""
    return conj(rfft(x, n, axis, _swapped(norm)))


# ---------------------------------------------------------------- several axes

def _plan(name: str, x: Any, s: Any, axes: Any) -> tuple[list[Any], list[int]]:
    """A length (or None) for each axis, and the axes."""
    if axes is None and s is not None:
        axes = tuple(range(x.ndim - len(s), x.ndim))
    listed = list(normalize_axes(axes, x.ndim, "axes"))
    sizes = [None] * len(listed) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(listed):
        raise ShapeError(f"{name}: {len(sizes)} sizes for {len(listed)} axes")
    return sizes, listed


def _many(name: str, last: Callable[..., Any], others: Callable[..., Any], last_first: bool,
          doc: str) -> Callable[..., Any]:
    """A transform over several axes: `last` along the last of them, `others` along the rest."""
    def transform(x: Any, s: Sequence[Any] | None = None, axes: Sequence[int] | None = None,
                  norm: str | None = "backward") -> Any:
        x = lift(x)
        sizes, listed = _plan(name, x, s, axes)
        if not listed:
            return x
        if last_first:
            x = last(x, sizes[-1], listed[-1], norm)
        for n, axis in zip(sizes[:-1], listed[:-1], strict=True):
            x = others(x, n, axis, norm)
        return x if last_first else last(x, sizes[-1], listed[-1], norm)
    transform.__name__, transform.__doc__ = name, doc
    return remembering(transform)


def _two(many: Callable[..., Any], name: str) -> Callable[..., Any]:
    def transform(x: Any, s: Sequence[Any] | None = None, axes: Sequence[int] = (-2, -1),
                  norm: str | None = "backward") -> Any:
        return many(x, s, axes, norm)
    transform.__name__, transform.__doc__ = name, f"`{many.__name__}` over two axes, by default the last two."
    return remembering(transform)


fftn = _many("fftn", fft, fft, True, "`fft` along several axes, by default all.")
ifftn = _many("ifftn", ifft, ifft, True, "`ifft` along several axes, by default all.")
rfftn = _many("rfftn", rfft, fft, True, "`rfft` along the last of several axes, `fft` along the others.")
irfftn = _many("irfftn", irfft, ifft, False, "The inverse of `rfftn`.")
hfftn = _many("hfftn", hfft, fft, False, "`hfft` along the last of several axes, `fft` along the others.")
ihfftn = _many("ihfftn", ihfft, ifft, True, "The inverse of `hfftn`.")
fft2, ifft2 = _two(fftn, "fft2"), _two(ifftn, "ifft2")
rfft2, irfft2 = _two(rfftn, "rfft2"), _two(irfftn, "irfft2")
hfft2, ihfft2 = _two(hfftn, "hfft2"), _two(ihfftn, "ihfft2")


# ---------------------------------------------------------------- frequencies

def _steps(n: int, d: float, first: int, dtype: Any) -> Any:
    wanted = as_dtype(dtype) if dtype is not None else float32
    count = arange(first, first + n, dtype="f64") / (n * d)
    return cast(count, dtype=wanted)


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies that the elements of an `fft` of n samples at distance d belong to.

    >>> tn.fft.fftfreq(4)
    tensor([ 0.  ,  0.25, -0.5 , -0.25])
    """
    return on_device(ifftshift(_steps(n, d, -(n // 2), dtype)), device)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies that the elements of an `rfft` of n samples at distance d belong to."""
    wanted = as_dtype(dtype) if dtype is not None else float32
    return on_device(cast(arange(n // 2 + 1, dtype="f64") / (n * d), dtype=wanted), device)


def _shift(x: Any, axes: Any, by: Callable[[Any], Any]) -> Any:
    x = lift(x)
    listed = normalize_axes(axes, x.ndim, "axes")
    return roll(x, [by(x.shape[a]) for a in listed], listed) if listed else x


@remembering
def fftshift(x: Any, axes: Any = None) -> Any:
    """Frequency 0 moved to the middle of the axes (all by default)."""
    return _shift(x, axes, lambda n: n // 2)


@remembering
def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shift(x, axes, lambda n: -(n // 2) if isinstance(n, int) else n - n // 2)

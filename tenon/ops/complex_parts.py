"""Complex numbers: their parts, making them from parts, and what is done to each part."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tenon.graph.operators import Operators
from tenon.graph.promotion import floating, same
from tenon.ops.comparison import isnan, isneginf, isposinf, where
from tenon.ops.define import aliases, binary, composite, function, lift, unary
from tenon.types import complex_of, real_of

conj_op = unary("conj", np.conj, None, lambda g, y, x: (conj(g),), "The complex conjugate.", promote=same)
real_op = unary("real", np.real, None, lambda g, y, x: (g,), "The real part.", promote=same, result=real_of)
imag_op = unary("imag", np.imag, None, lambda g, y, x: (g * 1j,), "The imaginary part.", promote=same, result=real_of)


@function
def conj(x: Any) -> Any:
    """The complex conjugate, which is the tensor itself when it is real."""
    x = x if isinstance(x, Operators) else lift(x)
    return conj_op(x) if x.dtype.kind == "c" else x


@function
def real(x: Any) -> Any:
    """The real part, which is the tensor itself when it is real.

    >>> tn.real(tn.tensor([1 + 2j, 3j]))
    tensor([1., 0.])
    """
    x = lift(x)
    return real_op(x) if x.dtype.kind == "c" else x


@function
def imag(x: Any) -> Any:
    """The imaginary part; zeros for a real tensor."""
    x = lift(x)
    return imag_op(x) if x.dtype.kind == "c" else x - x


def _join(x: Any, y: Any) -> Any:
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), np.result_type(x, np.complex64))
    out.real, out.imag = x, y           # x + 1j * y would make a NaN of an infinite part
    return out


complex_ = binary("complex", _join, None,
                  lambda g, z, x, y: (real(g), imag(g)), "The complex number with real part x and imaginary part y.",
                  promote=floating, result=complex_of, kinds="f", examples=["complex(f32[3], f32[3]) -> c64[3]"])


@function
def angle(x: Any) -> Any:
    """The angle of complex numbers in the plane, from -pi to pi; for real ones 0 or pi.

    >>> tn.angle(tn.tensor([1j, -1j]))
    tensor([ 1.5708, -1.5708])
    """
    x = lift(x)
    if x.dtype.kind == "c":
        return imag(x).atan2(real(x))
    return where(x < 0, np.pi, where(x.isnan(), x * 1.0, 0.0))


@composite(examples=["nan_to_num(f32[2, 3], nan=0.0, posinf=None, neginf=None) -> f32[2, 3]",
                     "nan_to_num(c64[3]) -> c64[3]"], promote=same)
def nan_to_num(x: Any, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """NaN and infinities replaced by numbers; by default 0 and the largest and smallest of the element type."""
    if x.dtype.kind == "c":
        parts = (nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf) for part in (real(x), imag(x)))
        return complex_(*parts)
    if not x.dtype.is_floating:
        return x
    largest = float(ml_dtypes.finfo(x.dtype.numpy).max)     # type: ignore[no-untyped-call]
    top, bottom = largest if posinf is None else posinf, -largest if neginf is None else neginf
    return where(isnan(x), nan, where(isposinf(x), top, where(isneginf(x), bottom, x)))


aliases(conjugate=conj, conj_physical=conj)

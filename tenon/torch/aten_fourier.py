"""ATen's complex numbers and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon as tn
from tenon.dims.symbolic_dim import product
from tenon.ops.fourier import fft_op, irfft_op, rfft_op
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, axis_of

UNSCALED, BY_ROOT, BY_LENGTH = range(3)         # what PyTorch means by a normalization


def _scaled(at: AtenCall, x: Any, count: Any, normalization: int) -> Any:
    """The results of `count` elements that belong together, divided as PyTorch says."""
    if normalization == UNSCALED:
        return x
    if not isinstance(count, int):
        raise UnmappedOperator("a transform over a size that is not known yet")
    return tn.multiply(x, 1 / (count if normalization == BY_LENGTH else math.sqrt(count)))


def _each(x: Any, axes: Sequence[int], inverse: bool) -> Any:
    for axis in axes:
        x = fft_op(x, axis=axis, inverse=inverse)
    return x


def _axes(x: Any, dims: Sequence[int]) -> list[int]:
    return [axis_of(d, x.ndim) for d in dims]


def _complex_to_complex(at: AtenCall, x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    axes = _axes(x, dim)
    return _scaled(at, _each(x, axes, not forward), product([x.shape[k] for k in axes]), normalization)


def _real_to_complex(at: AtenCall, x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    axes = _axes(x, dim)
    first = rfft_op(x, axis=axes[-1]) if onesided else fft_op(tn.cast(x, dtype=at.dtype), axis=axes[-1], inverse=False)
    return _scaled(at, _each(first, axes[:-1], False), product([x.shape[k] for k in axes]), normalization)


def _complex_to_real(at: AtenCall, x: Any, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    axes = _axes(x, dim)
    found = irfft_op(_each(x, axes[:-1], True), n=last_dim_size, axis=axes[-1])
    return _scaled(at, found, product([found.shape[k] for k in axes]), normalization)


def _parts(at: AtenCall, x: Any) -> Any:
    return tn.stack([tn.real(x), tn.imag(x)], axis=-1)


FOURIER: dict[str, Rule] = {
    "_fft_c2c": _complex_to_complex, "_fft_r2c": _real_to_complex, "_fft_c2r": _complex_to_real,
    "view_as_real": _parts, "view_as_real_copy": _parts,
    **dict.fromkeys(("view_as_complex", "view_as_complex_copy"), lambda at, x: tn.complex(x[..., 0], x[..., 1])),
    "complex": lambda at, x, y: tn.complex(x, y), "polar": lambda at, size, angle: tn.polar(size, angle),
    "real": lambda at, x: tn.real(x), "imag": lambda at, x: tn.imag(x),
    **dict.fromkeys(("_conj", "_conj_physical", "conj_physical"), lambda at, x: tn.conj(x)),
    "angle": lambda at, x: tn.angle(x),
}

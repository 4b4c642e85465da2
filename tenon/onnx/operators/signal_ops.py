"""Signals: Fourier transforms and windows."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import ints
from tenon.onnx.onnx_package import onnx
from tenon.onnx.operator_table import OperatorCall, operator
from tenon.onnx.operators.cast_ops import numpy_type
from tenon.onnx.operators.shape_ops import bounded


def _complex(x: Any) -> Any:
    """Pairs on the last axis as complex numbers; one number is the real part."""
    wide = x if x.dtype in (tn.float32, tn.float64) else tn.cast(x, tn.float32)
    return tn.complex(wide[..., 0], wide[..., 1]) if x.shape[-1] == 2 else tn.complex(wide[..., 0], wide[..., 0] * 0)


def _pairs(x: Any, dtype: Any) -> Any:
    return tn.cast(tn.stack([tn.real(x), tn.imag(x)], axis=-1), dtype)


@operator("DFT", known="dft_length axis")
def dft(call: OperatorCall, x: Any, dft_length: Any = None, axis: Any = None) -> Any:
    """One-sided transforms keep the first half, and their inverse gives real numbers."""
    along = call.get("axis", 1) if call.opset < 20 else -2 if axis is None else ints(axis)[0]
    along = along % x.ndim
    if along == x.ndim - 1:
        raise ShapeError(f"{call.step.label}: the last axis holds the parts of complex numbers")
    length = None if dft_length is None else bounded(ints(dft_length), call)[0]
    if call.get("inverse", 0) and call.get("onesided", 0):
        count = length if length is not None else 2 * (x.shape[along] - 1)
        return tn.cast(tn.expand_dims(tn.fft.irfft(_complex(x), n=count, axis=along), -1), x.dtype)
    if call.get("inverse", 0):
        return _pairs(tn.fft.ifft(_complex(x), n=length, axis=along), x.dtype)
    y = tn.fft.fft(_complex(x), n=length, axis=along)
    if call.get("onesided", 0):
        half = y.shape[along] // 2 + 1
        y = y[tuple(slice(0, half) if k == along else slice(None) for k in range(y.ndim))]
    return _pairs(y, x.dtype)


@operator("STFT", known="frame_step frame_length")
def stft(call: OperatorCall, x: Any, frame_step: Any, window: Any = None, frame_length: Any = None) -> Any:
    step = ints(frame_step)[0]
    length = ints(frame_length)[0] if frame_length is not None else window.shape[0] if window is not None \
        else x.shape[1]
    signal = _complex(x) if x.ndim == 3 else _complex(tn.expand_dims(x, -1))
    frames = tn.sliding_window(signal, length, step, axis=1)
    if window is not None:
        frames = frames * tn.cast(window, frames.dtype)
    y = tn.fft.fft(frames, axis=-1)
    if call.get("onesided", 1):
        y = y[..., :length // 2 + 1]
    return _pairs(y, x.dtype)


@operator("MelWeightMatrix", host=True)
def mel_weight_matrix(call: OperatorCall, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles that are equally wide on the mel scale."""
    count, size, rate = int(bins), int(length) // 2 + 1, float(rate)
    bounded([count, size], call)
    edges = np.arange(count + 2)
    low_mel, high_mel = (2595 * np.log10(1 + float(f) / 700) for f in (low, high))
    places = low_mel + edges * ((high_mel - low_mel) / (count + 2))
    places = np.floor((int(length) + 1) * (700 * (10 ** (places / 2595) - 1)) / rate).astype(int)
    found = np.zeros((size, count))
    for k in range(count):
        left, middle, right = places[k:k + 3]
        if middle == left:
            found[middle, k] = 1
        else:
            found[left:middle + 1, k] = np.arange(middle - left + 1) / (middle - left)
        if right > middle:
            found[middle:right, k] = np.arange(right - middle, 0, -1) / (right - middle)
    return found.astype(numpy_type(call.get("output_datatype", onnx.TensorProto.FLOAT), call))


def _window(name: str, weights: tuple[float, ...]) -> None:
    @operator(name, known="size")
    def run(call: OperatorCall, size: Any) -> Any:
        count, = bounded(ints(size)[:1], call)
        turn = 2 * np.pi * np.arange(count) / (count if call.get("periodic", 1) else max(count - 1, 1))
        found = sum(w * (-1) ** k * np.cos(k * turn) for k, w in enumerate(weights))
        return tn.tensor(found.astype(numpy_type(call.get("output_datatype", onnx.TensorProto.FLOAT), call)))


_window("HannWindow", (0.5, 0.5))
_window("HammingWindow", (25 / 46, 21 / 46))
_window("BlackmanWindow", (0.42, 0.5, 0.08))

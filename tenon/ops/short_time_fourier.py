"""Short-time Fourier transforms and the windows that they are taken through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.ops.creation import arange, ones
from tenon.ops.define import function, lift
from tenon.ops.fourier import fft, ifft, irfft, rfft
from tenon.ops.index_helpers import sliding_window, view_as_complex, view_as_real
from tenon.ops.joining_and_axes import expand_dims, squeeze
from tenon.ops.placing import on_device
from tenon.ops.repeating import pad
from tenon.ops.searching import is_in_graph
from tenon.ops.shape import cast
from tenon.ops.special_functions import i0
from tenon.ops.splitting import narrow
from tenon.ops.windows import fold
from tenon.types import float32

# ---------------------------------------------------------------- windows


def _window(name: str, doc: str, weights: Callable[..., Any], *options: Any) -> Any:
    def make(window_length: Any, periodic: bool = True, *given: Any, dtype: Any = None, device: Any = None,
             **named: Any) -> Any:
        if isinstance(window_length, int) and window_length < 0:
            raise ArgumentError(f"{name}: a window of {window_length} elements")
        if len(given) > len(options) or any(key not in dict(options) for key in named):
            raise ArgumentError(f"{name}: options {given or named} are not known",
                                hint=f"it takes (window_length, periodic, {', '.join(dict(options))})")
        chosen = {**dict(options), **dict(zip(dict(options), given)), **named}
        last = window_length if periodic else window_length - 1
        if window_length == 1:
            return on_device(ones(1, dtype=dtype or float32), device)
        return on_device(cast(weights(arange(window_length, dtype="float64") / last, **chosen),
                              dtype=dtype or float32), device)
    make.__name__, make.__doc__ = name, f"{doc}; a periodic one is for `stft`, one that is not is symmetric."
    return function(make)


def _cosines(at: Any, *weights: float) -> Any:
    """The sum of weights[k] * cos(2 pi k at)."""
    total = weights[0] + 0 * at
    for k, weight in enumerate(weights[1:], 1):
        total = total + weight * (2 * math.pi * k * at).cos()
    return total


hann_window = _window("hann_window", "A window of sin(pi n / N) ** 2", lambda at: _cosines(at, 0.5, -0.5))
hamming_window = _window("hamming_window", "A window of alpha - beta cos(2 pi n / N)",
                         lambda at, alpha, beta: _cosines(at, alpha, -beta), ("alpha", 0.54), ("beta", 0.46))
blackman_window = _window("blackman_window", "Blackman's window", lambda at: _cosines(at, 0.42, -0.5, 0.08))
bartlett_window = _window("bartlett_window", "A window that rises and falls in lines",
                          lambda at: 1 - (2 * at - 1).abs())
kaiser_window = _window(
    "kaiser_window", "Kaiser's window, narrower where beta is larger",
    lambda at, beta: i0(beta * (1 - (2 * at - 1) ** 2).clip(0).sqrt()) / i0(arange(1, dtype="float64") + beta),
    ("beta", 12.0))


# ---------------------------------------------------------------- short-time transforms

def _frame(name: str, n_fft: int, hop_length: int | None, win_length: int | None, window: Any,
           like: Any) -> tuple[int, Any]:
    """The step between frames, and the window, with zeros around it up to `n_fft`."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if n_fft < 1 or hop < 1 or not 0 < width <= n_fft:
        raise ArgumentError(f"{name}: frames of n_fft={n_fft}, {hop} apart, through a window of {width}",
                            hint="hop_length is at least 1, win_length at most n_fft")
    if window is not None and window.shape != (width,):
        raise ShapeError(f"{name}: the window must have {width} elements, it is {window.type}")
    weights = ones(width, dtype=like) if window is None else window
    before = (n_fft - width) // 2
    return hop, pad(weights, ((before, n_fft - width - before),)) if width < n_fft else weights


@function
def stft(x: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
         center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
         return_complex: bool = True) -> Any:
    """The Fourier transforms of overlapping frames of x [..., time]: [..., frequencies, frames], as PyTorch's.

    Frames have `n_fft` elements, are `hop_length` apart (a quarter of that by default) and times a window; with
    `center` the k-th one has element k * hop_length in its middle.  Without `return_complex` the real and imaginary
    parts are a last axis.

    >>> tn.stft(tn.ones(8), 4, window=tn.hann_window(4)).shape
    (3, 9)
    """
    x = lift(x)
    if x.ndim not in (1, 2):
        raise ShapeError(f"stft: {x.type} is neither [time] nor [batch, time]")
    whole = x.dtype.kind == "c" or (window is not None and window.dtype.kind == "c")
    hop, weights = _frame("stft", n_fft, hop_length, win_length, window, x.dtype)
    if center:
        x = pad(x, [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)], pad_mode)
    frames = sliding_window(x, n_fft, hop) * weights
    if whole and onesided:
        raise ArgumentError("stft: complex numbers have no onesided transform", hint="onesided=False")
    transform = fft if whole or onesided is False else rfft
    found = transform(frames, norm="ortho" if normalized else "backward").swapaxes(-1, -2)
    return found if return_complex else view_as_real(found)


@function
def istft(x: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
          center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
          return_complex: bool = False) -> Any:
    """The inverse of `stft`: the signal whose frames are closest to these, of `length` elements.

    Raises ArgumentError where the window tells nothing of some elements.  Compiled code, which does not look at the
    window, gives NaN there.

    >>> x, window = tn.arange(8.0), tn.hann_window(4)
    >>> tn.istft(tn.stft(x, 4, window=window), 4, window=window).round().numpy().tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    x = lift(x)
    x = x if x.dtype.kind == "c" else view_as_complex(x)
    if x.ndim not in (2, 3):
        raise ShapeError(f"istft: {x.type} is neither [frequencies, frames] nor [batch, frequencies, frames]")
    half = (x.shape[-2] != n_fft) if onesided is None else onesided
    if x.shape[-2] != (n_fft // 2 + 1 if half else n_fft):
        raise ShapeError(f"istft: {x.shape[-2]} frequencies do not come of frames of {n_fft}")
    norm = "ortho" if normalized else "backward"
    columns = x.swapaxes(-1, -2)
    frames = irfft(columns, n_fft, norm=norm) if half else ifft(columns, norm=norm)
    frames = frames if return_complex and not half else frames.real if frames.dtype.kind == "c" else frames
    hop, weights = _frame("istft", n_fft, hop_length, win_length, window, frames.dtype)
    cover = _overlapped((weights * weights).expand(frames.shape), hop)
    first = n_fft // 2 if center else 0
    stop = cover.shape[-1] - first if length is None else first + length
    if not is_in_graph(cover) and not cover.numpy()[..., first:stop].min(initial=1) > 1e-11:
        raise ArgumentError(f"istft: no frame of {n_fft}, {hop} apart, tells some of the elements through this window",
                            hint="a smaller hop_length, or a window without zeros")
    total = _overlapped(frames * weights, hop) / cover
    found = narrow(total, total.ndim - 1, first, min(stop, total.shape[-1]))
    missing = stop - total.shape[-1]
    return pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)]) if missing > 0 else found


def _overlapped(frames: Any, hop: int) -> Any:
    """The sum of frames [..., frames, n] that lie `hop` apart: [..., time]."""
    batched = frames if frames.ndim == 3 else expand_dims(frames, 0)
    count, n = batched.shape[1:]
    summed = fold(batched.swapaxes(1, 2), ((count - 1) * hop + n,), (n,), stride=(hop,))
    summed = squeeze(summed, 1)
    return summed if frames.ndim == 3 else squeeze(summed, 0)

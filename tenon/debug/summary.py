"""An array -> what is to be known of its elements at a glance: least, largest, mean, how many are NaN or infinite."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.dataclasses import dataclass

BINS = 10


@dataclass(frozen=True)
class Summary:
    """`min`, `max`, `mean` and `std` are of the finite elements, None where there are none; `histogram` counts these in
    ten equal steps from `min` to `max`."""

    dtype: str
    shape: tuple[int, ...]
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    nan: int
    inf: int
    histogram: tuple[int, ...] = ()

    def __str__(self) -> str:
        numbers = "no finite element" if self.min is None else \
            f"{self.min:.4g} to {self.max:.4g}, mean {self.mean:.4g}, std {self.std:.4g}"
        bad = [f"{count} {name}" for name, count in (("NaN", self.nan), ("inf", self.inf)) if count]
        return ", ".join([f"{self.dtype}{list(self.shape)}: {numbers}", *bad])


def summary_of(array: np.ndarray[Any, Any], bins: int = BINS) -> Summary:
    """The summary of any array; booleans count as 0 and 1, of complex numbers the absolute value."""
    wide = np.abs(array) if array.dtype.kind == "c" else array
    floats = wide.astype(np.float64 if wide.dtype.itemsize > 4 or wide.dtype.kind in "iu" else np.float32).reshape(-1)
    total = float(floats.sum(dtype=np.float64)) if floats.size else 0.0
    finite = floats if np.isfinite(total) else floats[np.isfinite(floats)]
    nan = 0 if np.isfinite(total) else int(np.isnan(floats).sum())
    name = str(array.dtype)
    if not finite.size:
        return Summary(name, array.shape, None, None, None, None, nan, floats.size - nan)
    low, high = float(finite.min()), float(finite.max())
    mean = float(finite.mean(dtype=np.float64))
    centred = np.subtract(finite, mean, dtype=finite.dtype)
    std = float(np.sqrt(max(0.0, float(np.dot(centred, centred)) / finite.size)))
    counts = tuple(int(n) for n in _counts(finite, low, high, bins)) if bins else ()
    return Summary(name, array.shape, low, high, mean, std, nan, floats.size - finite.size - nan, counts)


def _counts(finite: np.ndarray[Any, Any], low: float, high: float, bins: int) -> np.ndarray[Any, Any]:
    if high == low or not np.isfinite(high - low):
        return np.array([finite.size] + [0] * (bins - 1))
    return np.histogram(finite, bins, (low, high))[0]

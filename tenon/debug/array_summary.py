"""An array -> what is to be known of its elements at a glance: least, largest, mean, how many are NaN or infinite."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.records import dataclass

BINS = 10
SAMPLE = 4096           # elements that a histogram counts at least
CLOSE = 1e-3            # a variance so much smaller than the square of the mean is computed around it


@dataclass(frozen=True)
class Summary:
    """`min`, `max`, `mean` and `std` are of the finite elements, None where there are none; `histogram` counts these in
    ten equal steps from `min` to `max`, of a large array those of an even sample of 4096 or more."""

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
    floats = (wide if wide.dtype == np.float32 or wide.dtype == np.float64 else wide.astype(
        np.float32 if wide.dtype.itemsize == 2 and wide.dtype.kind not in "iu" else np.float64)).reshape(-1)
    with np.errstate(all="ignore"):
        is_fine = bool(np.isfinite(np.add.reduce(floats)))
    finite = floats if is_fine else floats[np.isfinite(floats)]
    nan = 0 if is_fine else int(np.isnan(floats).sum())
    name = str(array.dtype)
    if not finite.size:
        return Summary(name, array.shape, None, None, None, None, nan, floats.size - nan)
    low, high = float(finite.min()), float(finite.max())
    mean, std = _mean_and_deviation(finite)
    counts = _counts(finite, low, high, bins) if bins else ()
    return Summary(name, array.shape, low, high, mean, std, nan, floats.size - finite.size - nan, counts)


def _mean_and_deviation(finite: np.ndarray[Any, Any]) -> tuple[float, float]:
    with np.errstate(all="ignore"):
        mean, square = float(np.add.reduce(finite)) / finite.size, float(np.dot(finite, finite)) / finite.size
    if np.isfinite(square) and square - mean * mean > CLOSE * mean * mean:
        return mean, float(np.sqrt(square - mean * mean))
    wide = finite.astype(np.float64)            # the difference of two numbers that are close says little
    return float(wide.mean()), float(wide.std())


def _counts(finite: np.ndarray[Any, Any], low: float, high: float, bins: int) -> tuple[int, ...]:
    """How many elements are in each of these steps, of a large array those of an even sample, scaled."""
    sample = finite[::max(1, finite.size // SAMPLE)].astype(np.float64)
    if high == low:
        return (finite.size, *[0] * (bins - 1))
    places = np.minimum(((sample / 2 - low / 2) / (high / 2 - low / 2) * bins).astype(np.intp), bins - 1)
    counts = np.bincount(places, minlength=bins) * (finite.size / sample.size)
    return tuple(round(float(n)) for n in counts)

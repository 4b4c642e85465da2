"""Two arrays -> where they differ by more than rounding explains, as text; None where they do not."""

from __future__ import annotations

import numpy as np

# Of the largest element: about the square root of what a type resolves, for sums are added up in another order.
TOLERANCES = {8: 1e-8, 4: 1e-3, 2: 5e-2}


def difference(before: np.ndarray, after: np.ndarray, exact: bool = False) -> str | None:
    """The first element that differs; NaN equals NaN, and infinities only themselves."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return f"{before.dtype}{list(before.shape)} before, {after.dtype}{list(after.shape)} after"
    wrong = np.atleast_1d(_bits_differ(before, after) if exact else _values_differ(before, after))
    if not wrong.any():
        return None
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    at = place if before.ndim else ()
    return (f"element {list(at)}: {before[at]!r} before, {after[at]!r} after "
            f"({int(wrong.sum())} of {wrong.size} elements differ)")


def _bits_differ(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Where two arrays have other bits; but a NaN is as good as any other."""
    if before.dtype.kind in "biu":
        return np.asarray(before != after)
    same = (before == after) & (np.signbit(before.real) == np.signbit(after.real))
    return np.asarray(~(same | (_isnan(before) & _isnan(after))))


def _values_differ(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    if before.dtype.kind in "biu":
        return np.asarray(before != after)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    x, y = before.astype(wide), after.astype(wide)
    finite = np.isfinite(x) & np.isfinite(y)
    size = before.dtype.itemsize // (2 if before.dtype.kind == "c" else 1)
    scale = max(1.0, float(np.abs(x[finite]).max(initial=0.0)))
    with np.errstate(all="ignore"):
        far = np.abs(x - y) > TOLERANCES[size] * scale
        other = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    return np.asarray(np.where(finite, far, other))


def _isnan(x: np.ndarray) -> np.ndarray:
    return np.asarray(x != x)

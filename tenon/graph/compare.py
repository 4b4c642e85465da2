"""Two arrays -> where they differ by more than rounding explains, as text; None where they do not."""

from __future__ import annotations

import numpy as np

from tenon.graph.ir import Graph
from tenon.graph.partition import all_nodes

# Of the largest element: about the square root of what a type resolves, for sums are added up in another order.
TOLERANCES = {8: 1e-8, 4: 1e-3, 2: 5e-2}
WIDEST = max(TOLERANCES)


def narrowest(graph: Graph) -> int:
    """The bytes of the narrowest real numbers that a graph computes with; its results may be wider."""
    values = (x for node in all_nodes(graph) for x in (*node.inputs, *node.outputs) if x is not None)
    return min((real_bytes(x.type.dtype.numpy) for x in values if x.type.dtype.kind in "fc"), default=WIDEST)


def real_bytes(dtype: np.dtype) -> int:
    """The bytes of a real number, or of a part of a complex one."""
    return dtype.itemsize // (2 if dtype.kind == "c" else 1)


def difference(before: np.ndarray, after: np.ndarray, exact: bool = False, resolved: int = WIDEST) -> str | None:
    """The first element that differs; NaN equals NaN, and infinities only themselves.

    `resolved` are the bytes of the narrowest real numbers that both were computed with.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        return f"{before.dtype}{list(before.shape)} before, {after.dtype}{list(after.shape)} after"
    wrong = np.atleast_1d(_bits_differ(before, after) if exact else _values_differ(before, after, resolved))
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


def _values_differ(before: np.ndarray, after: np.ndarray, resolved: int) -> np.ndarray:
    if before.dtype.kind in "biu":
        return np.asarray(before != after)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    x, y = before.astype(wide), after.astype(wide)
    finite = np.isfinite(x) & np.isfinite(y)
    size = min(real_bytes(before.dtype), resolved)
    scale = max(1.0, float(np.abs(x[finite]).max(initial=0.0)))
    with np.errstate(all="ignore"):
        far = np.abs(x - y) > TOLERANCES[size] * scale
        other = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    return np.asarray(np.where(finite, far, other))


def _isnan(x: np.ndarray) -> np.ndarray:
    return np.asarray(x != x)

"""The namespace `tn.testing`: comparisons for tests, which say where two results part."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.capture.pytree import flatten, form
from tenon.types import DTYPE_OF, DType, as_dtype, complex64, complex128, float32, float64

__all__ = ["assert_close"]
# As far as rounding may move results of each type: relative to what is expected, and absolute.
TOLERANCES = {"bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5), float32.name: (1.3e-6, 1e-5),
              float64.name: (1e-7, 1e-7), complex64.name: (1.3e-6, 1e-5), complex128.name: (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None,
                 equal_nan: bool = False, check_dtype: bool = True, msg: str = "") -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| for every element.

    Both are tensors, arrays or numbers, or nests of the same structure.  Tolerances are those of
    `torch.testing.assert_close`: of the less exact element type; integers and bools must be equal.  Unlike in NumPy,
    shapes must be the same, and element types unless `check_dtype=False`.

    >>> tn.testing.assert_close(tn.tensor([1.0, 2.0]), tn.tensor([1.0, 2.0 + 1e-7]))
    >>> tn.testing.assert_close(tn.tensor([1.0, 2.0]), tn.tensor([1.0, 2.5]))
    Traceback (most recent call last):
    AssertionError: 1 of 2 elements differ, the most at (1,): 2.0, expected 2.5; rtol=1.3e-06, atol=1e-05
    """
    (left, structure), (right, other) = flatten(actual), flatten(expected)
    if structure != other:
        raise AssertionError(f"{msg}\n{form(structure)} where {form(other)} is expected".strip())
    for k, (x, y) in enumerate(zip(left, right, strict=True)):
        said = _difference(x, y, rtol, atol, equal_nan, check_dtype)
        if said:
            place = f"leaf {k} of {form(structure)}: " if len(left) > 1 else ""
            raise AssertionError(f"{msg}\n{place}{said}".strip())


def _difference(x: Any, y: Any, rtol: float | None, atol: float | None, equal_nan: bool, check_dtype: bool) -> str:
    """How two leaves differ, in words; empty where they are close."""
    if not all(isinstance(one, np.ndarray) or hasattr(one, "__array__") or isinstance(one, (bool, int, float, complex))
               for one in (x, y)):
        return "" if x == y else f"{x!r} is not {y!r}"
    numbers = isinstance(x, (bool, int, float, complex)) or isinstance(y, (bool, int, float, complex))
    a, b = np.asarray(x), np.asarray(y)
    if a.shape != b.shape:
        return f"the shape is {a.shape}, {b.shape} is expected"
    if check_dtype and not numbers and a.dtype != b.dtype:
        return f"the element type is {a.dtype}, {b.dtype} is expected (check_dtype=False lets it be)"
    relative, absolute = _tolerances(a, b)
    relative, absolute = relative if rtol is None else rtol, absolute if atol is None else atol
    far = ~_close(a, b, relative, absolute, equal_nan)
    return _words(a, b, far, f"rtol={relative:g}, atol={absolute:g}") if far.any() else ""


def _tolerances(*arrays: np.ndarray) -> tuple[float, float]:
    """Those of the less exact element type."""
    types: list[DType] = [DTYPE_OF.get(x.dtype) or as_dtype(x.dtype) for x in arrays]
    return max(TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in types)


def _close(a: np.ndarray, b: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> Any:
    """Which elements are close; integers are compared as they are, so that none is rounded."""
    if a.dtype.kind in "bui" and b.dtype.kind in "bui" and not rtol and not atol:
        return a == b
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    return np.isclose(a.astype(wide), b.astype(wide), rtol, atol, equal_nan)


def _words(a: np.ndarray, b: np.ndarray, far: np.ndarray, tolerances: str) -> str:
    """How many elements differ, and the one that does most."""
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    with np.errstate(invalid="ignore"):
        distance = np.where(far, np.nan_to_num(np.abs(a.astype(wide) - b.astype(wide)), nan=np.inf), -1)
    at = tuple(map(int, np.unravel_index(np.argmax(distance), far.shape)))
    return f"{int(far.sum())} of {far.size} elements differ, the most at {at}: {a[at]}, expected {b[at]}; {tolerances}"

"""Many elements to one along axes: sum, max, mean ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.ops.define import check_kind, define
from tenon.ops.elementwise import equal
from tenon.ops.shape import cast, restore
from tenon.types import DType, Shape, TensorType, as_dtype, int64, normalize_axes, uint64


def reduced_shape(shape: Shape, axis: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after reducing these axes."""
    if keepdims:
        return tuple(1 if k in axis else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axis)


def source_index(i: tuple[Any, ...], k: tuple[Any, ...], axis: tuple[int, ...], ndim: int, keepdims: bool) -> tuple[Any, ...]:
    """The input index for output index `i` and reduction index `k`."""
    outer = iter([x for n, x in enumerate(i) if n not in axis] if keepdims else i)
    inner = iter(k)
    return tuple(next(inner) if n in axis else next(outer) for n in range(ndim))


def reducing(kind: str) -> Callable[..., Any]:
    """The compute rule of a reduction of this kind."""
    def compute(s: Any, i: Any, x: Any, axis: tuple[int, ...], keepdims: bool, dtype: DType | None = None) -> Any:
        def body(k: tuple[Any, ...]) -> Any:
            element = x(source_index(i, k, axis, x.ndim, keepdims))
            return element if dtype is None else s.cast(element, dtype)
        return s.reduce(kind, tuple(x.shape[a] for a in axis), body)
    return compute


def axes_and_flag(x: TensorType, axis: Any, keepdims: bool) -> dict[str, Any]:
    """The one form of axis= and keepdims=: all reduced axes, sorted."""
    return {"axis": tuple(sorted(normalize_axes(axis, x.ndim))), "keepdims": bool(keepdims)}


def sum_dtype(dtype: DType) -> DType:
    """Small integers are summed in 64 bits, as in the Array API standard."""
    return {"b": int64, "i": int64, "u": uint64}.get(dtype.kind, dtype)


sum_ = define(
    "sum", type=lambda x, *, axis=None, keepdims=False, dtype=None: TensorType(dtype or sum_dtype(x.dtype), reduced_shape(x.shape, axis, keepdims)),
    canonical=lambda x, axis, keepdims, dtype: {**axes_and_flag(x, axis, keepdims), "dtype": as_dtype(dtype) if dtype else sum_dtype(x.dtype)},
    ref=lambda x, axis, keepdims, dtype: np.sum(x, axis, keepdims=keepdims, dtype=dtype.numpy if dtype.kind in "iu" else None),
    vjp=lambda g, y, x, axis, keepdims, dtype: (restore(g, x.shape, axis, keepdims),),
    compute=reducing("add"),
    doc="The sum over axes; integers are summed in 64 bits.",
    examples=["sum(f32[2, 3], axis=(1,), keepdims=False, dtype=f32) -> f32[2]", "sum(i8[2, 3], axis=(0, 1)) -> i64"])


def _extreme_type(name: str) -> Callable[..., TensorType]:
    def rule(x: TensorType, *, axis: Any = None, keepdims: bool = False) -> TensorType:
        check_kind(name, x.dtype, "buif")
        return x.with_shape(reduced_shape(x.shape, axis, keepdims))
    return rule


def _extreme_vjp(g: Any, y: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> tuple[Any]:
    """Shared evenly among the elements that are equal to the extreme."""
    hit = cast(equal(x, restore(y, x.shape, axis, keepdims)), dtype=g.dtype)
    return (hit * restore(g / hit.sum(axis=axis, keepdims=keepdims), x.shape, axis, keepdims),)


max_ = define(
    "max", type=_extreme_type("max"), canonical=axes_and_flag, vjp=_extreme_vjp, compute=reducing("max"),
    ref=lambda x, axis, keepdims: np.max(x, axis, keepdims=keepdims),
    doc="The largest element along axes; NaN where there is one.  Equal elements share the gradient.",
    examples=["max(f32[2, 3], axis=(1,), keepdims=False) -> f32[2]"])

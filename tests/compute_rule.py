"""An operator's `compute` rule -> arrays: the rule evaluated by NumPy over all output elements at once.

Shows that the rule means what the reference means before any loop is built from it, and that no load leaves its
tensor: an index out of range where the condition around it holds is an error here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.interpret import evaluate_op, type_of
from tenon.graph.op import Op
from tenon.types import as_dtype


class Rule:
    """What `s` is in a compute rule: every expression is an array over the output elements."""

    def __init__(self) -> None:
        self.active: Any = np.True_       # where the conditions around the expression being evaluated hold

    def load(self, array: np.ndarray) -> Any:
        def read(index: tuple[Any, ...]) -> Any:
            assert len(index) == array.ndim, (index, array.shape)
            inside = []
            for k, n in zip(index, array.shape, strict=True):
                assert not np.any(self.active & ((np.asarray(k) < 0) | (np.asarray(k) >= n))), "a load out of range"
                inside.append(np.clip(k, 0, max(n - 1, 0)))
            if 0 in array.shape:
                return np.zeros(np.broadcast_shapes(*map(np.shape, inside)), array.dtype)
            return array[tuple(inside)]
        read.shape, read.dtype, read.ndim = array.shape, as_dtype(array.dtype), array.ndim  # type: ignore[attr-defined]
        return read

    def const(self, value: Any, dtype: Any) -> Any: return np.asarray(value, dtype.numpy)
    def cast(self, x: Any, dtype: Any) -> Any: return np.asarray(x).astype(dtype.numpy)
    def select(self, c: Any, a: Any, b: Any) -> Any: return np.where(c, a, b)
    def minimum(self, a: Any, b: Any) -> Any: return np.minimum(a, b)
    def maximum(self, a: Any, b: Any) -> Any: return np.maximum(a, b)
    def eq(self, a: Any, b: Any) -> Any: return np.equal(a, b)
    def ne(self, a: Any, b: Any) -> Any: return np.not_equal(a, b)
    def isnan(self, x: Any) -> Any: return np.isnan(x)
    def bits(self, x: Any, dtype: Any) -> Any: return np.asarray(x).view(dtype.numpy)

    def call(self, name: str, *xs: Any) -> Any:
        return getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "pow": "power"}.get(name, name))(*xs)

    def when(self, condition: Any, body: Callable[[], Any], otherwise: Any) -> Any:
        outer, self.active = self.active, self.active & condition
        try:
            return np.where(condition, body(), otherwise)
        finally:
            self.active = outer

    def index(self, x: Any, size: int) -> Any:
        wrapped = np.where(np.asarray(x) < 0, np.asarray(x) + size, x)
        if np.any(self.active & ((wrapped < 0) | (wrapped >= size))):
            raise IndexError
        return wrapped.astype(np.int64)

    def reduce(self, kind: str, extents: tuple[int, ...], body: Callable[..., Any]) -> Any:
        listed = [np.asarray(body(k)) for k in itertools.product(*map(range, extents))]
        if not listed:
            raise NotImplementedError("the identity of an empty reduction")
        stacked = np.stack(np.broadcast_arrays(*listed))
        fold = {"add": np.sum, "mul": np.prod, "any": np.any, "all": np.all}.get(kind) or getattr(np, kind)
        out = fold(stacked, axis=0)
        return out if kind.startswith("arg") or kind in ("any", "all") else out.astype(stacked.dtype)


def run(op: Op, *arrays: Any, **attrs: Any) -> tuple[np.ndarray, ...]:
    """The outputs of `op` by its compute rule."""
    assert op.compute is not None
    s = Rule()
    types = op.type(*map(type_of, arrays), **attrs)
    listed = types if isinstance(types, tuple) else (types,)
    i = tuple(np.indices(listed[0].shape)) if listed[0].shape else ()
    with np.errstate(all="ignore"):
        out = op.compute(s, i, *(None if a is None else s.load(a) for a in arrays), **attrs)
    return tuple(np.broadcast_to(np.asarray(x), t.shape).astype(t.dtype.numpy)
                 for x, t in zip(out if isinstance(types, tuple) else (out,), listed, strict=True))


def check(op: Op, *arrays: Any, tolerance: float = 1e-5, **attrs: Any) -> None:
    """The compute rule and the reference agree on these arrays; `attrs` in canonical form or not."""
    if op.canonical:
        attrs = dict(op.canonical(*map(type_of, arrays), **attrs))
    for got, expected in zip(run(op, *arrays, **attrs), evaluate_op(op, arrays, attrs), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)

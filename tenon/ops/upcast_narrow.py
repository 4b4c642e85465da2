"""Rules of operators that take several steps -> the same in float32 for inputs of 16 bits, rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tenon.ops.shape import cast
from tenon.types import DType, float32


def _is_narrow(x: Any) -> bool:
    return x is not None and x.dtype.kind == "f" and x.dtype.bits == 16


def widened(x: Any) -> Any:
    """`x` in at least 32 bits."""
    return cast(x, dtype=float32) if _is_narrow(x) else x


def rounded_once(definition: Callable[..., Any]) -> Callable[..., Any]:
    """The definition of an operator whose result has the type of its first input."""
    @wraps(definition)
    def wide(x: Any, *others: Any, **attrs: Any) -> Any:
        found = definition(widened(x), *map(widened, others), **attrs)
        return _rounded(found, x.dtype) if _is_narrow(x) else found
    return wide


def rounded_gradient(rule: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The gradient rule of such an operator."""
    @wraps(rule)
    def wide(*values: Any, **attrs: Any) -> tuple[Any, ...]:
        found = rule(*map(widened, values), **attrs)
        return tuple(_rounded(slope, x.dtype) if _is_narrow(x) else slope
                     for slope, x in zip(found, values[2:], strict=True))
    return wide


def _rounded(found: Any, dtype: DType) -> Any:
    """A value, what computes it when it is asked for, or None, in the type of its input."""
    if callable(found):
        return lambda: cast(found(), dtype=dtype)
    return None if found is None else cast(found, dtype=dtype)

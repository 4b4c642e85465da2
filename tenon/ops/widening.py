"""Rules of operators that take several steps -> the same in float32 for inputs of 16 bits, rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tenon.ops.shape import cast
from tenon.types import float32


def widened(x: Any) -> Any:
    """`x` in at least 32 bits."""
    return cast(x, dtype=float32) if x.dtype.bits == 16 else x


def rounded_once(definition: Callable[..., Any]) -> Callable[..., Any]:
    """The definition of an operator of one input."""
    @wraps(definition)
    def wide(x: Any, **attrs: Any) -> Any:
        found = definition(widened(x), **attrs)
        return cast(found, dtype=x.dtype) if x.dtype.bits == 16 else found
    return wide


def rounded_gradient(rule: Callable[..., tuple[Any]]) -> Callable[..., tuple[Any]]:
    """The gradient rule of such an operator."""
    @wraps(rule)
    def wide(g: Any, y: Any, x: Any, **attrs: Any) -> tuple[Any]:
        (found,) = rule(widened(g), widened(y), widened(x), **attrs)
        return (cast(found, dtype=x.dtype) if x.dtype.bits == 16 else found,)
    return wide

"""NumPy's `where=` and `initial=` of a reduction -> that of elements with others in their place, and one more step.

    x.sum(axis=0, where=mask, initial=5)        # where(mask, x, 0).sum(axis=0) + 5
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.graph.op import Op
from tenon.ops.comparison import where as chosen
from tenon.ops.creation import full_like
from tenon.ops.define import is_computed, lift, scalar
from tenon.ops.shape import broadcast_to, cast
from tenon.types import DType, bool_

KEYWORDS = ("initial", "where")


def take_mask(op: Op, neutral: Any, combine: Callable[[Any, Any], Any] | None = None) -> None:
    """Let a reduction know `where=`: elements that it does not hold for are as `neutral`, which changes no result.

    With `combine` it also knows `initial=`, and combines that with the result.
    """
    def elsewhere(x: Any, mask: Any, initial: Any, *args: Any, **named: Any) -> Any:
        found = op(only(x, mask, neutral), *args, **named)
        if initial is None:
            return found
        if combine is None:
            raise ArgumentError(f"{op.name}: there is no initial= of what is true or not")
        return combine(found, _of_type(op.name, initial, found.dtype))
    _ask_first(op, elsewhere, ("where",) if combine is None else KEYWORDS)


def take_initial(op: Op, combine: Callable[[Any, Any], Any], shaped_by: Op) -> None:
    """The same of a reduction that has no result for no elements but `initial`; `shaped_by` tells its shape then."""
    def elsewhere(x: Any, mask: Any, initial: Any, *args: Any, **named: Any) -> Any:
        if initial is None and mask is not None:
            raise ArgumentError(f"{op.name}: where= may leave no element", hint="give initial= too: the result then")
        if initial is None:
            return op(x, *args, **named)
        x = lift(x)
        initial = _of_type(op.name, initial, x.dtype)
        if 0 in x.shape:
            return full_like(shaped_by(x, *args, **named), initial, dtype=x.dtype)
        return combine(op(only(x, mask, initial), *args, **named), initial)
    _ask_first(op, elsewhere, KEYWORDS)


def only(x: Any, mask: Any, other: Any) -> Any:
    """The elements of x where the mask holds, and this one elsewhere."""
    return x if mask is None else chosen(mask_of(x, mask), x, other)


def mask_of(x: Any, mask: Any) -> Any:
    """The mask, one of the shape of x."""
    return broadcast_to(cast(lift(np.asarray(mask) if isinstance(mask, list) else mask), dtype=bool_), lift(x).shape)


def _ask_first(op: Op, call: Callable[..., Any], keywords: tuple[str, ...]) -> None:
    before = op.elsewhere

    def elsewhere(args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if not args or not named.keys() & set(KEYWORDS):
            return None if before is None else before(args, named)
        rest = {name: value for name, value in named.items() if name not in KEYWORDS}
        mask = named.get("where")
        return call(args[0], None if mask is True else mask, named.get("initial"), *args[1:], **rest)
    elsewhere.keywords = keywords       # type: ignore[attr-defined]
    op.elsewhere = elsewhere


def _of_type(name: str, initial: Any, dtype: DType) -> Any:
    """The value as one of this type; raises ArgumentError where it is none."""
    value = initial.item() if isinstance(initial, (np.generic, np.ndarray)) else initial
    if isinstance(value, float) and dtype.kind in "ui":
        if not value.is_integer():
            raise ArgumentError(f"{name}: initial={value} is no {dtype.name}")
        return int(value)
    if is_computed(value):
        return scalar(value, dtype)
    return value if isinstance(value, (bool, int, float, complex)) else cast(value, dtype=dtype)

"""An operator's attributes, as its type rule annotates them -> whether values are of those kinds.

    def rule(x: TensorType, *, axes: tuple[int, ...], dtype: DType | None = None) -> TensorType: ...

An annotation is a class, `Dim`, `Graph`, a tuple of such, a union, or `Literal["add", "mul"]` where few values are
meant.  A whole number is a float too; True is no number.  What is annotated `Any`, or not at all, the rule looks at.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin

from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import GraphError
from tenon.graph.op import Op
from tenon.types import Unsigned

SIZE_BOUND = 1 << 63    # no size goes as far


def check_attributes(op: Op, attrs: Mapping[str, Any]) -> None:
    """Raise GraphError unless the attributes are those of the operator, each of the kind that its rule annotates."""
    missing = [name for name in op.signature.attrs if name not in attrs]
    unknown = [name for name in attrs if name not in op.signature.attrs]
    if missing or unknown:
        raise GraphError(f"has no attribute {unknown[0]!r}" if unknown else f"lacks its attribute {missing[0]!r}")
    for name, kind in kinds_of(op).items():
        if not is_of(attrs[name], kind):
            raise GraphError(f"takes for {name!r} {_shown(kind)}, not {attrs[name]!r}")


@cache
def kinds_of(op: Op) -> Mapping[str, Any]:
    """The annotation of every attribute of an operator; Any where there is none."""
    rule = inspect.unwrap(op.type)
    try:
        hints = typing.get_type_hints(rule)
    except (NameError, TypeError):      # of a user's rule, whose names are no longer there
        hints = {}
    return {name: hints.get(name, Any) for name in op.signature.attrs}


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of the kind that an annotation means."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, x) for x in args)
    if origin is typing.Literal:
        return any(type(value) is type(x) and value == x for x in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = args[:1] * len(value) if args[1:] == (Ellipsis,) else args
        return len(value) == len(each) and all(map(is_of, value, each))
    return _is_plain(value, type(None) if kind is None else kind)


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is int:
        return type(value) is int and -SIZE_BOUND <= value < SIZE_BOUND
    if kind is Unsigned:
        return type(value) is int and 0 <= value < 2 * SIZE_BOUND
    if kind is float:
        return type(value) is float or _is_plain(value, int)
    if kind is SymbolicDim:
        return issubclass(type(value), SymbolicDim)
    return isinstance(value, kind)


def _shown(kind: Any) -> str:
    named = kind is Unsigned or (isinstance(kind, type) and not get_args(kind))
    return str(kind.__name__) if named else str(kind).replace("tenon.", "")

"""Conditions and types -> what they say of positions: affine forms that are never negative, and intervals."""

from __future__ import annotations

from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import Affine, affine
from tenon.loops.expressions import Binary, Call, Cast, Const, Expr, Select
from tenon.types import DType, bool_, int64

Interval = tuple[Dim | None, Dim | None]
UNKNOWN: Interval = (None, None)
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def facts_of(condition: Expr, holds: bool = True) -> list[Affine]:
    """The forms that are never negative where a condition holds, or where it does not."""
    match condition:
        case Binary(op="&" | "|" as op, left=left, right=right) if condition.dtype is bool_:
            return [*facts_of(left, holds), *facts_of(right, holds)] if (op == "&") is holds else []
        case Call(name="not", args=(inner,)) if condition.dtype is bool_:
            return facts_of(inner, not holds)
        case Binary(op=op, left=left, right=right) if op in NEGATED and left.dtype is int64:
            return _comparison(op if holds else NEGATED[op], affine(left), affine(right))
    return []


def _comparison(op: str, left: Affine, right: Affine) -> list[Affine]:
    """The forms that are never negative where `left op right`."""
    rises, falls = right + left.scaled(-1), left + right.scaled(-1)
    less = Affine({}, -1)
    return {"<": [rises + less], "<=": [rises], ">": [falls + less], ">=": [falls], "==": [rises, falls]}.get(op, [])


def type_interval(x: Expr) -> Interval:
    """The least and the largest value of data, as their types and a few operations on bits say."""
    match x:
        case Const(value=value, dtype=dtype) if dtype.kind in "biu":
            return int(value), int(value)
        case Cast(x=inner, dtype=dtype) if inner.dtype.kind in "biu" and dtype.kind in "iu":
            return _wrapped(type_interval(inner), dtype)
        case Binary(op="&", right=Const(value=value)) if x.dtype.kind in "iu" and value >= 0:
            return 0, int(value)
        case Binary(op=">>", left=left, right=Const(value=value)) if x.dtype.kind == "u":
            high = type_interval(left)[1]
            assert isinstance(high, int)
            return 0, high >> min(int(value), x.dtype.bits - 1)
        case Select(then=then, otherwise=otherwise):
            (a, b), (c, d) = type_interval(then), type_interval(otherwise)
            if isinstance(a, int) and isinstance(b, int) and isinstance(c, int) and isinstance(d, int):
                return min(a, c), max(b, d)
    return _of_type(x.dtype)


def _wrapped(found: Interval, dtype: DType) -> Interval:
    """The interval of a number that may not fit in a type."""
    (low, high), (least, most) = found, _of_type(dtype)
    if all(isinstance(n, int) for n in (low, high, least, most)):
        return found if least <= low and high <= most else (least, most)  # type: ignore[operator]
    return least, most


def _of_type(dtype: DType) -> Interval:
    """What a type holds; nothing is known of positions, which are counted beyond what memory has."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind not in "iu":
        return UNKNOWN
    top = 1 << (dtype.bits - (dtype.kind == "i"))
    return (0 if dtype.kind == "u" else -top), top - 1

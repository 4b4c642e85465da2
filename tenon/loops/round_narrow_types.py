"""A scalar of 16 bits as it was computed, in 32 -> as its type holds it, so that no reader sees what memory would not.

A value of the graph is read by several loops, and may be stored for one of them and computed again in another. All of
them have to see the same bits: what is compared, or cut off to whole numbers, decides by the last of them.
"""

from __future__ import annotations

from tenon.loops.expressions import Binary, Call, Cast, Expr, Reduce, Select
from tenon.loops.simplify_expressions import simplify
from tenon.types import float32

EXACT_CALLS = ("neg", "abs", "floor", "ceil", "trunc", "round")      # of numbers of 16 bits give such


def rounded(x: Expr) -> Expr:
    """x as memory would give it back."""
    if x.dtype.kind != "f" or x.dtype.bits != 16 or not _may_be_between(x):
        return x
    return simplify(Cast(Cast(x, float32), x.dtype))


def _may_be_between(x: Expr) -> bool:
    """Whether x may lie between two numbers of its type."""
    match x:
        case Binary(op="min" | "max") | Select():
            return any(_may_be_between(child) for child in x.children() if child.dtype is x.dtype)
        case Call(name=name, args=args) if name in EXACT_CALLS:
            return any(map(_may_be_between, args))
        case Reduce(kind="min" | "max", body=body):
            return _may_be_between(body)
    return isinstance(x, (Binary, Call, Reduce))

"""Which expressions are vectors at neighbouring values of an index: all that they read are neighbours, or one element.

    relu(x[i * 512 + k]) * s[k] + t[i]      so it is along k, and not along i
"""

from __future__ import annotations

from tenon.loops.affine import affine, is_same
from tenon.loops.expressions import Binary, Call, Cast, CheckedIndex, Const, Expr, Index, Load, Reduce, Select
from tenon.types import DType, float32, float64

WIDE = (float32, float64)
OPERATORS: dict[str, tuple[str, ...]] = {
    "f": ("+", "-", "*", "/", "min", "max", "<", "<=", ">", ">=", "==", "!="),
    "i": ("+", "-", "*", "&", "|", "^", "<", "<=", ">", ">=", "==", "!="),
    "u": ("+", "-", "*", "&", "|", "^", "<", "<=", ">", ">=", "==", "!="),
    "b": ("+", "*", "&", "|", "^", "==", "!=", "min", "max"),
}
CALLS = ("neg", "abs", "isnan", "product")      # of floats
MOST_PARTS = 32                                 # of an expression, offsets apart


def is_vector(x: Expr, along: Index) -> bool:
    """Whether x is simple arithmetic on neighbours along the index, and on what is the same for all of them."""
    seen, stack = set[Expr](), [x]
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if len(seen) > MOST_PARTS or {Reduce, CheckedIndex} & part.kinds:
            return False
        if along not in part.free:
            continue
        if isinstance(part, Load):
            if part.mask is not None or not _is_next(part.offset, along):
                return False
        elif _is_simple(part):
            stack += part.children()
        else:
            return False
    return True


def _is_next(offset: Expr, along: Index) -> bool:
    """Whether the place is the neighbour of the last one."""
    terms = affine(offset).terms
    return is_same(terms.get(along, 0), 1) and not any(along in atom.free for atom in terms if atom is not along)


def _is_simple(x: Expr) -> bool:
    """Whether there is an instruction, or a few, for vectors."""
    match x:
        case Binary(op=op, left=left, right=right):
            return op in OPERATORS[left.dtype.kind] and not any(map(_is_nan, (left, right)))
        case Call(name=name, args=args):
            return name in CALLS and args[0].dtype.kind == "f"
        case Select():
            return True
        case Cast(x=inner, dtype=dtype):
            return _converts(inner.dtype, dtype)
    return False


def _is_nan(x: Expr) -> bool:
    return isinstance(x, Const) and x.value != x.value


def _converts(source: DType, target: DType) -> bool:
    """Whether vectors are converted so: to a wide float, or between integers."""
    return target in WIDE or (source.kind in "iub" and target.kind in "iu")


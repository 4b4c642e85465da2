"""Index expressions -> their simplest form: polynomials in normal form, divisions that a reshape leaves behind removed.

Addition, subtraction and multiplication by a size are exact in any case (arithmetic is modulo 2^64).  Division and
comparison use the bounds of loop variables: with `j < 4`, `(4*i + j) // 4` is `i` and `(4*i + j) % 4` is `j`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TypeGuard

from tenon.dims.compare_sizes import is_zero
from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import (
    affine,
    affine_bounds,
    at_least,
    bounds,
    dim_of,
    floor_divide,
    from_affine,
    modulo,
)
from tenon.loops.expressions import (
    Binary,
    Call,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    SizeOf,
    constant,
)
from tenon.loops.traversal import parts
from tenon.types import bool_, int64

TRUE, FALSE = Const(True, bool_), Const(False, bool_)


def simplify(x: Expr) -> Expr:
    """An equal expression, in simplest form."""
    try:
        return x if x._simple is None else x._simple
    except AttributeError:
        pass
    children = x.children()
    simpler = tuple([simplify(child) for child in children])
    same = x if simpler == children else x.rebuilt(simpler)
    found = _RULES.get(type(same), _unchanged)(same)
    if found is not same:
        found = simplify(found)
    else:
        found._simple = None
    x._simple = None if found is x else found
    return found


def substitute(x: Expr, values: Mapping[Index, Expr]) -> Expr:
    """`x` with indices replaced, simplified."""
    return Substitution(values)(x)


class Substitution:
    """Free indices replaced in one expression after another; what these have in common is gone through once.

    It avoids capture (Barendregt's convention): an index that a reduction binds is not the index of that name outside.
    """

    def __init__(self, values: Mapping[Index, Expr]):
        self.values = values
        self.done: dict[Expr, Expr] = dict(values.items())
        self.replaced = frozenset(values)
        self.within: dict[tuple[Index, ...], Substitution] = {}

    def __call__(self, x: Expr) -> Expr:
        found = self.done.get(x)
        if found is None:
            if x.free.isdisjoint(self.replaced):
                return x
            found = self.done[x] = self._reduction(x) if isinstance(x, Reduce) else self._rebuilt(x, x.children())
        return found

    def _rebuilt(self, x: Expr, children: tuple[Expr, ...]) -> Expr:
        put_in = tuple([self(child) for child in children])
        return simplify(x if put_in == children else x.rebuilt(put_in))

    def _reduction(self, x: Reduce) -> Expr:
        """Its extents stand outside of its indices, its body inside."""
        extents = tuple([self(extent) for extent in x.extents])
        put_in = frozenset().union(*(self.values[i].free for i in x.body.free & self.replaced if i not in x.indices))
        if not put_in.isdisjoint(x.indices):
            x = _with_other_indices(x, put_in | x.body.free)
        if self.replaced.isdisjoint(x.indices):
            body = self(x.body)
        else:
            body = self._without(x.indices)(x.body)
        return simplify(Reduce(x.kind, x.indices, body, extents))

    def _without(self, indices: tuple[Index, ...]) -> Substitution:
        if indices not in self.within:
            self.within[indices] = Substitution({i: x for i, x in self.values.items() if i not in indices})
        return self.within[indices]


def _with_other_indices(x: Reduce, taken: frozenset[Index]) -> Reduce:
    """The same reduction, over indices that are none of those taken."""
    names = {index.name for index in (*taken, *x.indices)}
    free = (name for n in itertools.count() if (name := f"k{n}") not in names)
    indices = tuple(Index(name, index.extent) for index, name in zip(x.indices, free, strict=False))
    return Reduce(x.kind, indices, substitute(x.body, dict(zip(x.indices, indices, strict=True))), x.extents)


# ---------------------------------------------------------------- rules, one for every kind

def _unchanged(x: Expr) -> Expr:
    return x


def _binary(x: Expr) -> Expr:
    assert isinstance(x, Binary)
    if isinstance(x.left, Const) and isinstance(x.right, Const) and x.left.dtype.kind in "biu":
        return _fold(x, x.left, x.right)
    if x.left.dtype is bool_ and x.op in ("&", "|"):
        return _logic(x)
    if x.left.dtype is not int64:
        return x
    if not (_is_bounded(x.left) and _is_bounded(x.right)):
        return x                        # data, which may wrap around
    found = _on_bounded(x)
    return x if found is not x and CheckedIndex in x.kinds and not _checks(x) <= _checks(found) else found


def _on_bounded(x: Binary) -> Expr:
    """What is known of indices and sizes, whose bounds are."""
    if x.op in ("+", "-", "*"):
        return from_affine(affine(x))
    if x.op in ("//", "%") and isinstance(x.right, (Const, SizeOf)) and at_least(dim_of(x.right), 1):
        return (floor_divide if x.op == "//" else modulo)(x.left, dim_of(x.right))
    if x.op in _COMPARE:
        low, high = affine_bounds(affine(x.right) + affine(x.left).scaled(-1))
        return _COMPARE[x.op](x, low, high)
    return x


def _is_bounded(x: Expr) -> bool:
    return all(bounds(atom)[0] is not None for atom in affine(x).terms)


def _less(x: Expr, low: Dim | None, high: Dim | None) -> Expr:
    """`left < right` where low <= right - left <= high."""
    return TRUE if at_least(low, 1) else FALSE if high is not None and at_least(-high, 0) else x


def _less_equal(x: Expr, low: Dim | None, high: Dim | None) -> Expr:
    return TRUE if at_least(low, 0) else FALSE if high is not None and at_least(-high, 1) else x


def _equal(x: Expr, low: Dim | None, high: Dim | None) -> Expr:
    if low is not None and high is not None and is_zero(low) and is_zero(high):
        return TRUE
    return FALSE if at_least(low, 1) or (high is not None and at_least(-high, 1)) else x


def _negated(rule: Callable[[Expr, Dim | None, Dim | None], Expr]) -> Callable[..., Expr]:
    def opposite(x: Expr, low: Dim | None, high: Dim | None) -> Expr:
        answer = rule(x, low, high)
        return FALSE if answer is TRUE else TRUE if answer is FALSE else x
    return opposite


_COMPARE: dict[str, Callable[[Expr, Dim | None, Dim | None], Expr]] = {
    "<": _less, "<=": _less_equal, "==": _equal,
    ">": _negated(_less_equal), ">=": _negated(_less), "!=": _negated(_equal),
}


def _logic(x: Binary) -> Expr:
    neutral, absorbing = (TRUE, FALSE) if x.op == "&" else (FALSE, TRUE)
    if absorbing in (x.left, x.right):
        return x if _is_checked(x) else absorbing
    if x.left is neutral or x.left is x.right:
        return x.right
    return x.left if x.right is neutral else x


def _fold(x: Binary, left: Const, right: Const) -> Expr:
    a, b = int(left.value), int(right.value)
    if x.op in ("//", "%") and b == 0:
        return constant(0, x.dtype)
    if x.op in ("<<", ">>") and not 0 <= b < left.dtype.bits:
        return x
    return constant(_FOLD[x.op](a, b), x.dtype) if x.op in _FOLD else x


_FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "min": min, "max": max,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}


def _select(x: Expr) -> Expr:
    assert isinstance(x, Select)
    if x.condition is TRUE:
        return x if _is_checked(x.otherwise) else x.then
    if x.condition is FALSE:
        return x if _is_checked(x.then) else x.otherwise
    if x.then is x.otherwise:
        return x if _is_checked(x.condition) else x.then
    match x.then:       # a masked load is zero by itself
        case Load(mask=Expr() as mask) if x.otherwise is constant(0, x.dtype) and x.condition in _conjuncts(mask):
            return x.then
    return x


def _is_checked(x: Expr) -> bool:
    """Whether computing it looks at indices among the data, which may be out of range: an error that is to be found."""
    return bool(_checks(x))


def _checks(x: Expr) -> set[Expr]:
    return {part for part in parts(x, CheckedIndex) if part.mask is not FALSE}


def _conjuncts(mask: Expr) -> tuple[Expr, ...]:
    return (mask, *_conjuncts(mask.left), *_conjuncts(mask.right)) if _is_and(mask) else (mask,)


def _is_and(x: Expr) -> TypeGuard[Binary]:
    return isinstance(x, Binary) and x.op == "&"


def _cast(x: Expr) -> Expr:
    assert isinstance(x, Cast)
    if x.x.dtype is x.dtype:
        return x.x
    if isinstance(x.x, Const) and x.x.dtype.kind in "biu":
        return constant(x.x.value, x.dtype)
    return x


def _call(x: Expr) -> Expr:
    assert isinstance(x, Call)
    if x.name == "neg" and x.dtype is int64 and _is_bounded(x.args[0]):
        return from_affine(affine(x))
    if x.name == "not" and isinstance(x.args[0], Const):
        value = x.args[0].value
        return constant(not value if x.dtype is bool_ else ~int(value), x.dtype)
    return x


def _load(x: Expr) -> Expr:
    assert isinstance(x, Load)
    if x.mask is TRUE:
        return Load(x.buffer, x.offset, None)
    return constant(0, x.dtype) if x.mask is FALSE else x


_RULES: dict[type[Expr], Callable[[Expr], Expr]] = {
    Binary: _binary, Select: _select, Cast: _cast, Call: _call, Load: _load,
}

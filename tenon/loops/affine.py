"""Polynomials of loop variables in normal form, their bounds, and division of them by sizes.

Bounds decide what a reshape leaves behind: with `j < 4`, `(4*i + j) // 4` is `i` and `(4*i + j) % 4` is `j`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenon.dims.compare_sizes import is_zero
from tenon.dims.symbolic_dim import Dim
from tenon.dims.symbolic_dim import bounds as dim_bounds
from tenon.loops.expressions import Binary, Call, CheckedIndex, Const, Expr, Index, SizeOf, constant, size
from tenon.records import dataclass
from tenon.types import int64

Bounds = tuple[Dim | None, Dim | None]


@dataclass(slots=True)
class Affine:
    """constant + sum of coefficient * atom; atoms are indices and whatever is not a sum."""

    terms: Mapping[Expr, Dim]
    constant: Dim

    def __add__(self, other: Affine) -> Affine:
        if not other.terms:
            return Affine(self.terms, self.constant + other.constant)
        if not self.terms:
            return Affine(other.terms, self.constant + other.constant)
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.pop(atom, 0) + coefficient
            if not is_zero(total):
                terms[atom] = total
        return Affine(terms, self.constant + other.constant)

    def scaled(self, by: Dim) -> Affine:
        if is_zero(by):
            return Affine({}, 0)
        if isinstance(by, int) and by == 1:
            return self
        return Affine({atom: c * by for atom, c in self.terms.items()}, self.constant * by)


def affine(x: Expr) -> Affine:
    """The polynomial form of an index expression."""
    found: Affine | None = x._affine
    if found is None:
        found = x._affine = _find_affine(x)
    return found


def _find_affine(x: Expr) -> Affine:
    match x:
        case Const(value=value):
            return Affine({}, int(value))
        case SizeOf(dim=dim):
            return Affine({}, dim)
        case Binary(op="+", left=left, right=right):
            return affine(left) + affine(right)
        case Binary(op="-", left=left, right=right):
            return affine(left) + affine(right).scaled(-1)
        case Call(name="neg", args=(inner,)):
            return affine(inner).scaled(-1)
        case Binary(op="*", left=left, right=right):
            a, b = affine(left), affine(right)
            if not a.terms:
                return b.scaled(a.constant)
            if not b.terms:
                return a.scaled(b.constant)
    return Affine({x: 1}, 0)


def from_affine(form: Affine) -> Expr:
    """The expression of a polynomial, in a fixed order: large strides first, the constant last."""
    form = _recombine(form)
    ordered = list(form.terms.items())
    if len(ordered) > 1:
        ordered.sort(key=_place)
    simple = all(map(_is_simple, form.terms))
    total: Expr | None = None
    for atom, coefficient in ordered:
        negative = total is not None and isinstance(coefficient, int) and coefficient < 0
        by = -coefficient if negative else coefficient
        term = atom if isinstance(by, int) and by == 1 else _noted(Binary("*", atom, size(by)), simple)
        total = term if total is None else _noted(Binary("-" if negative else "+", total, term), simple)
    if total is None:
        return size(form.constant)
    if is_zero(form.constant):
        return total
    if isinstance(form.constant, int) and form.constant < 0:
        return _noted(Binary("-", total, size(-form.constant)), simple)
    return _noted(Binary("+", total, size(form.constant)), simple)


def _place(term: tuple[Expr, Dim]) -> tuple[int, str]:
    return -_magnitude(term[1]), str(term[0])


def _is_simple(x: Expr) -> bool:
    return isinstance(x, Index) or getattr(x, "_simple", x) is None


def _noted(x: Expr, simple: bool) -> Expr:
    """A sum in the order above, of simple parts, is in simplest form."""
    if simple:
        x._simple = None
    return x


def _recombine(form: Affine) -> Affine:
    """c*n*(x // n) + c*(x % n) is c*x."""
    for atom, coefficient in form.terms.items():
        match atom:
            case Binary(op="%", left=x, right=Const() | SizeOf() as n):
                quotient = affine(floor_divide(x, dim_of(n)))
                whole = quotient.scaled(coefficient * dim_of(n))
                if whole.terms and all(is_same(form.terms.get(a, 0), c) for a, c in whole.terms.items()):
                    rest = form + Affine({atom: -coefficient}, 0) + whole.scaled(-1)
                    return _recombine(rest + affine(x).scaled(coefficient))
    return form


def dim_of(x: Expr) -> Dim:
    """The size that a Const or Size is."""
    return int(x.value) if isinstance(x, Const) else x.dim  # type: ignore[attr-defined]


def is_same(x: Dim, y: Dim) -> bool:
    """Whether two sizes are equal in form."""
    return x == y if isinstance(x, int) and isinstance(y, int) else is_zero(x - y)


def _magnitude(x: Dim) -> int:
    return x if isinstance(x, int) else 1 << 40


# ---------------------------------------------------------------- bounds

def at_least(x: Dim | None, least: int) -> bool:
    """Whether x >= least for every size."""
    if x is None or isinstance(x, int):
        return x is not None and x >= least
    low = dim_bounds(x)[0]
    return low is not None and low >= least


def bounds(x: Expr) -> Bounds:
    """The smallest and the largest value of an index expression, where known."""
    found: Bounds | None = x._bounds
    if found is None:
        found = x._bounds = _find_bounds(x)
    return found


def _find_bounds(x: Expr) -> Bounds:
    match x:
        case Const(value=value):
            return int(value), int(value)
        case SizeOf(dim=dim):
            return dim, dim
        case Index(extent=extent) | CheckedIndex(size=extent):
            return 0, extent - 1
        case Binary(op="%", right=Const() | SizeOf() as n) if at_least(dim_of(n), 1):
            return 0, dim_of(n) - 1
        case Binary(op="//", left=left, right=Const() | SizeOf() as n) if at_least(dim_of(n), 1):
            low, high = bounds(left)
            return 0 if at_least(low, 0) else None, _floor(high, dim_of(n)) if high is not None else None
    form = affine(x)
    return affine_bounds(form) if list(form.terms) != [x] else (None, None)


def _floor(x: Dim, n: Dim) -> Dim | None:
    """x // n rounded down, where that has a simple form."""
    loose = x if isinstance(x, int) else dict(x.terms).get((), 0)
    whole = _exact(x - loose, n)
    if isinstance(n, int):
        return None if whole is None else whole + loose // n
    if whole is None or not at_least(n, abs(loose) + (loose >= 0)):
        return None
    return whole - (1 if loose < 0 else 0)


def affine_bounds(form: Affine) -> Bounds:
    low: Dim | None = form.constant
    high: Dim | None = form.constant
    for atom, coefficient in form.terms.items():
        smallest, largest = bounds(atom)
        if at_least(-coefficient, 0):
            smallest, largest = largest, smallest
        elif not at_least(coefficient, 0):
            return None, None
        low = None if low is None or smallest is None else low + smallest * coefficient
        high = None if high is None or largest is None else high + largest * coefficient
    return low, high


def is_natural(x: Expr) -> bool:
    """Whether an index expression is never negative, as far as that is known."""
    if isinstance(x, Binary) and x.op in ("min", "max"):
        return (all if x.op == "min" else any)(map(is_natural, (x.left, x.right)))
    return at_least(bounds(x)[0], 0)


def is_multiple(x: Expr, n: int) -> bool:
    """Whether an index expression is a multiple of a number, as far as that is known.

    >>> from tenon.loops.expressions import Index
    >>> tile = Index("tile", 2)
    >>> is_multiple(tile * -256 + 384, 16), is_multiple(tile * -256 + 380, 16)
    (True, False)
    """
    if isinstance(x, Binary) and x.op in ("min", "max"):
        return is_multiple(x.left, n) and is_multiple(x.right, n)
    form = affine(x)
    numbers = form.constant, *form.terms.values()
    return all(isinstance(number, int) and number % n == 0 for number in numbers)


def _is_within(form: Affine, n: Dim) -> bool:
    """Whether 0 <= form < n for certain."""
    low, high = affine_bounds(form)
    return at_least(low, 0) and high is not None and at_least(n - 1 - high, 0)


# ---------------------------------------------------------------- division

def floor_divide(x: Expr, n: Dim) -> Expr:
    """x // n for a size n >= 1."""
    if is_same(n, 1):
        return x
    whole, rest = _split(affine(x), n)
    if _is_within(rest, n):
        return from_affine(whole)
    rest, n = _cancelled(rest, n)
    inner = from_affine(rest)
    match inner:
        case Binary(op="//", left=left, right=Const() | SizeOf() as by) if at_least(dim_of(by), 1):
            return from_affine(whole + affine(floor_divide(left, dim_of(by) * n)))
    return from_affine(whole + Affine({Binary("//", inner, size(n)): 1}, 0))


def modulo(x: Expr, n: Dim) -> Expr:
    """x % n for a size n >= 1."""
    if is_same(n, 1):
        return constant(0, int64)
    _, rest = _split(affine(x), n)
    if _is_within(rest, n):
        return from_affine(rest)
    for factor in _common_factors(rest, n):
        large, small = _split(rest, factor)
        if large.terms and _is_within(small, factor):
            inner = modulo(from_affine(large), n // factor)
            return from_affine(affine(inner).scaled(factor) + small)
    return Binary("%", from_affine(rest), size(n))


def _split(form: Affine, n: Dim) -> tuple[Affine, Affine]:
    """(q, r) with form = n*q + r, every coefficient that n divides in q."""
    whole: dict[Expr, Dim] = {}
    rest: dict[Expr, Dim] = {}
    for atom, coefficient in form.terms.items():
        quotient = _exact(coefficient, n)
        (rest if quotient is None else whole)[atom] = coefficient if quotient is None else quotient
    if isinstance(form.constant, int) and isinstance(n, int):
        return Affine(whole, form.constant // n), Affine(rest, form.constant % n)
    quotient = _exact(form.constant, n)
    if quotient is None:
        return Affine(whole, 0), Affine(rest, form.constant)
    return Affine(whole, quotient), Affine(rest, 0)


def _cancelled(rest: Affine, n: Dim) -> tuple[Affine, Dim]:
    """A numerator and a denominator with the same quotient and no common factor."""
    for factor in _common_factors(rest, n):
        large, small = _split(rest, factor)
        if large.terms and _is_within(small, factor):
            return large, n // factor
    return rest, n


def _common_factors(form: Affine, n: Dim) -> list[Dim]:
    """Coefficients that divide n, largest first."""
    found = [c for c in form.terms.values() if not is_same(c, 1) and at_least(c, 1) and _exact(n, c) is not None]
    return sorted(dict.fromkeys(found), key=_magnitude, reverse=True)


def _exact(x: Dim, n: Dim) -> Dim | None:
    """x / n where n divides x whatever the sizes, else None."""
    if isinstance(x, int) and isinstance(n, int):
        return x // n if x % n == 0 else None
    if is_zero(x):
        return 0
    if isinstance(x, int):
        return None
    quotient = x // n
    return quotient if is_same(quotient * n, x) else None

"""Sizes -> whether one is never negative, whatever the symbols stand for.

A polynomial in symbols of at least 2 is one in `s - 2`, of at least 0: it is positive where no coefficient of that is
negative and the constant is positive.  A quotient lies within less than one of a fraction; a maximum is no less than
either side.  Sound, not complete: a size of which nothing is found may still never be negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd

from tenon.dims.symbolic_dim import (
    SMALLEST_SYMBOLIC_SIZE,
    Atom,
    Dim,
    Maximum,
    Monomial,
    Quotient,
    SymbolicDim,
    divide_exactly,
    product,
    symbol,
    without,
)

MAX_DIVISIONS = 8       # of terms of a size by a product of symbols


def never_negative(x: Dim) -> bool:
    """Whether x >= 0 for all sizes.

    >>> B, C = symbol("B"), symbol("C")
    >>> never_negative(B * C - B), never_negative(B - C), never_negative((B + 3) // 4 * 4 - B)
    (True, False, True)
    """
    return x >= 0 if isinstance(x, int) else _never_negative(x.terms)


@lru_cache(4096)
def _never_negative(terms: tuple[tuple[Monomial, int], ...]) -> bool:
    x = SymbolicDim(terms)
    for atom in terms[0][0]:
        if all(atom in monomial for monomial, _ in terms) and _is_natural(atom):
            others = divide_exactly(x, SymbolicDim((((atom,), 1),)))
            if others is not None and never_negative(others):
                return True
    return _is_positive(divided(x, common_factor(x)[0]) + 1)


def _is_natural(atom: Atom) -> bool:
    match atom:
        case Quotient(numerator=n, denominator=d):
            return never_negative(n) and never_negative(d - 1)
        case Maximum(left=left, right=right):
            return never_negative(left) or never_negative(right)
    return True


def follows(x: Dim, given: Sequence[Dim]) -> bool:
    """Whether x >= 0 for all sizes for which the given ones are: it is q * f + rest, for one of them, f.

    >>> B, C = symbol("B"), symbol("C")
    >>> follows(B * B - 9, [B - 3]), follows(C * C - B * C + C - B, [C - B]), follows(B - 4, [B - 3])
    (True, True, False)
    >>> follows(4 * B * C - 67, [4 * B * C - 68]), follows(B * C - B - 16, [B * C - B - C - 16])
    (True, True)
    """
    if never_negative(x) or any(never_negative(x - f) for f in given):
        return True
    for k, f in enumerate(given):
        others = [*given[:k], *given[k + 1:]]
        for by, rest in _quotients(x, divided(f, common_factor(f)[0] or 1)):
            if follows(by, given) and follows(rest, others):     # `by` is of a lower degree
                return True
    if _is_met(x, given):
        return True
    fractions = without_quotient(x, -1) if given else None
    return fractions is not None and follows(fractions[1], given)


def _is_met(x: Dim, given: Sequence[Dim]) -> bool:
    """Whether x is a quotient less 1, and one of the given sizes is negative where that quotient is 0."""
    match x + 1:
        case SymbolicDim(terms=(((Quotient() as atom,), 1),)) if never_negative(x + 1):
            sizes = [size for f in given for _, size in with_fractions(f) if isinstance(size, SymbolicDim)]
            parts = [_coefficients(size, atom) for size in sizes]
            return any(part is not None and never_negative(-part[1] - 1) for part in parts)
    return False


def with_fractions(x: Dim) -> Iterator[tuple[Dim, Dim]]:
    """(1, x), and (n, n * x with a fraction for one, two ... of the quotients that it adds), which is no less."""
    times: Dim = 1
    found = without_quotient(x, 1)
    yield 1, x
    while found is not None:
        times, x = found[0] * times, found[1]
        yield times, x
        found = without_quotient(x, 1)


def without_quotient(x: Dim, sign: int) -> tuple[Dim, Dim] | None:
    """(n, n times a size), the quotient that it adds (1) or subtracts (-1) made a fraction, for an n above 0.

    That is no less than n times the size in the first case, no more in the second.  None where there is no quotient.
    """
    atoms = [] if isinstance(x, int) else [a for monomial, _ in x.terms for a in monomial if isinstance(a, Quotient)]
    for atom in atoms:
        assert isinstance(x, SymbolicDim)
        if (parts := _coefficients(x, atom)) is not None and never_negative(parts[0] * sign) and \
                never_negative(atom.denominator - 1):
            return atom.denominator, parts[1] * atom.denominator + parts[0] * atom.numerator
    return None


def _quotients(x: Dim, f: Dim) -> Iterator[tuple[Dim, Dim]]:
    """(q, rest) with x = q * f + rest: for each atom that f has once, alone and as it is, which the rest has not, and
    for each product of atoms that f has as it is, which divides no term of the rest."""
    if isinstance(f, int):
        return
    for monomial, sign in f.terms:
        if len(monomial) > 1 and abs(sign) == 1 and (found := _by_product(x, f, monomial, sign)) is not None:
            yield found
        if len(monomial) == 1 and abs(sign) == 1 and sum(monomial[0] in others for others, _ in f.terms) == 1:
            (atom,) = monomial
            root = (f - SymbolicDim(((monomial, sign),))) * -sign
            quotient: Dim = 0
            rest: Dim = 0
            for coefficient in reversed(_powers(x, atom)):      # Horner's rule
                quotient = quotient * SymbolicDim(((monomial, 1),)) + rest
                rest = coefficient + root * rest
            if not isinstance(quotient, int) or quotient:
                yield quotient * sign, rest


def _by_product(x: Dim, f: SymbolicDim, monomial: tuple[Atom, ...], sign: int) -> tuple[Dim, Dim] | None:
    """(q, rest), by division of terms; None where x has none for it, or there is no end of them."""
    quotient: Dim = 0
    for _ in range(MAX_DIVISIONS):
        terms = () if isinstance(x, int) else x.terms
        left = next(((found, c) for others, c in terms if (found := without(others, monomial)) is not None), None)
        if left is None:
            return None if isinstance(quotient, int) and not quotient else (quotient, x)
        part = SymbolicDim(((left[0], left[1] * sign),)) if left[0] else left[1] * sign
        quotient, x = quotient + part, x - part * f
    return None


def _powers(x: Dim, atom: Atom) -> list[Dim]:
    """The factors of 1, atom, atom * atom ... in a polynomial."""
    terms = (((), x),) if isinstance(x, int) else x.terms
    found: list[Dim] = [0] * (1 + max(monomial.count(atom) for monomial, _ in terms))
    for monomial, coefficient in terms:
        without = SymbolicDim(((tuple(a for a in monomial if a != atom), coefficient),))
        found[monomial.count(atom)] = found[monomial.count(atom)] + without
    return found


def common_factor(x: Dim) -> tuple[int, int]:
    """(what all coefficients but the constant are multiples of, the constant); a number is its own constant."""
    if isinstance(x, int):
        return 0, x
    return gcd(*(c for monomial, c in x.terms if monomial)), sum(c for monomial, c in x.terms if not monomial)


def divided(x: Dim, by: int) -> Dim:
    """x // by, for a number that divides all coefficients but the constant."""
    rest = common_factor(x)[1]
    return (x - rest) // by + rest // by


def _is_positive(x: Dim) -> bool:
    """Whether x > 0, x being a positive multiple of a whole number and of one that was rounded."""
    if isinstance(x, int):
        return x > 0
    atoms = [a for monomial, _ in reversed(x.terms) for a in monomial if not isinstance(a, str)]
    if not atoms:
        return _all_positive(x)
    atom = max(atoms, key=_height)      # which stands in no other
    parts = _coefficients(x, atom)
    if parts is None:
        return False
    by, rest = parts
    if never_negative(by):
        return _with_least(atom, by, rest)
    return never_negative(-by) and _with_most(atom, by, rest)


def _height(x: Dim | Atom) -> int:
    """How deep quotients and maxima are nested."""
    if isinstance(x, (int, str)):
        return 0
    if isinstance(x, SymbolicDim):
        return max((_height(a) for monomial, _ in x.terms for a in monomial), default=0)
    return 1 + max(map(_height, x.parts()))


def _with_least(atom: Atom, by: Dim, rest: Dim) -> bool:
    """Whether by * atom + rest > 0, for `by` of at least 0."""
    match atom:
        case Maximum(left=left, right=right):
            return _is_positive(rest + by * left) or _is_positive(rest + by * right)
        case Quotient(numerator=n, denominator=d) if never_negative(d - 1):
            return (never_negative(n) and _is_positive(rest)) or _is_positive(rest * d + by * (n - d + 1))
    return False


def _with_most(atom: Atom, by: Dim, rest: Dim) -> bool:
    """The same, for `by` of at most 0."""
    match atom:
        case Maximum(left=left, right=right):
            return _is_positive(rest + by * left) and _is_positive(rest + by * right)
        case Quotient(numerator=n, denominator=d) if never_negative(d - 1):
            return _is_positive(rest * d + by * n)
    return False


def _coefficients(x: SymbolicDim, atom: Atom) -> tuple[Dim, Dim] | None:
    """(a, b) with x = a * atom + b; None where the atom is multiplied by itself."""
    by: Dim = 0
    rest: Dim = 0
    for monomial, coefficient in x.terms:
        if monomial.count(atom) > 1:
            return None
        term = SymbolicDim(((tuple(a for a in monomial if a != atom), coefficient),))
        if atom in monomial:
            by = by + term
        else:
            rest = rest + term
    return by, rest


def _all_positive(x: SymbolicDim) -> bool:
    """Whether a polynomial in symbols alone has only natural coefficients in s - 2, and a positive constant."""
    shifted: Dim = 0
    for monomial, coefficient in x.terms:
        shifted = shifted + product(symbol(str(name)) + SMALLEST_SYMBOLIC_SIZE for name in monomial) * coefficient
    if isinstance(shifted, int):
        return shifted > 0
    return all(c >= 0 for _, c in shifted.terms) and any(not monomial for monomial, _ in shifted.terms)

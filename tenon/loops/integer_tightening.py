"""Inequalities of whole numbers -> the same, with smaller factors and a rounded constant: cuts of Chvatal and Gomory.

Where a number or a size divides all factors, the form is never negative where the form divided by it, its constant
rounded down, is never negative.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from tenon.dims.symbolic_dim import Dim, SymbolicDim, divide_exactly, symbol, symbols
from tenon.loops.affine import Affine
from tenon.loops.size_order import common_factor, divided

Holds = Callable[[Dim], bool]       # whether a size is never negative


def tightened(form: Affine, slack: Dim, holds: Holds) -> tuple[Affine, Dim]:
    """The same question, of a form whose factors have nothing in common: it is a whole number, and rounds.

    Where the sum of terms, a multiple of n, is above -slack - constant, a n-th of it is so much above a n-th of that.
    A size times a whole number, and a rest that is less than the size, is never negative where that number is not.
    """
    if isinstance(slack, int) and slack == 1:
        while (divided_by := _by_common_size(form, holds)) is not None:
            form = divided_by
    numbers = [c for c in form.terms.values() if isinstance(c, int)]
    if not numbers or len(numbers) < len(form.terms) or not isinstance(slack, int):
        return form, slack
    common = gcd(*numbers, common_factor(form.constant)[0])
    terms = {atom: c // common for atom, c in form.terms.items() if isinstance(c, int)}
    return Affine(terms, divided(form.constant + (slack - 1), common)), 1


def _by_common_size(form: Affine, holds: Holds) -> Affine | None:
    """The form divided by a size, no number, that all its factors are multiples of; what is left over is rounded."""
    sizes = list(form.terms.values()) or [form.constant]
    if any(isinstance(x, int) for x in sizes):
        return None
    found = [x if holds(x) else -x for x in sizes if not isinstance(x, int)]
    found += [divided(x, gcd(*common_factor(x))) for x in (*found, form.constant) if not isinstance(x, int)]
    found += [symbol(name) for name in sorted(symbols(sizes[0]))]
    for by in found:
        parts = {atom: divide_exactly(c, by) for atom, c in form.terms.items()}
        constant = _floor(form.constant, by, holds)
        if constant is not None and None not in parts.values() and holds(by - 1):
            return Affine({atom: c for atom, c in parts.items() if c is not None}, constant)
    return None


def _floor(x: Dim, by: Dim, holds: Holds) -> Dim | None:
    """x // by, where it is what division of the terms of x gives, or one less."""
    if (exact := divide_exactly(x, by)) is not None:
        return exact
    whole: Dim = 0
    for term in () if isinstance(x, int) else x.terms:
        whole = whole + (divide_exactly(SymbolicDim((term,)), by) or 0 if term[0] else 0)
    return next((q for q in (whole, whole - 1) if all(
        holds(part) for part in (x - q * by, q * by + by - 1 - x))), None)

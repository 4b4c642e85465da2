"""Index expressions, and what is known of their loops and conditions -> intervals, and proofs that they stay in them.

    known = Ranges().inside(i, size(n)).where(i + k - 1 >= 0)      # facts: affine forms that are never negative
    known.interval(x)                                             # (low, high), each a size, or None
    known.proves(x >= 0)

A form is proved to be never negative by Fourier and Motzkin's elimination: its innermost atom is replaced by a bound
that a fact gives for it, until sizes are left.  Quotients, remainders, minima and choices bring facts of their own.
The proof is sound, and not complete: there are few bounds of an atom, and each is tried in turn.

This shares no reasoning with `simplify_expressions`, whose results it is to check, but the normal form of polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.dims import Dim
from tenon.loops.affine import Affine, affine, dim_of, is_same
from tenon.loops.expressions import Binary, Call, Cast, CheckedIndex, Const, Expr, Index, Local, Select, SizeOf
from tenon.loops.integer_tightening import tightened
from tenon.loops.size_order import follows, never_negative, without_quotient
from tenon.loops.traversal import replace
from tenon.records import dataclass
from tenon.records import replace as replaced
from tenon.types import DType, bool_, int64

Interval = tuple[Dim | None, Dim | None]
UNKNOWN: Interval = (None, None)
MOST_STEPS = 2000           # of a search for one proof
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True, eq=False)
class Ranges:
    """Facts, each a form that is never negative; what scalars were defined as; the order of indices; given sizes."""

    facts: tuple[Affine, ...] = ()
    defined: tuple[tuple[Expr, Expr], ...] = ()
    order: tuple[Expr, ...] = ()
    given: tuple[Dim, ...] = ()         # which are not negative, although their symbols alone do not say so

    # ------------------------------------------------------------ what is known

    def inside(self, index: Expr, extent: Expr) -> Ranges:
        """The same within a loop of so many turns."""
        extent = self.written_out(extent)
        turns = affine(extent) + Affine({index: -1}, -1)
        defined = tuple(pair for pair in self.defined if pair[0] is not index)
        facts = (*self.facts, Affine({index: 1}, 0), turns)
        return replaced(self, facts=facts, defined=defined, order=(*self.order, index))

    def let(self, name: Expr, value: Expr) -> Ranges:
        """The same after a scalar was given a name."""
        return replaced(self, defined=(*self.defined, (name, self.written_out(value))))

    def changing(self, name: Expr) -> Ranges:
        """The same where nothing is known of a scalar but its type."""
        defined = tuple(pair for pair in self.defined if pair[0] is not name)
        return replaced(self, defined=defined, order=(*self.order, name))

    def where(self, condition: Expr | None) -> Ranges:
        """The same where a condition holds."""
        if condition is None:
            return self
        return replaced(self, facts=(*self.facts, *_facts_of(self.written_out(condition))))

    def written_out(self, x: Expr) -> Expr:
        """The expression without the names that scalars were given."""
        names = dict(self.defined)
        return replace(x, names) if names else x

    # ------------------------------------------------------------ what follows

    def interval(self, x: Expr) -> Interval:
        """The least and the largest value, as far as they are known."""
        return _Search(self).interval(affine(self.written_out(x)))

    def proves(self, condition: Expr) -> bool:
        """Whether a comparison of positions holds for certain."""
        forms = _facts_of(self.written_out(condition))
        return bool(forms) and all(_Search(self).is_natural(form) for form in forms)

    def is_within(self, x: Expr, size: Dim) -> bool:
        """Whether 0 <= x < size for certain."""
        low, high = self.interval(x)
        if isinstance(size, int) and isinstance(low, int) and isinstance(high, int) and low >= 0 and high < size:
            return True             # found in fewer steps, where there are many conditions
        form = affine(self.written_out(x))
        below = form.scaled(-1) + Affine({}, size - 1)
        return _Search(self).is_natural(form) and _Search(self).is_natural(below)


def _facts_of(condition: Expr, holds: bool = True) -> list[Affine]:
    """The forms that are never negative where a condition holds, or where it does not."""
    match condition:
        case Binary(op="&" | "|" as op, left=left, right=right) if condition.dtype is bool_:
            return [*_facts_of(left, holds), *_facts_of(right, holds)] if (op == "&") is holds else []
        case Call(name="not", args=(inner,)) if condition.dtype is bool_:
            return _facts_of(inner, not holds)
        case Binary(op=op, left=left, right=right) if op in NEGATED and left.dtype is int64:
            return _comparison(op if holds else NEGATED[op], affine(left), affine(right))
    return []


def _comparison(op: str, left: Affine, right: Affine) -> list[Affine]:
    """The forms that are never negative where `left op right`."""
    rises, falls = right + left.scaled(-1), left + right.scaled(-1)
    less = Affine({}, -1)
    return {"<": [rises + less], "<=": [rises], ">": [falls + less], ">=": [falls], "==": [rises, falls]}.get(op, [])


class _Search:
    """One search for a proof, or an interval."""

    def __init__(self, ranges: Ranges):
        self.sizes = list(ranges.given)
        self.place = {x: k + 1 for k, x in enumerate(ranges.order)}
        self.steps = 0
        self.ranks: dict[Expr, tuple[int, int]] = {}
        self.given: dict[Expr, list[Affine]] = {}       # facts by the innermost atom in them
        for fact in ranges.facts:
            self.note(fact)

    def note(self, fact: Affine) -> None:
        """Keep a fact, and what it says of outer atoms whatever the inner ones are; at last, of sizes: a loop of N - 3
        turns that is run has one."""
        while fact.terms:
            fact = tightened(fact, 1, self.holds)[0]
            atom = self.innermost(fact)
            by, found = fact.terms[atom], self.given.setdefault(atom, [])
            for opposite in found:
                self.note_size(fact + opposite)
            found.append(fact)
            sign = -1 if self.holds(by) else 1
            bound = next((x for x in self.facts(atom) if is_same(x.terms[atom], sign)), None)
            if bound is None or not self.holds(-by * sign) or (len(fact.terms) == 1 and isinstance(fact.constant, int)):
                return
            fact = _others(fact, atom) + _others(bound, atom).scaled(-by * sign)
        self.note_size(fact)

    def note_size(self, fact: Affine) -> None:
        """Keep a fact that sizes alone are in."""
        size: Dim | None = None if fact.terms else fact.constant
        while size is not None and not self.holds(size):
            self.sizes.append(size)
            size = without_quotient(size, 1)

    def holds(self, size: Dim) -> bool:
        """Whether a size is never negative, by what is known of sizes."""
        return never_negative(size) or follows(size, self.sizes)

    # ------------------------------------------------------------ proofs

    def is_natural(self, form: Affine, slack: Dim = 1) -> bool:
        """Whether form > -slack: of a whole number, and a slack of 1, that it is never negative.

        The form may be a multiple of the one that was asked about, and the slack is the same multiple of 1.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            return False
        form, slack = tightened(form, slack, self.holds)
        if not form.terms:
            return follows(form.constant + slack - 1, self.sizes)
        atom = self.innermost(form)
        by = form.terms[atom]
        rest = form + Affine({atom: -by}, 0)
        if self.holds(by):
            return self._replaced(atom, by, rest, slack, 1)
        return self.holds(-by) and self._replaced(atom, by, rest, slack, -1)

    def _replaced(self, atom: Expr, by: Dim, rest: Affine, slack: Dim, sign: int) -> bool:
        """Whether rest + by * atom > -slack, `by` having this sign, whatever the atom is of what it may be."""
        for fact in self.facts(atom):
            factor = fact.terms[atom] * sign
            # factor * atom * sign >= -(the others of the fact)
            if self.holds(factor - 1) and self.is_natural(
                    rest.scaled(factor) + _others(fact, atom).scaled(-by * sign), slack * factor):
                return True
        return self._by_cases(atom, by, rest, slack, sign)

    def _by_cases(self, atom: Expr, by: Dim, rest: Affine, slack: Dim, sign: int) -> bool:
        """The same for each of the values that the atom is one of."""
        match atom:
            case Binary(op="min" | "max" as op, left=left, right=right):
                if (op == "min") is (sign == 1):
                    return all(self.is_natural(rest + affine(x).scaled(by), slack) for x in (left, right))
            case Select(condition=condition, then=then, otherwise=otherwise):
                return all(self._given(_facts_of(condition, holds), rest + affine(x).scaled(by), slack)
                           for x, holds in ((then, True), (otherwise, False)))
        return False

    def _given(self, facts: list[Affine], form: Affine, slack: Dim) -> bool:
        """The same where more is known."""
        before, sizes = {atom: list(known) for atom, known in self.given.items()}, list(self.sizes)
        for fact in facts:
            self.note(fact)
        found = self.is_natural(form, slack)
        self.given, self.sizes = before, sizes
        return found

    # ------------------------------------------------------------ intervals

    def interval(self, form: Affine) -> Interval:
        """The least and the largest value that bounds of one atom after the other give."""
        return self._least(form), _negative(self._least(form.scaled(-1)))

    def _least(self, form: Affine) -> Dim | None:
        """A value that the form is never below; the best of those that are numbers, else the first."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            return None
        if not form.terms:
            return form.constant
        atom = self.innermost(form)
        by = form.terms[atom]
        sign = 1 if self.holds(by) else -1
        if sign == -1 and not self.holds(-by):
            return None
        rest = form + Affine({atom: -by}, 0)
        found = [self._least(rest + _others(fact, atom).scaled(-by * sign))
                 for fact in self.facts(atom) if is_same(fact.terms[atom] * sign, 1)]
        numbers = [x for x in found if isinstance(x, int)]
        return max(numbers) if numbers else next((x for x in found if x is not None), None)

    # ------------------------------------------------------------ atoms

    def innermost(self, form: Affine) -> Expr:
        """The atom of a form whose bounds may depend on all others."""
        return max(form.terms, key=self.rank)

    def rank(self, x: Expr) -> tuple[int, int]:
        """(the innermost index or scalar in x, how deep the operations on it are)."""
        found = self.ranks.get(x)
        if found is None:
            inner = [self.rank(child) for child in x.children()]
            place = self.place.get(x, 0)
            height = 2 * (1 + max((h for _, h in inner), default=-1))
            found = max([place, *(k for k, _ in inner)]), height + (isinstance(x, Binary) and x.op == "%")
            self.ranks[x] = found
        return found

    def facts(self, atom: Expr) -> Iterator[Affine]:
        """What bounds an atom by others that come before it."""
        yield from self.given.get(atom, ())
        match atom:
            case Index() | Local():
                return
            case Binary(op="//" | "%" as op, left=left, right=Const() | SizeOf() as n) if self.holds(dim_of(n) - 1):
                yield from (self._quotient if op == "//" else self._remainder)(atom, affine(left), dim_of(n))
            case Binary(op="min" | "max" as op, left=left, right=right):
                for x in (left, right):
                    yield affine(x).scaled(1 if op == "min" else -1) + Affine({atom: -1 if op == "min" else 1}, 0)
            case CheckedIndex(size=size):
                yield from _between(atom, 0, size - 1)
            case _:
                yield from _between(atom, *_numbers(atom))

    def _quotient(self, atom: Expr, x: Affine, n: Dim) -> Iterator[Affine]:
        """n * (x // n) <= x < n * (x // n) + n; and it is natural where x is."""
        low, high = self.interval(x)
        if not isinstance(low, int) and self.is_natural(x):
            yield Affine({atom: 1}, 0)
        yield from _between(atom, None if low is None else low // n, None if high is None else high // n)
        yield x + Affine({atom: -n}, 0)
        yield x.scaled(-1) + Affine({atom: n}, n - 1)

    def _remainder(self, atom: Expr, x: Affine, n: Dim) -> Iterator[Affine]:
        """0 <= x % n < n, no more than x where that is natural, and x less a multiple of n in any case."""
        yield from _between(atom, 0, n - 1)
        assert isinstance(atom, Binary)
        whole = Affine({Binary("//", atom.left, atom.right): n}, 0)
        yield x + whole.scaled(-1) + Affine({atom: -1}, 0)
        yield x.scaled(-1) + whole + Affine({atom: 1}, 0)


def _others(fact: Affine, atom: Expr) -> Affine:
    """What a fact says without an atom."""
    return fact + Affine({atom: -fact.terms[atom]}, 0)


def _negative(x: Dim | None) -> Dim | None:
    return None if x is None else -x


def _between(atom: Expr, low: Dim | None, high: Dim | None) -> Iterator[Affine]:
    if low is not None:
        yield Affine({atom: 1}, -low)
    if high is not None:
        yield Affine({atom: -1}, high)


def _numbers(x: Expr) -> Interval:
    """The least and the largest value of data, as their types and a few operations on bits say."""
    match x:
        case Const(value=value, dtype=dtype) if dtype.kind in "biu":
            return int(value), int(value)
        case Cast(x=inner, dtype=dtype) if inner.dtype.kind in "biu" and dtype.kind in "iu":
            return _wrapped(_numbers(inner), dtype)
        case Binary(op="&", right=Const(value=value)) if x.dtype.kind in "iu" and value >= 0:
            return 0, int(value)
        case Binary(op=">>", left=left, right=Const(value=value)) if x.dtype.kind == "u":
            high = _numbers(left)[1]
            assert isinstance(high, int)
            return 0, high >> min(int(value), x.dtype.bits - 1)
        case Select(then=then, otherwise=otherwise):
            (a, b), (c, d) = _numbers(then), _numbers(otherwise)
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

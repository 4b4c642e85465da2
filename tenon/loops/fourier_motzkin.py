"""Facts -> proofs that a form is never negative, and intervals, by Fourier and Motzkin's elimination.

The innermost atom of a form is replaced by a bound that a fact gives for it, until sizes are left.  Quotients,
remainders, minima and choices bring facts of their own.  The proof is sound, and not complete: there are few bounds of
an atom, and each is tried in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.dims.symbolic_dim import Dim, divide_exactly
from tenon.loops.affine import Affine, affine, dim_of, is_same
from tenon.loops.expressions import Binary, CheckedIndex, Const, Expr, Index, Local, Select, SizeOf
from tenon.loops.index_facts import Interval, facts_of, type_interval
from tenon.loops.integer_tightening import tightened
from tenon.loops.size_order import follows, never_negative, with_fractions

MAX_STEPS = 2000            # of a search for one proof
MAX_ROUNDED = 2             # atoms of a numerator that are replaced by their bounds before these are rounded


class Elimination:
    """One search for a proof, or an interval; `rounding` tries more, and may need more steps than there are."""

    def __init__(self, facts: Sequence[Affine], order: Sequence[Expr] = (), given: Sequence[Dim] = (),
                 rounding: bool = True):
        self.sizes: list[Dim] = []
        self.held: dict[Dim, bool] = {}     # what `holds` found, by these sizes
        self.rounding = rounding
        self.place = {x: k + 1 for k, x in enumerate(order)}
        self.steps = 0
        self.split: list[Expr] = []         # atoms that are written as n * (x // n) + x % n
        self.ranks: dict[Expr, tuple[int, int]] = {}
        self.given: dict[Expr, list[Affine]] = {}       # facts by the innermost atom in them
        for size in given:
            self.note_size(Affine({}, size))
        for fact in facts:
            self.note(fact)
        for fact in facts:
            self.note_least(fact)
        self.steps = 0

    def note(self, fact: Affine) -> None:
        """Keep a fact, and what it says of outer atoms whatever the inner ones are; at last, of sizes: a loop of N - 3
        iterations that is run has one."""
        while fact.terms:
            fact = tightened(fact, 1, self.holds)[0]
            atom = self.innermost(fact)
            by, found = fact.terms[atom], self.given.setdefault(atom, [])
            for opposite in found:
                self.note_size(fact + opposite)
            found.append(fact)
            self.note_numerator(atom, by, fact)
            sign = -1 if self.holds(by) else 1
            bound = next((x for x in self.facts(atom) if is_same(x.terms[atom], sign)), None)
            if bound is None or not self.holds(-by * sign) or (len(fact.terms) == 1 and isinstance(fact.constant, int)):
                return
            fact = _others(fact, atom) + _others(bound, atom).scaled(-by * sign)
        self.note_size(fact)

    def note_numerator(self, atom: Expr, by: Dim, fact: Affine) -> None:
        """Keep what a bound of x // n says of x: below n * (bound + 1), or from n * bound on."""
        match atom:
            case Binary(op="//", left=left, right=Const() | SizeOf() as n) if self.holds(dim_of(n) - 1):
                bound, size = _others(fact, atom).scaled(dim_of(n)), dim_of(n)
                if is_same(by, -1):
                    self.note(bound + affine(left).scaled(-1) + Affine({}, size - 1))
                elif is_same(by, 1):
                    self.note(bound + affine(left))

    def note_least(self, fact: Affine) -> None:
        """Keep what a fact says of sizes by the least that is subtracted in it: a position below N tells N > 0."""
        if fact.terms and not isinstance(fact.constant, int):
            least = self._least(Affine(fact.terms, 0).scaled(-1))
            if isinstance(least, int):
                self.note_size(Affine({}, fact.constant - least))

    def note_size(self, fact: Affine) -> None:
        """Keep a fact that sizes alone are in."""
        for _, size in () if fact.terms else with_fractions(fact.constant):
            if self.holds(size):
                return
            self.sizes.append(size)
            self.held.clear()

    def holds(self, size: Dim) -> bool:
        """Whether a size is never negative, by what is known of sizes."""
        if never_negative(size):
            return True
        if size not in self.held:
            self.held[size] = follows(size, self.sizes)
        return self.held[size]

    # ------------------------------------------------------------ proofs

    def is_natural(self, form: Affine, slack: Dim = 1) -> bool:
        """Whether form > -slack: of a whole number, and a slack of 1, that it is never negative.

        The form may be a multiple of the one that was asked about, and the slack is the same multiple of 1.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
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
        for fact in self.facts(atom, rest):
            if any(x in fact.terms for x in self.split):
                continue
            factor = fact.terms[atom] * sign
            # factor * atom * sign >= -(the others of the fact)
            if self.holds(factor - 1) and self.is_natural(
                    rest.scaled(factor) + _others(fact, atom).scaled(-by * sign), slack * factor):
                return True
        return self._by_cases(atom, by, rest, slack, sign) or self._by_remainder(atom, by, rest, slack)

    def _by_remainder(self, atom: Expr, by: Dim, rest: Affine, slack: Dim) -> bool:
        """The same where a fact is known of x % n, and x has the atom: x is n * (x // n) + x % n."""
        if atom in self.split:
            return False
        for found in [x for x in self.given if isinstance(x, Binary) and x.op == "%"]:
            whole = affine(found.left)
            times = divide_exactly(by, whole.terms[atom]) if atom in whole.terms else None
            if times is None:
                continue
            self.split.append(atom)
            parts = Affine({Binary("//", found.left, found.right): dim_of(found.right), found: 1}, 0)
            form = rest + Affine({atom: by}, 0) + (parts + whole.scaled(-1)).scaled(times)
            proved = self.is_natural(form, slack)
            self.split.pop()
            if proved:
                return True
        return False

    def _by_cases(self, atom: Expr, by: Dim, rest: Affine, slack: Dim, sign: int) -> bool:
        """The same for each of the values that the atom is one of."""
        match atom:
            case Binary(op="min" | "max" as op, left=left, right=right):
                if (op == "min") is (sign == 1):
                    return all(self.is_natural(rest + affine(x).scaled(by), slack) for x in (left, right))
            case Select(condition=condition, then=then, otherwise=otherwise):
                return all(self._given(facts_of(condition, holds), rest + affine(x).scaled(by), slack)
                           for x, holds in ((then, True), (otherwise, False)))
        return False

    def _given(self, facts: list[Affine], form: Affine, slack: Dim) -> bool:
        """The same where more is known."""
        before, sizes = {atom: list(known) for atom, known in self.given.items()}, list(self.sizes)
        for fact in facts:
            self.note(fact)
        found = self.is_natural(form, slack)
        self.given, self.sizes = before, sizes
        self.held.clear()
        return found

    # ------------------------------------------------------------ intervals

    def interval(self, form: Affine) -> Interval:
        """The least and the largest value that bounds of one atom after the other give."""
        return self._least(form), _negative(self._least(form.scaled(-1)))

    def _least(self, form: Affine) -> Dim | None:
        """A value that the form is never below; the best of those that are numbers, else the first."""
        self.steps += 1
        if self.steps > MAX_STEPS:
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

    def facts(self, atom: Expr, near: Affine | None = None) -> Iterator[Affine]:
        """What bounds an atom by others that come before it; by those of a form first."""
        known = self.given.get(atom, ())
        yield from known if near is None else sorted(known, key=lambda fact: len(fact.terms.keys() - near.terms.keys()))
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
                yield from _between(atom, *type_interval(atom))

    def _quotient(self, atom: Expr, x: Affine, n: Dim) -> Iterator[Affine]:
        """n * (x // n) <= x < n * (x // n) + n; and it is natural where x is."""
        low, high = self.interval(x)
        if not isinstance(low, int) and self.is_natural(x):
            yield Affine({atom: 1}, 0)
        yield from _between(atom, None if low is None else low // n, None if high is None else high // n)
        yield from self._rounded(atom, x + Affine({atom: -n}, 0))
        yield x + Affine({atom: -n}, 0)
        yield x.scaled(-1) + Affine({atom: n}, n - 1)

    def _rounded(self, atom: Expr, fact: Affine, depth: int = MAX_ROUNDED) -> Iterator[Affine]:
        """The atom's bounds by what bounds its numerator, which are whole numbers: x <= 2 * y + 1 says x // 2 <= y."""
        if not self.rounding:
            return
        for times, constant in with_fractions(fact.constant):
            tight = tightened(Affine(fact.scaled(times).terms, constant), 1, self.holds)[0]
            if is_same(tight.terms.get(atom, 0), -1):
                yield tight
        outer = _others(fact, atom)
        if depth == 0 or not outer.terms:
            return
        inner = self.innermost(outer)
        by = outer.terms[inner]
        sign = 1 if self.holds(by) else -1
        for bound in self.facts(inner):
            if is_same(bound.terms[inner] * sign, -1):
                whole = _others(fact, inner) + _others(bound, inner).scaled(by * sign)
                yield from self._rounded(atom, whole, depth - 1)

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

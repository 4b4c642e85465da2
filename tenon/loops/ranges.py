"""Index expressions, and what is known of their loops and conditions -> intervals, and proofs that they stay in them.

    known = Ranges().inside(i, size(n)).where(i + k - 1 >= 0)      # facts: affine forms that are never negative
    known.interval(x)                                             # (low, high), each a size, or None
    known.is_within(x, 10)

This shares no reasoning with `simplify_expressions`, whose results it is to check, but the normal form of polynomials.
"""

from __future__ import annotations

from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import Affine, affine
from tenon.loops.expressions import Expr
from tenon.loops.fourier_motzkin import Elimination
from tenon.loops.index_facts import Interval, facts_of
from tenon.loops.traversal import replace
from tenon.records import dataclass
from tenon.records import replace as replaced


@dataclass(frozen=True, eq=False)
class Ranges:
    """Facts, each a form that is never negative; what scalars were defined as; the order of indices; given sizes."""

    facts: tuple[Affine, ...] = ()
    defined: tuple[tuple[Expr, Expr], ...] = ()
    order: tuple[Expr, ...] = ()
    given: tuple[Dim, ...] = ()         # which are not negative, although their symbols alone do not say so

    # ------------------------------------------------------------ what is known

    def inside(self, index: Expr, extent: Expr) -> Ranges:
        """The same within a loop of so many iterations."""
        extent = self.written_out(extent)
        iterations = affine(extent) + Affine({index: -1}, -1)
        defined = tuple(pair for pair in self.defined if pair[0] is not index)
        facts = (*self.facts, Affine({index: 1}, 0), iterations)
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
        return replaced(self, facts=(*self.facts, *facts_of(self.written_out(condition))))

    def written_out(self, x: Expr) -> Expr:
        """The expression without the names that scalars were given."""
        names = dict(self.defined)
        return replace(x, names) if names else x

    # ------------------------------------------------------------ what follows

    def interval(self, x: Expr) -> Interval:
        """The least and the largest value, as far as they are known."""
        return self._search().interval(affine(self.written_out(x)))

    def is_within(self, x: Expr, size: Dim) -> bool:
        """Whether 0 <= x < size for certain."""
        form = affine(self.written_out(x))
        return any(self._is_within(form, size, rounding) for rounding in (False, True))     # fewer steps first

    def _is_within(self, form: Affine, size: Dim, rounding: bool) -> bool:
        low, high = self._search(rounding).interval(form)
        if isinstance(size, int) and isinstance(low, int) and isinstance(high, int) and low >= 0 and high < size:
            return True             # found in fewer steps, where there are many conditions
        below = form.scaled(-1) + Affine({}, size - 1)
        return self._search(rounding).is_natural(form) and self._search(rounding).is_natural(below)

    def _search(self, rounding: bool = True) -> Elimination:
        return Elimination(self.facts, self.order, self.given, rounding)

"""The sizes at hand, in a call or a capture -> what they say of dimensions: answers, sizes of symbols, equations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tenon.dataclasses import dataclass, field
from tenon.dims import (
    SMALLEST_SYMBOLIC_SIZE,
    Dim,
    PinnedSize,
    Quotient,
    SymbolicDim,
    compare,
    evaluate,
    innermost,
    symbol,
    symbols,
)


@dataclass
class Assumptions:
    """The sizes at hand, and the answers given from them; each answer is a condition for the capture to hold."""

    sizes: Mapping[str, int]
    recorded: dict[tuple[Dim, str, Dim], bool] = field(default_factory=dict)

    def answer(self, left: Dim, relation: str, right: Dim) -> bool:
        """What the sizes at hand say; an equality that holds for them is raised, as a PinnedSize that solves it."""
        found = compare(evaluate(left, self.sizes), relation, evaluate(right, self.sizes))
        if relation == "==" and found:
            raise PinnedSize(left, right, solution(left - right, self.sizes), agreed=True)
        self.recorded[left, relation, right] = found
        return found

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Whether every recorded answer is the same for these sizes."""
        return all(compare(evaluate(left, sizes), relation, evaluate(right, sizes)) == answer
                   for (left, relation, right), answer in self.recorded.items())


@contextmanager
def assuming(assumptions: Assumptions) -> Iterator[Assumptions]:
    """Answer undecided questions about sizes from `assumptions`, and record them there."""
    token = innermost.set(assumptions)
    try:
        yield assumptions
    finally:
        innermost.reset(token)


def solution(difference: Dim, sizes: Mapping[str, int]) -> tuple[str, Dim] | None:
    """A symbol, and an expression without it for which the difference may be 0; None where it has to be a number.

    `B - C - 1` gives `B: C + 1`.  Where a remainder matters, as in `B - 2*(B//2)`, the symbol becomes a multiple of a
    new one, with the remainder that it has now.
    """
    if isinstance(difference, int):
        return None
    for monomial, coefficient in difference.terms:
        for atom in monomial:
            if isinstance(atom, Quotient) and isinstance(atom.denominator, int) and str(atom.numerator) in sizes:
                name, times = str(atom.numerator), atom.denominator
                if sizes[name] // times >= SMALLEST_SYMBOLIC_SIZE:
                    return name, symbol(f"{name}_{times}") * times + sizes[name] % times
        rest = difference - SymbolicDim(((monomial, coefficient),))
        if len(monomial) == 1 and isinstance(monomial[0], str) and abs(coefficient) == 1 \
                and monomial[0] not in symbols(rest) and not isinstance(rest, int):
            return monomial[0], rest * -coefficient
    return None


def learn(dim: Dim, size: int, sizes: dict[str, int]) -> bool:
    """Whether a dimension may have this size, given some symbols; adds the symbol that follows from it.

    >>> sizes = {}
    >>> learn(symbol("B") * 2 + 1, 7, sizes), sizes
    (True, {'B': 3})
    """
    if symbols(dim) <= sizes.keys():
        return evaluate(dim, sizes) == size
    if (name := told_by(dim)) is not None:
        low, step = evaluate(dim, {name: 0}), evaluate(dim, {name: 1}) - evaluate(dim, {name: 0})
        sizes[name], rest = divmod(size - low, step)
        return rest == 0 and sizes[name] >= SMALLEST_SYMBOLIC_SIZE
    return True     # not known yet; to be asked again when all are


def told_by(dim: Dim) -> str | None:
    """The symbol that follows from the number behind a dimension: that of `2*B + 1`."""
    names = symbols(dim)
    linear = isinstance(dim, SymbolicDim) and all(len(m) <= 1 and isinstance((*m, "")[0], str) for m, _ in dim.terms)
    return next(iter(names)) if linear and len(names) == 1 else None

"""The sizes at hand, in a call or a capture -> what they say of dimensions: answers, sizes of symbols, equations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tenon.context_values import during
from tenon.dims.symbolic_dim import (
    BY_DATA,
    SMALLEST_SYMBOLIC_SIZE,
    Dim,
    PinnedSize,
    Quotient,
    SymbolicDim,
    compare,
    evaluate,
    is_by_data,
    smallest_size,
    symbol,
    symbols,
)
from tenon.dims.undecided_sizes import Answering, innermost
from tenon.errors import program_reads
from tenon.records import dataclass, field

Answers = dict[tuple[Dim, str, Dim], bool]


def _not_at_hand(name: str) -> int:
    return SMALLEST_SYMBOLIC_SIZE


MAX_BY_DATA = 100       # answers on sizes that the data decide, in one call


@dataclass
class Assumptions:
    """The sizes at hand, and the answers given from them; each answer is a condition for the capture to hold.

    Sizes that the data decide are looked up where a question is about one; what follows from an answer is known when
    the graph runs.
    """

    sizes: dict[str, int]
    recorded: Answers = field(default_factory=dict)
    by_data: Answers = field(default_factory=dict)          # on sizes that the data decide
    look_up: Callable[[str], int] = _not_at_hand            # one of them, as it is in this call
    refuse: Callable[[Dim], BaseException] = PinnedSize     # what to raise where its number is needed
    stand_in: Callable[[SymbolicDim], Any] | None = None    # makes what stands for the number behind a size
    noted: list[BaseException] = field(default_factory=list)    # what was raised for a number, and may have been caught

    def answer(self, left: Dim, relation: str, right: Dim) -> bool:
        """What the sizes at hand say; an equality that holds for them is raised, as a PinnedSize that solves it."""
        if decided := {name for name in symbols(left - right) if is_by_data(symbol(name))}:
            return self._answer_by_data(left, relation, right, decided)
        found = compare(evaluate(left, self.sizes), relation, evaluate(right, self.sizes))
        if relation == "==" and found:
            raise PinnedSize(left, right, solution(left - right, self.sizes), agreed=True)
        self.recorded[left, relation, right] = found
        return found

    def _answer_by_data(self, left: Dim, relation: str, right: Dim, names: set[str]) -> bool:
        """The same where the data decide some sizes: none of them is taken for 0 or 1, which it is in few calls."""
        if (known := self.by_data.get((left, relation, right))) is not None:
            return known
        if len(self.by_data) >= MAX_BY_DATA:       # such as of a loop that goes on while something is left
            raise self.refuse(left)
        sizes = {**self.sizes, **{name: max(self.look_up(name), SMALLEST_SYMBOLIC_SIZE) for name in names}}
        found = compare(evaluate(left, sizes), relation, evaluate(right, sizes))
        if relation == "==" and found:
            newest = max(names, key=lambda name: (len(name), name))
            rest = symbol(newest) - (left - right)
            rest = rest if newest not in symbols(rest) else symbol(newest) + (left - right)
            if newest in symbols(rest):
                raise self.refuse(left)
            raise PinnedSize(left, right, (newest, rest))
        self.by_data[left, relation, right] = found
        return found

    def needed(self, dim: Dim) -> BaseException:
        """What to raise where the number behind a size is needed."""
        return self.refuse(dim) if is_by_data(dim) else PinnedSize(dim)

    def note(self, raised: BaseException) -> None:
        """That a number is needed, which is raised now."""
        self.noted.append(raised)

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """A block that raises what was raised in it for a number, where the program caught that and went on."""
        try:
            yield
        except Exception:
            if self.noted:
                raise self.noted[0] from None
            raise
        if self.noted:
            raise self.noted[0]

    def number(self, dim: SymbolicDim) -> Any:
        """What stands for the number behind a size; raises where nothing does."""
        if self.stand_in is None:
            raise self.needed(dim)
        return self.stand_in(dim)

    def told(self, text: str) -> None:
        """Where the program reads a text that names sizes, their numbers have to be in it."""
        names = {name for name in re.findall(r"[A-Za-z_]\w*", text) if name in self.sizes or name.startswith(BY_DATA)}
        if names:
            raise self.needed(sum(map(symbol, names), start=0))

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Whether every recorded answer is the same for these sizes."""
        return answers_hold(self.recorded, sizes)

    def contradict(self, sizes: Mapping[str, int]) -> bool:
        """Whether an answer is another one for these sizes, which need not be all."""
        known = {key: answer for key, answer in self.recorded.items() if symbols(key[0] - key[2]) <= sizes.keys()}
        return not answers_hold(known, sizes)


def answers_hold(answers: Mapping[tuple[Dim, str, Dim], bool], sizes: Mapping[str, int]) -> bool:
    """Whether these sizes give the same answers."""
    return all(compare(evaluate(left, sizes), relation, evaluate(right, sizes)) == answer
               for (left, relation, right), answer in answers.items())


@contextmanager
def assuming(assumptions: Assumptions) -> Iterator[Assumptions]:
    """Answer undecided questions about sizes from `assumptions`, and record them there."""
    with during(innermost, assumptions), during(program_reads, assumptions.told):
        yield assumptions


@dataclass
class NotedAnswers:
    """What was asked about sizes while something was made that is remembered; who remembers it asks again."""

    asked: Answering
    answers: Answers = field(default_factory=dict)

    def answer(self, left: Dim, relation: str, right: Dim) -> bool:
        found = self.answers[left, relation, right] = self.asked.answer(left, relation, right)
        return found

    def needed(self, dim: Dim) -> BaseException:
        return self.asked.needed(dim)

    def note(self, raised: BaseException) -> None:
        self.asked.note(raised)

    def number(self, dim: SymbolicDim) -> Any:
        raise self.needed(dim)      # what is remembered has no number of one call


@contextmanager
def noted_answers() -> Iterator[Answers]:
    """The answers that are given in this block; none where nobody answers."""
    if (asked := innermost.get()) is None:
        yield {}
        return
    noted = NotedAnswers(asked)
    with during(innermost, noted):
        yield noted.answers


def are_given_again(answers: Answers) -> bool:
    """Whether whoever answers now says the same, and so relies on it; true where nobody answers."""
    asked = innermost.get()
    return asked is None or all(asked.answer(*question) == answer for question, answer in answers.items())


def solution(difference: Dim, sizes: Mapping[str, int]) -> tuple[str, Dim] | None:
    """A symbol, and an expression without it for which the difference may be 0; None where it has to be a number.

    `B - C - 1` gives `B: C + 1`.  Where a remainder matters, as in `B - 2*(B//2)`, the symbol becomes a multiple of a
    new one, with the remainder that it has now.
    """
    if isinstance(difference, int):
        return None
    for monomial, coefficient in difference.terms:
        for atom in monomial:
            if isinstance(atom, Quotient) and isinstance(atom.denominator, int) and (name := told_by(atom.numerator)):
                times = atom.denominator
                if name in sizes and sizes[name] // times >= SMALLEST_SYMBOLIC_SIZE:
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
    if type(dim) is SymbolicDim and len(dim.terms) == 1 and len((monomial := dim.terms[0])[0]) == monomial[1] == 1 \
            and type(only := monomial[0][0]) is str:        # as most are
        return sizes.setdefault(only, size) == size >= smallest_size(only)
    if symbols(dim) <= sizes.keys():
        return evaluate(dim, sizes) == size
    if (name := told_by(dim)) is not None:
        low, step = evaluate(dim, {name: 0}), evaluate(dim, {name: 1}) - evaluate(dim, {name: 0})
        sizes[name], rest = divmod(size - low, step)
        return rest == 0 and sizes[name] >= smallest_size(name)
    return True     # not known yet; to be asked again when all are


def told_by(dim: Dim) -> str | None:
    """The symbol that follows from the number behind a dimension: that of `2*B + 1`."""
    names = symbols(dim)
    linear = isinstance(dim, SymbolicDim) and all(len(m) <= 1 and isinstance((*m, "")[0], str) for m, _ in dim.terms)
    return next(iter(names)) if linear and len(names) == 1 else None

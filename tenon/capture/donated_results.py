"""Results in the memory of tensors that are updated there, in a quick program.

Before the run nobody else may hold such an array, or the state of its tensor, or it would not be written to.  So what
is to be said of that state is said in the loop of `tenon.atomic`, behind the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from tenon.atomic import ignored, later
from tenon.capture.captured import KEPT, Captured, Change, holder_of
from tenon.capture.store_results import RunResults
from tenon.records import replace
from tenon.tensor_state import TensorState

STATE = attrgetter("own")


class DonatedResults:
    """Which results lie in the memory of an input, in all runs of a program: `donors` has an input or None for each.

    `changes` are those of tensors that are not just updated.
    """

    def __init__(self, captured: Captured, donors: Sequence[int | None]):
        self.lenders = [None if donor is None else captured.sources[donor] for donor in donors]
        self.new = [sum(donor is None for donor in donors[:k]) for k in range(len(donors))]
        changes = [replace(x, result=None, updated=True) if self._updates(x) else x for x in captured.changes]
        self.changes = tuple(x for x in changes if x.result is not None or x.marks)

    def _updates(self, change: Change) -> bool:
        return change.result is not None and self.lenders[change.result] is change.source


class DonatedRunResults(RunResults):
    """The results of one run, of which `new` are in memory of their own; the others are looked for when it is over."""

    def __init__(self, lending: DonatedResults, new: Sequence[Any], leaves: Sequence[Any]):
        super().__init__(new)
        self.lending, self.leaves = lending, leaves
        self.marked: list[Any] = []         # the tensors that are updated and get something else, too
        self.names: list[str] = []
        self.values: list[Any] = []

    def payload(self, k: int) -> Any:
        lender = self.lending.lenders[k]
        return self.arrays[self.lending.new[k]] if lender is None else holder_of(lender, self.leaves).own.payload

    def changed(self, change: Change, holder: Any, requires_grad: bool, grad: Any) -> TensorState | None:
        if change.result is not None:       # and nothing else shares it
            return TensorState(self.arrays[self.lending.new[change.result]], requires_grad, grad)
        if not change.updated:
            return super().changed(change, holder, requires_grad, grad)
        if change.gradient is not KEPT:
            self._mark(holder, "grad", grad)
        if change.flag is not None:
            self._mark(holder, "requires_grad", requires_grad)
        return None

    def _mark(self, holder: Any, name: str, value: Any) -> None:
        self.marked.append(holder)
        self.names.append(name)
        self.values.append(value)

    def marks(self) -> Iterator[bool]:
        """What is set in the states of tensors that are updated, as it is asked for."""
        states: list[TensorState] = []
        return ignored(chain(later(states.extend, map(STATE, self.marked)),
                             map(setattr, states, self.names, self.values))) if self.marked else iter(())

"""Tensors whose memory a running program writes in -> what others see of them: the elements before the run, or after.

Such a program leaves Python's lock to other threads, and may call Python itself: a step of the host, a handler of
signals in a loop.  While it runs, the states of these tensors are `UpdatedState`s, which hold a `Loan` in the place of
their array; machine code that reads states finds no array there, and leaves them to Python.  Before the program begins
to write, and nothing that it does from then on runs Python, who looks is given a copy; later, who looks waits.

Who waits holds the state, so the next run finds that the tensor is not alone, and writes elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from typing import Any

import numpy as np

from tenon.atomic import later
from tenon.errors import TenonError
from tenon.program.backend_interface import LOST, WRITING
from tenon.runtime.forks import PAUSE, RunPhase
from tenon.tensor_state import TensorState


class Loan:
    """What a state holds while a program writes in its array."""

    __slots__ = ("array", "copy", "phase")

    def __init__(self, phase: RunPhase, array: np.ndarray | None = None):
        self.phase, self.array = phase, array
        self.copy: np.ndarray | None = None         # of the elements before the run, where somebody asked


class UpdatedState(TensorState):
    """The state of a tensor that a running program updates: that of any other again when the run is over."""

    __slots__ = ()

    @property
    def payload(self) -> Any:               # type: ignore[override]
        """The array, or a copy of it."""
        while type(held := PAYLOAD.__get__(self)) is Loan:
            if held.phase.now == LOST:
                raise TenonError("the elements of a tensor were lost: another thread's compiled step was writing them "
                                 "while this process was forked; fork between steps")
            if held.phase.now < WRITING and (copy := _copied(self, held)) is not None:
                return copy
            time.sleep(PAUSE)
        return held


def _copied(state: TensorState, loan: Loan) -> np.ndarray | None:
    """The elements before the run; None where it has begun to write, or has ended, meanwhile."""
    copy, array = loan.copy, loan.array
    if copy is None and array is not None:
        copy = array.copy()
    if PAYLOAD.__get__(state) is not loan or loan.phase.now >= WRITING:
        return None
    loan.copy = copy
    return copy


PAYLOAD: Any = vars(TensorState)["payload"]


class Loans:
    """The states that a run from Python updates."""

    def __init__(self, states: Sequence[TensorState]):
        self.states = states                        # nobody else lends what is held here
        self.arrays = list(map(PAYLOAD.__get__, states))
        self.out = False

    def begin(self, phase: RunPhase) -> Iterator[Any]:
        """Let others see loans from now on, until the stores that are the answer are done."""
        phase.begin()
        self.out = True
        for state, array in zip(self.states, self.arrays, strict=True):
            state.__class__ = UpdatedState
            PAYLOAD.__set__(state, Loan(phase, array))
        return self.taken_back()

    def taken_back(self) -> Iterator[Any]:
        """The stores after which all see the arrays again."""
        return chain(starmap(PAYLOAD.__set__, zip(self.states, self.arrays, strict=True)),
                     starmap(setattr, [(state, "__class__", TensorState) for state in self.states]),
                     later(setattr, self, "out", False))

"""The gradient rules of elementwise operators -> programs for machine code, which finds them by the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.eager.vjp_cache import Formula, elementwise
from tenon.graph.op import Op

if TYPE_CHECKING:
    from tenon.cpython.eager.gradient_interpreter import GradientProgram

MAX_PROGRAMS = 16       # programs of an operator: one for each number that it is called with


class Programs:
    """The programs of operators; `words` is what machine code looks into."""

    def __init__(self) -> None:
        self.words: dict[Op, np.ndarray] = {}
        self._found: dict[Op, list[GradientProgram]] = {}

    def follow(self) -> None:
        """Take note of every rule that is asked for from now on."""
        for known in (elementwise, self.words, self._found):    # those known so far are asked for again
            known.clear()
        elementwise.told = self.add

    def add(self, op: Op, dtype: np.dtype[Any], kinds: Sequence[Any], formulas: Sequence[Formula | None]) -> None:
        """Make a program of an operator's rule, if there are loops for all of it."""
        from tenon.cpython.eager.gradient_interpreter import fits, program  # local: LLVM is slow to load

        found = self._found.setdefault(op, [])
        rows = [None if formula is None else _rows(formula, dtype) for formula in formulas]
        adds = _loop(np.add, dtype)
        lacking = any(row is None and formula is not None for row, formula in zip(rows, formulas, strict=True))
        if len(found) < MAX_PROGRAMS and adds is not None and not lacking and fits(len(kinds), formulas):
            numbers = [None if kind is True else kind for kind in kinds]
            found.append(program(dtype, adds, numbers, rows, found[-1] if found else None))
            self.words[op] = found[-1].words


def _rows(formula: Formula, dtype: np.dtype[Any]) -> tuple[list[Any], int] | None:
    """A formula with the loops of its ufuncs; None where one is not found."""
    rows = [row if isinstance(row, np.ndarray) else (_loop(row[0], dtype), row[1]) for row in formula.rows]
    found = all(isinstance(row, np.ndarray) or row[0] is not None for row in rows)
    return (rows, formula.result) if found else None


def _loop(ufunc: np.ufunc, dtype: np.dtype[Any]) -> tuple[int, int] | None:
    from tenon.cpython.eager.ufunc_loops import inner_loop  # local: as above

    return inner_loop(ufunc, dtype.char * ufunc.nargs)


programs = Programs()

"""The steps of a recipe -> the same, those in a row that go element by element as one
(`cpython/eager/fused_elementwise.py`).

    v1 = abs(v0); v2 = negative(v1); v3 = exp(v2)       # three arrays, of which only the last is read later
    v3 = fused(v0)

Known sizes and element types decide; where an array does not lie as is usual, the steps are made one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.records import dataclass
from tenon.types import TensorType

if TYPE_CHECKING:
    from tenon.cpython.eager.eager_library import EagerLibrary

Step = tuple[Callable[..., Any], Sequence[tuple[str, Any]], tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]
MAX_ELEMENTS = 1 << 14
CHOSEN = frozenset((4, 8))          # bytes of an element that is chosen


@dataclass(frozen=True, eq=False)
class Fuser:
    """What steps are made one with: machine code, and the loops of ufuncs by the element type of what they read."""

    machine: EagerLibrary
    loops: Mapping[tuple[Any, np.dtype[Any]], tuple[tuple[int, int], np.dtype[Any]]]

    def fused(self, steps: Sequence[Step], types: Sequence[TensorType], results: set[int],
              write: Callable[[Sequence[Step], Sequence[int], Sequence[int]], Callable[..., Any]]) -> list[Step]:
        """The steps; `write` makes a function of some of them, of what they read and what they give."""
        found: list[Step] = []
        run: list[Step] = []
        for n, step in enumerate([*steps, None]):
            if step is not None and self._joins(step, run, types):
                run.append(step)
                continue
            later = {k for other in steps[n:] for k in other[2]} | results
            one = self._one(run, types, later, write) if len(run) > 1 else None
            found += run if one is None else [one]
            run = []
            if step is not None:
                (run if self._joins(step, run, types) else found).append(step)
        return found

    def _joins(self, step: Step, run: Sequence[Step], types: Sequence[TensorType]) -> bool:
        """Whether a step goes element by element, as those before it."""
        function, attrs, places, outs, into, _ = step
        out, given = types[outs[0]], [types[k] for k in places]
        shape, size = out.shape, out.size
        if attrs or into >= 0 or len(outs) > 1 or not isinstance(size, int) or not 0 < size <= MAX_ELEMENTS:
            return False
        if (run and types[run[0][3][0]].shape != shape) or any(t.shape not in ((), shape) for t in given):
            return False
        dtypes = [t.dtype.numpy for t in given]
        if function is np.where:
            return given[0].shape == shape and dtypes[0].kind == "b" and dtypes[1] == dtypes[2] == out.dtype.numpy \
                and dtypes[1].itemsize in CHOSEN
        known = self.loops.get((function, dtypes[0])) if isinstance(function, np.ufunc) else None
        return known is not None and len(set(dtypes)) == 1 and known[1] == out.dtype.numpy \
            and all(t.shape == shape for t in given[:1] if len(given) == 1)

    def _one(self, run: Sequence[Step], types: Sequence[TensorType], later: set[int],
             write: Callable[[Sequence[Step], Sequence[int], Sequence[int]], Callable[..., Any]]) -> Step | None:
        """The steps as one; None where there are too many values."""
        from tenon.cpython.eager.fused_elementwise import (  # local: LLVM is slow to load, and there by now
            MAX_AXES,
            MAX_GIVEN,
            MAX_OUTS,
            MAX_ROWS,
            MAX_SLOTS,
            FusedRow,
        )
        made = [step[3][0] for step in run]
        given = list(dict.fromkeys(k for step in run for k in step[2] if k not in made))
        outs = [k for k in made if k in later]
        shape = types[made[0]].shape
        if len(given) > MAX_GIVEN or len(run) > MAX_ROWS or not 0 < len(outs) <= MAX_OUTS or len(shape) > MAX_AXES:
            return None
        last = {k: n for n, step in enumerate(run) for k in step[2]}
        places = {k: n for n, k in enumerate([*given, *made])}
        free, slot_of, rows = list(range(MAX_SLOTS)), dict[int, int](), []
        for n, (function, _, reads, (k,), _, _) in enumerate(run):
            if k not in outs:
                if not free or k not in last:
                    return None
                slot_of[k] = free.pop()
            dtype = types[k].dtype.numpy
            loop = (0, dtype.itemsize) if function is np.where else self.loops[function, types[reads[0]].dtype.numpy][0]
            rows.append(FusedRow(loop, tuple(places[x] for x in reads),
                                 outs.index(k) if k in outs else len(outs) + slot_of[k], dtype))
            free += [slot_of[x] for x in set(reads) if x in slot_of and last[x] == n]
        function = self.machine.fused(
            write(run, given, outs), [int(n) for n in shape],
            [(types[k].dtype.numpy, types[k].shape == () != shape) for k in given], rows,
            [types[k].dtype.numpy for k in outs])
        dead = {k for step in run for k in step[5]} - set(made)
        return function, (), tuple(given), tuple(outs), -1, tuple(dead)

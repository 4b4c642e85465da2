"""A reduction over axes on both sides of its results -> one of lines of memory, and one of what that gives.

    out[j] = sum(x[n, j, k] for n, k)    ->    part[n, j] = sum(x[n, j, k] for k);  out[j] = sum(part[n, j] for n)

Memory is read in the order in which it lies: result by result it would be read in short lines, a page or more apart.
A policy of `rfactor`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.affine import affine
from tenon.loops.cost import count
from tenon.loops.expressions import Index, Load, Reduce
from tenon.loops.rfactor import Factoring
from tenon.loops.traversal import parts

MIN_LINE_ELEMENTS = 4   # elements of a line, for which storing a sum takes little
MIN_REDUCED_ELEMENTS = 1 << 13  # elements of what is summed up, which is worth another nest
# elements of lines of which so few, for one result, are as well read one after the other
LONG_LINE_ELEMENTS, MAX_LONG_LINES = 256, 16


def lines_first(x: Reduce, indices: Sequence[Index]) -> Factoring | None:
    """Partial results of lines; None if no result lies between what is summed."""
    results = [index for index in indices if index in x.free]
    steps = _steps(x, (*x.indices, *results))
    if steps is None or not results or count(*x.indices, *results) < MIN_REDUCED_ELEMENTS:
        return None
    nearest = min(steps[index] for index in results)
    line = tuple(index for index in x.indices if steps[index] < nearest)
    around = tuple(index for index in x.indices if steps[index] > nearest)
    if not around or count(*line) < MIN_LINE_ELEMENTS or steps[line[-1]] != 1:
        return None
    of_each = all(load.offset.free.issuperset(results) for load in parts(x.body, Load))    # else a product of matrices
    if of_each and count(*line) > LONG_LINE_ELEMENTS and count(*around) < MAX_LONG_LINES:
        return None
    return Factoring(around, line, tuple(sorted((*around, *results), key=lambda index: -steps[index])), {})


def _steps(x: Reduce, indices: Sequence[Index]) -> dict[Index, int] | None:
    """How far apart in memory neighbours are in what x reads most of; None where that is not known."""
    loads = parts(x.body, Load)
    if not loads or any(not isinstance(index.extent, int) for index in indices):
        return None
    terms = affine(max(loads, key=lambda load: count(*load.offset.free)).offset).terms
    steps = {index: terms.get(index) for index in indices}
    known = {index: step for index, step in steps.items() if isinstance(step, int) and step > 0}
    return known if len(known) == len(steps) and set(terms) == set(steps) else None

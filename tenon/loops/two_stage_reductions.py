"""A reduction over axes on both sides of its results -> one of lines of memory, and one of what that gives.

    out[j] = sum(x[n, j, k] for n, k)    ->    part[n, j] = sum(x[n, j, k] for k);  out[j] = sum(part[n, j] for n)

Memory is read in the order in which it lies: result by result it would be read in short lines, a page or more apart.
Halide calls it rfactor (Suriana 2017).
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.affine import affine
from tenon.loops.cost import count
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Cast, Expr, Index, Load, Reduce, size
from tenon.loops.loop_context import Temporary
from tenon.loops.simplify_expressions import simplify
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts
from tenon.types import TensorType, float32

MIN_LINE_ELEMENTS = 4   # elements of a line, for which storing a sum takes little
MIN_REDUCED_ELEMENTS = 1 << 13  # elements of what is summed up, which is worth another nest
# elements of lines of which so few, for one result, are as well read one after the other
LONG_LINE_ELEMENTS, MAX_LONG_LINES = 256, 16


def lines_first(x: Reduce, indices: Sequence[Index],
                temporary: Temporary) -> tuple[StoreTarget, Expr] | None:
    """(the target of the lines' sums, what x is in terms of them), or None if no result lies between what is summed."""
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
    places = tuple(sorted((*around, *results), key=lambda index: -steps[index]))
    wide = float32 if x.dtype.kind == "f" and x.dtype.bits < 32 else x.dtype
    buffer = temporary(TensorType(wide, tuple(index.extent for index in places)))
    place = offset(buffer.type.shape, places)
    target = StoreTarget(buffer, places, place, _over(x, line, simplify(Cast(x.body, wide))))
    return target, simplify(Cast(_over(x, around, Load(buffer, place, None)), x.dtype))


def _over(x: Reduce, indices: tuple[Index, ...], body: Expr) -> Reduce:
    return Reduce(x.kind, indices, body, tuple(size(index.extent) for index in indices))


def _steps(x: Reduce, indices: Sequence[Index]) -> dict[Index, int] | None:
    """How far apart in memory neighbours are in what x reads most of; None where that is not known."""
    loads = parts(x.body, Load)
    if not loads or any(not isinstance(index.extent, int) for index in indices):
        return None
    terms = affine(max(loads, key=lambda load: count(*load.offset.free)).offset).terms
    steps = {index: terms.get(index) for index in indices}
    known = {index: step for index, step in steps.items() if isinstance(step, int) and step > 0}
    return known if len(known) == len(steps) and set(terms) == set(steps) else None

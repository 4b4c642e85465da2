"""A loop over i, in whose body i is compared with numbers -> one for each interval in which all of these are decided.

    out[i] = (x[i] if i < 256 else 0) + (y[i - 256] if i >= 256 else 0)    for i in range(512)
    ->    out[i] = x[i] + 0;  out[i + 256] = 0 + y[i]                      for i in range(256)

So what is joined, padded or chosen by its place is read and stored in whole vectors, beside what it is computed from:
the gradients of a tensor's parts are stored where they belong.  Intervals of one length share a loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise

from tenon.graph.ir import Value
from tenon.loops.affine import affine
from tenon.loops.cost import count
from tenon.loops.expressions import Binary, CheckedIndex, Expr, Index, Reduce, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.simplify_expressions import Substitution
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import walk
from tenon.types import int64

MIN_INTERVAL_ITERATIONS = 16  # iterations of a loop for an interval: whole vectors
MAX_INTERVALS = 9   # intervals of all loops together: what is padded on four sides
EDGE_DIVISOR = 4        # an innermost loop may have shorter intervals where they are this part of it at most
MIN_LOOP_ELEMENTS = 4096    # elements that are worth a loop more
FIRST_AFTER = {"<": 0, "<=": 1, ">": 1, ">=": 0}      # with `i op c`, the first i from c on where the answer is another


def in_intervals(targets: Sequence[StoreTarget], context: LoopContext) -> list[StoreTarget]:
    """The targets, cut into intervals; the context learns whose the new expressions are."""
    return [part for target in targets for part in _intervals(target, context.owner, MAX_INTERVALS)]


def _intervals(target: StoreTarget, owner: MutableMapping[Expr, Value], most: int) -> Iterator[StoreTarget]:
    found = _cut(target, most)
    if found is None:
        yield target
        return
    index, ends = found
    loops = {stop - start: Index(index.name, stop - start) for start, stop in pairwise(ends)}
    for start, stop in pairwise(ends):
        inner = loops[stop - start]
        moved = Substitution({index: inner + size(start)})
        for x in walk(target.value):
            if x in owner:
                owner.setdefault(moved(x), owner[x])
        indices = tuple(inner if i is index else i for i in target.indices)
        part = StoreTarget(target.buffer, indices, moved(target.offset), moved(target.value))
        yield from _intervals(part, owner, most // (len(ends) - 1))


def _cut(target: StoreTarget, most: int) -> tuple[Index, list[int]] | None:
    """(an index, where its intervals begin and the last one ends)."""
    inside = walk(target.value)
    if target.combine or target.extents or any(isinstance(x, (Reduce, CheckedIndex)) for x in inside):
        return None
    for index in reversed(target.indices):
        ends = {end for x in inside for end in _ends(x, index)}
        if ends and isinstance(index.extent, int):
            n = math.gcd(index.extent, *ends)
            listed = list(range(0, index.extent + 1, n)) if n >= MIN_INTERVAL_ITERATIONS else sorted({0, *ends,
                                                                                                 index.extent})
            if len(listed) - 1 <= most and (n >= MIN_INTERVAL_ITERATIONS or _worthwhile(target, index, listed)):
                return index, listed
    return None


def _worthwhile(target: StoreTarget, index: Index, ends: Sequence[int]) -> bool:
    """Whether intervals of several lengths are better than one loop that chooses."""
    assert isinstance(index.extent, int)
    if count(*target.indices) < MIN_LOOP_ELEMENTS:
        return False
    if index is not target.indices[-1]:
        return True
    return sum(b - a for a, b in pairwise(ends) if b - a < MIN_INTERVAL_ITERATIONS) * EDGE_DIVISOR <= index.extent


def _ends(x: Expr, index: Index) -> Iterator[int]:
    """Where within its loop the answer of a comparison of the index with a number changes."""
    match x:
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=left, right=right) if left.dtype is int64:
            form = affine(left) + affine(right).scaled(-1)          # op 0
            (by,) = form.terms.values() if set(form.terms) == {index} else (0,)
            if by in (1, -1) and isinstance(form.constant, int) and isinstance(index.extent, int):
                end = -form.constant + FIRST_AFTER[op] if by == 1 else form.constant + 1 - FIRST_AFTER[op]
                if 0 < end < index.extent:
                    yield end

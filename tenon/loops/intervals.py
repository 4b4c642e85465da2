"""A loop over i, in whose body i is compared with numbers -> one for each interval in which all of these are decided.

    out[i] = (x[i] if i < 256 else 0) + (y[i - 256] if i >= 256 else 0)    for i in range(512)
    ->    out[i] = x[i] + 0;  out[i + 256] = 0 + y[i]                      for i in range(256)

So what is joined, padded or chosen by its place is read and stored in whole vectors, beside what it is computed from:
the gradients of a tensor's parts are stored where they belong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping, Sequence

from tenon.graph.ir import Value
from tenon.loops.affine import affine
from tenon.loops.expressions import Binary, CheckedIndex, Expr, Index, Reduce, size, walk
from tenon.loops.simplify import substitute
from tenon.loops.target import Target
from tenon.types import int64

SHORTEST = 16       # turns of a loop for an interval: whole vectors
MOST = 8            # intervals of a loop
FIRST_AFTER = {"<": 0, "<=": 1, ">": 1, ">=": 0}      # with `i op c`, the first i from c on where the answer is another


def in_intervals(targets: Sequence[Target], owner: MutableMapping[Expr, Value]) -> list[Target]:
    """The targets, cut into intervals of one length where all ends are multiples of it; `owner` learns new names."""
    return [part for target in targets for part in _intervals(target, owner)]


def _intervals(target: Target, owner: MutableMapping[Expr, Value]) -> Iterator[Target]:
    found = _cut(target)
    if found is None:
        yield target
        return
    index, n = found
    assert isinstance(index.extent, int)
    inner = Index(index.name, n)
    indices = tuple(inner if i is index else i for i in target.indices)
    for start in range(0, index.extent, n):
        values: dict[Index, Expr] = {index: inner + size(start)}
        for x in walk(target.value):
            if x in owner:
                owner.setdefault(substitute(x, values), owner[x])
        yield Target(target.buffer, indices, substitute(target.offset, values), substitute(target.value, values))


def _cut(target: Target) -> tuple[Index, int] | None:
    """(an index, the length of its intervals)."""
    inside = walk(target.value)
    if target.combine or target.extents or any(isinstance(x, (Reduce, CheckedIndex)) for x in inside):
        return None
    for index in reversed(target.indices):
        ends = {end for x in inside for end in _ends(x, index)}
        if ends and isinstance(index.extent, int):
            n = math.gcd(index.extent, *ends)
            if n >= SHORTEST and index.extent // n <= MOST:
                return index, n
    return None


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

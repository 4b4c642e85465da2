"""A long reduction with few results -> partial results of chunks, which threads share, and their combination.

    out[j] = sum(x[k, j] for k < N)    ->    part[c, j] = sum(x[c*CHUNK + k, j] for k < min(CHUNK, N - c*CHUNK))
                                             out[j] = sum(part[c, j] for c)

How it is cut depends on sizes only, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon.dims import Dim, product
from tenon.loops.build import offset
from tenon.loops.columns import TILE, is_across
from tenon.loops.expressions import Binary, Buffer, Cast, Expr, Index, Load, Reduce, size
from tenon.loops.simplify import simplify, substitute
from tenon.loops.target import Target
from tenon.loops.traversal import parts, replace
from tenon.types import TensorType, float32

CHUNK = 16384           # elements of a chunk
FEWEST = 8              # chunks; less work than this is over sooner than threads have met
ENOUGH = 16             # results that keep the threads busy by themselves, when they are reduced one by one


def in_chunks(target: Target, temporary: Callable[[TensorType], Buffer]) -> list[Target]:
    """The target, after targets for the partial results of its long reductions."""
    listed = parts(target.value, Reduce)
    inside = {y for x in listed for y in parts(x.body, Reduce)}
    before: list[Target] = []
    values: dict[Expr, Expr] = {}
    for x in listed:
        if x not in inside and not parts(x.body, Reduce):
            cut = _cut(x, target.indices, temporary)
            if cut is not None:
                before.append(cut[0])
                values[x] = cut[1]
    if not before:
        return [target]
    return [*before, Target(target.buffer, target.indices, target.offset, simplify(replace(target.value, values)))]


def _cut(x: Reduce, indices: tuple[Index, ...],
         temporary: Callable[[TensorType], Buffer]) -> tuple[Target, Expr] | None:
    """(the target of the partial results, what x is in terms of them), or None if x is better left as it is."""
    results = tuple(index for index in indices if index in x.free)
    count = product(index.extent for index in results)
    side_by_side = TILE if results and is_across(x, results[-1]) else 1
    if not isinstance(count, int) or count >= ENOUGH * side_by_side:
        return None
    first, *rest = x.indices
    inner = product(index.extent for index in rest) * count
    length = max(1, CHUNK // max(1, inner)) if isinstance(inner, int) else 16
    chunks: Dim = (first.extent + (length - 1)) // length
    if isinstance(chunks, int) and chunks < FEWEST:
        return None
    chunk, within = Index("chunk", chunks), Index(first.name, length)
    position = chunk * size(length) + within
    wide = float32 if x.dtype.kind == "f" and x.dtype.bits < 32 else x.dtype
    buffer = temporary(TensorType(wide, (chunks, *(index.extent for index in results))))
    body = simplify(Cast(substitute(x.body, {first: position}), wide))
    left: Expr = size(length)
    if not isinstance(first.extent, int) or first.extent % length:
        left = Binary("min", left, simplify(size(first.extent) - chunk * size(length)))
    partial = Reduce(x.kind, (within, *rest), body, (left, *x.extents[1:]))
    place = offset(buffer.type.shape, (chunk, *results))
    target = Target(buffer, (chunk, *results), place, partial)
    total = Index(first.name, chunks)
    load = Load(buffer, offset(buffer.type.shape, (total, *results)), None)
    return target, simplify(Cast(Reduce(x.kind, (total,), load, (size(chunks),)), x.dtype))

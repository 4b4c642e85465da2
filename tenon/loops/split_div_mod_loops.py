"""A loop over i, in whose body stand i // n and i % n -> a loop over i // n and one over i % n.

    out[i] = x[i // 2] * y[i % 2]    ->    out[2*i + j] = x[i] * y[j]

So nobody divides, what depends on the quotient alone is computed once for n elements, and a transposed convolution
whose windows do not overlap becomes a product of matrices.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from tenon.graph.ir import Value
from tenon.loops.affine import affine, is_same
from tenon.loops.binders import fresh, names_in
from tenon.loops.cost import known
from tenon.loops.expressions import Binary, Const, Expr, Index, Reduce, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.simplify_expressions import Substitution, simplify
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts, walk
from tenon.records import replace

INNERMOST = 8       # a loop of up to so many iterations goes inside of all others, where LLVM unrolls it


def with_split_loops(targets: Sequence[StoreTarget], context: LoopContext) -> list[StoreTarget]:
    """The targets, with loops split in the same way where they have the same loops; the context learns whose the new
    expressions are."""
    together: dict[tuple[Index, ...], list[int]] = {}
    for k, target in enumerate(targets):
        together.setdefault(target.indices, []).append(k)
    found = list(targets)
    for places in together.values():
        same = [targets[k] for k in places]
        while (cut := _first_cut(same)) is not None:
            index, n = cut
            outer, inner = _parts(index, n, names_in(*same[0].indices, *(t.value for t in same)))
            split = Substitution({index: outer * size(n) + inner})
            same = [_split(t, index, (outer, inner), split, context.owner) for t in same]
        for k, target in zip(places, same, strict=True):
            found[k] = target
    return found


def with_split_reductions(target: StoreTarget) -> StoreTarget:
    """The target, with the indices of its reductions split in the same way."""
    value = target.value
    while (cut := _reduction_cut(value)) is not None:
        index, n = cut
        value = _with_cut(value, index, *_parts(index, n, names_in(*target.indices, value)))
    return target if value is target.value else replace(target, value=value)


def _reduction_cut(value: Expr) -> tuple[Index, int] | None:
    """(an index of a reduction that runs to its extent, the largest n by which its body divides it)."""
    for x in parts(value, Reduce):
        found = {cut for y in parts(x.body, Binary) if y.op in ("//", "%") for cut in _divisions(y, x.indices, False)}
        for index, extent in zip(x.indices, x.extents, strict=True):
            by = [n for i, n in found if i is index and 1 < n < known(index.extent) and known(index.extent) % n == 0]
            if by and extent is size(index.extent):
                return index, max(by)
    return None


def _with_cut(value: Expr, index: Index, outer: Index, inner: Index) -> Expr:
    """The value, with two loops in place of one in all of its reductions."""
    split = Substitution({index: outer * size(inner.extent) + inner})
    done: dict[Expr, Expr] = {}
    for x in walk(value):
        children = tuple(done[child] for child in x.children())
        same = x if children == x.children() else simplify(x.rebuilt(children))
        if isinstance(same, Reduce) and index in same.indices:
            place = same.indices.index(index)
            indices = (*same.indices[:place], outer, inner, *same.indices[place + 1:])
            same = Reduce(same.kind, indices, split(same.body),
                          (*same.extents[:place], size(outer.extent), size(inner.extent), *same.extents[place + 1:]))
        done[x] = same
    return done[value]


def _first_cut(targets: Sequence[StoreTarget]) -> tuple[Index, int] | None:
    """(an index, the n by which it is divided), the largest n of the outermost index first."""
    indices = targets[0].indices
    found = [x for t in targets for x in parts(t.value, Binary) if x.op in ("//", "%")]
    if not found:
        return None
    plain = not any(t.product for t in targets)
    divided = {cut for x in found for cut in _divisions(x, indices, plain)}
    for index in indices:
        for n in sorted((n for i, n in divided if i is index), reverse=True):
            assert isinstance(index.extent, int)
            if 1 < n < index.extent and index.extent % n == 0:
                return index, n
    return None


def _divisions(x: Binary, indices: Sequence[Index], plain: bool) -> list[tuple[Index, int]]:
    """The (i, n) of x = i // n or i % n; in plain loops of (i + ...) // n too, whose remainders are unrolled."""
    match x:
        case Binary(left=Index(extent=int()) as index, right=Const(value=n)):
            return [(index, int(n))]
        case Binary(left=left, right=Const(value=n)) if plain and n <= INNERMOST:
            terms = affine(left).terms
            return [(i, int(n)) for i in indices if i in terms and is_same(terms[i], 1) and isinstance(i.extent, int)]
    return []


def _parts(index: Index, n: int, taken: set[str]) -> tuple[Index, Index]:
    """The loops over index // n and index % n."""
    assert isinstance(index.extent, int)
    return Index(index.name, index.extent // n), fresh(index.name + "_in", n, taken)


def _split(target: StoreTarget, index: Index, loops: tuple[Index, Index], split: Substitution,
           owner: MutableMapping[Expr, Value]) -> StoreTarget:
    for x in walk(target.value):
        if x in owner:
            owner.setdefault(split(x), owner[x])
    outer, inner = loops
    place = target.indices.index(index)
    before, after = target.indices[:place], target.indices[place + 1:]
    innermost = inner.extent <= INNERMOST
    indices = (*before, outer, *after, inner) if innermost else (*before, outer, inner, *after)
    return StoreTarget(target.buffer, indices, split(target.offset), split(target.value))

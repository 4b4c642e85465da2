"""Neighbouring loops -> one longer loop, wherever only the flat position matters."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.affine import affine, is_same
from tenon.loops.expressions import Expr, Index, Load, Reduce, size
from tenon.loops.simplify_expressions import Substitution, simplify
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts, walk
from tenon.records import replace


def with_flat_loops(targets: Sequence[StoreTarget]) -> list[StoreTarget]:
    """Targets of one nest, neighbouring loops merged; each has the loops of the longest list, or the outer ones."""
    targets = list(targets)
    place = max(len(t.indices) for t in targets) - 2
    while place >= 0:
        longest = max((t.indices for t in targets), key=len)
        outer, inner = longest[place:place + 2]
        merging = Merging(outer, inner)
        merged = [_merged(t, merging) for t in targets]
        if all(t is not None for t in merged):
            targets = [t for t in merged if t is not None]
        place -= 1
    return targets


def _merged(target: StoreTarget, merging: Merging) -> StoreTarget | None:
    outer, inner = merging.outer, merging.inner
    if outer not in target.indices:
        return target
    if inner not in target.indices or target.extents:
        return None
    position = merging(target.offset)
    value = None if position is None else merging(target.value)
    if position is None or value is None:
        return None
    indices = tuple(merging.flat if index is outer else index for index in target.indices if index is not inner)
    return replace(target, indices=indices, offset=position, value=value)


class Merging:
    """Expressions in terms of flat = outer * (extent of inner) + inner."""

    def __init__(self, outer: Index, inner: Index):
        self.outer, self.inner, self.flat = outer, inner, Index(outer.name, outer.extent * inner.extent)
        temporary = Index("flat " + self.flat.name, self.flat.extent)
        self.without_inner = Substitution({inner: temporary - outer * size(inner.extent)})
        self.renamed = Substitution({temporary: self.flat})

    def __call__(self, x: Expr) -> Expr | None:
        """The expression, or None if it depends on the two in another way."""
        if self.outer not in x.free and self.inner not in x.free:
            return x
        if any(_is_apart(part, self.outer, self.inner) for part in parts(x, Load)):
            return None
        found = self.without_inner(x)
        return None if self.outer in found.free else self.renamed(found)


def _is_apart(x: Load, outer: Index, inner: Index) -> bool:
    """Whether the element is plainly not at a multiple of the flat position, which is found out in less time."""
    terms = affine(x.offset).terms
    plain = all(isinstance(atom, Index) or not {outer, inner} & atom.free for atom in terms)
    return plain and not is_same(terms.get(outer, 0), terms.get(inner, 0) * inner.extent)


def with_flat_reductions(target: StoreTarget) -> StoreTarget:
    """Merge neighbouring indices of reductions in the same way."""
    if all(len(x.indices) == 1 for x in parts(target.value, Reduce)):
        return target
    done: dict[Expr, Expr] = {}
    for x in walk(target.value):
        children = tuple(done[child] for child in x.children())
        same = x if children == x.children() else simplify(x.rebuilt(children))
        done[x] = _flat_reduction(same) if isinstance(same, Reduce) else same
    return replace(target, value=done[target.value])


def _flat_reduction(x: Reduce) -> Reduce:
    place = len(x.indices) - 2
    while place >= 0:
        outer, inner = x.indices[place:place + 2]
        merging = Merging(outer, inner)
        body = merging(x.body) if x.extents == tuple(size(index.extent) for index in x.indices) else None
        if body is not None:
            indices = (*x.indices[:place], merging.flat, *x.indices[place + 2:])
            x = Reduce(x.kind, indices, body, tuple(size(index.extent) for index in indices))
        place -= 1
    return x

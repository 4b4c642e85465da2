"""Neighbouring loops -> one longer loop, wherever only the flat position matters."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dataclasses import replace
from tenon.loops.affine import affine, is_same
from tenon.loops.expressions import Expr, Index, Load, Reduce, parts, size, walk
from tenon.loops.simplify import simplify, substitute
from tenon.loops.target import Target


def with_flat_loops(targets: Sequence[Target]) -> list[Target]:
    """Targets of one nest, neighbouring loops merged; each has the loops of the longest list, or the outer ones."""
    targets = list(targets)
    place = max(len(t.indices) for t in targets) - 2
    while place >= 0:
        longest = max((t.indices for t in targets), key=len)
        outer, inner = longest[place:place + 2]
        flat = Index(outer.name, outer.extent * inner.extent)
        merged = [_merged(t, outer, inner, flat) for t in targets]
        if all(t is not None for t in merged):
            targets = [t for t in merged if t is not None]
        place -= 1
    return targets


def _merged(target: Target, outer: Index, inner: Index, flat: Index) -> Target | None:
    if outer not in target.indices:
        return target
    if inner not in target.indices or target.extents:
        return None
    position, value = (merge(x, outer, inner, flat) for x in (target.offset, target.value))
    if position is None or value is None:
        return None
    indices = tuple(flat if index is outer else index for index in target.indices if index is not inner)
    return replace(target, indices=indices, offset=position, value=value)


def merge(x: Expr, outer: Index, inner: Index, flat: Index) -> Expr | None:
    """`x` in terms of flat = outer * (extent of inner) + inner, or None if it depends on them in another way."""
    if outer not in x.free and inner not in x.free:
        return x
    if any(_is_apart(part, outer, inner) for part in parts(x, Load)):
        return None
    temporary = Index("flat " + flat.name, flat.extent)
    found = substitute(x, {inner: temporary - outer * size(inner.extent)})
    return None if outer in found.free else substitute(found, {temporary: flat})


def _is_apart(x: Load, outer: Index, inner: Index) -> bool:
    """Whether the element is plainly not at a multiple of the flat position, which is found out in less time."""
    terms = affine(x.offset).terms
    plain = all(isinstance(atom, Index) or not {outer, inner} & atom.free for atom in terms)
    return plain and not is_same(terms.get(outer, 0), terms.get(inner, 0) * inner.extent)


def with_flat_reductions(target: Target) -> Target:
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
        flat = Index(outer.name, outer.extent * inner.extent)
        body = merge(x.body, outer, inner, flat)
        if body is not None and x.extents == tuple(size(index.extent) for index in x.indices):
            indices = (*x.indices[:place], flat, *x.indices[place + 2:])
            x = Reduce(x.kind, indices, body, tuple(size(index.extent) for index in indices))
        place -= 1
    return x

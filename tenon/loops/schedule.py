"""Targets -> a nest: which loops there are, what is computed at which of them, which run in parallel.

Every sub-expression is computed in the outermost loop that has all indices it depends on, once, and named if it is
read more than once; reductions become loops of their own at that place.  So a softmax over rows comes out as one
parallel loop over the rows with three loops inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tenon.dims import product
from tenon.loops.contraction import Product, as_product
from tenon.loops.expressions import (
    Binary,
    Buffer,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Local,
    Reduce,
    Size,
    size,
    walk,
)
from tenon.loops.ir import Accumulator, Contraction, Let, Loop, Nest, Stmt, Store, Update
from tenon.loops.simplify import simplify, substitute
from tenon.types import int64

GRAIN = 8192        # elements that are not worth a second thread


@dataclass(frozen=True)
class Target:
    """`buffer[offset] = value` for every value of the indices."""

    buffer: Buffer
    indices: tuple[Index, ...]
    offset: Expr
    value: Expr

    def reads(self) -> set[Buffer]:
        """The buffers that the value depends on."""
        return {x.buffer for x in walk(self.value) if isinstance(x, Load)}


def schedule(targets: Sequence[Target]) -> Nest:
    """The nest that stores the targets, whose loops are a prefix of the longest list of loops among them."""
    targets = [_with_flat_reductions(target) for target in _with_flat_loops(targets)]
    return _contraction(targets[0]) or _loops(targets)


def alone(target: Target) -> bool:
    """Whether the target is a contraction, and so needs a nest of its own."""
    return _product_of(target) is not None


def _product_of(target: Target) -> Product | None:
    reductions = [x for x in walk(target.value) if isinstance(x, Reduce)]
    if len(reductions) != 1 or not target.indices or reductions[0].free != frozenset(target.indices):
        return None
    checked = any(isinstance(x, CheckedIndex) for x in walk(target.value))
    return None if checked else as_product(reductions[0], target.indices)


def _contraction(target: Target) -> Nest | None:
    """The nest of a target that is one product, and elementwise operations on its result."""
    found = _product_of(target)
    if found is None:
        return None
    placing, top = Placing(uses(target.value)), Scope()
    total = Local("total", found.sum.dtype)
    top.known[found.sum] = total
    value = placing.place(target.value, top)
    top.body.append(Store(target.buffer, target.offset, value))
    return Nest((Contraction(found.batch, found.rows, found.columns, found.sum.indices, found.left, found.right, total,
                             tuple(top.body)),))


def uses(*roots: Expr) -> Counter[Expr]:
    """How often each sub-expression is read."""
    return Counter(child for x in walk(*roots) for child in x.children())


def _loops(targets: Sequence[Target]) -> Nest:
    """A nest of plain loops."""
    loops = max((t.indices for t in targets), key=len)
    placing = Placing(uses(*(t.value for t in targets)))
    top = Scope()
    scopes = [top]
    for depth in range(len(loops) + 1):
        if depth:
            scopes.append(Scope(scopes[-1], loops[depth - 1]))
        for target in targets:
            if len(target.indices) == depth:
                value = placing.place(target.value, scopes[-1])
                scopes[-1].body.append(Store(target.buffer, placing.place(target.offset, scopes[-1]), value))
    for depth in range(len(loops), 0, -1):
        inner = scopes.pop()
        kind = "parallel" if depth == 1 else "serial"
        grain = _grain(loops[1:]) if depth == 1 else size(1)
        scopes[-1].body.append(Loop(loops[depth - 1], size(loops[depth - 1].extent), tuple(inner.body), kind, grain))
    return Nest(tuple(top.body))


def _grain(inner: Sequence[Index]) -> Expr:
    """How many iterations of the outermost loop a thread takes at least."""
    elements = product(index.extent for index in inner)
    if isinstance(elements, int):
        return size(max(1, GRAIN // max(1, elements)))
    return Binary("max", size(1), Binary("//", size(GRAIN), Binary("max", size(1), size(elements))))


# ---------------------------------------------------------------- fewer, longer loops

def _with_flat_loops(targets: Sequence[Target]) -> list[Target]:
    """Merge neighbouring loops wherever only the flat position matters."""
    targets = list(targets)
    if len({t.indices for t in targets}) > 1:
        return targets
    place = len(targets[0].indices) - 2
    while place >= 0:
        outer, inner = targets[0].indices[place:place + 2]
        flat = Index(outer.name, outer.extent * inner.extent)
        merged = [_merged(t, outer, inner, flat) for t in targets]
        if all(t is not None for t in merged):
            targets = [t for t in merged if t is not None]
        place -= 1
    return targets


def _merged(target: Target, outer: Index, inner: Index, flat: Index) -> Target | None:
    position, value = (merge(x, outer, inner, flat) for x in (target.offset, target.value))
    if position is None or value is None:
        return None
    indices = tuple(flat if index is outer else index for index in target.indices if index is not inner)
    return replace(target, indices=indices, offset=position, value=value)


def merge(x: Expr, outer: Index, inner: Index, flat: Index) -> Expr | None:
    """`x` in terms of flat = outer * (extent of inner) + inner, or None if it depends on them in another way."""
    temporary = Index("flat " + flat.name, flat.extent)
    found = substitute(x, {inner: temporary - outer * size(inner.extent)})
    return None if outer in found.free else substitute(found, {temporary: flat})


def _with_flat_reductions(target: Target) -> Target:
    """Merge neighbouring indices of reductions in the same way."""
    done: dict[Expr, Expr] = {}
    for x in walk(target.value):
        parts = tuple(done[child] for child in x.children())
        same = x if parts == x.children() else simplify(x.rebuilt(parts))
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


# ---------------------------------------------------------------- what is computed where

@dataclass(eq=False)
class Scope:
    """The body of a loop that is being filled."""

    outer: Scope | None = None
    index: Index | None = None
    body: list[Stmt] = field(default_factory=list)
    known: dict[Expr, Expr] = field(default_factory=dict)    # what has been computed here, by the name it got

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


class Placing:
    """Puts every sub-expression into the outermost scope that has its indices."""

    def __init__(self, uses: Counter[Expr]):
        self.uses, self.count = uses, 0
        self.positions: dict[Expr, bool] = {}

    def place(self, x: Expr, scope: Scope) -> Expr:
        """`x` as it is written in `scope`, after what it needs has been computed there or further out."""
        if self.is_position(x):
            return x
        home = next((s for s in scope.chain() if s.index is None or s.index in x.free), scope)
        if x in home.known:
            return home.known[x]
        if isinstance(x, Reduce):
            self._reduce(x, home)
            return home.known[x]
        parts = tuple(self.place(child, home) for child in x.children())
        value = x if parts == x.children() else x.rebuilt(parts)
        if self.uses[x] > 1 or home is not scope:
            local = self._local(x, "v")
            home.body.append(Let(local, value))
            value = local
        home.known[x] = value
        return value

    def is_position(self, x: Expr) -> bool:
        """Whether x is arithmetic on loop variables alone, which LLVM does best where it is used."""
        if x not in self.positions:
            self.positions[x] = isinstance(x, (Const, Size, Index)) or (
                isinstance(x, Binary) and x.dtype is int64 and all(self.is_position(child) for child in x.children()))
        return self.positions[x]

    def _reduce(self, x: Reduce, home: Scope) -> None:
        """A loop for x."""
        local = self._local(x, "r")
        extents = [self.place(extent, home) for extent in x.extents]
        inner = [home]
        for index in x.indices:
            inner.append(Scope(inner[-1], index))
        value = self.place(x.body, inner[-1])
        inner[-1].body.append(Update(local, x.kind, value))
        home.body.append(Accumulator(local, x.kind))
        for index, extent, scope, around in reversed(list(zip(x.indices, extents, inner[1:], inner[:-1], strict=True))):
            around.body.append(Loop(index, extent, tuple(scope.body)))
        home.known[x] = local

    def _local(self, x: Expr, letter: str) -> Local:
        self.count += 1
        return Local(f"{letter}{self.count - 1}", x.dtype)

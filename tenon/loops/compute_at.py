"""Where every sub-expression is computed: in the outermost loop that has all indices it depends on, once.

What is read more than once, or moved out of a loop, gets a name.  A reduction becomes a loop of its own at its place;
reductions over the same indices that do not depend on each other share one loop.  A row that is kept is stored by the
first loop of a reduction that computes it, and loaded by later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from tenon.dims.symbolic_dim import product
from tenon.loops.cache_rows import KeptElement
from tenon.loops.expressions import (
    OPERATION,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Local,
    Reduce,
    SizeOf,
    size,
)
from tenon.loops.loop_ir import Accumulator, Let, Loop, Stmt, Store, Update
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts, walk
from tenon.records import dataclass, field
from tenon.types import DType, float32, float64, int64

MIN_ADDED_BY_ROWS = 1024    # elements of a sum
SHORTEST_ROW = 8            # elements that are worth a sum of their own: of 4, LLVM takes three times as long


@dataclass(eq=False)
class LoopScope:
    """The body of a loop that is being filled."""

    outer: LoopScope | None = None
    index: Index | None = None
    reduces: bool = False       # whether the loop is one of a reduction, over before anything else is placed around it
    whole: bool = False         # whether it has all iterations that its index may have
    body: list[Stmt] = field(default_factory=list)
    known: dict[Expr, Expr] = field(default_factory=dict)    # what has been computed here, by the name it got
    fills: list[Buffer] = field(default_factory=list)        # the rows that are filled when this loop is over

    def chain(self) -> Iterator[LoopScope]:
        """This scope and those around it."""
        scope: LoopScope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


class ComputeAt:
    """Puts the sub-expressions of some roots into scopes.  Those who fill the same scopes share `numbers`."""

    def __init__(self, *roots: Expr, numbers: Iterator[int] | None = None,
                 kept: Mapping[Expr, KeptElement] | None = None):
        order = walk(*roots)
        self.uses = Counter(roots) + Counter(child for x in order for child in x.children())
        self.reductions = [x for x in order if isinstance(x, Reduce)]
        self.numbers = count() if numbers is None else numbers
        self.positions: dict[Expr, bool] = {}
        self.kept = kept or {}
        self.filled: dict[Buffer, LoopScope] = {}       # where the loop stands that fills a row

    def place(self, x: Expr, scope: LoopScope) -> Expr:
        """`x` as it is written in `scope`, after what it needs has been computed there or further out."""
        if self.is_position(x):
            return x
        home = home_of(x, scope)
        if x in home.known:
            return home.known[x]
        if isinstance(x, Reduce):
            if (kept := self.kept.get(x)) is not None and is_available(self.filled.get(kept.buffer), home):
                home.known[x] = self._named_now(Load(kept.buffer, kept.index, None), home)
            else:
                self._reduce(x, home)
            return home.known[x]
        value, fills = self._value(x, home)
        if self.uses[x] > 1 or home is not scope or fills:
            local = self._local(x, "v")
            home.body.append(Let(local, value))
            value = local
        if fills is not None:
            home.body.append(Store(fills.buffer, fills.index, value))
        home.known[x] = value
        return value

    def _value(self, x: Expr, home: LoopScope) -> tuple[Expr, KeptElement | None]:
        """(x as it is computed here, or loaded from a row; the row that is to be filled with it)."""
        kept = self.kept.get(x)
        if kept is not None and is_available(self.filled.get(kept.buffer), home):
            return Load(kept.buffer, kept.index, None), None
        parts = tuple(self.place(child, home) for child in x.children())
        if kept is None or not fills_row(home, kept.index) or home.outer is None:
            kept = None
        else:
            home.fills.append(kept.buffer)
        return x if parts == x.children() else x.rebuilt(parts), kept

    def store(self, targets: Sequence[StoreTarget], scope: LoopScope) -> None:
        """Write elements, all computed before the first is written: a result may lie in the memory of an input."""
        for x in walk(*(target.value for target in targets)):
            if isinstance(x, Reduce) and x.free <= {outer.index for outer in scope.chain()}:
                self.place(x, scope)        # first, for the rows that the loops of reductions keep
        values = [self.place(target.value, scope) for target in targets]
        if len(targets) > 1:
            values = [self._named(value, scope) for value in values]
        for target, value in zip(targets, values, strict=True):
            place = self.place(target.offset, scope)
            if target.combine:
                value = Binary(OPERATION[target.combine], Load(target.buffer, place, None), value)
            scope.body.append(Store(target.buffer, place, value))

    def _named(self, value: Expr, scope: LoopScope) -> Expr:
        """A value as `place` wrote it, computed here and now."""
        if isinstance(value, Local) or self.is_position(value):
            return value
        return self._named_now(value, scope)

    def _named_now(self, value: Expr, scope: LoopScope) -> Local:
        local = self._local(value, "v")
        scope.body.append(Let(local, value))
        return local

    def is_position(self, x: Expr) -> bool:
        """Whether x is arithmetic on loop variables alone, which LLVM does best where it is used."""
        if x not in self.positions:
            self.positions[x] = isinstance(x, (Const, SizeOf, Index)) or (
                isinstance(x, Binary) and x.dtype is int64 and all(self.is_position(child) for child in x.children()))
        return self.positions[x]

    def _reduce(self, x: Reduce, home: LoopScope) -> None:
        """A loop for x, and for all that can be reduced along with it."""
        extents = [self.place(extent, home) for extent in x.extents]
        for needed in hoisted(x):
            self.place(needed, home)
        inner = [home]
        for index, extent in zip(x.indices, x.extents, strict=True):
            inner.append(LoopScope(inner[-1], index, reduces=True, whole=extent is size(index.extent)))
        group = [x, *(y for y in self.reductions if y is not x and self._fits(y, x, home))]
        totals, rows = [], []
        for y in group:
            totals.append(Accumulator(Local(f"r{next(self.numbers)}", dtype_of_total(y)), y.kind))
            rows.append(Accumulator(self._local(y, "r"), y.kind) if is_summed_by_rows(x) else totals[-1])
            inner[-1].body.append(update(rows[-1].local, y.kind, self.place(y.body, inner[-1])))
        home.body += totals
        if rows != totals:
            inner[-2].body += rows
        for index, extent, scope, around in reversed(list(zip(x.indices, extents, inner[1:], inner[:-1], strict=True))):
            around.body.append(Loop(index, extent, tuple(scope.body)))
            self.filled.update(dict.fromkeys(scope.fills, around))
            if scope is inner[-1] and rows != totals:
                around.body += [update(r.local, r.kind, row.local) for r, row in zip(totals, rows, strict=True)]
        home.known.update((y, self._rounded(total.local, y, home)) for y, total in zip(group, totals, strict=True))
        for y in group:
            if (kept := self.kept.get(y)) is not None and fills_row(home, kept.index) and home.outer is not None:
                home.body.append(Store(kept.buffer, kept.index, home.known[y]))
                home.fills.append(kept.buffer)

    def _rounded(self, total: Local, x: Reduce, home: LoopScope) -> Local:
        """The total as a value of x's dtype."""
        return total if total.dtype is x.dtype else self._named_now(Cast(total, x.dtype), home)

    def _fits(self, y: Reduce, x: Reduce, home: LoopScope) -> bool:
        """Whether y can be computed in the loop for x: at the same place, over the same indices, all it needs known."""
        if y.indices != x.indices or y.extents != x.extents or home_of(y, home) is not home or y in home.known:
            return False
        if not y.free <= {scope.index for scope in home.chain()}:
            return False
        return all(any(z in scope.known for scope in home.chain()) for z in hoisted(y))

    def _local(self, x: Expr, letter: str) -> Local:
        return Local(f"{letter}{next(self.numbers)}", x.dtype)


def is_summed_by_rows(x: Reduce) -> bool:
    """Whether the innermost loop has a sum of its own: pairwise summation (Higham 1993), of two levels.

    One running total of many elements is off by as many roundings, and each addition waits for the last.
    """
    row = x.indices[-1].extent
    return has_long_total(x) and not (isinstance(row, int) and row < SHORTEST_ROW)


def has_long_total(x: Reduce) -> bool:
    """Whether x adds up many floating-point numbers, in more loops than one."""
    count = product(index.extent for index in x.indices)
    return len(x.indices) > 1 and x.kind == "add" and x.dtype.kind in "fc" and not (
        isinstance(count, int) and count < MIN_ADDED_BY_ROWS)


def dtype_of_total(x: Reduce) -> DType:
    """A long total of float32 is kept in float64: there may be as many rows as there are elements."""
    return float64 if x.dtype is float32 and has_long_total(x) else x.dtype


def update(total: Local, kind: str, value: Expr) -> Update:
    return Update(total, kind, value if value.dtype is total.dtype else Cast(value, total.dtype))


def is_available(filled: LoopScope | None, scope: LoopScope) -> bool:
    """Whether a row that was filled around there may be read here: its loop is over, in each iteration of those around
    it.

    The loop dominates this place, and what it computed is an available expression here (Aho, Lam, Sethi and Ullman).
    """
    return any(outer is filled for outer in scope.chain())


def fills_row(scope: LoopScope, index: Index) -> bool:
    """Whether what is computed here, each iteration of the index, is a row from end to end."""
    return scope.reduces and scope.whole and scope.index is index


def home_of(x: Expr, scope: LoopScope) -> LoopScope:
    """The outermost scope around `scope` that has all indices that x depends on."""
    return next((s for s in scope.chain() if s.index is None or s.index in x.free), scope)


def hoisted(x: Reduce) -> list[Expr]:
    """The reductions inside of x that do not depend on its indices."""
    return [z for z in parts(x.body, Reduce) if z.free <= x.free]

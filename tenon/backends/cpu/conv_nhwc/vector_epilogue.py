"""The epilogue of a vector of sums, which are neighbours along one index -> vector instructions on registers.

What is read and written lies at distances that are known from where it does for a tile's first sum, so that an address
is computed once a tile.
"""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    address,
    const,
    load_vector,
    masked_load,
    masked_store,
    splat,
    store_vector,
    zero,
)
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import register
from tenon.loops.affine import affine
from tenon.loops.expressions import Binary, Buffer, Call, Const, Expr, Index, Load, Local, Select
from tenon.loops.loop_ir import Contraction, Let, Store
from tenon.loops.traversal import walk

ARITHMETIC = ("+", "-", "*", "/", "min", "max")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def lane_of(x: Contraction) -> Index:
    """The index along which lanes are neighbours: filters, or channels that are summed up by themselves."""
    return (x.columns or x.batch)[-1]


def is_of_vectors(x: Contraction) -> bool:
    """Whether the epilogue can be computed with vectors along that index."""
    column, sums = lane_of(x), {x.sum}

    def fits(y: Expr) -> bool:
        if not varies(y, column, sums):
            return True
        match y:
            case Local():
                return True
            case Load(mask=None, dtype=dtype, offset=offset):
                return dtype is x.sum.dtype and _step(offset, column) == 1
            case Binary(op=op, left=left, right=right):
                return op in ARITHMETIC and y.dtype is x.sum.dtype and fits(left) and fits(right)
            case Call(name="neg", args=(inner,)):
                return fits(inner)
            case Select(condition=Binary(op=op, left=left, right=right), then=then, otherwise=otherwise):
                parts = left, right, then, otherwise
                return op in COMPARISONS and left.dtype is x.sum.dtype and all(map(fits, parts))
        return False

    for statement in x.epilogue:
        match statement:
            case Let(local=Local() as local, value=value) if fits(value):
                sums.add(local)
            case Store(buffer=buffer, offset=offset, value=value) if fits(value):
                if buffer.type.dtype is not x.sum.dtype or _step(offset, column) != 1:
                    return False
            case _:
                return False
    return True


def _step(offset: Expr, column: Index) -> int | None:
    """Elements from a lane to the next, where an offset is a sum of multiples of indices."""
    terms = affine(offset).terms
    if not all(isinstance(atom, Index) and isinstance(n, int) for atom, n in terms.items()):
        return None
    step = terms.get(column, 0)
    return step if isinstance(step, int) else None


def varies(x: Expr, column: Index, sums: set[Local]) -> bool:
    """Whether it differs from lane to lane."""
    return column in x.free or any(y in sums for y in walk(x) if isinstance(y, Local))


class Lanes:
    """Computes epilogues of `lanes` columns side by side; `values` knows the place where a tile begins."""

    def __init__(self, values: Values, statement: Contraction, lanes: int) -> None:
        self.values, self.b, self.statement, self.lanes = values, values.b, statement, lanes
        self.column = lane_of(statement)
        self.shift: Mapping[Index, int] = {}
        self.mask: ir.Value | None = None
        self.sums: dict[Local, ir.Value] = {}
        self.starts: dict[tuple[Buffer, Expr], ir.Value] = {}
        self.near: dict[tuple[Load, int], ir.Value] = {}
        self.written = {x.buffer for x in statement.epilogue if isinstance(x, Store)}

    def finish(self, sums: ir.Value, shift: Mapping[Index, int], mask: ir.Value | None) -> None:
        """The epilogue for the sums that lie `shift` from the beginning of the tile; only the lanes of the mask.

        What is stored is stored when all of it is computed: a result may have the memory of what is read.
        """
        self.shift, self.mask, self.sums = shift, mask, {self.statement.sum: sums}
        waiting = []
        for statement in self.statement.epilogue:
            if isinstance(statement, Let) and isinstance(statement.local, Local):
                self.sums[statement.local] = self.vector(statement.value)
            elif isinstance(statement, Store):
                waiting.append((self.vector(statement.value), self.place(statement.buffer, statement.offset)))
        for found, where in waiting:
            if mask is None:
                store_vector(self.b, found, where)
            else:
                masked_store(self.b, found, where, mask)

    def place(self, buffer: Buffer, offset: Expr) -> ir.Value:
        """Where an element is: so far from that of the tile's beginning."""
        key = buffer, offset
        if key not in self.starts:
            self.starts[key] = self.values.address(buffer, offset)
        terms = affine(offset).terms
        moved = sum(int(terms.get(index, 0)) * by for index, by in self.shift.items())
        return address(self.b, self.starts[key], const(moved), scalar.in_memory(buffer.type.dtype))

    def vector(self, x: Expr) -> ir.Value:
        """What the expression is in every lane."""
        b = self.b
        match x:
            case Const(value=value) if value == value:
                return ir.Constant(ir.VectorType(register(x.dtype), self.lanes), [float(value)] * self.lanes)
            case Local() if x in self.sums:
                return self.sums[x]
            case _ if not varies(x, self.column, set(self.sums)):
                return splat(b, self.uniform(x), self.lanes)
            case Load():
                return self.loaded(x)
            case Binary(op=op, left=left, right=right):
                return scalar.binary(b, op, self.vector(left), self.vector(right), left.dtype)
            case Call(args=(inner,)):
                return b.fneg(self.vector(inner))
            case Select(condition=condition, then=then, otherwise=otherwise):
                return b.select(self.vector(condition), self.vector(then), self.vector(otherwise))
        raise AssertionError(x)

    def uniform(self, x: Expr) -> ir.Value:
        """What is the same in all lanes, at the places of these sums."""
        known = self.values.known
        before: dict[Expr, ir.Value] = {index: known[index] for index in self.shift}
        for index, by in self.shift.items():
            known[index] = self.b.add(before[index], const(by))
        found = self.values.value(x)
        known.update(before)
        return found

    def loaded(self, x: Load) -> ir.Value:
        """A vector of neighbours; what is the same for every row is loaded once."""
        moved = self.shift.get(self.column, 0)
        is_near = x.offset.free.isdisjoint(self.statement.rows) and x.buffer not in self.written
        if is_near and (x, moved) in self.near:
            return self.near[x, moved]
        where, kind = self.place(x.buffer, x.offset), register(x.dtype)
        found = load_vector(self.b, where, kind, self.lanes) if self.mask is None else \
            masked_load(self.b, where, self.mask, zero(ir.VectorType(kind, self.lanes)))
        if is_near:
            self.near[x, moved] = found
        return found

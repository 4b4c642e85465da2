"""Expressions, and statements without loops, of the loop IR -> LLVM instructions at the place of a builder."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from llvmlite import ir

from tenon.backends.cpu import math_calls, shared_math
from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.scalar_codegen import I64, number, register
from tenon.dims.symbolic_dim import Dim, Maximum, Quotient, SymbolicDim
from tenon.llvm.line_tables import mark, marking
from tenon.llvm.target_module import target_of
from tenon.loops.affine import at_least, bounds, is_natural
from tenon.loops.expressions import (
    Binary,
    BitsOf,
    Buffer,
    Call,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Local,
    Reduce,
    Select,
    SizeOf,
)
from tenon.loops.loop_ir import Block, Let, Stmt, Store, roots
from tenon.loops.traversal import walk
from tenon.records import dataclass, field
from tenon.target import Target
from tenon.types import bfloat16, int64, uint64

ZERO, ONE = ir.Constant(I64, 0), ir.Constant(I64, 1)
COUNTED = frozenset((Binary, Const, Index, SizeOf))       # what is made of these is as long as the indices are


@dataclass
class Values:
    """Computes expressions in one function."""

    b: ir.IRBuilder
    pointers: dict[Buffer, ir.Value]
    sizes: Mapping[str, ir.Value]
    checks: tuple[CheckedIndex, ...] = ()
    known: dict[Expr, ir.Value] = field(default_factory=dict)       # indices and named scalars
    places: dict[tuple[Expr, ir.Block, tuple[ir.Value, ...]], ir.Value] = field(default_factory=dict)
    invariant: dict[tuple[Expr, tuple[ir.Value, ...]], ir.Value] = field(default_factory=dict)     # of loops around
    slots: dict[Local, ir.Value] = field(default_factory=dict)      # accumulators: a stack slot each, until mem2reg
    # For each check: whether it failed, and the largest index that did, negative ones as if they were beyond all
    # others.  Both are reductions, which leave the loop to be made of vectors.
    failed: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)
    shares_math: bool = False       # whether functions are called, where there are too many to be written inline
    near: bool = False      # whether the operands of functions that take longer for large ones are known to be small

    @property
    def target(self) -> Target:
        """The machine that this is for."""
        return target_of(self.b)

    def block(self, body: Block) -> None:
        """Statements, one after the other; a run of stores happens once all of its values are known.

        An output may have the memory of an input, which a later value of the run may still read.
        """
        waiting: dict[Buffer, list[tuple[ir.Value, ir.Value]]] = {}
        marks, around = marking(), self.b.debug_metadata
        for statement in body:
            if marks:
                mark(self.b, statement)
            reads = {x.buffer for x in walk(*roots(statement)) if isinstance(x, Load)}
            if not isinstance(statement, (Let, Store)) or not waiting.keys().isdisjoint(reads):
                self._store(waiting)
            if isinstance(statement, Store):
                stored = scalar.to_memory(self.b, self.value(statement.value), statement.buffer.type.dtype)
                address = self.address(statement.buffer, statement.offset)
                waiting.setdefault(statement.buffer, []).append((stored, address))
            else:
                self.statement(statement)
        self._store(waiting)
        self.b.debug_metadata = around

    def _store(self, waiting: dict[Buffer, list[tuple[ir.Value, ir.Value]]]) -> None:
        for value, address in itertools.chain(*waiting.values()):
            self.b.store(value, address)
        waiting.clear()

    def statement(self, statement: Stmt) -> None:
        """A statement without loops."""
        match statement:
            case Let(local=local, value=value):
                self.known[local] = self.value(value)
            case _:
                raise AssertionError(statement)

    def value(self, x: Expr) -> ir.Value:
        b = self.b
        match x:
            case Const(value=value, dtype=dtype):
                return number(value, dtype)
            case SizeOf(dim=dim):
                return self.place(x) if divides(x) else self.dim(dim)
            case Local() if x in self.slots:
                return b.load(self.slots[x], typ=register(x.dtype))
            case Index() | Local():
                return self.known[x]
            case Load(mask=None):
                return self.load(x)
            case Load(mask=mask, dtype=dtype) if mask is not None:
                return self.load_where(mask, x)
            case Binary(op=op, left=left, right=right):
                return self.place(x) if x.dtype is int64 and x.kinds <= COUNTED else self.binary(op, left, right)
            case Call(name=name, args=args):
                given = [self.value(arg) for arg in args]
                if self.shares_math and shared_math.is_shared(x):
                    return shared_math.call(b, name, self.near, given)
                return math_calls.call(b, name, args[0].dtype, given, self.near)
            case Select(condition=condition, then=then, otherwise=otherwise):
                return b.select(self.value(condition), self.value(then), self.value(otherwise))
            case Cast(x=Cast(x=inner), dtype=dtype) if inner.dtype is dtype is bfloat16:
                return scalar.nearest(b, self.value(inner))
            case Cast(x=inner, dtype=dtype):
                return scalar.cast(b, self.value(inner), inner.dtype, dtype)
            case BitsOf(x=inner, dtype=dtype):
                return scalar.reinterpret(b, self.value(inner), inner.dtype, dtype)
            case CheckedIndex():
                return self.checked(x)
            case Reduce():
                raise AssertionError("a reduction is a loop by now")
        raise AssertionError(x)

    def place(self, x: Binary | SizeOf) -> ir.Value:
        """What is computed of the indices of loops, once in a block: places in memory have much in common."""
        key = self.key(x)
        found = self.places.get(key) or self.invariant.get((x, key[2]))
        if found is None:
            found = self.dim(x.dim) if isinstance(x, SizeOf) else self.binary(x.op, x.left, x.right)
            self.places[key] = found
        return found

    def key(self, x: Expr) -> tuple[Expr, ir.Block, tuple[ir.Value, ...]]:
        """What decides the value of a place in the block that is written."""
        return x, self.b.block, tuple([self.known[index] for index in x.free])

    def binary(self, op: str, left: Expr, right: Expr) -> ir.Value:
        x, y = self.value(left), self.value(right)
        if left.dtype is int64 and op in ("//", "%") and is_natural(left) and at_least(bounds(right)[0], 1):
            return self.b.udiv(x, y) if op == "//" else self.b.urem(x, y)
        return scalar.binary(self.b, op, x, y, left.dtype)

    def address(self, buffer: Buffer, offset: Expr) -> ir.Value:
        return self.b.gep(self.pointers[buffer], [self.value(offset)], inbounds=True,
                          source_etype=scalar.in_memory(buffer.type.dtype))

    def load(self, x: Load) -> ir.Value:
        stored = self.b.load(self.address(x.buffer, x.offset), typ=scalar.in_memory(x.dtype))
        return scalar.from_memory(self.b, stored, x.dtype)

    def load_where(self, mask: Expr, x: Load) -> ir.Value:
        """The element where the mask holds, else zero.

        Divisions are made before: LLVM 22 makes those that are the same in all lanes where the first lane's mask holds,
        and nowhere else (LoopVectorize, predicated uniform instructions).  It sinks one that nothing else reads back
        behind the mask, unless it stands before the loop (`Loops.divided`).
        """
        b, condition = self.b, self.value(mask)
        divided = {part: self.place(part) for part in walk(x.offset) if divides(part)}
        before, inside, after = b.block, b.append_basic_block("inside"), b.append_basic_block("after")
        b.cbranch(condition, inside, after)
        b.position_at_end(inside)
        self.places.update({self.key(part): value for part, value in divided.items()})
        found = self.load(x)
        inside = b.block
        b.branch(after)
        b.position_at_end(after)
        merged = b.phi(found.type)
        merged.add_incoming(number(0, x.dtype), before)
        merged.add_incoming(found, inside)
        return merged

    def checked(self, x: CheckedIndex) -> ir.Value:
        b, given, size = self.b, self.value(x.x), self.dim(x.size)
        index = b.select(b.icmp_signed("<", given, ZERO), b.add(given, size), given) if x.wraps else given
        inside = b.icmp_unsigned("<", index, size)
        bad = b.not_(inside) if x.mask is None else b.and_(b.not_(inside), self.value(x.mask))
        some, worst = self.failed[self.checks.index(x)]
        b.store(b.or_(b.load(some, typ=I64), b.zext(bad, I64)), some)
        noted = b.load(worst, typ=I64)
        b.store(scalar.binary(b, "max", noted, b.select(bad, given, ZERO), uint64), worst)
        return b.select(inside, index, ZERO)

    def dim(self, dim: Dim) -> ir.Value:
        """A size, from the symbols that the kernel is given."""
        if isinstance(dim, int):
            return ir.Constant(I64, dim)
        total: ir.Value = ZERO
        for monomial, coefficient in dim.terms:
            term: ir.Value = ir.Constant(I64, coefficient)
            for atom in monomial:
                term = self.b.mul(term, self.atom(atom), flags=("nsw",))
            total = self.b.add(total, term, flags=("nsw",))
        return total

    def atom(self, atom: str | Quotient | Maximum) -> ir.Value:
        match atom:
            case str():
                return self.sizes[atom]
            case Quotient(numerator=numerator, denominator=denominator):
                return scalar.divide(self.b, self.dim(numerator), self.dim(denominator), int64)[0]
            case Maximum(left=left, right=right):
                return scalar.binary(self.b, "max", self.dim(left), self.dim(right), int64)


def argument_values(b: ir.IRBuilder, args: Sequence[ir.Value], arguments: Mapping[Buffer, int], pointers: int,
                    symbols: Sequence[str]) -> Values:
    """What computes expressions from a function's arguments: so many pointers, and then the sizes that symbols are."""
    sizes = dict(zip(symbols, args[pointers:], strict=False))
    return Values(b, {buffer: args[k] for buffer, k in arguments.items()}, sizes)


def divides(x: Expr) -> TypeGuard[Binary | SizeOf]:
    """Whether a place in memory is divided by what is not known when the code is written."""
    match x:
        case Binary(op="//" | "%", right=right):
            return x.dtype is int64 and x.kinds <= COUNTED and not isinstance(right, Const)
        case SizeOf(dim=SymbolicDim(terms=terms)):
            return any(not isinstance(atom, str) for monomial, _ in terms for atom in monomial)
    return False

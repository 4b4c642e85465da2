"""Kernel -> LLVM IR: one function for each nest, with a barrier between them.

    void kernel_0(ptr buffers, ptr sizes, i32 thread, i32 threads, ptr scratch, ptr status)

`buffers` points to the addresses of kernel.buffers, `sizes` to the i64 values of kernel.sizes.  Every one of the
`threads` threads calls the function with its number and `scratch_size` bytes of its own.  `status` is three i64: where
a checked index fails the function writes (k + 1, the index, the size) for kernel.checks[k], and goes on with index 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llvmlite import ir

from tenon.backends.cpu import arithmetic as scalar
from tenon.backends.cpu import functions
from tenon.backends.cpu.arithmetic import FREE, I32, I64, POINTER, REORDER, number, register
from tenon.dims import Dim, Maximum, Quotient
from tenon.loops.expressions import (
    Binary,
    Bits,
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
    Size,
    identity,
    walk,
)
from tenon.loops.ir import Accumulator, Block, Kernel, Let, Loop, Nest, Stmt, Store, Update, roots, statements
from tenon.loops.simplify import at_least, bounds
from tenon.types import int64

SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I32, I32, POINTER, POINTER])
REDUCTION = {"add": "+", "mul": "*", "min": "min", "max": "max", "any": "|", "all": "&"}
ZERO, ONE = ir.Constant(I64, 0), ir.Constant(I64, 1)
LOCAL_ALIGNMENT = 64


def emit_kernel(module: ir.Module, kernel: Kernel, shared: Mapping[int, int] | None = None) -> list[ir.Function]:
    """The functions of a kernel, to be called in order.  `shared` says which buffers (by number) have the memory of
    another one: output -> input."""
    return [_emit_nest(module, kernel, nest, f"{kernel.name}_{number}", shared or {})
            for number, nest in enumerate(kernel.nests)]


def scratch_size(kernel: Kernel) -> Dim:
    """Bytes of scratch memory that each thread needs."""
    largest: Dim = 0
    for nest in kernel.nests:
        total: Dim = 0
        for buffer in nest.locals:
            total = total + _padded(buffer)
        largest = largest + total if not isinstance(total, int) or not isinstance(largest, int) else max(largest, total)
    return largest


def _padded(buffer: Buffer) -> Dim:
    size = buffer.elements * buffer.type.dtype.itemsize
    if isinstance(size, int):
        return -(-size // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT
    return size + LOCAL_ALIGNMENT       # a symbolic size: aligned when it is used


def _emit_nest(module: ir.Module, kernel: Kernel, nest: Nest, name: str, shared: Mapping[int, int]) -> ir.Function:
    """The function with the public signature, which unpacks the pointers, and the one with the loops.

    Only the parameters of a function can be declared not to overlap.
    """
    used = [b for b in kernel.buffers if b in buffers_of(nest.body)]
    place = {b: shared.get(k, k) for k, b in enumerate(kernel.buffers)}
    slots = list(dict.fromkeys(place[b] for b in used))
    unpacked = [POINTER] * len(slots) + [I64] * len(kernel.sizes) + [I32, I32, POINTER, POINTER]
    inner = ir.Function(module, ir.FunctionType(ir.VoidType(), unpacked), name + "_loops")
    inner.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        inner.attributes.add(attribute)
    for argument in inner.args[:len(slots)]:
        argument.add_attribute("noalias")
    function = ir.Function(module, SIGNATURE, name)
    function.attributes.add("nounwind")
    buffers, sizes, *rest = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    pointers = [b.load(b.gep(buffers, [ir.Constant(I64, slot)], source_etype=POINTER), typ=POINTER) for slot in slots]
    numbers = [b.load(b.gep(sizes, [ir.Constant(I64, k)], source_etype=I64), typ=I64) for k in range(len(kernel.sizes))]
    b.call(inner, [*pointers, *numbers, *rest])
    b.ret_void()
    _NestEmitter(kernel, nest, inner, {b: inner.args[slots.index(place[b])] for b in used}).run()
    return function


def buffers_of(body: Block) -> set[Buffer]:
    """Every buffer that the statements read or write."""
    listed = statements(body)
    read = {x.buffer for statement in listed for x in walk(*roots(statement)) if isinstance(x, Load)}
    return read | {s.buffer for s in listed if isinstance(s, Store)}


@dataclass
class _NestEmitter:
    """Writes the statements of one nest into a function."""

    kernel: Kernel
    nest: Nest
    function: ir.Function
    pointers: dict[Buffer, ir.Value]
    known: dict[Expr, ir.Value] = field(default_factory=dict)       # indices and named scalars
    slots: dict[Local, ir.Value] = field(default_factory=dict)      # accumulators: a stack slot each, until mem2reg

    def run(self) -> None:
        *_, thread, threads, scratch, self.status = self.function.args
        first = len(self.function.args) - 4 - len(self.kernel.sizes)
        self.sizes = dict(zip(self.kernel.sizes, self.function.args[first:-4], strict=True))
        self.entry = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.b = b = ir.IRBuilder(self.function.append_basic_block("start"))
        self.thread, self.threads = b.zext(thread, I64), b.zext(threads, I64)
        self._place_locals(scratch)
        self.failed = [self._slot(I64) for _ in range(3)] if self.kernel.checks else []
        if not any(isinstance(s, Loop) and s.kind == "parallel" for s in self.nest.body):
            with b.if_then(b.icmp_unsigned("==", self.thread, ZERO)):
                self.block(self.nest.body)
        else:
            self.block(self.nest.body)
        self._report()
        b.ret_void()
        self.entry.branch(self.function.blocks[1])

    def _place_locals(self, scratch: ir.Value) -> None:
        position: ir.Value = ZERO
        for buffer in self.nest.locals:
            self.pointers[buffer] = self.b.gep(scratch, [position], source_etype=ir.IntType(8))
            size = self.b.mul(self.dim(buffer.elements), ir.Constant(I64, buffer.type.dtype.itemsize))
            raised = self.b.add(size, ir.Constant(I64, LOCAL_ALIGNMENT - 1))
            padded = self.b.and_(raised, ir.Constant(I64, -LOCAL_ALIGNMENT))
            position = self.b.add(position, padded)

    def _slot(self, kind: ir.Type) -> ir.Value:
        slot = self.entry.alloca(kind)
        self.entry.store(ir.Constant(kind, None if isinstance(kind, ir.VectorType) else 0), slot)
        return slot

    def _report(self) -> None:
        if self.failed:
            code = self.b.load(self.failed[0], typ=I64)
            with self.b.if_then(self.b.icmp_unsigned("!=", code, ZERO), likely=False):
                for k, slot in enumerate(self.failed):
                    word = self.b.gep(self.status, [ir.Constant(I64, k)], source_etype=I64)
                    self.b.store(self.b.load(slot, typ=I64), word)

    # ------------------------------------------------------------ statements

    def block(self, body: Block) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Stmt) -> None:
        match statement:
            case Loop():
                self.loop(statement)
            case Let(local=local, value=value):
                self.known[local] = self.value(value)
            case Store(buffer=buffer, offset=offset, value=value):
                stored = scalar.to_memory(self.b, self.value(value), buffer.type.dtype)
                self.b.store(stored, self.address(buffer, offset))
            case Accumulator(local=local, kind=kind):
                self.slots[local] = self._slot(register(local.dtype))
                self.b.store(number(identity(kind, local.dtype).value, local.dtype), self.slots[local])
            case Update(local=local, kind=kind, value=value):
                slot = self.slots[local]
                new = self.value(value)
                old = self.b.load(slot, typ=register(local.dtype))
                self.b.store(scalar.binary(self.b, REDUCTION[kind], old, new, local.dtype, REORDER), slot)
            case _:
                raise AssertionError(statement)

    def loop(self, statement: Loop) -> None:
        b, extent = self.b, self.value(statement.extent)
        start, stop = (ZERO, extent) if statement.kind != "parallel" else self.share(extent, statement.grain)
        before, body, done = b.block, b.append_basic_block(statement.index.name), b.append_basic_block("done")
        b.cbranch(b.icmp_signed("<", start, stop), body, done)
        b.position_at_end(body)
        index = b.phi(I64, statement.index.name)
        index.add_incoming(start, before)
        self.known[statement.index] = index
        self.block(statement.body)
        following = b.add(index, ONE, flags=("nsw", "nuw"))
        index.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, stop), body, done)
        b.position_at_end(done)

    def share(self, extent: ir.Value, grain: Expr) -> tuple[ir.Value, ir.Value]:
        """This thread's part of a parallel loop."""
        b, each = self.b, self.value(grain)
        chunks = b.udiv(b.add(extent, b.sub(each, ONE)), each)

        def bound(thread: ir.Value) -> ir.Value:
            position = b.mul(b.udiv(b.mul(chunks, thread), self.threads), each)
            return b.select(b.icmp_signed("<", position, extent), position, extent)

        return bound(self.thread), bound(b.add(self.thread, ONE))

    # ------------------------------------------------------------ expressions

    def value(self, x: Expr) -> ir.Value:
        b = self.b
        match x:
            case Const(value=value, dtype=dtype):
                return number(value, dtype)
            case Size(dim=dim):
                return self.dim(dim)
            case Local() if x in self.slots:
                return b.load(self.slots[x], typ=register(x.dtype))
            case Index() | Local():
                return self.known[x]
            case Load(mask=None):
                return self.load(x)
            case Load(mask=mask, dtype=dtype) if mask is not None:
                return self.load_where(mask, x)
            case Binary(op=op, left=left, right=right):
                return self.binary(op, left, right)
            case Call(name=name, args=args):
                return functions.call(b, name, args[0].dtype, [self.value(arg) for arg in args])
            case Select(condition=condition, then=then, otherwise=otherwise):
                return b.select(self.value(condition), self.value(then), self.value(otherwise))
            case Cast(x=inner, dtype=dtype):
                return scalar.cast(b, self.value(inner), inner.dtype, dtype)
            case Bits(x=inner, dtype=dtype):
                return scalar.reinterpret(b, self.value(inner), inner.dtype, dtype)
            case CheckedIndex():
                return self.checked(x)
            case Reduce():
                raise AssertionError("a reduction is a loop by now")
        raise AssertionError(x)

    def binary(self, op: str, left: Expr, right: Expr) -> ir.Value:
        x, y = self.value(left), self.value(right)
        if left.dtype is int64 and op in ("//", "%") and at_least(bounds(left)[0], 0) and at_least(bounds(right)[0], 1):
            return self.b.udiv(x, y) if op == "//" else self.b.urem(x, y)
        return scalar.binary(self.b, op, x, y, left.dtype, FREE)

    def address(self, buffer: Buffer, offset: Expr) -> ir.Value:
        return self.b.gep(self.pointers[buffer], [self.value(offset)], inbounds=True,
                          source_etype=scalar.in_memory(buffer.type.dtype))

    def load(self, x: Load) -> ir.Value:
        stored = self.b.load(self.address(x.buffer, x.offset), typ=scalar.in_memory(x.dtype))
        return scalar.from_memory(self.b, stored, x.dtype)

    def load_where(self, mask: Expr, x: Load) -> ir.Value:
        """The element where the mask holds, else zero."""
        b, condition = self.b, self.value(mask)
        before, inside, after = b.block, b.append_basic_block("inside"), b.append_basic_block("after")
        b.cbranch(condition, inside, after)
        b.position_at_end(inside)
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
        index = b.select(b.icmp_signed("<", given, ZERO), b.add(given, size), given)
        inside = b.icmp_unsigned("<", index, size)
        bad = b.not_(inside) if x.mask is None else b.and_(b.not_(inside), self.value(x.mask))
        code = ir.Constant(I64, self.kernel.checks.index(x) + 1)
        for slot, value in zip(self.failed, (code, given, size), strict=True):
            b.store(b.select(bad, value, b.load(slot, typ=I64)), slot)
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

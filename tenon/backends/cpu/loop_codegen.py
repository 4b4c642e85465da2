"""A nest of loops -> instructions in a function: a thread's part, whole vectors, and what is left behind a mask.

Values are written by `tenon.backends.cpu.expression_codegen`; how many vectors go side by side, and what stands behind
masks, is decided in `tenon.backends.cpu.vectorization`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu import shared_math
from tenon.backends.cpu.contraction.ir_helpers import loop, loop_flags, prefetch
from tenon.backends.cpu.contraction.transpose_registers import transpose_square
from tenon.backends.cpu.expression_codegen import ONE, ZERO, Values, divides
from tenon.backends.cpu.scalar_codegen import FUSED, I64, number, register
from tenon.backends.cpu.vectorization import (
    has_branches,
    has_gaps,
    in_flight,
    is_unrolled,
    masked_lanes,
    nearness,
    reads_over_gaps,
    refills_rows,
    scatters,
)
from tenon.backends.cpu.write_prefetch import PREFETCH_DISTANCE_LINES, elements_of_a_line, streams
from tenon.llvm import shared_functions
from tenon.llvm.optimization_level import NO_VECTORS
from tenon.llvm.work_partition import WorkShare
from tenon.loops.affine import is_multiple
from tenon.loops.expressions import OPERATION, Binary, Buffer, Const, Expr, Index, Local, SizeOf, identity
from tenon.loops.loop_ir import (
    Accumulator,
    Kernel,
    Loop,
    Nest,
    Prefetch,
    Stmt,
    TransposeTile,
    Update,
    roots,
    statements,
)
from tenon.loops.traversal import walk
from tenon.target import Target
from tenon.types import bool_, int64

LOCAL_ALIGNMENT = 64        # bytes
FULL_UNROLL = "llvm.loop.unroll.full"
WITHOUT_COPIES = "llvm.loop.unroll.disable"
MASKED = "llvm.loop.vectorize.predicate.enable=1"
LOOKED_AT = 1024    # elements, of which it is seen together whether all are small


class Loops(Values):
    """Writes the statements of a nest into a function."""

    def __init__(self, function: ir.Function, kernel: Kernel, pointers: dict[Buffer, ir.Value],
                 sizes: Mapping[str, ir.Value]):
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        super().__init__(ir.IRBuilder(function.append_basic_block("start")), pointers, sizes, kernel.checks)
        *share, self.scratch, self.status = function.args[-5:]
        self.shares_math = shared_math.has_many(kernel)
        self.around: list[Index] = []           # of the loops that are being written
        self.ends: dict[Index, ir.Value] = {}   # where they end
        self.own = WorkShare(self.b, *share)

    def run(self, nest: Nest) -> None:
        """The whole function."""
        self._place_locals(nest.locals)
        self.failed = [(self._slot(I64), self._slot(I64)) for _ in self.checks]
        if any(isinstance(s, Loop) and s.kind == "parallel" for s in nest.body):
            self.block(nest.body)
        else:
            with self.b.if_then(self.b.icmp_unsigned("==", self.own.first, ZERO)):
                self.block(nest.body)
        self._report()
        self.b.ret_void()
        self.entry.branch(self.b.function.blocks[1])

    def _place_locals(self, buffers: Sequence[Buffer]) -> None:
        position: ir.Value = ZERO
        for buffer in buffers:
            self.pointers[buffer] = self.b.gep(self.scratch, [position], source_etype=ir.IntType(8))
            size = self.b.mul(self.dim(buffer.elements), ir.Constant(I64, buffer.type.dtype.itemsize))
            raised = self.b.add(size, ir.Constant(I64, LOCAL_ALIGNMENT - 1))
            padded = self.b.and_(raised, ir.Constant(I64, -LOCAL_ALIGNMENT))
            position = self.b.add(position, padded)

    def _slot(self, kind: ir.Type) -> ir.Value:
        slot = self.entry.alloca(kind)
        self.entry.store(ir.Constant(kind, None), slot)
        return slot

    def _report(self) -> None:
        for place in reversed(range(len(self.checks))):         # the first one that failed is written last
            some, worst = self.failed[place]
            with self.b.if_then(self.b.icmp_unsigned("!=", self.b.load(some, typ=I64), ZERO), likely=False):
                noted = ir.Constant(I64, place + 1), self.b.load(worst, typ=I64), self.dim(self.checks[place].size)
                for k, value in enumerate(noted):
                    self.b.store(value, self.b.gep(self.status, [ir.Constant(I64, k)], source_etype=I64))

    # ------------------------------------------------------------ statements

    def statement(self, statement: Stmt) -> None:
        match statement:
            case Loop():
                self.loop(statement)
            case TransposeTile(buffer=buffer, lines=lines, columns=columns):
                bits, side = 8 * buffer.type.dtype.itemsize, buffer.type.shape[0]
                lanes = min(8 * self.target.vector_bytes // bits, side)
                form = ir.IntType(bits), lanes, side, lines, columns
                shared_functions.call(self.b, transpose_square, form, [self.pointers[buffer]])
            case Prefetch(buffer=buffer, offset=offset):
                if not _stays_near(buffer, self.target):
                    element = scalar.in_memory(buffer.type.dtype)
                    where = self.b.gep(self.pointers[buffer], [self.value(offset)], source_etype=element)
                    prefetch(self.b, where, 2, write=buffer.role != "input")
            case Accumulator(local=local, kind=kind):
                self.slots[local] = self._slot(register(local.dtype))
                self.b.store(number(identity(kind, local.dtype).value, local.dtype), self.slots[local])
            case Update(local=local, kind=kind, value=value):
                slot = self.slots[local]
                new = self._added(value) if kind == "add" else self.value(value)
                old = self.b.load(slot, typ=register(local.dtype))
                self.b.store(scalar.combined(self.b, OPERATION[kind], old, new, local.dtype), slot)
            case _:
                super().statement(statement)

    def _added(self, x: Expr) -> ir.Value:
        """What a sum takes in; a product that nothing else reads is rounded with the sum."""
        match x:
            case Binary(op="*", left=left, right=right) if x.dtype.kind == "f":
                return scalar.binary(self.b, "*", self.value(left), self.value(right), x.dtype, FUSED)
        return self.value(x)

    def loop(self, statement: Loop) -> None:
        extent = self.ends[statement.index] = self.value(statement.extent)
        if _is_one_chunk(statement):
            with self.b.if_then(self.b.icmp_unsigned("<", *self.own.of(ONE))):
                self.stretch(statement, ZERO, extent, extent)
            return
        start, stop = (ZERO, extent) if statement.kind != "parallel" else self.share(extent, statement.grain)
        self.stretch(statement, start, stop, extent)

    def stretch(self, statement: Loop, start: ir.Value, stop: ir.Value, extent: ir.Value) -> None:
        """A thread's part of a loop."""
        line, written = elements_of_a_line(statement), streams(statement, self.pointers, self.target)
        if line is None or not written:
            self.around.append(statement.index)
            if statement.kind == "parallel" and any(isinstance(x, Update) for x in statements(statement.body)):
                self.chunks(statement, start, stop)
            else:
                self.iterations(statement, start, stop)
            self.around.pop()
            return
        ahead = scalar.binary(self.b, "min", ir.Constant(I64, PREFETCH_DISTANCE_LINES * line), extent, int64)
        with loop(self.b, start, stop, ir.Constant(I64, line)) as (first, _):
            self.fetch(written, statement, self.b.add(first, ahead))
            self.iterations(statement, ZERO, ir.Constant(I64, line), first)

    def chunks(self, statement: Loop, start: ir.Value, stop: ir.Value) -> None:
        """A parallel loop that adds up, grain by grain.

        Short sums are written out, and the loop becomes vectors but for what is left at its end, where LLVM may add in
        another order.  What is left must not depend on where a thread's part ends.
        """
        grain = self.value(statement.grain)
        with loop(self.b, start, stop, grain) as (first, _):
            self.iterations(statement, ZERO, scalar.binary(self.b, "min", grain, self.b.sub(stop, first), int64), first)

    def fetch(self, written: Sequence[tuple[Buffer, Expr]], statement: Loop, position: ir.Value) -> None:
        """Fetch what will be written at a position of the loop; beyond its end, in the next iteration of the one
        around."""
        b, before = self.b, dict(self.known)
        extent = self.value(statement.extent)
        beyond = b.icmp_signed(">=", position, extent)
        self.known[statement.index] = b.select(beyond, b.sub(position, extent), position) if self.around else position
        if self.around:
            self.known[self.around[-1]] = b.add(before[self.around[-1]], b.zext(beyond, I64))
        for buffer, offset in written:
            element = scalar.in_memory(buffer.type.dtype)
            prefetch(b, b.gep(self.pointers[buffer], [self.value(offset)], source_etype=element), write=True)
        self.known.clear()
        self.known.update(before)

    def iterations(self, statement: Loop, start: ir.Value, stop: ir.Value, first: ir.Value = ZERO) -> None:
        """The body for first + start <= index < first + stop."""
        iterations = _distance(start, stop)
        if iterations == 1 or (
                iterations is not None and is_unrolled(statement, self.target) and has_branches(statement)):
            self.written_out(statement, range(start.constant, stop.constant), first)
        elif is_unrolled(statement, self.target):
            self.some_iterations(statement, start, stop, first, FULL_UNROLL)
        elif look := nearness(statement, near := Local("near", bool_)):
            self.near_or_far(statement, look, near, start, stop, first)
        else:
            self.vectors(statement, start, stop, first)

    def written_out(self, statement: Loop, iterations: range, first: ir.Value) -> None:
        """The body for each index = first + iteration, without a loop."""
        before = dict(self.known)
        if len(iterations) > 1:
            loop_flags(self.b.module, FULL_UNROLL)         # `effort` asks whether a module has copies of a body
        for place in iterations:
            at = ir.Constant(I64, place)
            self.known[statement.index] = at if first is ZERO else self.b.add(first, at, flags=("nsw", "nuw"))
            self.block(statement.body)
            self.known.clear()
            self.known.update(before)

    def near_or_far(self, statement: Loop, look: Loop, near: Local, start: ir.Value, stop: ir.Value,
                    first: ir.Value) -> None:
        """The same, some iterations at a time, by the shorter way where all operands are small."""
        b, iterations = self.b, _distance(start, stop)

        def some(begin: ir.Value, end: ir.Value) -> None:
            self.statement(Accumulator(near, "all"))
            self.vectors(look, begin, end, first)
            with b.if_else(self.value(near)) as (all_are, some_are_not):
                with all_are:
                    self.near = True
                    self.vectors(statement, begin, end, first)
                with some_are_not:
                    self.near = False
                    self.some_iterations(statement, begin, end, first, WITHOUT_COPIES, "llvm.loop.interleave.count=2")
        if iterations is not None and iterations <= LOOKED_AT:      # a line of several that are written, in few vectors
            some(start, stop)
            return
        with loop(b, start, stop, ir.Constant(I64, LOOKED_AT)) as (begin, _):
            some(begin, scalar.binary(b, "min", b.add(begin, ir.Constant(I64, LOOKED_AT)), stop, int64))

    def vectors(self, statement: Loop, start: ir.Value, stop: ir.Value, first: ir.Value = ZERO) -> None:
        """The body for first + start <= index < first + stop: in whole vectors, and what is left behind a mask."""
        iterations = _distance(start, stop)
        lanes = masked_lanes(statement, iterations, self.target)
        count = in_flight(statement, lanes, _least_share(statement) if iterations is None else iterations)
        flags: tuple[str, ...] = WITHOUT_COPIES, f"llvm.loop.interleave.count={count}"
        if lanes and self.shares_math:          # whose functions take what goes side by side at once
            count = min(count, max(1, shared_math.most_lanes(self.target) // lanes))
            flags = WITHOUT_COPIES, "llvm.loop.interleave.count=1", f"llvm.loop.vectorize.width={lanes * count}"
        if lanes is None:
            self.some_iterations(statement, start, stop, first, *flags)
            return
        all_whole = start is ZERO and stop is self.ends.get(statement.index) and is_multiple(
            statement.extent, lanes * count)
        middle = stop if all_whole else self.whole(start, stop, iterations, lanes * count)
        if middle is not start:
            gaps = (MASKED,) if has_gaps(statement, self.target) else ()
            self.some_iterations(statement, start, middle, first, *flags, *gaps)
        if middle is not stop and not _is_shared_whole(statement, lanes * count):
            self.some_iterations(statement, middle, stop, first, flags[0], MASKED)

    def whole(self, start: ir.Value, stop: ir.Value, iterations: int | None, lanes: int) -> ir.Value:
        """Where the last of whole vectors between two places ends."""
        if iterations is None:
            return self.b.add(start, self.b.and_(self.b.sub(stop, start), ir.Constant(I64, -lanes)))
        rest = iterations % lanes
        return stop if rest == 0 else start if rest == iterations else ir.Constant(I64, stop.constant - rest)

    def some_iterations(self, statement: Loop, start: ir.Value, stop: ir.Value, first: ir.Value, *flags: str) -> None:
        """The body for first + start <= index < first + stop, in a loop of which LLVM is told this."""
        b = self.b
        outer, divided = self.invariant, self.divided(statement)
        before, body, done = b.block, b.append_basic_block(statement.index.name), b.append_basic_block("done")
        entered = b.append_basic_block("divided") if divided else body
        b.cbranch(b.icmp_signed("<", start, stop), entered, done)
        b.position_at_end(entered)
        if divided:
            self.invariant = outer | {(x, self.key(x)[2]): self.place(x) for x in divided}
            before = b.block
            b.branch(body)
            b.position_at_end(body)
        index = b.phi(I64, statement.index.name)
        index.add_incoming(start, before)
        self.known[statement.index] = index if first is ZERO else b.add(first, index, flags=("nsw", "nuw"))
        self.block(statement.body)
        following = b.add(index, ONE, flags=("nsw", "nuw"))
        index.add_incoming(following, b.block)
        again = b.cbranch(b.icmp_signed("<", following, stop), body, done)
        if MASKED not in flags and reads_over_gaps(statement, self.target):
            flags = (*flags, MASKED)
        if scatters(statement, self.target) or refills_rows(statement):
            flags = (*flags, f"{NO_VECTORS}=1")
        again.set_metadata("llvm.loop", loop_flags(b.module, *flags))
        b.position_at_end(done)
        self.invariant = outer

    def divided(self, statement: Loop) -> list[Binary | SizeOf]:
        """What every iteration of a loop divides alike; loops inside of it may have no iterations, and divide by
        nothing."""
        if not self.sizes:
            return []
        inside = [x for s in statement.body if not isinstance(s, Loop) for x in walk(*roots(s))]
        return [x for x in dict.fromkeys(inside)
                if divides(x) and statement.index not in x.free and self.known.keys() >= set(x.free)]

    def share(self, extent: ir.Value, grain: Expr) -> tuple[ir.Value, ir.Value]:
        """The part of a parallel loop that a call does."""
        b, each = self.b, self.value(grain)
        chunks = b.udiv(b.add(extent, b.sub(each, ONE)), each)

        def bound(chunk: ir.Value) -> ir.Value:
            position = b.mul(chunk, each)
            return b.select(b.icmp_signed("<", position, extent), position, extent)

        start, stop = self.own.of(chunks)
        return bound(start), bound(stop)


def _distance(start: ir.Value, stop: ir.Value) -> int | None:
    """From one position to another, as far as it is known."""
    return stop.constant - start.constant if isinstance(start, ir.Constant) and isinstance(stop, ir.Constant) else None


def _least_share(loop: Loop) -> int | None:
    """How many iterations of a parallel loop each thread takes at least, as far as that is known."""
    if loop.kind != "parallel" or not isinstance(loop.extent, Const) or not isinstance(loop.grain, Const):
        return None
    return min(int(loop.extent.value), int(loop.grain.value))


def _is_one_chunk(loop: Loop) -> bool:
    """Whether one thread does all of a parallel loop: LLVM has half the work where its ends are known."""
    extent, grain = loop.extent, loop.grain
    return loop.kind == "parallel" and isinstance(extent, Const) and isinstance(grain, Const) \
        and extent.value <= grain.value


def _is_shared_whole(loop: Loop, lanes: int) -> bool:
    """Whether every thread's part of a parallel loop is whole vectors."""
    sizes = loop.extent, loop.grain
    return loop.kind == "parallel" and all(isinstance(x, Const) and x.value % lanes == 0 for x in sizes)


def _stays_near(buffer: Buffer, target: Target) -> bool:
    """Whether the second cache holds all of it."""
    elements = buffer.elements
    return isinstance(elements, int) and elements * buffer.type.dtype.itemsize <= target.l2_bytes

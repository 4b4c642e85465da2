"""What direct convolutions share: a function's share of the work, scratch memory, block sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    ceil_div,
    const,
    element_bytes,
    loop,
    maximum,
    minimum,
)
from tenon.backends.cpu.conv_direct.padded_copy import Cover, bind_indices
from tenon.backends.cpu.epilogue_patterns import joined
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I64, POINTER, register
from tenon.llvm.work_partition import WorkShare
from tenon.loops.expressions import Expr
from tenon.loops.loop_ir import Contraction
from tenon.loops.window_access import Axis, Windows, count

BLOCK_INPUT_BYTES = 1 << 17     # bytes that a block's windows cover, about
SPARE_REGISTERS = 8     # registers that hold no sums
FMA_LATENCY_CYCLES = 4  # cycles until a sum can be added to


class Task:
    """What a function of a statement begins with: its values, its share of the work, its scratch memory."""

    def __init__(self, values: Values, first: ir.Value, until: ir.Value, threads: ir.Value, scratch: ir.Value) -> None:
        self.values, self.b, self.scratch = values, values.b, scratch
        self.own = WorkShare(self.b, first, until, threads)

    def share(self, tasks: int) -> tuple[ir.Value, ir.Value]:
        """The first task of this call, and the one behind its last."""
        return self.own.of(const(tasks))

    @contextmanager
    def batches(self, axis: Axis, units: int) -> Iterator[tuple[ir.Value, ir.Value]]:
        """For each place of a batch's axis: the units that are this thread's, if any are; all places have as many."""
        b, every = self.b, const(units)
        start, stop = self.share(count(axis) * units)
        with loop(b, b.udiv(start, every), ceil_div(b, stop, every), short=True) as (number, _):
            bind_indices(self.values, axis, number)
            before = b.mul(number, every)
            own = maximum(b, b.sub(start, before), ZERO), minimum(b, b.sub(stop, before), every)
            with b.if_then(b.icmp_signed("<", *own)):
                yield own

    def parts(self, sizes: Sequence[int]) -> list[ir.Value]:
        """Parts of the scratch memory of these sizes, each a multiple of a cache line, where lines begin."""
        b, byte = self.b, ir.IntType(8)
        skipped = b.and_(b.neg(b.ptrtoint(self.scratch, I64)), const(63))
        starts = [b.add(skipped, const(sum(sizes[:k]))) for k in range(len(sizes))]
        return [b.gep(self.scratch, [start], source_etype=byte) for start in starts]

    def apart(self, name: str, known: Sequence[Expr], numbers: Sequence[ir.Value],
              write: Callable[[Values, Sequence[ir.Value]], None]) -> None:
        """Call a function of its own, made by `write`: LLVM makes vectors of its loops, and leaves those around alone.

        It is given what some indices are by now, and numbers.
        """
        outer, common = self.b.function, len(self.b.function.args) - 3
        given = [*outer.args[:common], *(self.values.known[x] for x in known), *numbers]
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
        inner = ir.Function(outer.module, kind, f"{outer.name}.{name}")
        inner.linkage = "internal"
        inner.attributes.add("noinline")
        inner.attributes.add("nounwind")
        for argument in inner.args:
            if argument.type == POINTER:
                argument.add_attribute("noalias")
        place = dict(zip(map(id, outer.args), inner.args[:common], strict=False))
        values = Values(ir.IRBuilder(inner.append_basic_block("entry")),
                        {buffer: place[id(x)] for buffer, x in self.values.pointers.items()},
                        {size: place[id(x)] for size, x in self.values.sizes.items()},
                        known=dict(zip(known, inner.args[common:], strict=False)))
        write(values, inner.args[common + len(known):])
        values.b.ret_void()
        self.b.call(inner, given)


def finish_taps(values: Values, statement: Contraction, windows: Windows, line: ir.Value, first: ir.Value,
                run: ir.Value) -> None:
    """The epilogue for neighbouring channels and taps of one filter: where they wait, the first's number, how many."""
    b, axis, element = values.b, (*windows.channels, *windows.taps), register(statement.sum.dtype)
    together = joined(statement.epilogue, axis) == len(axis)
    with loop(b, ZERO, run) as (k, _):
        if together:
            values.known.update(dict.fromkeys(axis, ZERO))
            values.known[axis[-1]] = b.add(first, k)
        else:
            bind_indices(values, axis, b.add(first, k))
        values.known[statement.sum] = b.load(address(b, line, k, element), typ=element)
        values.block(statement.epilogue)


def block_of(cover: Cover) -> int:
    """Places of the first slide whose windows of all channels cover about as much as a cache holds."""
    places = cover.slides[0].places
    covered = cover.elements * count(cover.windows.channels) * element_bytes(register(cover.windows.load.dtype))
    return places if covered <= BLOCK_INPUT_BYTES else max(places * BLOCK_INPUT_BYTES // covered, 1)

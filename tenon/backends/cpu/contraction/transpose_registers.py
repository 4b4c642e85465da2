"""Transposes in registers, which kernels share: from lines of memory to lanes, and back.

    from_lines(starts, target, run, pitch)          target[x * pitch + k] = line k of `starts` [x]
    to_lines(starts, source, run, pitch, some)      line k of `starts` [x] = source[x * pitch + k],  k < some

    transpose_square(square, side, lines, columns)    square[i * side + k] = what was square[k * side + i],  k < lines,
                                                                                                   i < columns

There are as many lines as a vector has lanes, and a vector of each is loaded, or stored, at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    between,
    const,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    masked_store,
    minimum,
    splat,
    store_vector,
    transpose,
    zero,
)
from tenon.backends.cpu.scalar_codegen import I32, POINTER, register
from tenon.types import DType, bfloat16, float16


def addresses(b: ir.IRBuilder, number: int) -> ir.Value:
    """Memory of a function for so many addresses."""
    with b.goto_entry_block():
        return b.alloca(POINTER, const(number))


def lines_at(b: ir.IRBuilder, starts: ir.Value, number: int) -> list[ir.Value]:
    """The addresses that lie there."""
    return [b.load(address(b, starts, const(k), POINTER), typ=POINTER) for k in range(number)]


def in_memory(dtype: DType) -> ir.Type:
    """What a load of an element gives."""
    return ir.IntType(16) if dtype.bits == 16 else scalar.in_memory(dtype)


def from_lines(b: ir.IRBuilder, kind: DType | ir.Type, lanes: int, starts: ir.Value, target: ir.Value, run: ir.Value,
               pitch: ir.Value) -> None:
    """Write a piece: a run of every line.  The last square is whole in `target`, with zeros behind the run.

    Elements are of a type of memory, which may be another one in registers, or of one of registers.
    """
    lines, dtype = lines_at(b, starts, lanes), kind if isinstance(kind, DType) else None
    element, stored, memory = (register(dtype), scalar.in_memory(dtype), in_memory(dtype)) if dtype else (kind,) * 3
    none = zero(ir.VectorType(memory, lanes))
    with loop(b, ZERO, run, const(lanes), short=True) as (x, _):
        mask = _first(b, b.sub(run, x), lanes)
        rows = [masked_load(b, b.gep(line, [x], source_etype=stored), mask, none) for line in lines]
        for k, column in enumerate(transpose(b, [widened(b, row, dtype, lanes) for row in rows])):
            store_vector(b, column, address(b, target, b.mul(b.add(x, const(k)), pitch), element))


def to_lines(b: ir.IRBuilder, element: ir.Type, lanes: int, starts: ir.Value, source: ir.Value, run: ir.Value,
             pitch: ir.Value, some: ir.Value) -> None:
    """Write a piece: a run of the first `some` lines.  The last square of `source` is read as a whole."""
    lines, none = lines_at(b, starts, lanes), lanes_below(0, lanes)
    with loop(b, ZERO, run, const(lanes), short=True) as (x, _):
        square = [load_vector(b, address(b, source, b.mul(b.add(x, const(k)), pitch), element), element, lanes)
                  for k in range(lanes)]
        mask = _first(b, b.sub(run, x), lanes)
        for k, value in enumerate(transpose(b, square)):
            exists = b.select(b.icmp_signed("<", const(k), some), mask, none)
            masked_store(b, value, address(b, lines[k], x, element), exists)


def transpose_square(b: ir.IRBuilder, element: ir.Type, lanes: int, side: int, lines: int, columns: int,
                     square: ir.Value) -> None:
    """Write a piece: the first lines and columns of a square, whose squares of vectors change places in pairs."""
    def transposed(i: ir.Value, k: ir.Value, some: int = lanes) -> list[ir.Value]:
        """What the columns from k on are of the lines from i on, of which there are some."""
        rows = [load_vector(b, at(i, k, n), element, lanes) for n in range(some)]
        return transpose(b, [*rows, *[zero(ir.VectorType(element, lanes))] * (lanes - some)])

    def write(i: ir.Value, k: ir.Value, vectors: Sequence[ir.Value]) -> None:
        for n, vector in enumerate(vectors):
            store_vector(b, vector, at(i, k, n))

    def at(i: ir.Value, k: ir.Value, line: int) -> ir.Value:
        return address(b, square, b.add(b.mul(b.add(i, const(line)), const(side)), k), element)

    def part(i: int, k: int) -> list[ir.Value]:
        """The same where some of it is beyond the first lines and columns."""
        return transposed(const(i), const(k), min(lines - i, lanes))[:max(columns - k, 0)] if i < lines else []

    if lines < side or columns < side:
        for i in range(0, side, lanes):
            for k in range(0, i + 1, lanes):
                below, above = part(i, k), part(k, i)
                write(const(k), const(i), below)
                write(const(i), const(k), above)
        return
    step = const(lanes)
    with loop(b, ZERO, const(side), step, short=True) as (i, _):
        with loop(b, ZERO, i, step, short=True) as (k, _):
            below, above = transposed(i, k), transposed(k, i)
            write(k, i, below)
            write(i, k, above)
        write(i, i, transposed(i, i))


def _first(b: ir.IRBuilder, count: ir.Value, lanes: int) -> ir.Value:
    """The mask of so many lanes."""
    return between(b, ir.Constant(I32, 0), b.trunc(minimum(b, count, const(lanes)), I32), lanes)


def widened(b: ir.IRBuilder, x: ir.Value, dtype: DType | None, lanes: int) -> ir.Value:
    """A vector from memory as it is in a register."""
    if dtype is bfloat16:
        bits = b.shl(b.zext(x, ir.VectorType(I32, lanes)), splat(b, ir.Constant(I32, 16), lanes))
        return b.bitcast(bits, ir.VectorType(ir.FloatType(), lanes))
    if dtype is float16:
        return b.fpext(b.bitcast(x, ir.VectorType(ir.HalfType(), lanes)), ir.VectorType(ir.FloatType(), lanes))
    return x

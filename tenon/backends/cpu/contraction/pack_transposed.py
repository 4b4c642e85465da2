"""Packing with a transpose: columns that lie along K are transposed in registers, lanes x lanes at a time."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Index
from tenon.backends.cpu.contraction.ir_helpers import (
    POINTER,
    ZERO,
    address,
    const,
    load_vector,
    loop,
    minimum,
    runs,
    store_vector,
    transpose,
    unravel,
)
from tenon.backends.cpu.contraction.transpose_registers import addresses, from_lines, lines_at
from tenon.llvm import shared_functions

if TYPE_CHECKING:
    from tenon.backends.cpu.contraction.packing import Pack


def pack_squares(pack: Pack) -> None:
    """Neighbours along depth are neighbours in memory: load lanes x lanes squares and transpose them."""
    b, lanes = pack.b, pack.lanes
    pointer, element, widen = pack.source()
    k_start = unravel(b, pack.k0, pack.depth_sizes)
    whole = pack.depth if _in_whole_squares(pack) else b.and_(pack.depth, const(-lanes))
    starts = addresses(b, lanes)
    with loop(b, ZERO, const(pack.width), const(lanes), short=True) as (group, _):
        with loop(b, ZERO, const(lanes), short=True) as (i, _):
            row = pointer(b, pack.args, pack.g, pack.outer_at(b.add(group, i)), k_start)
            b.store(row, address(b, starts, i, POINTER))
        _whole_squares(pack, starts, group, whole)
        if whole is not pack.depth:
            with loop(b, ZERO, const(lanes), short=True) as (i, _):
                row = b.load(address(b, starts, i, POINTER), typ=POINTER)
                with loop(b, whole, pack.depth, short=True) as (k, _):
                    value = widen(b, b.load(address(b, row, k, element), typ=element))
                    b.store(value, pack.slot(k, b.add(group, i)))


def _whole_squares(pack: Pack, starts: ir.Value, group: ir.Value, depth: ir.Value) -> None:
    """A vector of columns, whose elements begin where the table says."""
    b, lanes = pack.b, pack.lanes
    if pack.operand.narrow is None:
        shared_functions.call(b, from_lines, (pack.spec.element, lanes), [starts, pack.slot(ZERO, group), depth,
                                                                const(pack.width)])
        return
    _, element, widen = pack.source()
    rows = lines_at(b, starts, lanes)
    with loop(b, ZERO, depth, const(lanes), short=True) as (k, _):
        loaded = [widen(b, load_vector(b, address(b, row, k, element), element, lanes)) for row in rows]
        for step, column in enumerate(transpose(b, loaded)):
            store_vector(b, column, pack.slot(b.add(k, const(step)), group))


def _in_whole_squares(pack: Pack) -> bool:
    """Whether any block of depth is so many squares: blocks are whole vectors, but for the last."""
    known = all(isinstance(size, ir.Constant) for size in pack.depth_sizes)
    return known and math.prod(size.constant for size in pack.depth_sizes) % pack.lanes == 0


def pack_transposed_runs(pack: Pack) -> None:
    """Neighbours along depth are, in short runs, neighbours in memory: squares that are masked and transposed.

    A square writes whole vectors, over the end of its lines and over lines that come after; what is written later
    puts that right, and behind the panel there is room for it.
    """
    b, lanes = pack.b, pack.lanes
    dense = pack.operand.inside is None and pack.operand.step == 1
    with loop(b, ZERO, const(pack.width), const(lanes), short=True) as (group, _), \
            runs(b, pack.k0, pack.depth, pack.depth_sizes) as (k, index, length):
        if dense:
            _transposed_run(pack, group, k, index, length)
        else:
            _transposed_squares(pack, group, k, index, length)


def _transposed_run(pack: Pack, group: ir.Value, k: ir.Value, index: Index, length: ir.Value) -> None:
    """A run of depth for a vector of columns, all of which is in memory."""
    b, element = pack.b, pack.spec.element
    assert pack.operand.pointer is not None
    slots = addresses(b, pack.lanes)
    with loop(b, ZERO, const(pack.lanes), short=True) as (lane, _):
        where = pack.operand.pointer(b, pack.args, pack.g, pack.outer_at(b.add(group, lane)), index)
        b.store(where, address(b, slots, lane, POINTER))
    shared_functions.call(b, from_lines, (element, pack.lanes), [slots, pack.slot(k, group), length, const(pack.width)])


def _transposed_squares(pack: Pack, group: ir.Value, k: ir.Value, index: Index, length: ir.Value) -> None:
    """The same where elements are apart, or not all in memory."""
    b, lanes = pack.b, pack.lanes
    outers = [pack.outer_at(b.add(group, const(i))) for i in range(lanes)]
    with loop(b, ZERO, length, const(lanes), short=True) as (step, _):
        here = (*index[:-1], b.add(index[-1], step))
        rows = [pack.along_depth(outer, here, minimum(b, b.sub(length, step), const(lanes))) for outer in outers]
        for i, column in enumerate(transpose(b, rows)):
            store_vector(b, column, pack.slot(b.add(b.add(k, step), const(i)), group))

"""Two schedules that pack nothing, for products too small or too narrow for packing to pay.

Lines: a vector of right's columns (or left's rows) is read where it is, and added to sums in the first cache.
Both along depth: sums of products of several rows at a time (`gemv_dot`).  Otherwise element by element.
"""
from __future__ import annotations

import math

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import (
    Args,
    GemmSpec,
    Index,
    Tile,
    element_of,
    lies_along_depth,
    region_function,
)
from tenon.backends.cpu.contraction.gemv_axpy import BLOCK_ROWS, AxpyLines, Side, reads_lines
from tenon.backends.cpu.contraction.gemv_dot import Bounds, are_dots, emit_dots
from tenon.backends.cpu.contraction.ir_helpers import ONE, ZERO, const, known, loop, product, unravel, zero
from tenon.backends.cpu.scalar_codegen import FUSED, SPLIT

MAX_UNPACKED_ROWS = 3   # rows (columns) up to which right (left) is read once, from where it is;
FEW_BY_LINES = 4        # where right has lines, more: even of what could be packed once for many products,
FEW_DOTS, STEPS = 16, 16    # and where right lies along depth, of so many steps for each row, unless it is packed once,
MIN_LONG_LINE = 128     # and up to BLOCK of what could not, if lines are so long
TINY = 6 * 16 * 16      # products, up to which packing does not pay


def stays_unpacked(b: ir.IRBuilder, spec: GemmSpec, rows: ir.Value, columns: ir.Value, depth: ir.Value,
                   once: bool = False) -> ir.Value | bool:
    """Whether an operand is used so little that packing it, perhaps `once` for many products, costs more than it
    brings; a bool if sizes are known."""
    left_by_depth, right_by_depth = (lies_along_depth(x, len(spec.depth)) for x in (spec.left, spec.right))
    few_rows, few_columns = reads_lines(spec, "right") or right_by_depth, reads_lines(spec, "left") or left_by_depth
    sizes = known(rows, columns, depth)
    if sizes is not None:
        few = max(MAX_UNPACKED_ROWS, min(FEW_DOTS, sizes[2] // STEPS)) if are_dots(spec) and not once else \
            MAX_UNPACKED_ROWS if not reads_lines(spec, "right") or None in spec.known else \
            BLOCK_ROWS if sizes[1] >= MIN_LONG_LINE and not once else FEW_BY_LINES
        return math.prod(sizes) <= TINY or (few_rows and sizes[0] <= few) or (few_columns
                                                                              and sizes[1] <= MAX_UNPACKED_ROWS)
    plain = b.icmp_signed("<=", b.mul(b.mul(rows, columns), depth), const(TINY))
    if few_rows:
        plain = b.or_(plain, b.icmp_signed("<=", rows, const(MAX_UNPACKED_ROWS)))
    if few_columns:
        plain = b.or_(plain, b.icmp_signed("<=", columns, const(MAX_UNPACKED_ROWS)))
    return plain


def emit_unpacked(module: ir.Module, name: str, spec: GemmSpec, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to): nothing packed, nothing blocked."""
    function = region_function(module, f"{name}.unpacked", spec, [])
    args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
    g, row_from, row_to, column_from, column_to = values
    b = ir.IRBuilder(function.append_basic_block("entry"))
    region = _Unpacked(b, spec, tile, args, g, (row_from, row_to), (column_from, column_to))
    count = known(product(b, region.columns))
    if count is not None:
        region.emit("left" if count[0] <= MAX_UNPACKED_ROWS else "right")
    else:
        with b.if_else(b.icmp_signed("<=", product(b, region.columns), const(MAX_UNPACKED_ROWS))) as (tall, wide):
            with tall:
                region.emit("left")
            with wide:
                region.emit("right")
    b.ret_void()
    return function


class _Unpacked:
    """The sums of a region of rows and columns."""

    def __init__(self, b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, g: ir.Value, row_bounds: Bounds,
                 column_bounds: Bounds) -> None:
        self.b, self.spec, self.tile, self.args = b, spec, tile, args
        self.row_bounds, self.column_bounds = row_bounds, column_bounds
        batch, self.rows, self.columns, self.depth = ([size(b, args) for size in axis] for axis in
                                                      (spec.batch, spec.rows, spec.columns, spec.depth))
        self.g: Index = unravel(b, g, batch)

    def emit(self, side: Side) -> None:
        """By vectors of this side, where they can be read."""
        b, across, along = self.b, self.row_bounds, self.column_bounds
        if reads_lines(self.spec, side):
            lines = AxpyLines(b, self.spec, self.tile, self.args, self.g, side)
            lines.emit(*((across, along) if side == "right" else (along, across)))
        elif are_dots(self.spec):
            emit_dots(b, self.spec, self.tile, self.args, self.g, across, along, side == "left")
        else:
            with loop(b, *across) as (m, _), loop(b, *along) as (n, _):
                self.single(m, n)

    def single(self, m: ir.Value, n: ir.Value) -> None:
        """One sum, in an order that LLVM may choose, to vectorise along depth."""
        b, spec, depth = self.b, self.spec, self.depth
        row, column = unravel(b, m, self.rows), unravel(b, n, self.columns)
        outermost = product(b, depth[:-1]) if depth[:-1] else ONE
        with loop(b, ZERO, outermost, carried=[zero(spec.element)]) as (flat, total):
            outer = unravel(b, flat, depth[:-1]) if depth[:-1] else ()
            with loop(b, ZERO, depth[-1], carried=total) as (inner, sums):
                x, y = (element_of(b, spec, operand, self.args, self.g, index, (*outer, inner))
                        for operand, index in ((spec.left, row), (spec.right, column)))
                sums[0] = _add_product(b, x, y, sums[0])
            total[0] = sums[0]
        spec.store(b, self.args, self.g, m, n, total[0], 1)


def _add_product(b: ir.IRBuilder, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    if isinstance(x.type, ir.IntType):
        return b.add(total, b.mul(x, y))
    return b.fadd(total, b.fmul(x, y, flags=FUSED), flags=SPLIT)

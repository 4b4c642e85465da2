"""Two schedules that pack nothing, for products so small or so narrow that packing costs more than it brings.

Lines: a vector of right's columns (or left's rows) is read where it is, and added to sums in the first cache.
Both along depth: sums of products of several rows at a time (`dots`).  Otherwise element by element.
"""
import math
from typing import Literal

from llvmlite import ir

from .dots import are_dots, emit_dots
from .emit import (
    I32,
    ONE,
    ZERO,
    address,
    const,
    element_bytes,
    known,
    load_vector,
    loop,
    masked_load,
    minimum,
    multiply_add,
    product,
    splat,
    store_vector,
    unravel,
    zero,
)
from .packing import between
from .spec import Contraction, Tile, element_of, reads_in_place, region_function

FEW = 3                 # rows (columns) up to which right (left) is read once, from where it is
TINY = 6 * 16 * 16      # products, up to which packing does not pay
LINE_VECTORS = 256      # of sums are kept in the first cache, up to LINES lines being added to them at once
LINES = 4
TOGETHER = 4            # rows that a line of right is read for at a time, with 32 registers
Side = Literal["left", "right"]


def stays_unpacked(b: ir.IRBuilder, spec: Contraction, rows: ir.Value, columns: ir.Value,
                   depth: ir.Value) -> ir.Value | bool:
    """Whether an operand is used so little that packing it costs more than it brings; a bool if sizes are known."""
    left_by_depth, right_by_depth = (reads_in_place(x, len(spec.depth)) for x in (spec.left, spec.right))
    few_rows, few_columns = reads_lines(spec, "right") or right_by_depth, reads_lines(spec, "left") or left_by_depth
    sizes = known(rows, columns, depth)
    if sizes is not None:
        few = TOGETHER if reads_lines(spec, "right") and sizes[0] == spec.known[0] else FEW
        return math.prod(sizes) <= TINY or (few_rows and sizes[0] <= few) or (few_columns and sizes[1] <= FEW)
    plain = b.icmp_signed("<=", b.mul(b.mul(rows, columns), depth), const(TINY))
    if few_rows:
        plain = b.or_(plain, b.icmp_signed("<=", rows, const(FEW)))
    if few_columns:
        plain = b.or_(plain, b.icmp_signed("<=", columns, const(FEW)))
    return plain


def rows_together(spec: Contraction, tile: Tile) -> int:
    """Rows that a line of right is read for at a time; their factors stay in registers."""
    most = TOGETHER if tile.lanes * element_bytes(spec.element) > 32 else TOGETHER // 2
    return min(spec.known[0] or 1, most)


def reads_lines(spec: Contraction, side: Side) -> bool:
    """Whether right's columns (left's rows) are one run of memory, so that a vector of them can be read where it is."""
    operand, components = (spec.right, spec.columns) if side == "right" else (spec.left, spec.rows)
    plain = operand.pointer is not None and operand.inside is None and operand.step == 1
    return (plain and operand.contiguous == "outer" and (operand.flat or len(components) == 1)
            and (side == "left" or spec.store_run is None))


def emit_unpacked(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to): nothing packed, nothing blocked."""
    function = region_function(module, f"{name}.unpacked", spec, [])
    args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
    g, row_from, row_to, column_from, column_to = values
    b = ir.IRBuilder(function.append_basic_block("entry"))
    batch, rows, columns, depth = ([size(b, args) for size in axis]
                                   for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    g_index = unravel(b, g, batch)
    vector, lanes = ir.VectorType(spec.element, tile.lanes), const(tile.lanes)
    together = rows_together(spec, tile)
    longest = LINE_VECTORS // together
    strip = b.alloca(vector, LINE_VECTORS)

    def strip_at(i: int, j: ir.Value) -> ir.Value:
        return address(b, strip, b.add(j, const(i * longest * tile.lanes)), spec.element)

    def line(m: ir.Value, n: ir.Value, length: ir.Value, side: Side, several: int = 1) -> None:
        """The sums of the `length` columns (side right) or rows (left) from m, n on.

        Of `several` rows (columns) at a time, so that a line is read once for all of them.
        """
        near, far, near_at, far_at, sizes = (spec.left, spec.right, m, n, rows) if side == "right" else \
            (spec.right, spec.left, n, m, columns)
        pointer, far_index = far.pointer, unravel(b, far_at, columns if side == "right" else rows)
        near_indices = [unravel(b, b.add(near_at, const(i)), sizes) for i in range(several)]
        assert pointer is not None

        def add_lines(first: ir.Value, count: int) -> None:
            steps = [unravel(b, b.add(first, const(i)), depth) for i in range(count)]
            factors = [[splat(b, element_of(b, spec, near, args, g_index, index, k), tile.lanes) for k in steps]
                       for index in near_indices]
            lines = [pointer(b, args, g_index, far_index, k) for k in steps]

            def add_vectors(j: ir.Value, mask: ir.Value | None) -> None:
                places = [address(b, start, j, spec.element) for start in lines]
                others = [load_vector(b, place, spec.element, tile.lanes) if mask is None
                          else masked_load(b, place, mask, zero(vector)) for place in places]
                for i, row_factors in enumerate(factors):
                    total = load_vector(b, strip_at(i, j), spec.element, tile.lanes)
                    for factor, other in zip(row_factors, others, strict=True):
                        total = multiply_add(b, factor, other, total)
                    store_vector(b, total, strip_at(i, j))
            with loop(b, ZERO, whole_vectors, lanes) as (j, _):
                add_vectors(j, None)
            with b.if_then(some_rest):
                add_vectors(whole_vectors, between(b, I32(0), b.trunc(rest, I32), tile.lanes))

        whole_vectors = b.and_(length, const(-tile.lanes))
        rest = b.sub(length, whole_vectors)
        some_rest = b.icmp_signed(">", rest, ZERO)
        with loop(b, ZERO, length, lanes) as (j, _):
            for i in range(several):
                store_vector(b, zero(vector), strip_at(i, j))
        at_once = LINES if several > 1 else 1       # one stream of memory is read faster than several
        whole = b.and_(product(b, depth), const(-at_once))
        with loop(b, ZERO, whole, const(at_once)) as (k, _):
            add_lines(k, at_once)
        with loop(b, whole, product(b, depth)) as (k, _):
            add_lines(k, 1)
        if side == "right":
            with loop(b, ZERO, whole_vectors, lanes) as (j, _):
                for i in range(several):
                    total = load_vector(b, strip_at(i, j), spec.element, tile.lanes)
                    spec.store(b, args, g_index, b.add(m, const(i)), b.add(n, j), total, tile.lanes)
        with loop(b, whole_vectors if side == "right" else ZERO, length, short=True) as (step, _):
            for i in range(several):
                one = b.load(strip_at(i, step), typ=spec.element)
                row, column = (const(i), step) if side == "right" else (step, const(i))
                spec.store(b, args, g_index, b.add(m, row), b.add(n, column), one, 1)

    def single(m: ir.Value, n: ir.Value) -> None:
        """One sum, in an order that LLVM may choose, to vectorise along depth."""
        row, column = unravel(b, m, rows), unravel(b, n, columns)
        outermost = product(b, depth[:-1]) if depth[:-1] else ONE
        with loop(b, ZERO, outermost, carried=[zero(spec.element)]) as (flat, total):
            outer = unravel(b, flat, depth[:-1]) if depth[:-1] else ()
            with loop(b, ZERO, depth[-1], carried=total) as (inner, sums):
                x, y = (element_of(b, spec, operand, args, g_index, index, (*outer, inner))
                        for operand, index in ((spec.left, row), (spec.right, column)))
                sums[0] = add_products(b, x, y, sums[0])
            total[0] = sums[0]
        spec.store(b, args, g_index, m, n, total[0], 1)

    def lines(side: Side) -> None:
        """Strips along columns (right) or rows (left)."""
        across, along = (row_from, row_to), (column_from, column_to)
        if side == "left":
            across, along = along, across
        step = const(longest * tile.lanes)
        several = together if side == "right" else 1
        whole = b.sub(across[1], b.urem(b.sub(across[1], across[0]), const(several)))
        for count, bounds in {1: (whole, across[1]), several: (across[0], whole)}.items():
            with loop(b, *bounds, const(count)) as (i, _), loop(b, *along, step) as (j, _):
                line(*((i, j) if side == "right" else (j, i)), minimum(b, step, b.sub(along[1], j)), side, count)

    def either(side: Side) -> None:
        if reads_lines(spec, side):
            lines(side)
        elif are_dots(spec):
            emit_dots(b, spec, tile, args, g_index, (row_from, row_to), (column_from, column_to), side == "left")
        else:
            with loop(b, row_from, row_to) as (m, _), loop(b, column_from, column_to) as (n, _):
                single(m, n)

    count = known(product(b, columns))
    if count is not None:
        either("left" if count[0] <= FEW else "right")
    else:
        with b.if_else(b.icmp_signed("<=", product(b, columns), const(FEW))) as (tall, wide):
            with tall:
                either("left")
            with wide:
                either("right")
    b.ret_void()
    return function


def add_products(b: ir.IRBuilder, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    if isinstance(x.type, ir.IntType):
        return b.add(total, b.mul(x, y))
    flags = ("reassoc", "contract", "nsz")
    return b.fadd(total, b.fmul(x, y, flags=flags), flags=flags)

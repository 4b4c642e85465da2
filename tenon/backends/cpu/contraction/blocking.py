"""The loops around the tile: threads, then blocks of columns, rows and depth for the caches.

A thread takes an equal share of tiles, cut along rows or columns, whichever has more.  Where a sum is cut into blocks
of depth depends on sizes only, and every element is summed by the same steps wherever its tile lies, so that any number
of threads gives the same bits.
"""
from llvmlite import ir

from .emit import (
    I32,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    balanced,
    ceil_div,
    const,
    element_bytes,
    loop,
    maximum,
    minimum,
    unravel,
)
from .packing import emit_pack
from .spec import Args, Contraction, Operand, Tile, choose_tile, extent, reads_in_place, region_function
from .tiles import emit_tile
from .unpacked import emit_unpacked, stays_unpacked

PACK_LINES = 16         # of a plain matrix are packed together, to read memory along its rows
LEFT_PANELS = 8         # of left are packed together


def emit_contraction(module: ir.Module, name: str, spec: Contraction, tile: Tile | None = None) -> ir.Function:
    """void name(arguments..., i32 thread, i32 threads, ptr scratch); scratch: scratch_size(spec) bytes a thread."""
    tile = tile or choose_tile(spec.element)
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, I32, I32, POINTER])
    function = ir.Function(module, kind, name)
    args, (thread, threads, scratch) = tuple(function.args[:-3]), function.args[-3:]
    b = ir.IRBuilder(function.append_basic_block("entry"))
    thread, threads = b.zext(thread, I64), b.zext(threads, I64)
    batch, rows, columns, depth = (extent(b, args, axis) for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    row_tiles, column_tiles = ceil_div(b, rows, const(tile.rows)), ceil_div(b, columns, const(tile.width))
    by_columns = b.icmp_signed(">", column_tiles, row_tiles)
    tiles = b.select(by_columns, column_tiles, row_tiles)
    start = b.udiv(b.mul(b.mul(batch, tiles), thread), threads)
    stop = b.udiv(b.mul(b.mul(batch, tiles), b.add(thread, ONE)), threads)
    plain = stays_unpacked(b, spec, rows, columns, depth)
    some = b.icmp_signed(">", b.mul(rows, columns), ZERO)

    def schedule(unpacked: bool) -> None:
        """The region by one of the two schedules, which is emitted where it may be needed."""
        if unpacked:
            b.call(emit_unpacked(module, name, spec, tile), region)
        else:
            b.call(emit_packed(module, name, spec, tile), [*region, scratch])

    with b.if_then(some), \
            loop(b, b.udiv(start, maximum(b, tiles, ONE)), ceil_div(b, stop, maximum(b, tiles, ONE))) as (g, _):
        before = b.mul(g, tiles)
        low, high = maximum(b, b.sub(start, before), ZERO), minimum(b, b.sub(stop, before), tiles)
        row_from, row_to = (b.select(by_columns, whole, b.mul(part, const(tile.rows)))
                            for whole, part in ((ZERO, low), (rows, high)))
        column_from, column_to = (b.select(by_columns, b.mul(part, const(tile.width)), whole)
                                  for whole, part in ((ZERO, low), (columns, high)))
        region = [*args, g, row_from, minimum(b, row_to, rows), column_from, minimum(b, column_to, columns)]
        if isinstance(plain, bool):
            schedule(plain)
        else:
            with b.if_else(plain) as (simple, blocked):
                with simple:
                    schedule(True)
                with blocked:
                    schedule(False)
    b.ret_void()
    return function


def scratch_size(spec: Contraction, tile: Tile | None = None) -> int:
    """Bytes of scratch that each thread hands to the emitted function, at any alignment."""
    return sum(scratch_parts(spec, tile or choose_tile(spec.element))) + 64


def scratch_parts(spec: Contraction, tile: Tile) -> tuple[int, int, int]:
    """Bytes of the packed block of right, of the panel (or row addresses) of left, of the partial sums."""
    size = element_bytes(spec.element)
    right, left = tile.depth * tile.columns * size, LEFT_PANELS * tile.rows * tile.depth * size
    return right, max(left, 2 * tile.rows * 8), tile.sum_rows * tile.columns * size


def emit_packed(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to, scratch)."""
    in_place = reads_in_place(spec.left, len(spec.depth))
    pack_right = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
    pack_left = None if in_place else emit_pack(module, f"{name}.pack_left", spec, tile, "left")
    inner = emit_tile(module, f"{name}.tile", spec, tile)
    function = region_function(module, f"{name}.packed", spec, [POINTER])
    args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
    g, row_from, row_to, column_from, column_to, scratch = values
    b = ir.IRBuilder(function.append_basic_block("entry"))
    sizes = scratch_parts(spec, tile)
    aligned = b.gep(scratch, [b.and_(b.neg(b.ptrtoint(scratch, I64)), const(63))], source_etype=ir.IntType(8))
    right, left, sums = (b.gep(aligned, [const(sum(sizes[:i]))], source_etype=ir.IntType(8)) for i in range(3))
    depth, rows = extent(b, args, spec.depth), b.sub(row_to, row_from)
    depth_block = balanced(b, depth, tile.depth, 1)
    column_block = balanced(b, b.sub(column_to, column_from), tile.columns, tile.width)
    one_pass = b.icmp_signed("<=", depth, depth_block)
    row_block = b.select(one_pass, maximum(b, rows, ONE), balanced(b, rows, tile.sum_rows, tile.rows))
    tile_rows, width, group = const(tile.rows), const(tile.width), const(tile.rows * (1 if in_place else LEFT_PANELS))
    with loop(b, column_from, column_to, column_block) as (n0, _), loop(b, row_from, row_to, row_block) as (m0, _), \
            loop(b, ZERO, maximum(b, depth, ONE), depth_block) as (k0, _):
        n_end = minimum(b, b.add(n0, column_block), column_to)
        m_end = minimum(b, b.add(m0, row_block), row_to)
        k_size = minimum(b, depth_block, b.sub(depth, k0))
        first, last = b.icmp_signed("==", k0, ZERO), b.icmp_signed(">=", b.add(k0, depth_block), depth)
        pack_block(b, pack_right, spec, spec.right, (*args, g), n0, n_end, tile.width, k0, k_size, right)
        with loop(b, m0, m_end, group) as (m1, _):
            group_end = minimum(b, b.add(m1, group), m_end)
            if pack_left is not None:
                pack_block(b, pack_left, spec, spec.left, (*args, g), m1, group_end, tile.rows, k0, k_size, left)
            with loop(b, m1, group_end, tile_rows) as (m, _):
                rows_at = left
                if pack_left is None:
                    list_rows(b, spec, tile, args, (g, m, k0), b.sub(m_end, ONE), left)
                else:
                    rows_at = address(b, left, b.mul(b.sub(m, m1), k_size), spec.element)
                with loop(b, n0, n_end, width) as (n, _):
                    ahead = b.udiv(b.mul(b.sub(n, n0), k_size), b.sub(n_end, n0))
                    panel = address(b, right, b.mul(b.sub(n, n0), k_size), spec.element)
                    place = b.add(b.mul(b.sub(m, m0), column_block), b.mul(b.sub(n, n0), tile_rows))
                    partial = address(b, sums, b.select(one_pass, ZERO, place), spec.element)
                    b.call(inner, [*args, g, m, n, b.sub(m_end, m), b.sub(n_end, n), k_size, ahead,
                                   rows_at, panel, partial, first, last])
    b.ret_void()
    return function


def pack_block(b: ir.IRBuilder, pack: ir.Function, spec: Contraction, operand: Operand, args: Args, first: ir.Value,
               end: ir.Value, width: int, k0: ir.Value, depth: ir.Value, block: ir.Value) -> None:
    """Pack the panels of first <= i < end; of a plain operand a few lines of all panels at a time, as memory lies."""
    plain = operand.pointer is not None and operand.contiguous == "outer" and operand.inside is None
    plain = plain and len(spec.depth) == 1
    chunk = const(PACK_LINES) if plain else maximum(b, depth, ONE)
    with loop(b, ZERO, depth, chunk) as (k, _), loop(b, first, end, const(width)) as (i, _):
        panel = address(b, block, b.add(b.mul(b.sub(i, first), depth), b.mul(k, const(width))), spec.element)
        count, lines = minimum(b, const(width), b.sub(end, i)), minimum(b, chunk, b.sub(depth, k))
        b.call(pack, [*args, i, count, b.add(k0, k), lines, panel])


def list_rows(b: ir.IRBuilder, spec: Contraction, tile: Tile, args: Args, at: tuple[ir.Value, ...], last: ir.Value,
              table: ir.Value) -> None:
    """Write the addresses of a tile's rows and of the next tile's; past the end the last row serves, to no effect."""
    assert spec.left.pointer is not None
    batch, rows, depth = ([size(b, args) for size in axis] for axis in (spec.batch, spec.rows, spec.depth))
    g, m, k0 = at
    for i in range(2 * tile.rows):
        row = unravel(b, minimum(b, b.add(m, const(i)), last), rows)
        start = spec.left.pointer(b, args, unravel(b, g, batch), row, unravel(b, k0, depth))
        b.store(start, address(b, table, const(i), POINTER))

"""The loops around the tile: threads, cache blocks, and two plain schedules for shapes that packing would not serve.

A thread takes an equal share of tiles, cut along rows or columns whichever has more.  Where a sum is cut into blocks of depth
depends on sizes only, and every element is summed by the same steps wherever its tile lies: any number of threads gives the same bits.
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
    load_vector,
    loop,
    maximum,
    minimum,
    multiply_add,
    product,
    splat,
    store_vector,
    unravel,
    zero,
)
from .packing import emit_pack
from .spec import Args, Contraction, Operand, Size, Tile, choose_tile, element_of, reads_in_place
from .tiles import emit_tile

FEW = 3                 # rows (columns) up to which right (left) is read once from where it is, rather than packed
PACK_LINES = 16         # of a plain matrix are packed together, to read memory along its rows
LINE_VECTORS = 64       # sums of a line that are kept in the first cache, LINES lines being added to them at once
LINES = 4
LEFT_PANELS = 8         # of left are packed together
TINY = 6 * 16 * 16      # products, below which packing does not pay


def emit_contraction(module: ir.Module, name: str, spec: Contraction, tile: Tile | None = None) -> ir.Function:
    """void name(arguments..., i32 thread, i32 threads, ptr scratch); every thread has scratch_size(spec) bytes of its own."""
    tile = tile or choose_tile(spec.element)
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, I32, I32, POINTER])
    function = ir.Function(module, kind, name)
    args, (thread, threads, scratch) = tuple(function.args[:-3]), function.args[-3:]
    by_tiles, by_elements = emit_by_tiles(module, name, spec, tile), emit_by_elements(module, name, spec, tile)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    thread, threads = b.zext(thread, I64), b.zext(threads, I64)
    batch, rows, columns, depth = (extent(b, args, axis) for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    row_tiles, column_tiles = ceil_div(b, rows, const(tile.rows)), ceil_div(b, columns, const(tile.width))
    by_columns = b.icmp_signed(">", column_tiles, row_tiles)
    tiles = b.select(by_columns, column_tiles, row_tiles)
    start = b.udiv(b.mul(b.mul(batch, tiles), thread), threads)
    stop = b.udiv(b.mul(b.mul(batch, tiles), b.add(thread, ONE)), threads)
    plain = goes_by_elements(b, spec, rows, columns, depth)
    some = b.icmp_signed(">", b.mul(rows, columns), ZERO)
    with b.if_then(some), \
            loop(b, b.udiv(start, maximum(b, tiles, ONE)), ceil_div(b, stop, maximum(b, tiles, ONE))) as (g, _):
        before = b.mul(g, tiles)
        low, high = maximum(b, b.sub(start, before), ZERO), minimum(b, b.sub(stop, before), tiles)
        row_from, row_to = (b.select(by_columns, whole, b.mul(part, const(tile.rows)))
                            for whole, part in ((ZERO, low), (rows, high)))
        column_from, column_to = (b.select(by_columns, b.mul(part, const(tile.width)), whole)
                                  for whole, part in ((ZERO, low), (columns, high)))
        region = [*args, g, row_from, minimum(b, row_to, rows), column_from, minimum(b, column_to, columns)]
        with b.if_else(plain) as (simple, blocked):
            with simple:
                b.call(by_elements, region)
            with blocked:
                b.call(by_tiles, [*region, scratch])
    b.ret_void()
    return function


def scratch_size(spec: Contraction, tile: Tile | None = None) -> int:
    """Bytes of scratch that each thread hands to the emitted function, at any alignment."""
    return sum(scratch_parts(spec, tile or choose_tile(spec.element))) + 64


def scratch_parts(spec: Contraction, tile: Tile) -> tuple[int, int, int]:
    """Bytes of the packed block of right, of the panel (or row addresses) of left, of the partial sums."""
    size = element_bytes(spec.element)
    sums = (tile.sum_rows // tile.rows + 1) * tile.rows * tile.columns * size
    return tile.depth * tile.columns * size, max(LEFT_PANELS * tile.rows * tile.depth * size, tile.rows * 16) // 64 * 64 + 64, sums


def extent(b: ir.IRBuilder, args: Args, axis: tuple[Size, ...]) -> ir.Value:
    return product(b, [size(b, args) for size in axis]) if axis else ONE


def emit_by_tiles(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to, scratch)."""
    in_place = reads_in_place(spec.left, len(spec.depth))
    pack_right = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
    pack_left = None if in_place else emit_pack(module, f"{name}.pack_left", spec, tile, "left")
    inner = emit_tile(module, f"{name}.tile", spec, tile)
    function = region_function(module, f"{name}.by_tiles", spec, [POINTER])
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
                    b.call(inner, [*args, g, m, n, b.sub(m_end, m), b.sub(n_end, n), k_size, ahead, rows_at, panel, partial,
                                   first, last])
    b.ret_void()
    return function


def pack_block(b: ir.IRBuilder, pack: ir.Function, spec: Contraction, operand: Operand, args: Args, first: ir.Value,
               end: ir.Value, width: int, k0: ir.Value, depth: ir.Value, block: ir.Value) -> None:
    """Pack the panels of first <= i < end; of a plain operand a few lines of all panels at a time, as memory is laid out."""
    plain = operand.pointer is not None and operand.contiguous == "outer" and operand.inside is None and len(spec.depth) == 1
    chunk = const(PACK_LINES) if plain else maximum(b, depth, ONE)
    with loop(b, ZERO, depth, chunk) as (k, _), loop(b, first, end, const(width)) as (i, _):
        panel = address(b, block, b.add(b.mul(b.sub(i, first), depth), b.mul(k, const(width))), spec.element)
        count, lines = minimum(b, const(width), b.sub(end, i)), minimum(b, chunk, b.sub(depth, k))
        b.call(pack, [*args, i, count, b.add(k0, k), lines, panel])


def list_rows(b: ir.IRBuilder, spec: Contraction, tile: Tile, args: Args, at: tuple[ir.Value, ...], last: ir.Value,
              table: ir.Value) -> None:
    """Write the addresses of a tile's rows and of the next tile's; past the last row it serves again, for results nobody reads."""
    assert spec.left.pointer is not None
    batch, rows, depth = ([size(b, args) for size in axis] for axis in (spec.batch, spec.rows, spec.depth))
    g, m, k0 = at
    for i in range(2 * tile.rows):
        row = unravel(b, minimum(b, b.add(m, const(i)), last), rows)
        b.store(spec.left.pointer(b, args, unravel(b, g, batch), row, unravel(b, k0, depth)), address(b, table, const(i), POINTER))


def region_function(module: ir.Module, name: str, spec: Contraction, more: list[ir.Type]) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 5, *more]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    for pointer in function.args[len(spec.arguments) + 5:]:
        pointer.add_attribute("noalias")
    return function


def goes_by_elements(b: ir.IRBuilder, spec: Contraction, rows: ir.Value, columns: ir.Value, depth: ir.Value) -> ir.Value:
    """Whether an operand is used so little that packing it costs more than it brings."""
    plain = b.icmp_signed("<=", b.mul(b.mul(rows, columns), depth), const(TINY))
    left_by_depth, right_by_depth = (reads_in_place(x, len(spec.depth)) for x in (spec.left, spec.right))
    if reads_lines(spec, "right") or right_by_depth:
        plain = b.or_(plain, b.icmp_signed("<=", rows, const(FEW)))
    if reads_lines(spec, "left") or left_by_depth:
        plain = b.or_(plain, b.icmp_signed("<=", columns, const(FEW)))
    return plain


def reads_lines(spec: Contraction, side: str) -> bool:
    """Whether right's columns (left's rows) are one run of memory, so that a vector of them can be read where it is."""
    operand, components = (spec.right, spec.columns) if side == "right" else (spec.left, spec.rows)
    return (operand.pointer is not None and operand.contiguous == "outer" and operand.inside is None and operand.step == 1
            and (operand.flat or len(components) == 1) and (side == "left" or spec.store_run is None))


def emit_by_elements(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to): nothing packed, nothing blocked."""
    function = region_function(module, f"{name}.by_elements", spec, [])
    args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
    g, row_from, row_to, column_from, column_to = values
    b = ir.IRBuilder(function.append_basic_block("entry"))
    batch, rows, columns, depth = ([size(b, args) for size in axis]
                                   for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    g_index = unravel(b, g, batch)

    vector, lanes = ir.VectorType(spec.element, tile.lanes), const(tile.lanes)
    strip = b.alloca(vector, LINE_VECTORS)

    def line(m: ir.Value, n: ir.Value, length: ir.Value, side: str) -> None:
        """The sums of the `length` columns (side right) or rows (left) from m, n on, whole vectors of them."""
        at = unravel(b, m, rows), unravel(b, n, columns)
        near, far = ((spec.left, at[0]), (spec.right, at[1]))[::1 if side == "right" else -1]
        assert far[0].pointer is not None

        def add_lines(first: ir.Value, count: int) -> None:
            factors, lines = [], []
            for i in range(count):
                k = unravel(b, b.add(first, const(i)), depth)
                factors.append(splat(b, element_of(b, spec, near[0], args, g_index, near[1], k), tile.lanes))
                lines.append(far[0].pointer(b, args, g_index, far[1], k))
            with loop(b, ZERO, length, lanes) as (j, _):
                where = address(b, strip, j, spec.element)
                total = load_vector(b, where, spec.element, tile.lanes)
                for factor, start in zip(factors, lines):
                    other = load_vector(b, address(b, start, j, spec.element), spec.element, tile.lanes)
                    total = multiply_add(b, factor, other, total)
                store_vector(b, total, where)

        with loop(b, ZERO, length, lanes) as (j, _):
            store_vector(b, zero(vector), address(b, strip, j, spec.element))
        whole = b.and_(product(b, depth), const(-LINES))
        with loop(b, ZERO, whole, const(LINES)) as (k, _):
            add_lines(k, LINES)
        with loop(b, whole, product(b, depth)) as (k, _):
            add_lines(k, 1)
        with loop(b, ZERO, length, lanes) as (j, _):
            where = address(b, strip, j, spec.element)
            if side == "right":
                total = load_vector(b, where, spec.element, tile.lanes)
                spec.store(b, args, g_index, m, b.add(n, j), total, tile.lanes)
            else:
                with loop(b, j, b.add(j, lanes)) as (i, _):
                    one = b.load(address(b, strip, i, spec.element), typ=spec.element)
                    spec.store(b, args, g_index, b.add(m, i), n, one, 1)

    def single(m: ir.Value, n: ir.Value, in_order: bool) -> None:
        """One sum: in the order that `line` has, or in one that LLVM may choose, to vectorise along depth."""
        step = multiply_add if in_order else add_products
        row, column = unravel(b, m, rows), unravel(b, n, columns)
        with loop(b, ZERO, product(b, depth[:-1]) if depth[:-1] else ONE, carried=[zero(spec.element)]) as (flat, total):
            outer = unravel(b, flat, depth[:-1]) if depth[:-1] else ()
            with loop(b, ZERO, depth[-1], carried=total) as (inner, sums):
                x, y = (element_of(b, spec, operand, args, g_index, index, (*outer, inner))
                        for operand, index in ((spec.left, row), (spec.right, column)))
                sums[0] = step(b, x, y, sums[0])
            total[0] = sums[0]
        spec.store(b, args, g_index, m, n, total[0], 1)

    def lines(side: str) -> None:
        """Vectors along columns (right) or rows (left) as long as they last, then one by one."""
        outer, position, stop = ((row_from, row_to), column_from, column_to) if side == "right" else \
            ((column_from, column_to), row_from, row_to)
        end, step = b.add(position, b.and_(b.sub(stop, position), const(-tile.lanes))), const(LINE_VECTORS * tile.lanes)
        with loop(b, *outer) as (i, _):
            with loop(b, position, end, step) as (j, _):
                line(*((i, j) if side == "right" else (j, i)), minimum(b, step, b.sub(end, j)), side)
            with loop(b, end, stop) as (j, _):
                single(*((i, j) if side == "right" else (j, i)), in_order=True)

    def schedule(side: str) -> None:
        if reads_lines(spec, side):
            lines(side)
        else:
            with loop(b, row_from, row_to) as (m, _), loop(b, column_from, column_to) as (n, _):
                single(m, n, in_order=False)

    with b.if_else(b.icmp_signed("<=", product(b, columns), const(FEW))) as (tall, wide):
        with tall:
            schedule("left")
        with wide:
            schedule("right")
    b.ret_void()
    return function


def add_products(b: ir.IRBuilder, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    if isinstance(x.type, ir.IntType):
        return b.add(total, b.mul(x, y))
    flags = ("reassoc", "contract", "nsz")
    return b.fadd(total, b.fmul(x, y, flags=flags), flags=flags)

"""The loops around the tile: threads, then blocks of columns, rows and depth for the caches.

A thread takes an equal share of tiles, cut along rows or columns, whichever has more.  Where a sum is cut into blocks
of depth depends on sizes only, and every element is summed by the same steps wherever its tile lies, so that any number
of threads gives the same bits.
"""
from collections.abc import Callable

from llvmlite import ir

from . import pairs
from .ahead import LEFT_RUNS, LINE, Run, choose, fetches_left, left_run, no_run, right_run, right_runs
from .direct import direct_scratch, direct_tile, emit_direct, tile_count, tile_start
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
)
from .packing import emit_pack
from .spec import (
    PAIR_LANES,
    Args,
    Contraction,
    Operand,
    Tile,
    blocks_tile,
    copies_rows,
    extent,
    left_layout,
    region_function,
)
from .tiles import emit_tile
from .unpacked import emit_unpacked, stays_unpacked

PACK_LINES = 8          # of a plain matrix are packed together, to read memory along its rows
LEFT_PANELS = 8         # of left are packed together


def emit_contraction(module: ir.Module, name: str, spec: Contraction, tile: Tile | None = None) -> ir.Function:
    """void name(arguments..., i32 thread, i32 threads, ptr scratch); scratch: scratch_size(spec) bytes a thread."""
    tile = tile or tile_of(spec)
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, I32, I32, POINTER])
    function = ir.Function(module, kind, name)
    args, (thread, threads, scratch) = tuple(function.args[:-3]), function.args[-3:]
    b = ir.IRBuilder(function.append_basic_block("entry"))
    thread, threads = b.zext(thread, I64), b.zext(threads, I64)
    batch, rows, columns, depth = (extent(b, args, axis) for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    (row_tiles, row_at), (column_tiles, column_at) = _cuts(b, spec, tile, rows, columns)
    by_columns = b.icmp_signed(">", column_tiles, row_tiles)
    tiles = b.select(by_columns, column_tiles, row_tiles)
    start = b.udiv(b.mul(b.mul(batch, tiles), thread), threads)
    stop = b.udiv(b.mul(b.mul(batch, tiles), b.add(thread, ONE)), threads)
    blocks = spec.packed is None and tile.schedule == "blocks" and not spec.pairs
    plain = blocks and stays_unpacked(b, spec, rows, columns, depth)
    some = b.icmp_signed(">", b.mul(rows, columns), ZERO)

    def schedule(unpacked: bool) -> None:
        """The region by one of the two schedules, which is emitted where it may be needed."""
        if tile.schedule != "blocks":
            b.call(emit_direct(module, name, spec, tile), [*region, scratch])
        elif unpacked:
            b.call(emit_unpacked(module, name, spec, tile), region)
        else:
            b.call(emit_packed(module, name, spec, tile), [*region, scratch])

    with b.if_then(some), \
            loop(b, b.udiv(start, maximum(b, tiles, ONE)), ceil_div(b, stop, maximum(b, tiles, ONE))) as (g, _):
        before = b.mul(g, tiles)
        low, high = maximum(b, b.sub(start, before), ZERO), minimum(b, b.sub(stop, before), tiles)
        row_from, row_to = (b.select(by_columns, whole, row_at(part)) for whole, part in ((ZERO, low), (rows, high)))
        column_from, column_to = (b.select(by_columns, column_at(part), whole)
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


Cut = tuple[ir.Value, Callable[[ir.Value], ir.Value]]       # how many parts there are, where one begins


def _cuts(b: ir.IRBuilder, spec: Contraction, tile: Tile, rows: ir.Value, columns: ir.Value) -> tuple[Cut, Cut]:
    """The parts of rows and of columns that threads share out, which are tiles."""
    if tile.schedule == "blocks":
        sizes = const(tile.rows), const(tile.width)
        return ((ceil_div(b, rows, sizes[0]), lambda part: b.mul(part, sizes[0])),
                (ceil_div(b, columns, sizes[1]), lambda part: b.mul(part, sizes[1])))
    lines, (height, width, _) = tile.lanes, spec.known
    assert height is not None and width is not None
    vectors = -(-width // lines)
    return ((const(tile_count(height, tile.rows)), lambda part: tile_start(b, height, tile.rows, part)),
            (const(tile_count(vectors, tile.vectors)),
             lambda part: b.mul(tile_start(b, vectors, tile.vectors, part), const(lines))))


def scratch_size(spec: Contraction, tile: Tile | None = None) -> int:
    """Bytes of scratch that each thread hands to the emitted function, at any alignment."""
    tile = tile or tile_of(spec)
    return sum(scratch_parts(spec, tile)) + LINE if tile.schedule == "blocks" else direct_scratch(spec, tile)


def tile_of(spec: Contraction) -> Tile:
    """The tile of the schedule that suits the product best."""
    return (None if spec.pairs else direct_tile(spec)) or blocks_tile(spec)


def scratch_parts(spec: Contraction, tile: Tile) -> tuple[int, int, int]:
    """Bytes of the packed block of right, of packed left, of the partial sums."""
    _, columns, depth = spec.known
    block = tile.depth if depth is None else up(-(-depth // max(-(-depth // tile.depth), 1)), tile.lanes) or tile.lanes
    _, row_apart, *_ = left_layout(spec, tile)
    left = (1 if copies_rows(spec) else LEFT_PANELS) * tile.rows * max(block, row_apart)
    right = tile.depth * tile.columns
    if columns is not None:
        right = min(right, block * max(up(columns, tile.width), tile.width))
    cut = spec.target is None and (depth is None or depth > tile.depth)
    sums = tile.sum_rows * 2 * tile.columns if cut else tile.rows * tile.width
    size, behind = element_bytes(spec.element), tile.lanes * max(tile.width, tile.rows) + tile.lanes
    right, left = right + behind, left + behind         # packing in squares writes over the end
    return up(right * size, LINE), up(left * size, LINE), up(sums * size, LINE)


def up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def emit_packed(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to, scratch)."""
    function = region_function(module, f"{name}.packed", spec, [POINTER])
    _Packed(module, name, spec, tile, function).emit()
    return function


class _Packed:
    """The loops over blocks: columns, rows, depth; in a block over tiles, row after row."""

    def __init__(self, module: ir.Module, name: str, spec: Contraction, tile: Tile, function: ir.Function) -> None:
        self.spec, self.tile = spec, tile
        self.pack_right = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
        self.pack_left = emit_pack(module, f"{name}.pack_left", spec, tile, "left")
        self.inner = (pairs.emit_pair_tile if spec.pairs else emit_tile)(module, f"{name}.tile", spec, tile)
        self.args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
        self.g, self.row_from, self.row_to, self.column_from, self.column_to, scratch = values
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        sizes = scratch_parts(spec, tile)
        aligned = b.gep(scratch, [b.and_(b.neg(b.ptrtoint(scratch, I64)), const(LINE - 1))], source_etype=ir.IntType(8))
        self.right, self.left, self.sums = (
            b.gep(aligned, [const(sum(sizes[:i]))], source_etype=ir.IntType(8)) for i in range(3))
        self.depth = extent(b, self.args, spec.depth)

    def emit(self) -> None:
        """The whole function."""
        b, tile = self.b, self.tile
        depth, rows = self.depth, b.sub(self.row_to, self.row_from)
        self.depth_block = balanced(b, depth, const(tile.depth), tile.lanes)
        most = b.mul(b.udiv(b.udiv(const(tile.depth * tile.columns), self.depth_block), const(tile.width)),
                     const(tile.width))
        most = b.select(b.icmp_signed("<", self.depth_block, depth), minimum(b, most, const(2 * tile.columns)), most)
        self.column_block = balanced(b, b.sub(self.column_to, self.column_from), most, tile.width)
        self.one_pass = b.icmp_signed("<=", depth, self.depth_block)
        all_rows = maximum(b, rows, ONE)
        self.row_block = all_rows if self.spec.target is not None else b.select(
            self.one_pass, all_rows, balanced(b, rows, const(tile.sum_rows), tile.rows))
        if self.spec.pairs:
            pairs.configure(b)
        with loop(b, self.column_from, self.column_to, self.column_block) as (n, _), \
                loop(b, self.row_from, self.row_to, self.row_block) as (m, _), \
                loop(b, ZERO, maximum(b, depth, ONE), self.depth_block) as (k, _):
            self.block(m, n, k)
        if self.spec.pairs:
            pairs.release(b)
        b.ret_void()

    def block(self, m0: ir.Value, n0: ir.Value, k0: ir.Value) -> None:
        """One packed block of right, and all tiles that it is a part of."""
        b, spec, tile, whole = self.b, self.spec, self.tile, (*self.args, self.g)
        self.n_end = minimum(b, b.add(n0, self.column_block), self.column_to)
        self.m_end = minimum(b, b.add(m0, self.row_block), self.row_to)
        self.k_size = minimum(b, self.depth_block, b.sub(self.depth, k0))
        self.origin = m0, n0, k0
        if spec.packed is None:
            pack_block(b, self.pack_right, spec, spec.right, whole, n0, self.n_end, tile.width, k0, self.k_size,
                       self.right)
        else:
            self.right = packed_block(b, spec, tile, self.args, n0, k0, self.k_size)
        group = const(tile.rows * (1 if copies_rows(spec) else LEFT_PANELS))
        following = self.following()
        with loop(b, m0, self.m_end, group) as (m1, _):
            group_end = minimum(b, b.add(m1, group), self.m_end)
            left = self.left_of(m1, group_end)
            with loop(b, m1, group_end, const(tile.rows)) as (m, _):
                rows = address(b, left, b.mul(b.sub(m, m1), self.k_size), spec.element)
                with loop(b, n0, self.n_end, const(tile.width)) as (n, _):
                    self.one(m, n, rows, following)

    def left_of(self, m: ir.Value, end: ir.Value) -> ir.Value:
        """Where the rows from m on are: in memory, as they lie, or packed now."""
        b, spec, tile, (_, _, k0) = self.b, self.spec, self.tile, self.origin
        in_place, *_ = left_layout(spec, tile)
        whole = b.icmp_signed(">=", b.sub(end, m), const(tile.rows)) if in_place else ir.Constant(ir.IntType(1), 0)
        with b.if_then(b.not_(whole)):
            pack_block(b, self.pack_left, spec, spec.left, (*self.args, self.g), m, end, tile.rows, k0, self.k_size,
                       self.left)
        if not in_place:
            return self.left
        return b.select(whole, left_run(b, spec, self.args, self.g, m, k0, self.k_size)[0], self.left)

    def following(self) -> tuple[ir.Value, ir.Value]:
        """(column, k) where the next block of right begins."""
        b, (m0, n0, k0) = self.b, self.origin
        k = b.add(k0, self.depth_block)
        deeper = b.icmp_signed("<", k, self.depth)
        again = b.or_(deeper, b.icmp_signed("<", b.add(m0, self.row_block), self.row_to))
        return b.select(again, n0, b.add(n0, self.column_block)), b.select(deeper, k, ZERO)

    def one(self, m: ir.Value, n: ir.Value, left: ir.Value, following: tuple[ir.Value, ir.Value]) -> None:
        """Call the tile at row m, column n."""
        b, spec, tile, (m0, n0, k0) = self.b, self.spec, self.tile, self.origin
        first = b.icmp_signed("==", k0, ZERO)
        last = b.icmp_signed(">=", b.add(k0, self.depth_block), self.depth)
        panel = address(b, self.right, b.mul(b.sub(n, n0), self.k_size), spec.element)
        place = b.add(b.mul(b.sub(m, m0), self.column_block), b.mul(b.sub(n, n0), const(tile.rows)))
        place = ZERO if spec.target is not None else b.select(self.one_pass, ZERO, place)
        partial = address(b, self.sums, place, spec.element)
        b.call(self.inner, [*self.args, self.g, m, n, b.sub(self.m_end, m), b.sub(self.n_end, n), self.k_size, left,
                            panel, partial, first, last, *self.ahead(m, n, panel, following)])

    def ahead(self, m: ir.Value, n: ir.Value, near: ir.Value, following: tuple[ir.Value, ir.Value]) -> list[ir.Value]:
        """What the tile at row m, column n shall fetch: its share of the next rows of left and block of right."""
        b, spec, tile, (m0, n0, k0) = self.b, self.spec, self.tile, self.origin
        panel, runs = b.udiv(b.sub(n, n0), const(tile.width)), []
        for i in range(LEFT_RUNS if fetches_left(spec) else 0):
            number = b.add(b.mul(panel, const(LEFT_RUNS)), const(i))
            row = b.add(b.add(m, const(tile.rows)), number)
            some = b.and_(b.icmp_signed("<", number, const(tile.rows)), b.icmp_signed("<", row, self.m_end))
            run = left_run(b, spec, self.args, self.g, b.select(some, row, m), k0, self.k_size)
            runs.append(choose(b, some, run, no_run(near)))
        count = right_runs(spec, tile)
        panels = b.udiv(self.column_block, const(tile.width))
        before = b.add(b.mul(b.udiv(b.sub(m, m0), const(tile.rows)), panels), panel)
        if spec.packed is not None:
            runs.append(self.share_of_panel(m, n, near, following))
        for i in range(count if spec.packed is None else 0):
            number = b.add(b.mul(before, const(count)), const(i))
            runs.append(self.line_of_right(number, near, following))
        return [value for run in runs for value in run]

    def share_of_panel(self, m: ir.Value, n: ir.Value, near: ir.Value, following: tuple[ir.Value, ir.Value]) -> Run:
        """What a tile fetches of the panel in its place in the next block: all tiles of its columns share that out."""
        b, spec, tile, (m0, n0, _), (column, k) = self.b, self.spec, self.tile, self.origin, following
        size = minimum(b, self.depth_block, b.sub(self.depth, k))
        at = b.add(column, b.sub(n, n0))
        lines = b.mul(size, const(-(-tile.width * element_bytes(spec.element) // LINE)))
        share = ceil_div(b, lines, ceil_div(b, b.sub(self.m_end, m0), const(tile.rows)))
        first = b.mul(share, b.udiv(b.sub(m, m0), const(tile.rows)))
        some = b.and_(b.icmp_signed("<", at, self.column_to), b.icmp_signed("<", first, lines))
        panel = packed_block(b, spec, tile, self.args, b.select(some, at, n0), k, size)
        start = b.gep(panel, [b.mul(first, const(LINE))], source_etype=ir.IntType(8))
        count = b.sub(minimum(b, share, b.sub(lines, first)), ONE)
        return choose(b, some, (start, count), no_run(near))

    def line_of_right(self, number: ir.Value, near: ir.Value, following: tuple[ir.Value, ir.Value]) -> Run:
        """A line of the next block of right, which begins at column, k = following; near memory if there is none."""
        b, spec, (_, n0, k0), (column, k) = self.b, self.spec, self.origin, following
        by_depth = spec.right.contiguous == "depth"
        end, at = (self.column_to, b.add(column, number)) if by_depth else (self.depth, b.add(k, number))
        limit = self.column_block if by_depth else self.depth_block
        some = b.and_(b.icmp_signed("<", number, limit), b.icmp_signed("<", at, end))
        some = b.and_(some, b.icmp_signed("<", column, self.column_to))
        corner = b.select(some, column, n0), b.select(some, k, k0)
        run = right_run(b, spec, self.args, self.g, b.select(some, number, ZERO), corner,
                        (self.column_block, self.depth_block))
        return choose(b, some, run, no_run(near))


def emit_packing(module: ir.Module, name: str, spec: Contraction, tile: Tile | None = None) -> ir.Function:
    """void name(arguments..., i32 thread, i32 threads): pack all of right, which is no batch, for later products."""
    tile = tile or blocks_tile(spec)
    pack = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*spec.arguments, I32, I32]), name)
    args, (thread, threads) = tuple(function.args[:-2]), function.args[-2:]
    b = ir.IRBuilder(function.append_basic_block("entry"))
    columns, depth = extent(b, args, spec.columns), extent(b, args, spec.depth)
    panels, width = ceil_div(b, columns, const(tile.width)), const(tile.width)
    thread, threads = b.zext(thread, I64), b.zext(threads, I64)
    first = b.mul(b.udiv(b.mul(panels, thread), threads), width)
    end = minimum(b, b.mul(b.udiv(b.mul(panels, b.add(thread, ONE)), threads), width), columns)
    depth_block = balanced(b, depth, const(tile.depth), tile.lanes)
    with loop(b, ZERO, depth, depth_block) as (k, _):
        k_size = minimum(b, depth_block, b.sub(depth, k))
        pack_block(b, pack, spec, spec.right, (*args, ZERO), first, end, tile.width, k, k_size,
                   packed_block(b, spec, tile, args, first, k, k_size))
    b.ret_void()
    return function


def packed_block(b: ir.IRBuilder, spec: Contraction, tile: Tile, args: Args, n: ir.Value, k: ir.Value,
                 k_size: ir.Value) -> ir.Value:
    """Where the panels from column n, depth k on are in what `emit_packing` has packed."""
    assert spec.packed is not None
    width = const(tile.width)
    padded = b.mul(ceil_div(b, extent(b, args, spec.columns), width), width)
    return address(b, args[spec.packed], b.add(b.mul(k, padded), b.mul(n, k_size)), spec.element)


def packed_size(spec: Contraction, tile: Tile | None = None) -> int | None:
    """Bytes of all of right when it is packed; None where they are not known, or packing is of no use."""
    tile = tile or blocks_tile(spec)
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None or spec.batch:
        return None
    b = ir.IRBuilder()
    if not spec.pairs and stays_unpacked(b, spec, const(rows), const(columns), const(depth)) is not False:
        return None
    return up(columns, tile.width) * depth * element_bytes(spec.element)


def pack_block(b: ir.IRBuilder, pack: ir.Function, spec: Contraction, operand: Operand, args: Args, first: ir.Value,
               end: ir.Value, width: int, k0: ir.Value, depth: ir.Value, block: ir.Value) -> None:
    """Pack the panels of first <= i < end; of a plain operand a few lines of all panels at a time, as memory lies."""
    plain = operand.pointer is not None and operand.contiguous == "outer" and operand.inside is None
    plain = plain and len(spec.depth) == 1
    lines_at_once = PACK_LINES if operand.zipped is None else PAIR_LANES
    chunk = const(lines_at_once) if plain else maximum(b, depth, ONE)
    with loop(b, ZERO, depth, chunk) as (k, _), loop(b, first, end, const(width)) as (i, _):
        panel = address(b, block, b.add(b.mul(b.sub(i, first), depth), b.mul(k, const(width))), spec.element)
        count, lines = minimum(b, const(width), b.sub(end, i)), minimum(b, chunk, b.sub(depth, k))
        b.call(pack, [*args, i, count, b.add(k0, k), lines, panel])

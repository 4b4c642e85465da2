"""The loops around the tile: threads, then blocks of columns, rows and depth for the caches.

A thread takes an equal share of tiles, cut along rows or columns, whichever is done sooner.  Where a sum is cut into
blocks of depth depends on sizes only, and every element is summed by the same steps wherever its tile lies, so that any
number of threads gives the same bits.
"""
from collections.abc import Callable

from llvmlite import ir

from tenon.backends.cpu.shares import SHARE, Share
from tenon.dataclasses import replace

from .ahead import LINE
from .direct import direct_scratch, direct_tile, emit_direct, tile_count, tile_start
from .emit import I1, ONE, POINTER, ZERO, ceil_div, const, element_bytes, loop, maximum, minimum
from .machine import host
from .panels import emit_packed, scratch_parts, up
from .spec import Contraction, Tile, blocks_tile, choose_tiles, extent, in_registers, left_layout, packs_in_tiles
from .thin import emit_thin, thin_scratch, thin_tile
from .together import with_waiting
from .unpacked import emit_unpacked, stays_unpacked

# Products in the time that it takes to pack an element; to read one that a tile packs, or that is packed already; to
# read that one beyond the second cache (128 x 3072 times 3072 x 768, half of the rows: 1.3 times half the time).
PACKING, READING, FAR = 28, 4, 16
MOST_TILES = 3          # of blocks, among which it may be measured which is the fastest


def emit_contraction(module: ir.Module, name: str, spec: Contraction, tile: Tile | None = None) -> ir.Function:
    """void name(arguments..., i32 first, i32 until, i32 threads, ptr scratch): its share (`shares`).  scratch:
    scratch_size(spec) bytes a thread."""
    tile = with_waiting(spec, tile or tile_of(spec))
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *SHARE, POINTER])
    function = ir.Function(module, kind, name)
    args, (*given, scratch) = tuple(function.args[:-4]), function.args[-4:]
    b = ir.IRBuilder(function.append_basic_block("entry"))
    share = Share(b, *given)
    batch, rows, columns, depth = (extent(b, args, axis) for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    (row_tiles, row_at), (column_tiles, column_at) = _cuts(b, spec, tile, rows, columns)
    by_columns = _by_columns(b, spec, tile, share.threads, (batch, rows, columns), (row_tiles, column_tiles))
    tiles = b.select(by_columns, column_tiles, row_tiles)
    start, stop = share.of(b.mul(batch, tiles))
    blocks = spec.packed is None and tile.schedule == "blocks" and not spec.pairs
    plain = blocks and stays_unpacked(b, spec, rows, columns, depth)
    some = b.icmp_signed(">", b.mul(rows, columns), ZERO)

    def schedule(unpacked: bool) -> None:
        """The region by one of the two schedules, which is emitted where it may be needed."""
        if tile.schedule == "runs":
            b.call(emit_thin(module, name, spec, tile), [*region, scratch])
        elif tile.schedule != "blocks":
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


def _by_columns(b: ir.IRBuilder, spec: Contraction, tile: Tile, threads: ir.Value,
                sizes: tuple[ir.Value, ir.Value, ir.Value], tiles: tuple[ir.Value, ir.Value]) -> ir.Value:
    """Whether threads are done sooner if they share out columns: a thread packs its part of the side that is cut, and
    all of the other one."""
    if tile.schedule == "runs":
        return I1(0)
    batch, rows, columns = sizes
    each = ceil_div(b, batch, threads)
    packing = _packing(spec, tile)

    def time(cut: int) -> ir.Value:
        """About how many products a step along depth takes as long as, if rows (0) or columns (1) are cut."""
        across = columns if cut == 0 else rows
        total = (rows, columns)[cut]
        most = maximum(b, tiles[cut], ONE)
        share = ceil_div(b, b.mul(ceil_div(b, b.mul(batch, most), threads), total), most)
        own = b.mul(share, b.add(across, const(packing[cut])))
        return b.add(own, b.mul(b.mul(each, across), const(packing[1 - cut])))
    return b.icmp_signed("<", time(1), time(0))


def _packing(spec: Contraction, tile: Tile) -> tuple[int, int]:
    """Products of one element in the time that it takes to pack it: an element of left, and of right."""
    if tile.schedule != "blocks":
        return 0, PACKING if tile.schedule == "panels" else 0
    in_place = left_layout(spec, tile)[0]
    if spec.packed is not None:
        return _reading(spec, 0) if in_place else PACKING, _reading(spec, 1)
    return 0 if in_place else PACKING, READING if packs_in_tiles(spec, tile) else PACKING


def _reading(spec: Contraction, side: int) -> int:
    """The same of reading an element of left (0) or right (1), all of which a thread goes through."""
    size, depth = spec.known[side], spec.known[2]
    far = size is None or depth is None or size * depth * element_bytes(spec.element) * 2 > host().second_cache
    return FAR if far else READING


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
    tile = with_waiting(spec, tile or tile_of(spec))
    if tile.schedule == "runs":
        return thin_scratch(spec, tile)
    return sum(scratch_parts(spec, tile)) + LINE if tile.schedule == "blocks" else direct_scratch(spec, tile)


def tile_of(spec: Contraction) -> Tile:
    """The tile of the schedule that suits the product best."""
    return thin_tile(spec) or (None if spec.pairs else direct_tile(spec)) or blocks_tile(spec)


def tiles_of(spec: Contraction) -> list[Tile]:
    """The tiles of all schedules that claim the product, the one that suits it best by the model first."""
    if in_registers(spec):
        return [blocks_tile(spec)]
    thin, direct = thin_tile(spec), None if spec.pairs else direct_tile(spec)
    found = [] if thin is None else [thin]
    found += [] if direct is None else [direct, replace(direct, schedule="panels")]
    return [*dict.fromkeys((*found, *choose_tiles(spec.element, MOST_TILES, known=spec.known)))]


def packed_size(spec: Contraction, tile: Tile | None = None) -> int | None:
    """Bytes of all of right when it is packed; None where they are not known, or packing is of no use."""
    tile = tile or blocks_tile(spec)
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None or spec.batch or thin_tile(spec) is not None:
        return None
    b = ir.IRBuilder()
    if not spec.pairs and stays_unpacked(b, spec, const(rows), const(columns), const(depth), once=True) is not False:
        return None
    return up(columns, tile.width) * (up(depth, tile.lanes) if spec.pairs else depth) * element_bytes(spec.element)

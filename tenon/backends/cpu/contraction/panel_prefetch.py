"""Prefetch into L2 while tiles are computed: each fetches its share of the next panel of right.

A share is (address, bytes from chunk to chunk, bytes from line to line): at every chunk of depth a tile asks for
`spread` lines of memory, `cache_lines` of each.  A fetch of what is not needed, or not there, does no harm.
"""
import math
from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args, GemmSpec, Tile, loops_rows_inside
from tenon.backends.cpu.contraction.ir_helpers import I64, ONE, ZERO, const, element_bytes, prefetch, unravel
from tenon.target import LINE_BYTES, Target

L2_WAYS = 16            # of the second cache: lines that have the same place in it
MAX_PREFETCHED_LINES = 8  # lines of memory that a chunk asks for
USUAL_TILES = 8         # of rows, where nobody knows how many there are


def fetches(spec: GemmSpec, tile: Tile) -> bool:
    """Whether a panel of right is made of lines of memory, equally far apart, that stay where they are fetched to."""
    x = spec.right
    plain = x.pointer is not None and x.inside is None and x.step == 1
    if loops_rows_inside(spec, tile):
        return False            # they are near, all of them
    lines = plain and len(spec.depth) == 1 and (x.flat or len(spec.columns) == 1)
    return spec.packed is not None or (lines and not (by_lines(spec) and crowded(spec, tile)))


def crowded(spec: GemmSpec, tile: Tile, machine: Target | None = None) -> bool:
    """Whether lines of a panel in memory may drive each other out of the second cache: if nobody knows, they may.

    Where the cache scatters lines, fetching them takes 0.94 of the time of 256x1024x1024, however far they are apart.
    """
    machine = machine or spec.target
    if machine.hashes_l2_sets:
        return False
    way = machine.l2_bytes // L2_WAYS
    apart = (spec.right.apart or 0) * element_bytes(spec.element)
    return min(spec.known[2] or tile.depth, tile.depth) > way // math.gcd(apart, way) * L2_WAYS // 2


def ahead_types(spec: GemmSpec, tile: Tile) -> list[ir.Type]:
    """Of the arguments of a tile that say what it fetches."""
    return [ir.PointerType(), I64, I64] if fetches(spec, tile) else []


def nothing(spec: GemmSpec, tile: Tile, where: ir.Value) -> list[ir.Value]:
    """A share that is of no use and costs nothing: memory that is near already."""
    return [where, ZERO, ZERO] if fetches(spec, tile) else []


def fetch(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, share: Sequence[ir.Value], chunk: ir.Value) -> None:
    """Ask for what a tile fetches at this chunk of depth."""
    if not share:
        return
    start, step, apart = share
    start = b.gep(start, [b.mul(chunk, step)], source_etype=ir.IntType(8))
    for i in range(spread(spec, tile)):
        line = b.gep(start, [b.mul(apart, const(i))], source_etype=ir.IntType(8)) if i else start
        for place in cache_lines(spec, tile):
            prefetch(b, b.gep(line, [const(place)], source_etype=ir.IntType(8)), 2)


def spread(spec: GemmSpec, tile: Tile) -> int:
    """How many lines of memory a tile asks for at each chunk, so that all tiles of a panel ask for the next one."""
    rows = spec.known[0]
    tiles = max(-(-min(rows, tile.block_rows) // tile.rows), 1) if rows is not None else USUAL_TILES
    return min(-(-lines_of(spec, tile) // tiles), MAX_PREFETCHED_LINES)


def lines_of(spec: GemmSpec, tile: Tile) -> int:
    """How many lines of memory a panel has for each chunk of its depth."""
    if spec.packed is not None:
        return -(-tile.width * tile.lanes * element_bytes(spec.element) // LINE_BYTES)
    return tile.lanes if by_lines(spec) else tile.width


def sharers(spec: GemmSpec, tile: Tile) -> int:
    """How many tiles of a panel fetch a share of the next one, until there is nothing left of it."""
    return -(-lines_of(spec, tile) // spread(spec, tile))


def cache_lines(spec: GemmSpec, tile: Tile) -> list[int]:
    """Where, in a line of memory, cache lines are asked for."""
    width = tile.width * element_bytes(spec.element)
    return [*range(0, width, LINE_BYTES), width - 1] if by_lines(spec) else [0]


def by_lines(spec: GemmSpec) -> bool:
    """Whether lines of memory are those of the panel, and not its columns."""
    return spec.packed is None and spec.right.contiguous == "outer"


def shares_of(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, g: ir.Value,
              corner: tuple[ir.Value, ir.Value], depth: ir.Value) -> list[ir.Value]:
    """What the first tile fetches of the panel from corner = (column, k) on, which is `depth` deep; and how many bytes
    further the share of each following tile begins."""
    start, apart = line_of(b, spec, args, g, *corner)
    step = between = b.mul(apart, const(spread(spec, tile)))
    if by_lines(spec):
        between = b.mul(step, b.udiv(depth, const(tile.lanes)))
    else:
        step = const(tile.lanes * element_bytes(spec.element))
    return [start, step, apart, between]


def line_of(b: ir.IRBuilder, spec: GemmSpec, args: Args, g: ir.Value, n: ir.Value,
            k: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(where right[n, k] is, bytes to the next line of memory)."""
    following = (n, b.add(k, ONE)) if by_lines(spec) else (b.add(n, ONE), k)

    def where(n: ir.Value, k: ir.Value) -> ir.Value:
        index = [unravel(b, place, [size(b, args) for size in axis])
                 for place, axis in zip((g, n, k), (spec.batch, spec.columns, spec.depth), strict=True)]
        assert spec.right.pointer is not None
        return spec.right.pointer(b, args, *index)
    here, there = where(n, k), where(*following)
    return here, b.sub(b.ptrtoint(there, I64), b.ptrtoint(here, I64))

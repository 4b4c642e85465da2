"""What is fetched into the second cache while a tile is computed: memory that will be packed next, or was before.

A run is (address, cache lines - 1): every step of a tile asks for one line, and for the last again when all are on
their way.  Two runs are rows of left that the next tiles use; the others are lines of the next block of right, or,
where all of right is packed already, a share of a panel of that block.
"""
from llvmlite import ir

from .emit import ZERO, const, element_bytes, unravel
from .spec import Args, Contraction, Operand, Size, Tile, reads_in_place

LEFT_RUNS, MOST_RIGHT_RUNS = 2, 4
LINE = 64               # bytes of a cache line
Run = tuple[ir.Value, ir.Value]


def runs_ahead(spec: Contraction, tile: Tile) -> int:
    """How many runs a tile is given."""
    return LEFT_RUNS * fetches_left(spec) + right_runs(spec, tile)


def right_runs(spec: Contraction, tile: Tile) -> int:
    """How many lines of the next block of right a tile fetches: the fewer tiles a block has, the more."""
    if spec.packed is not None:
        return 1
    if not fetches_right(spec):
        return 0
    rows = spec.known[0]
    tiles = tile.columns // tile.width * -(-rows // tile.rows) if rows else tile.depth
    return min(-(-tile.depth // tiles), MOST_RIGHT_RUNS)


def fetches_left(spec: Contraction) -> bool:
    """Whether rows of left are runs of memory."""
    return reads_in_place(spec.left, len(spec.depth))


def fetches_right(spec: Contraction) -> bool:
    """Whether lines of right are runs of memory, along columns or along depth."""
    x = spec.right
    plain = x.pointer is not None and x.inside is None and x.step == 1 and spec.packed is None
    return plain and (x.flat or len(spec.depth if x.contiguous == "depth" else spec.columns) == 1)


def left_run(b: ir.IRBuilder, spec: Contraction, args: Args, g: ir.Value, row: ir.Value, k: ir.Value,
             depth: ir.Value) -> Run:
    """`depth` elements of a row, from k on."""
    return _run(b, spec, spec.left, args, spec.rows, (g, row, k), depth)


def right_run(b: ir.IRBuilder, spec: Contraction, args: Args, g: ir.Value, at: ir.Value,
              corner: tuple[ir.Value, ir.Value], size: tuple[ir.Value, ir.Value]) -> Run:
    """Line number `at` of the block of right that begins at corner = (column, k)."""
    (column, k), (columns, depth) = corner, size
    if spec.right.contiguous == "depth":
        return _run(b, spec, spec.right, args, spec.columns, (g, b.add(column, at), k), depth)
    return _run(b, spec, spec.right, args, spec.columns, (g, column, b.add(k, at)), columns)


def no_run(where: ir.Value) -> Run:
    """A run that is of no use and costs nothing: memory that is near already."""
    return where, ZERO


def _run(b: ir.IRBuilder, spec: Contraction, operand: Operand, args: Args, outer: tuple[Size, ...],
         at: tuple[ir.Value, ir.Value, ir.Value], count: ir.Value) -> Run:
    assert operand.pointer is not None
    index = [unravel(b, place, [size(b, args) for size in axis])
             for place, axis in zip(at, (spec.batch, outer, spec.depth), strict=True)]
    lines = b.udiv(b.mul(count, const(element_bytes(spec.element))), const(LINE))
    return operand.pointer(b, args, *index), lines


def choose(b: ir.IRBuilder, condition: ir.Value, run: Run, other: Run) -> Run:
    """One of two runs."""
    return b.select(condition, run[0], other[0]), b.select(condition, run[1], other[1])

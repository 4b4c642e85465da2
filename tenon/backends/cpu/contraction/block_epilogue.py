"""The epilogue of a whole block of rows, for one that reads and writes much beside the sums.

An optimizer's step reads a weight and its running means, and writes all three.  Tile by tile that is a few lines here
and there of many streams of memory, which nothing fetches in time.  The sums of a block wait in the second cache
instead, row after row, and the epilogue goes along its rows, which the processor follows by itself.
"""
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Tile, uses_block_epilogue
from tenon.backends.cpu.contraction.ir_helpers import element_bytes
from tenon.records import replace

L2_PER_WAITING_SUMS = 2     # L2 holds so many blocks of sums that wait
MIN_BLOCK_TILES = 2     # tiles of a block at least, where columns are cut instead
USUAL_COLUMNS = 2048    # columns of a block, where nobody knows how many there are


def with_waiting(spec: GemmSpec, tile: Tile) -> Tile:
    """The tile whose blocks are so small that their sums stay in the second cache."""
    if tile.schedule != "blocks" or not uses_block_epilogue(spec):
        return tile
    most, known = spec.target.l2_bytes // L2_PER_WAITING_SUMS // element_bytes(spec.element), spec.known[1]
    widest = max(most // (MIN_BLOCK_TILES * tile.rows) // tile.width, 1) * tile.width
    columns = min(-(-(USUAL_COLUMNS if known is None else max(known, 1)) // tile.width) * tile.width, widest)
    rows = max(min(most // columns // tile.rows * tile.rows, tile.block_rows), tile.rows)
    return replace(tile, block_rows=rows, columns=columns)


def apart(tile: Tile) -> int:
    """Elements from a row of sums that wait to the next: no power of two, so that rows do not compete."""
    return tile.columns + tile.lanes

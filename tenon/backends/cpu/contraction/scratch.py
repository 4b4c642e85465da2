"""Scratch memory of a blocked product: the buffers that it packs, one behind another."""
from __future__ import annotations

from tenon.backends.cpu.contraction.block_epilogue import apart
from tenon.backends.cpu.contraction.gemm_spec import (
    GemmSpec,
    Tile,
    columns_along,
    left_layout,
    loops_rows_inside,
    packs_in_tiles,
    uses_block_epilogue,
    whole_tiles,
)
from tenon.backends.cpu.contraction.ir_helpers import element_bytes
from tenon.target import LINE_BYTES, round_up


def scratch_parts(spec: GemmSpec, tile: Tile) -> tuple[int, int, int]:
    """Bytes of the packed panel of right, of packed left, of the partial sums."""
    rows, columns, depth = spec.known
    in_place, row_apart, *_ = left_layout(spec, tile)
    blocks = 1 if depth is None else max(-(-depth // tile.depth), 1)
    block = tile.depth if depth is None else round_up(-(-depth // blocks), tile.lanes) or tile.lanes
    most = tile.block_rows if rows is None else min(round_up(rows, tile.rows), tile.block_rows)
    left = (tile.rows if in_place else most) * max(block, row_apart)
    cut = spec.stored_at is None and (depth is None or depth > tile.depth)
    across = tile.columns if columns is None else min(round_up(columns, tile.width), tile.columns)
    sums = most * (apart(tile) if uses_block_epilogue(spec) else across if cut else 0)
    size, behind = element_bytes(spec.element), tile.lanes * max(tile.width, tile.rows) + tile.lanes
    panels = -(-columns_along(spec, tile) // tile.width) if loops_rows_inside(spec, tile) else 1
    right = (0 if spec.packed is not None else panels * block * tile.width) + behind    # squares go over the end
    sums = max(sums, tile.rows * tile.width)
    return (round_up(right * size, LINE_BYTES), round_up((left + behind) * size, LINE_BYTES),
            round_up(sums * size, LINE_BYTES))


def packs_right(spec: GemmSpec, tile: Tile) -> bool:
    """Whether there are panels that are not packed before, nor by the first tile that reads them."""
    _, whole = whole_tiles(spec, tile)
    return spec.packed is None and not (whole and packs_in_tiles(spec, tile))


def packs_left(spec: GemmSpec, tile: Tile) -> bool:
    """Whether there are rows that are not read where they are."""
    in_place, *_ = left_layout(spec, tile)
    whole, _ = whole_tiles(spec, tile)
    return not (whole and in_place)

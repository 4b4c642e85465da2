"""Row chunks of reductions in an epilogue: each is whole tiles, and they are as even as can be.

Of T tiles and C chunks, no more than tiles, chunk c has the tiles from c * T // C on.  That is found without knowing
who computes which tile, so what is added up does not depend on the number of threads.
"""
from __future__ import annotations

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Tile
from tenon.backends.cpu.contraction.ir_helpers import ONE, const
from tenon.backends.cpu.contraction.machine_model import shares
from tenon.backends.cpu.contraction.small_gemm import tile_count, tile_start


def chunk_start(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, chunk: ir.Value) -> ir.Value:
    """The first row of a chunk; of the one behind the last, none below the number of rows."""
    rows = _rows(spec)
    number = b.udiv(b.mul(chunk, const(_tiles(spec, tile))), const(spec.chunks))
    return b.mul(number, const(tile.rows)) if tile.schedule == "blocks" else tile_start(b, rows, tile.rows, number)


def chunk_of(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, row: ir.Value) -> ir.Value:
    """The chunk that a row is in."""
    after = b.mul(b.add(_tile_of(b, spec, tile, row), ONE), const(spec.chunks))
    return b.udiv(b.sub(after, ONE), const(_tiles(spec, tile)))


def _tile_of(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, row: ir.Value) -> ir.Value:
    """The number of the tile that a row is in."""
    if tile.schedule == "blocks":
        return b.udiv(row, const(tile.rows))
    (larger, parts), *rest = shares(_rows(spec), tile.rows)
    if not rest:
        return b.udiv(row, const(larger))
    smaller, behind = rest[0][0], larger * parts
    beyond = b.add(b.udiv(b.sub(row, const(behind)), const(smaller)), const(parts))
    return b.select(b.icmp_unsigned("<", row, const(behind)), b.udiv(row, const(larger)), beyond)


def _tiles(spec: GemmSpec, tile: Tile) -> int:
    """How many tiles there are along the rows."""
    rows = _rows(spec)
    return -(-rows // tile.rows) if tile.schedule == "blocks" else tile_count(rows, tile.rows)


def _rows(spec: GemmSpec) -> int:
    rows = spec.known[0]
    assert rows is not None, "rows that are added up in chunks are of known number"
    return rows

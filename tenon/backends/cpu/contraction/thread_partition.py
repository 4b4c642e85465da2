"""A thread's share of a product -> the rectangles of the result that it computes.

Threads share out rows or columns, whichever is done sooner, in whole tiles.  Panels of columns are few, and a thread
that has one more than the other keeps it waiting: where rows of left are read in place, the panel in which the share of
a thread ends is cut too.  Its first tiles belong to that share, the others to the next one, and both pack it
(128 x 784 x 512 on two threads, with 5 panels and 6: 0.95 of the time).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from tenon.backends.cpu.contraction.epilogue_row_chunks import chunk_start
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Tile, left_layout, packs_in_tiles
from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I64,
    ZERO,
    ceil_div,
    const,
    element_bytes,
    loop,
    maximum,
    minimum,
)
from tenon.backends.cpu.contraction.small_gemm import tile_count, tile_start
from tenon.llvm.work_partition import PARTS_PER_THREAD, WorkShare

# Products in the time that it takes to pack an element; to read one that a tile packs, or that is packed already; to
# read that one beyond the second cache (128 x 3072 times 3072 x 768, half of the rows: 1.3 times half the time).
PACKING, READING, FAR = 28, 4, 16
HEAD, BODY, TAIL = 0, 1, 2      # of a share: the end of a panel, whole panels, the beginning of one


class Region(NamedTuple):
    """A rectangle of the result of one product of the batch."""
    batch: ir.Value
    row_from: ir.Value
    row_to: ir.Value
    column_from: ir.Value
    column_to: ir.Value


class Sizes(NamedTuple):
    """Of all products."""
    batch: ir.Value
    rows: ir.Value
    columns: ir.Value


class _Axis(NamedTuple):
    """The tiles along rows or columns, or chunks of tiles: how many there are, and where one begins."""
    count: ir.Value
    start: Callable[[ir.Value], ir.Value]


class _Place(NamedTuple):
    """Where a share begins or ends: a tile of the axis that is shared out, and how many tiles of rows of that panel
    belong to what is before."""
    tile: ir.Value
    rows: ir.Value


@contextmanager
def each_region(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, share: WorkShare, sizes: Sizes) -> Iterator[Region]:
    """Write once what is done for every rectangle of the share; none of the sizes of a product is 0."""
    with _Regions(b, spec, tile, share, sizes).each() as region:
        yield region


class _Regions:
    """The values that the steps share."""

    def __init__(self, b: ir.IRBuilder, spec: GemmSpec, tile: Tile, share: WorkShare, sizes: Sizes) -> None:
        self.b, self.spec, self.tile, self.share, self.sizes = b, spec, tile, share, sizes
        self.cuts_panels = tile.schedule == "blocks" and left_layout(spec, tile)[0]
        self.rows, self.columns = _axes(b, spec, tile, sizes)
        self.by_columns = self.is_by_columns()
        self.count = b.select(self.by_columns, self.columns.count, self.rows.count)

    @contextmanager
    def each(self) -> Iterator[Region]:
        """Product after product of the batch, what the share has of it."""
        b = self.b
        start, stop = (self.place(x, tile) for x, tile in
                       zip((self.share.first, self.share.until),
                           self.share.of(b.mul(self.sizes.batch, self.count)), strict=True))
        with loop(b, b.udiv(start.tile, self.count), ceil_div(b, self.behind(stop), self.count)) as (g, _):
            before = b.mul(g, self.count)
            low, high = b.sub(start.tile, before), b.sub(stop.tile, before)
            begin = _Place(maximum(b, low, ZERO), b.select(b.icmp_signed("<", low, ZERO), ZERO, start.rows))
            end = _Place(minimum(b, high, self.count), b.select(b.icmp_signed("<", high, self.count), stop.rows, ZERO))
            if not self.cuts_panels:
                yield self.region(g, begin.tile, end.tile, ZERO, self.rows.count)
                return
            with loop(b, const(HEAD), const(TAIL + 1), short=True) as (piece, _):
                first, last, top, bottom = self.piece(piece, begin, end)
                with b.if_then(b.icmp_signed("<", first, last)):
                    yield self.region(g, first, last, top, bottom)

    def place(self, part: ir.Value, tile: ir.Value) -> _Place:
        """Where a part begins: with a whole tile, but in the panel in which the share of its thread begins."""
        if not self.cuts_panels:
            return _Place(tile, ZERO)
        b, own, here = self.b, self.cut(self.b.and_(part, const(-PARTS_PER_THREAD))), self.cut(part)
        rows = b.select(b.icmp_signed("==", own.tile, here.tile), own.rows, ZERO)
        return _Place(b.select(self.by_columns, here.tile, tile), b.select(self.by_columns, rows, ZERO))

    def cut(self, part: ir.Value) -> _Place:
        """Where a part begins, to a tile: panel after panel, as many vectors as it is wide for every tile of rows."""
        b, vectors, (batch, _, columns) = self.b, const(self.tile.vectors), self.sizes
        across, down = ceil_div(b, columns, const(self.tile.lanes)), self.rows.count
        each = b.mul(across, down)
        done = b.udiv(b.mul(b.mul(batch, each), part), b.mul(self.share.threads, const(PARTS_PER_THREAD)))
        g, inside = b.udiv(done, each), b.urem(done, each)
        panel = b.udiv(inside, b.mul(vectors, down))
        before = b.mul(panel, vectors)
        rows = b.udiv(b.sub(inside, b.mul(before, down)), minimum(b, vectors, b.sub(across, before)))
        return _Place(b.add(b.mul(g, self.columns.count), panel), rows)

    def behind(self, end: _Place) -> ir.Value:
        """The first tile of which nothing is before this end."""
        return self.b.add(end.tile, self.b.zext(self.b.icmp_signed(">", end.rows, ZERO), I64))

    def piece(self, piece: ir.Value, begin: _Place, end: _Place) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """(the first tile, the one behind the last, the same of tiles of rows) of a piece, which may have none."""
        b, whole = self.b, self.behind(begin)
        in_one = b.icmp_signed("<", end.tile, whole)
        is_head, is_body = (b.icmp_signed("==", piece, const(x)) for x in (HEAD, BODY))
        first = b.select(is_head, begin.tile, b.select(is_body, whole, b.select(in_one, whole, end.tile)))
        last = b.select(is_head, whole, b.select(is_body, end.tile, self.behind(end)))
        top = b.select(is_head, begin.rows, ZERO)
        ends = b.select(is_head, in_one, b.not_(is_body))
        return first, last, top, b.select(ends, end.rows, self.rows.count)

    def region(self, g: ir.Value, first: ir.Value, last: ir.Value, top: ir.Value, bottom: ir.Value) -> Region:
        """Some tiles of the axis that is shared out; of panels, these tiles of rows."""
        b, (_, rows, columns) = self.b, self.sizes
        row_from, row_to = (self.rows.start(b.select(self.by_columns, row, tile))
                            for row, tile in ((top, first), (bottom, last)))
        column_from, column_to = (b.select(self.by_columns, self.columns.start(tile), whole)
                                  for tile, whole in ((first, ZERO), (last, columns)))
        return Region(g, row_from, minimum(b, row_to, rows), column_from, minimum(b, column_to, columns))

    def is_by_columns(self) -> ir.Value:
        """Whether threads are done sooner if they share out columns: a thread packs its part of the side that is cut,
        and all of the other one."""
        if self.tile.schedule == "runs":
            return I1(0)
        b, threads, (batch, rows, columns) = self.b, self.share.threads, self.sizes
        each = ceil_div(b, batch, threads)
        left, right = _packing(self.spec, self.tile)

        def time(own: ir.Value, whole: ir.Value, packing: int, other: int) -> ir.Value:
            """About how many products a step along depth takes as long as, for its part of one side, and all of the
            other."""
            return b.add(b.mul(own, b.add(whole, const(packing))), b.mul(b.mul(each, whole), const(other)))

        def most(axis: _Axis, total: ir.Value) -> ir.Value:
            """The rows, or columns, of the thread that has most."""
            return ceil_div(b, b.mul(ceil_div(b, b.mul(batch, axis.count), threads), total), axis.count)
        part = ceil_div(b, b.mul(batch, columns), threads) if self.cuts_panels else most(self.columns, columns)
        return b.icmp_signed("<", time(part, rows, right, left), time(most(self.rows, rows), columns, left, right))


def _packing(spec: GemmSpec, tile: Tile) -> tuple[int, int]:
    """Products of one element in the time that it takes to pack it: an element of left, and of right."""
    if tile.schedule != "blocks":
        return 0, PACKING if tile.schedule == "panels" else 0
    in_place = left_layout(spec, tile)[0]
    if spec.packed is not None:
        return _reading(spec, 0) if in_place else PACKING, _reading(spec, 1)
    return 0 if in_place else PACKING, READING if packs_in_tiles(spec, tile) else PACKING


def _reading(spec: GemmSpec, side: int) -> int:
    """The same of reading an element of left (0) or right (1), all of which a thread goes through."""
    size, depth = spec.known[side], spec.known[2]
    far = size is None or depth is None or size * depth * element_bytes(spec.element) * 2 > spec.target.l2_bytes
    return FAR if far else READING


def _axes(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, sizes: Sizes) -> tuple[_Axis, _Axis]:
    """The tiles of rows, and of columns."""
    chunks = _Axis(const(spec.chunks), lambda x: chunk_start(b, spec, tile, x)) if spec.chunks else None
    if tile.schedule == "blocks":
        down, across = const(tile.rows), const(tile.width)
        return (chunks or _Axis(ceil_div(b, sizes.rows, down), lambda x: b.mul(x, down)),
                _Axis(ceil_div(b, sizes.columns, across), lambda x: b.mul(x, across)))
    height, width, _ = spec.known
    assert height is not None and width is not None
    vectors = -(-width // tile.lanes)
    return (chunks or _Axis(const(tile_count(height, tile.rows)), lambda x: tile_start(b, height, tile.rows, x)),
            _Axis(const(tile_count(vectors, tile.vectors)),
                  lambda x: b.mul(tile_start(b, vectors, tile.vectors, x), const(tile.lanes))))

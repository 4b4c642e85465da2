"""Both factors of Winograd's products -> copies with channels side by side, whose tiles are transformed.

`InputElements` are those of the factor that is read in windows, `Gradients` of the one that lies as results do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from tenon.backends.cpu import scalar_codegen as scalar
from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    between,
    const,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    minimum,
    store_vector,
    transpose,
    zero,
)
from tenon.backends.cpu.contraction.transpose_registers import addresses, in_memory, lines_at, widened
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.winograd.winograd_blocking import STEP, Panels, WinogradBlock, WinogradTiles
from tenon.backends.cpu.conv_direct.winograd.winograd_transforms import Line, Tilings, both_ways, of_elements, of_sums
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I32, POINTER, register
from tenon.llvm import shared_functions
from tenon.locks import cached_property
from tenon.loops.affine import affine
from tenon.loops.expressions import Expr, Load
from tenon.loops.window_access import Axis, count
from tenon.records import dataclass
from tenon.types import DType

MAX_CARRIED = 16                # vectors that are kept from one tile to the next


class Copies:
    """Writes the loops that copy a factor, a vector of its channels at a time, and transform tiles of the copy."""

    def __init__(self, values: Values, tiles: WinogradTiles, load: Load) -> None:
        self.values, self.b, self.tiles, self.load = values, values.b, tiles, load
        self.element, self.lanes = register(load.dtype), tiles.lanes

    @cached_property
    def slots(self) -> ir.Value:
        """Memory for the places where lines begin."""
        return addresses(self.b, self.lanes)

    def starts(self, axis: Axis, first: ir.Value, offset: Expr) -> ir.Value:
        """Where the lines of a vector of channels (or filters) begin; those beyond the last are the last one's."""
        b = self.b
        with loop(b, ZERO, const(self.lanes), short=True) as (k, _):
            bind_indices(self.values, axis, minimum(b, b.add(first, k), const(count(axis) - 1)))
            b.store(self.values.address(self.load.buffer, offset), address(b, self.slots, k, POINTER))
        return self.slots

    def cover_rows(self, starts: ir.Value, copy: ir.Value, rows: ir.Value, begin: ir.Value, down: tuple[int, int, int],
                   across: tuple[int, int, int, int]) -> None:
        """The copy of some rows from `begin` on; `down`: low, high, stride; `across`: before, first, length, until."""
        given = [starts, copy, rows, begin, *map(const, (*down, *across, self.tiles.pitch))]
        shared_functions.call(self.b, cover_rows, (self.load.dtype, self.lanes), given)


def cover_rows(b: ir.IRBuilder, dtype: DType, lanes: int, starts: ir.Value, copy: ir.Value, rows: ir.Value,
               begin: ir.Value, low: ir.Value, high: ir.Value, stride: ir.Value, before: ir.Value, first: ir.Value,
               length: ir.Value, until: ir.Value, pitch: ir.Value) -> None:
    """Write a piece: `rows` rows, `pitch` columns apart, of vectors of channels, whose lines begin at `starts`.

    Rows from `low` to `high` exist, `stride` apart; of each there are `length` elements from `first` on, `before` zeros
    in front of them and zeros behind, up to column `until`.
    """
    element, lines = register(dtype), lines_at(b, starts, lanes)
    copied = b.mul(b.udiv(b.add(length, const(lanes - 1)), const(lanes)), const(lanes))
    left = b.sub(length, b.sub(copied, const(lanes)))
    all_lanes, last = lanes_below(lanes, lanes), between(b, ir.Constant(I32, 0), b.trunc(left, I32), lanes)
    none, missing = zero(ir.VectorType(in_memory(dtype), lanes)), lanes_below(0, lanes)

    def at(place: ir.Value, column: ir.Value) -> ir.Value:
        return address(b, place, b.mul(column, const(lanes)), element)

    def zeros(place: ir.Value, start: ir.Value, stop: ir.Value) -> None:
        with loop(b, start, stop, short=True) as (x, _):
            store_vector(b, zero(ir.VectorType(element, lanes)), at(place, x))
    with loop(b, ZERO, rows, short=True) as (t, _):
        u, target = b.add(begin, t), at(copy, b.mul(t, pitch))
        valid = b.and_(b.icmp_signed(">=", u, low), b.icmp_signed("<", u, high))
        offset, inner = b.add(b.mul(u, stride), first), at(target, before)
        whole, part = b.select(valid, all_lanes, missing), b.select(valid, last, missing)
        zeros(target, ZERO, before)
        with loop(b, ZERO, copied, const(lanes), short=True) as (x, _):
            mask = b.select(b.icmp_signed(">=", x, b.sub(copied, const(lanes))), part, whole)
            where = b.add(offset, x)
            found = [widened(b, masked_load(b, b.gep(line, [where], source_etype=scalar.in_memory(dtype)), mask, none),
                             dtype, lanes) for line in lines]
            for k, column in enumerate(transpose(b, found)):
                store_vector(b, column, at(inner, b.add(x, const(k))))
        zeros(target, b.add(before, copied), until)


@dataclass(frozen=True)
class InputLayout:
    """Where transformed numbers lie: elements from one frequency, tile, and vector of channels (or panel) to the next.
    """

    frequency: int
    tile: int
    vector: int


class InputElements(Copies):
    """The factor that is read in windows, transformed: for each frequency and tile vectors of channels."""

    def __init__(self, values: Values, tiles: WinogradTiles, copy: ir.Value, target: ir.Value,
                 layout: InputLayout) -> None:
        super().__init__(values, tiles, tiles.windows.load)
        self.copy, self.target, self.layout = copy, target, layout

    def emit(self, block: WinogradBlock, vectors: tuple[ir.Value, ir.Value]) -> None:
        """Those of a block, of some vectors of channels."""
        b, tiles, (down, across) = self.b, self.tiles, self.tiles.slides
        begin = b.add(b.mul(block.first, const(STEP * down.step)), const(down.first + down.shift))
        rows = b.add(b.mul(block.rows, const(STEP * down.step)), const(down.tiling.covered(0)))
        with loop(b, *vectors, short=True) as (vector, _), loop(b, ZERO, block.images, short=True) as (i, _):
            bind_indices(self.values, tiles.windows.outside, b.add(block.image, i))
            starts = self.starts(tiles.windows.channels, b.mul(vector, const(self.lanes)), tiles.windows.base)
            self.cover_rows(starts, self.copy, rows, begin, (down.low, down.high, down.stride),
                            (tiles.before(across), across.low, across.high - across.low, tiles.pitch))
            place = b.add(b.mul(b.sub(vector, vectors[0]), const(self.layout.vector)),
                          b.mul(b.mul(i, const(tiles.rows * tiles.across)), const(self.layout.tile)))
            numbers = tiles.across, tiles.pitch, self.layout.tile, self.layout.frequency
            shared_functions.call(b, transform_elements, (self.element, self.lanes, tiles.tilings), [
                self.copy, address(b, self.target, place, self.element), block.rows, *map(const, numbers)])


@contextmanager
def over_tiles(b: ir.IRBuilder, number: ir.Value, gap: int) -> Iterator[tuple[ir.Value, ir.Value]]:
    """A loop over so many tiles along one axis: (the tile, where it begins)."""
    with loop(b, ZERO, b.udiv(number, const(gap)), short=True) as (run, _), loop(b, ZERO, const(gap), short=True) as (
            phase, _):
        first = b.mul(run, const(gap))
        yield b.add(first, phase), b.add(b.mul(first, const(STEP)), phase)


def transform_elements(b: ir.IRBuilder, element: ir.Type, lanes: int, tilings: Tilings, copy: ir.Value,
                       target: ir.Value, rows: ir.Value, across: ir.Value, pitch: ir.Value, apart: ir.Value,
                       frequency: ir.Value) -> None:
    """Write a piece: rows of tiles, transformed; columns that two of them cover are transformed once, if they are few.
    """
    line, (down, beside) = b.mul(pitch, const(lanes)), tilings
    moved = STEP * beside.step                                      # columns from one tile to the next
    shared = max(beside.side - moved, 0)
    shared = shared if shared * down.frequencies <= MAX_CARRIED else 0

    def column(start: ir.Value, number: int) -> Line:
        """A column of a tile, transformed."""
        at = address(b, start, const(number * beside.gap * lanes), element)
        return of_elements(b, down, [load_vector(b, address(b, at, b.mul(line, const(y * down.gap)), element), element,
                                                 lanes) for y in range(down.side)])

    def columns(start: ir.Value, numbers: range) -> Line:
        return [value for number in numbers for value in column(start, number)]
    with over_tiles(b, rows, down.gap) as (row, first), loop(b, ZERO, const(beside.gap), short=True) as (phase, _):
        begin = b.add(b.mul(b.mul(first, const(down.step)), line), b.mul(phase, const(lanes)))
        start, known = address(b, copy, begin, element), range(shared)
        with loop(b, ZERO, b.udiv(across, const(beside.gap)), carried=columns(start, known), short=True) as (j, kept):
            at = address(b, start, b.mul(j, const(moved * beside.gap * lanes)), element)
            values = [*kept, *columns(at, range(shared, beside.side))]
            lines = [values[y::down.frequencies] for y in range(down.frequencies)]
            kept[:] = values[moved * down.frequencies:] if shared else []
            tile = b.add(b.mul(row, across), b.add(b.mul(j, const(beside.gap)), phase))
            place = address(b, target, b.mul(tile, apart), element)
            for y, found in enumerate(lines):
                store_line(b, of_elements(b, beside, found), place, y, frequency, element)


def store_line(b: ir.IRBuilder, line: Line, place: ir.Value, y: int, frequency: ir.Value, element: ir.Type) -> None:
    """Row y of a square of frequencies, each so far from the one before."""
    for x, value in enumerate(line):
        store_vector(b, value, address(b, place, b.mul(const(y * len(line) + x), frequency), element))


class Gradients(Copies):
    """The factor that lies as results do, transformed: for each frequency panels of filters, a line for each tile."""

    def __init__(self, values: Values, tiles: WinogradTiles, load: Load, filters: Axis, panels: Panels, copy: ir.Value,
                 target: ir.Value, layout: InputLayout) -> None:
        super().__init__(values, tiles, load)
        self.filters, self.panels, self.copy, self.target, self.layout = filters, panels, copy, target, layout

    def emit(self, block: WinogradBlock, first: ir.Value, panels: ir.Value) -> None:
        """Those of a block, of so many panels from filter `first` on."""
        b, tiles, vectors, (down, across) = self.b, self.tiles, const(self.panels.vectors), self.tiles.slides
        apart = affine(self.load.offset).terms.get(down.place, 0)
        assert isinstance(apart, int)
        begin, rows = b.mul(block.first, const(STEP)), b.mul(block.rows, const(STEP))
        with loop(b, ZERO, b.mul(panels, vectors), short=True) as (vector, _), \
                loop(b, ZERO, block.images, short=True) as (i, _):
            bind_indices(self.values, tiles.windows.outside, b.add(block.image, i))
            self.values.known.update({slide.place: ZERO for slide in tiles.slides})
            filters = b.add(first, b.mul(vector, const(self.lanes)))
            starts = self.starts(self.filters, filters, self.load.offset)
            self.cover_rows(starts, self.copy, rows, begin, (0, down.places, apart), (0, 0, across.places, 0))
            line = b.mul(b.mul(i, const(tiles.rows * tiles.across)), const(self.layout.tile))
            place = b.add(line, b.mul(b.urem(vector, vectors), const(self.lanes)))
            numbers = tiles.across, tiles.pitch, self.layout.tile, self.layout.frequency
            shared_functions.call(b, transform_places, (self.element, self.lanes, tiles.tilings), [
                self.copy, address(b, self.panel(b.udiv(vector, vectors), ZERO), place, self.element), block.rows,
                *map(const, numbers)])

    def panel(self, panel: ir.Value, frequency: ir.Value) -> ir.Value:
        """Where the lines of a panel are."""
        b, layout = self.b, self.layout
        at = b.add(b.mul(frequency, const(layout.frequency)), b.mul(panel, const(layout.vector)))
        return address(b, self.target, at, self.element)


def transform_places(b: ir.IRBuilder, element: ir.Type, lanes: int, tilings: Tilings, copy: ir.Value,
                     target: ir.Value, rows: ir.Value, across: ir.Value, pitch: ir.Value, apart: ir.Value,
                     frequency: ir.Value) -> None:
    """Write a piece: what the places of rows of tiles have, transformed."""
    line, (down, beside) = b.mul(pitch, const(lanes)), (tiling.gap for tiling in tilings)
    with over_tiles(b, rows, down) as (row, first), over_tiles(b, across, beside) as (j, column):
        at = b.add(b.mul(first, line), b.mul(column, const(lanes)))
        square = [[load_vector(b, address(b, copy, b.add(b.add(at, b.mul(line, const(y * down))),
                                                         const(x * beside * lanes)), element), element, lanes)
                   for x in range(STEP)] for y in range(STEP)]
        place = address(b, target, b.mul(b.add(b.mul(row, across), j), apart), element)
        for y, found in enumerate(both_ways(b, of_sums, tilings, square)):
            store_line(b, found, place, y, frequency, element)

"""Winograd's F(2x2, 3x3): tiles of 2 x 2 windows of 3 x 3 taps, with 16 multiplications instead of 36.

    y = A' ((G w G') * (B' d B)) A          d: the 4 x 4 elements that a tile covers, w: the taps, y: the 2 x 2 sums

What is multiplied is summed over channels first, so it is a product of matrices for each of the 16 frequencies.  The
gradient of w is G' ((A y A') * (B' d B)) G, summed over tiles.  All coefficients are 0, 1, -1 and 1/2, and a tile adds
up 4 numbers at most each way, so the result is as close as that of 9 times as many products added up in a row.

Lavin, Gray: Fast algorithms for convolutional neural networks, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from tenon.backends.cpu import arithmetic as scalar
from tenon.backends.cpu.arithmetic import register
from tenon.backends.cpu.contraction.emit import (
    ONE,
    ZERO,
    address,
    const,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    minimum,
    multiply_add,
    splat,
    store_vector,
    transpose,
    zero,
)
from tenon.backends.cpu.contraction.machine import best_tile, host
from tenon.backends.cpu.sliding.cover import know, widened
from tenon.backends.cpu.sliding.task import up
from tenon.backends.cpu.values import Values
from tenon.loops.affine import affine
from tenon.loops.expressions import Expr, Load
from tenon.loops.windows import Axis, Slide, Windows, count

TAPS, SIDE, STEP = 3, 4, 2      # of a window, of what a tile covers, from tile to tile
FREQUENCIES = SIDE * SIDE
TILES = 128                     # of a block, about
Line = list[ir.Value]
Transform = Callable[[ir.IRBuilder, Sequence[ir.Value]], Line]


# ---------------------------------------------------------------- the transforms of one line

def of_elements(b: ir.IRBuilder, d: Sequence[ir.Value]) -> Line:
    """B' d: four elements."""
    return [b.fsub(d[0], d[2]), b.fadd(d[1], d[2]), b.fsub(d[2], d[1]), b.fsub(d[1], d[3])]


def of_taps(b: ir.IRBuilder, w: Sequence[ir.Value]) -> Line:
    """G w: three taps."""
    half = _half(w[0].type)
    outer = b.fadd(w[0], w[2])
    return [w[0], b.fmul(b.fadd(outer, w[1]), half), b.fmul(b.fsub(outer, w[1]), half), w[2]]


def to_sums(b: ir.IRBuilder, m: Sequence[ir.Value]) -> Line:
    """A' m: the sums of two windows."""
    return [b.fadd(b.fadd(m[0], m[1]), m[2]), b.fsub(b.fsub(m[1], m[2]), m[3])]


def of_sums(b: ir.IRBuilder, y: Sequence[ir.Value]) -> Line:
    """A y: what two places have."""
    return [y[0], b.fadd(y[0], y[1]), b.fsub(y[0], y[1]), b.fneg(y[1])]


def to_taps(b: ir.IRBuilder, m: Sequence[ir.Value]) -> Line:
    """G' m: the sums of three taps."""
    half = _half(m[0].type)
    both, difference = b.fmul(b.fadd(m[1], m[2]), half), b.fmul(b.fsub(m[1], m[2]), half)
    return [b.fadd(m[0], both), difference, b.fadd(both, m[3])]


def _half(kind: ir.Type) -> ir.Constant:
    """1/2, in every lane of a vector."""
    lanes = [ir.Constant(kind.element, 0.5)] * kind.count if isinstance(kind, ir.VectorType) else 0.5
    return ir.Constant(kind, lanes)


def both_ways(b: ir.IRBuilder, transform: Transform, square: Sequence[Sequence[ir.Value]]) -> list[Line]:
    """A transform of all columns, then of all rows."""
    columns = [transform(b, column) for column in zip(*square, strict=True)]
    return [transform(b, row) for row in zip(*columns, strict=True)]


# ---------------------------------------------------------------- tiles and blocks

@dataclass(frozen=True)
class Tiles:
    """The tiles of all images; a block is some `images`, or of one image some `rows` of tiles."""

    windows: Windows
    lanes: int
    images: int
    rows: int

    @property
    def slides(self) -> tuple[Slide, ...]:
        return self.windows.slides

    @property
    def down(self) -> int:
        """Rows of tiles of an image."""
        return -(-self.slides[0].places // STEP)

    @property
    def across(self) -> int:
        """Tiles of a row."""
        return -(-self.slides[1].places // STEP)

    @property
    def block(self) -> int:
        """Tiles of a block."""
        return self.images * self.rows * self.across

    @property
    def blocks(self) -> int:
        return -(-count(self.windows.outside) // self.images) * -(-self.down // self.rows)

    @property
    def channels(self) -> int:
        return count(self.windows.channels)

    @property
    def pitch(self) -> int:
        """Columns of a copy: what a row of tiles covers, and the whole vectors that rows are copied in."""
        last = self.slides[1]
        return max(STEP * (self.across + 1), self.before(last) + up(last.high - last.low, self.lanes),
                   up(last.places, self.lanes))

    @staticmethod
    def before(slide: Slide) -> int:
        """How many zeros come before the first element."""
        return slide.low - slide.first - slide.shift

    @property
    def copied(self) -> int:
        """Elements of the copy of one vector of channels."""
        return STEP * (self.rows + 1) * self.pitch * self.lanes

    def apart(self, width: int) -> int:
        """Elements from one frequency to the next, of all tiles of a block: never a power of two."""
        return self.block * width + self.lanes


def tiles_of(windows: Windows, lanes: int) -> Tiles:
    """Blocks of about TILES tiles, all of about one size."""
    whole = Tiles(windows, lanes, 1, -(-windows.slides[0].places // STEP))
    images, outside = max(TILES // whole.block, 1), count(windows.outside)
    rows = whole.down if whole.block * 2 <= TILES * 3 else max(TILES // whole.across, 1)
    images = -(-outside // -(-outside // images))
    return Tiles(windows, lanes, images, -(-whole.down // -(-whole.down // rows)))


@dataclass(frozen=True)
class Block:
    """Some `images` from `image` on, of each `rows` of tiles from `first` on."""

    image: ir.Value
    images: ir.Value
    first: ir.Value
    rows: ir.Value


def block_of(b: ir.IRBuilder, tiles: Tiles, number: ir.Value) -> Block:
    """The block of this number; the last ones may be smaller."""
    bands = const(-(-tiles.down // tiles.rows))
    image, first = b.mul(b.udiv(number, bands), const(tiles.images)), b.mul(b.urem(number, bands), const(tiles.rows))
    return Block(image, minimum(b, const(tiles.images), b.sub(const(count(tiles.windows.outside)), image)),
                 first, minimum(b, const(tiles.rows), b.sub(const(tiles.down), first)))


@dataclass(frozen=True)
class Panels:
    """How a product of matrices of each frequency is cut: register tiles of rows x vectors, panels that wide."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


def panels_of(rows: int, columns: int, lanes: int) -> Panels:
    """The register tile for a product of this size."""
    return Panels(*best_tile(host(), lanes, rows, columns), lanes)


def add_products(b: ir.IRBuilder, panels: Panels, sums: Line, left: tuple[ir.Value, int, int],
                 right: tuple[ir.Value, int], depth: ir.Value, element: ir.Type) -> Line:
    """The sums of a register tile with left[row, k] * right[k, column].

    `left` is (where, elements between rows, between steps), `right` (where, elements between steps).
    """
    (first, row, step), (panel, line), lanes = left, right, panels.lanes
    with loop(b, ZERO, depth, carried=sums, short=True) as (k, state):
        where = address(b, panel, b.mul(k, const(line)), element)
        factors = [load_vector(b, address(b, where, const(v * lanes), element), element, lanes)
                   for v in range(panels.vectors)]
        start = address(b, first, b.mul(k, const(step)), element)
        for i in range(panels.rows):
            factor = splat(b, b.load(address(b, start, const(i * row), element), typ=element), lanes)
            for v in range(panels.vectors):
                number = i * panels.vectors + v
                state[number] = multiply_add(b, factor, factors[v], state[number])
    return state


# ---------------------------------------------------------------- copies with channels side by side

class Copies:
    """Writes the loops that copy a factor, a vector of its channels at a time, and transform tiles of the copy."""

    def __init__(self, values: Values, tiles: Tiles, load: Load) -> None:
        self.values, self.b, self.tiles, self.load = values, values.b, tiles, load
        self.element, self.lanes = register(load.dtype), tiles.lanes

    @cached_property
    def memory(self) -> ir.Type:
        """What a load of an element gives."""
        return ir.IntType(16) if self.load.dtype.bits == 16 else scalar.in_memory(self.load.dtype)

    def row(self, starts: Sequence[ir.Value], offset: ir.Value, length: int, valid: ir.Value, target: ir.Value) -> None:
        """`length` neighbours from `offset` on of a vector of channels, a vector of channels for each; or zeros."""
        b, lanes = self.b, self.lanes
        whole, last = (b.select(valid, lanes_below(n, lanes), lanes_below(0, lanes))
                       for n in (lanes, length - (length - 1) // lanes * lanes))
        with loop(b, ZERO, const(length), const(lanes), short=True) as (x, _):
            mask = b.select(b.icmp_signed(">=", x, const(length - lanes)), last, whole)
            none, at = zero(ir.VectorType(self.memory, lanes)), b.add(offset, x)
            rows = [widened(b, masked_load(b, b.gep(start, [at], source_etype=scalar.in_memory(self.load.dtype)), mask,
                                           none), self.load.dtype, lanes) for start in starts]
            for k, column in enumerate(transpose(b, rows)):
                store_vector(b, column, address(b, target, b.mul(b.add(x, const(k)), const(lanes)), self.element))

    def zeros(self, target: ir.Value, vectors: int) -> None:
        """So many vectors of zeros."""
        b = self.b
        with loop(b, ZERO, const(vectors * self.lanes), const(self.lanes), short=True) as (x, _):
            store_vector(b, zero(ir.VectorType(self.element, self.lanes)), address(b, target, x, self.element))

    def starts(self, axis: Axis, first: ir.Value, offset: Expr) -> Line:
        """Where the lines of a vector of channels (or filters) begin; those beyond the last are the last one's."""
        b, found = self.b, []
        for k in range(self.lanes):
            know(self.values, axis, minimum(b, b.add(first, const(k)), const(count(axis) - 1)))
            found.append(self.values.address(self.load.buffer, offset))
        return found


@dataclass(frozen=True)
class Layout:
    """Where transformed numbers lie: elements from one frequency, tile, and vector of channels (or panel) to the next.
    """

    frequency: int
    tile: int
    vector: int


class Elements(Copies):
    """The factor that is read in windows, transformed: for each frequency and tile vectors of channels."""

    def __init__(self, values: Values, tiles: Tiles, copy: ir.Value, target: ir.Value, layout: Layout) -> None:
        super().__init__(values, tiles, tiles.windows.load)
        self.copy, self.target, self.layout = copy, target, layout

    def emit(self, block: Block, vectors: tuple[ir.Value, ir.Value]) -> None:
        """Those of a block, of some vectors of channels."""
        b, tiles = self.b, self.tiles
        with loop(b, *vectors, short=True) as (vector, _), loop(b, ZERO, block.images, short=True) as (i, _):
            know(self.values, tiles.windows.outside, b.add(block.image, i))
            channel = b.mul(vector, const(self.lanes))
            self.cover(self.starts(tiles.windows.channels, channel, tiles.windows.base), block)
            place = address(b, self.target, b.mul(b.sub(vector, vectors[0]), const(self.layout.vector)), self.element)
            with loop(b, ZERO, block.rows, short=True) as (row, _):
                tile = b.mul(b.add(b.mul(i, const(tiles.rows)), row), const(tiles.across))
                self.transform(row, address(b, place, b.mul(tile, const(self.layout.tile)), self.element))

    def cover(self, starts: Line, block: Block) -> None:
        """The copy of what rows of tiles cover, with zeros around it."""
        b, tiles, (down, across) = self.b, self.tiles, self.tiles.slides
        before, length = tiles.before(across), across.high - across.low
        after = tiles.pitch - before - up(length, self.lanes)
        begin = b.add(b.mul(block.first, const(STEP)), const(down.first + down.shift))
        with loop(b, ZERO, b.mul(b.add(block.rows, ONE), const(STEP)), short=True) as (t, _):
            u = b.add(begin, t)
            valid = b.and_(b.icmp_signed(">=", u, const(down.low)), b.icmp_signed("<", u, const(down.high)))
            target = address(b, self.copy, b.mul(t, const(tiles.pitch * self.lanes)), self.element)
            self.zeros(target, before)
            inner = address(b, target, const(before * self.lanes), self.element)
            self.row(starts, b.add(b.mul(u, const(down.stride)), const(across.low)), length, valid, inner)
            self.zeros(address(b, inner, const(up(length, self.lanes) * self.lanes), self.element), after)

    def transform(self, row: ir.Value, target: ir.Value) -> None:
        """The tiles of a row; columns that two of them cover are transformed once."""
        b, tiles = self.b, self.tiles
        start = address(b, self.copy, b.mul(row, const(STEP * tiles.pitch * self.lanes)), self.element)

        def columns(number: ir.Value) -> Line:
            """Two columns of a tile, each transformed."""
            found: Line = []
            for x in range(STEP):
                at = b.mul(b.add(number, const(x)), const(self.lanes))
                found += of_elements(b, [load_vector(b, address(
                    b, start, b.add(at, const(y * tiles.pitch * self.lanes)), self.element), self.element, self.lanes)
                    for y in range(SIDE)])
            return found
        with loop(b, ZERO, const(tiles.across), carried=columns(ZERO), short=True) as (j, known):
            left, right = list(known), columns(b.mul(b.add(j, ONE), const(STEP)))
            known[:] = right
            place = address(b, target, b.mul(j, const(self.layout.tile)), self.element)
            for y in range(SIDE):
                line = [left[y], left[SIDE + y], right[y], right[SIDE + y]]
                for x, value in enumerate(of_elements(b, line)):
                    at = const((y * SIDE + x) * self.layout.frequency)
                    store_vector(b, value, address(b, place, at, self.element))


class Gradients(Copies):
    """The factor that lies as results do, transformed: for each frequency panels of filters, a line for each tile."""

    def __init__(self, values: Values, tiles: Tiles, load: Load, filters: Axis, panels: Panels, copy: ir.Value,
                 target: ir.Value, layout: Layout) -> None:
        super().__init__(values, tiles, load)
        self.filters, self.panels, self.copy, self.target, self.layout = filters, panels, copy, target, layout

    def emit(self, block: Block, first: ir.Value, panels: ir.Value) -> None:
        """Those of a block, of so many panels from filter `first` on."""
        b, tiles, vectors = self.b, self.tiles, const(self.panels.vectors)
        with loop(b, ZERO, b.mul(panels, vectors), short=True) as (vector, _), \
                loop(b, ZERO, block.images, short=True) as (i, _):
            know(self.values, tiles.windows.outside, b.add(block.image, i))
            self.values.known.update({slide.place: ZERO for slide in tiles.slides})
            filters = b.add(first, b.mul(vector, const(self.lanes)))
            self.cover(self.starts(self.filters, filters, self.load.offset), block)
            place = address(b, self.panel(b.udiv(vector, vectors), ZERO),
                            b.mul(b.urem(vector, vectors), const(self.lanes)), self.element)
            with loop(b, ZERO, block.rows, short=True) as (row, _):
                tile = b.mul(b.add(b.mul(i, const(tiles.rows)), row), const(tiles.across))
                self.transform(row, address(b, place, b.mul(tile, const(self.layout.tile)), self.element))

    def panel(self, panel: ir.Value, frequency: ir.Value) -> ir.Value:
        """Where the lines of a panel are."""
        b, layout = self.b, self.layout
        at = b.add(b.mul(frequency, const(layout.frequency)), b.mul(panel, const(layout.vector)))
        return address(b, self.target, at, self.element)

    def cover(self, starts: Line, block: Block) -> None:
        """The copy of what rows of tiles have, with zeros behind."""
        b, (down, across) = self.b, self.tiles.slides
        apart = affine(self.load.offset).terms.get(down.place, 0)
        assert isinstance(apart, int)
        begin = b.mul(block.first, const(STEP))
        with loop(b, ZERO, b.mul(block.rows, const(STEP)), short=True) as (t, _):
            place = b.add(begin, t)
            target = address(b, self.copy, b.mul(t, const(self.tiles.pitch * self.lanes)), self.element)
            self.row(starts, b.mul(place, const(apart)), across.places,
                     b.icmp_signed("<", place, const(down.places)), target)

    def transform(self, row: ir.Value, target: ir.Value) -> None:
        """The tiles of a row."""
        b, pitch = self.b, self.tiles.pitch
        start = address(b, self.copy, b.mul(row, const(STEP * pitch * self.lanes)), self.element)
        with loop(b, ZERO, const(self.tiles.across), short=True) as (j, _):
            corner = address(b, start, b.mul(j, const(STEP * self.lanes)), self.element)
            square = [[load_vector(b, address(b, corner, const((y * pitch + x) * self.lanes), self.element),
                                   self.element, self.lanes) for x in range(STEP)] for y in range(STEP)]
            place = address(b, target, b.mul(j, const(self.layout.tile)), self.element)
            for y, line in enumerate(both_ways(b, of_sums, square)):
                for x, value in enumerate(line):
                    at = const((y * SIDE + x) * self.layout.frequency)
                    store_vector(b, value, address(b, place, at, self.element))

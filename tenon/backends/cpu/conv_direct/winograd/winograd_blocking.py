"""Winograd's tiles -> the blocks that they are gone through in, and the product of matrices of each frequency."""

from __future__ import annotations

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    address,
    const,
    load_vector,
    loop,
    minimum,
    multiply_add,
    splat,
)
from tenon.backends.cpu.contraction.machine_model import best_tile
from tenon.backends.cpu.conv_direct.winograd.winograd_transforms import Line, Tilings
from tenon.loops.select_conv_schedule import frequencies, tiles_of_block
from tenon.loops.window_access import Slide, Windows, count
from tenon.loops.winograd_tiling import TILE_WINDOWS
from tenon.records import dataclass
from tenon.target import Target, round_up

STEP = TILE_WINDOWS     # places from tile to tile


@dataclass(frozen=True)
class WinogradTiles:
    """The tiles of all images; a block is some `images`, or of one image some `rows` of tiles."""

    windows: Windows
    lanes: int
    images: int
    rows: int

    @property
    def slides(self) -> tuple[Slide, ...]:
        return self.windows.slides

    @property
    def tilings(self) -> Tilings:
        """How tiles stand, down and across."""
        down, across = self.slides
        return down.tiling, across.tiling

    @property
    def frequencies(self) -> int:
        """Products of matrices."""
        return frequencies(self.windows)

    @property
    def down(self) -> int:
        """Rows of tiles of an image."""
        return self.tilings[0].tiles(self.slides[0].places)

    @property
    def across(self) -> int:
        """Tiles of a row."""
        return self.tilings[1].tiles(self.slides[1].places)

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
        return max(self.tilings[1].covered(self.across), self.before(last) + round_up(last.high - last.low, self.lanes),
                   round_up(last.places, self.lanes))

    @staticmethod
    def before(slide: Slide) -> int:
        """How many zeros come before the first element."""
        return slide.low - slide.first - slide.shift

    @property
    def copied(self) -> int:
        """Elements of the copy of one vector of channels."""
        rows = max(self.tilings[0].covered(self.rows), STEP * self.rows)
        return rows * self.pitch * self.lanes

    def apart(self, width: int) -> int:
        """Elements from one frequency to the next, of all tiles of a block: never a power of two."""
        return self.block * width + self.lanes


def tiles_of(windows: Windows, lanes: int) -> WinogradTiles:
    """Blocks of about so many tiles as stay in the second cache, all of about one size."""
    whole = WinogradTiles(windows, lanes, 1, windows.slides[0].tiling.tiles(windows.slides[0].places))
    gap, outside = whole.tilings[0].gap, count(windows.outside)
    most = tiles_of_block(whole.frequencies)
    images = max(most // whole.block, 1)
    rows = whole.down if whole.block * 2 <= most * 3 else max(most // whole.across, gap)
    images = -(-outside // -(-outside // images))
    return WinogradTiles(windows, lanes, images, round_up(-(-whole.down // -(-whole.down // rows)), gap))


@dataclass(frozen=True)
class WinogradBlock:
    """Some `images` from `image` on, of each `rows` of tiles from `first` on."""

    image: ir.Value
    images: ir.Value
    first: ir.Value
    rows: ir.Value


def block_of(b: ir.IRBuilder, tiles: WinogradTiles, number: ir.Value) -> WinogradBlock:
    """The block of this number; the last ones may be smaller."""
    bands = const(-(-tiles.down // tiles.rows))
    image, first = b.mul(b.udiv(number, bands), const(tiles.images)), b.mul(b.urem(number, bands), const(tiles.rows))
    return WinogradBlock(image, minimum(b, const(tiles.images), b.sub(const(count(tiles.windows.outside)), image)),
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


def panels_of(machine: Target, rows: int, columns: int, lanes: int) -> Panels:
    """The register tile for a product of this size."""
    return Panels(*best_tile(machine, lanes, rows, columns), lanes)


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

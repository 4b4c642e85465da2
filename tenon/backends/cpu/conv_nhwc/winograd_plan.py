"""Windows of 3 x 3 and constant weights -> blocks of tiles and panels of filters, where Winograd's products pay."""

from __future__ import annotations

from tenon.backends.cpu.contraction.ir_helpers import element_bytes
from tenon.backends.cpu.contraction.machine_model import FMA_LATENCY, FMA_UNITS, FREE_LOADS
from tenon.backends.cpu.conv_direct.winograd.winograd_blocking import STEP, Panels
from tenon.backends.cpu.conv_direct.winograd.winograd_transforms import SQUARE
from tenon.backends.cpu.conv_nhwc.conv_schedule import STORE_CYCLES, TILE_START
from tenon.backends.cpu.conv_nhwc.vector_epilogue import is_of_vectors
from tenon.backends.cpu.scalar_codegen import register
from tenon.loops.affine import affine
from tenon.loops.loop_ir import Contraction
from tenon.loops.refusal import Refusal
from tenon.loops.window_access import Slide, Windows, count, windows_of
from tenon.records import dataclass, replace
from tenon.target import LINE_BYTES, Target, round_up

TAPS, SIDE = SQUARE[0].taps, SQUARE[0].side      # of a window, and of what a tile covers
FREQUENCIES = SIDE * SIDE
L2_PER_BLOCK = 2        # L2 holds the elements and sums of so many blocks
MAX_GROWTH = 2          # times the bytes of the weights that transformed ones may take
MIN_BLOCK_TILES = 16    # tiles of a block, for which weights are fetched
PANELS_TO_SHARE = 8     # panels of blocks that threads share out, where there are tiles enough
CHANNELS_PER_PREFETCH = 16  # channels after which a register tile fetches
TRANSFORM = 45          # cycles to transform a vector of elements, or of sums, of a tile
L2_WEIGHT_CYCLES = 0.25  # cycles that a vector of weights from the second cache holds up a step
L3_BYTES_PER_CYCLE = 4  # bytes of weights that a cycle brings from beyond the second cache


@dataclass(frozen=True)
class WinogradPlan:
    """Blocks of `block` tiles of 2 x 2 places, and panels of filters."""

    target: Target
    statement: Contraction
    windows: Windows
    block: int
    panels: Panels

    @property
    def slides(self) -> tuple[Slide, Slide]:
        down, across = self.windows.slides
        return down, across

    @property
    def tiles(self) -> int:
        """Of all images."""
        return tiles_of(self.windows)

    @property
    def blocks(self) -> int:
        return -(-self.tiles // self.block)

    @property
    def filters(self) -> int:
        return count(self.statement.columns)

    @property
    def count(self) -> int:
        """Panels of filters; the last one may be filled up."""
        return -(-self.filters // self.panels.width)

    @property
    def channels(self) -> int:
        return count(self.windows.channels)

    @property
    def line(self) -> int:
        """Elements from one tile to the next: never a power of two."""
        return round_up(self.channels, self.panels.lanes) + self.panels.lanes

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return element_bytes(register(self.statement.sum.dtype))

    @property
    def frequency(self) -> int:
        """Elements from one frequency of a panel to the next."""
        return self.channels * self.panels.width

    @property
    def packed(self) -> int:
        """Bytes of all transformed taps."""
        return self.count * FREQUENCIES * self.frequency * self.size

    @property
    def rows(self) -> int:
        """Tiles that sums are made for: a register tile may go over the end."""
        return max(self.block, self.panels.rows)

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes of transformed elements, of sums, and of a line of zeros."""
        elements = FREQUENCIES * self.rows * self.line, FREQUENCIES * self.rows * self.panels.width, self.line
        return tuple(round_up(n * self.size, LINE_BYTES) for n in elements)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + LINE_BYTES

    @property
    def fetched(self) -> int:
        """Cache lines of the next frequency's weights that a chunk of a register tile fetches."""
        chunks = -(-self.block // self.panels.rows) * -(-self.channels // CHANNELS_PER_PREFETCH)
        return -(-self.frequency * self.size // (LINE_BYTES * chunks))

    @property
    def cycles(self) -> float:
        """About how long it takes."""
        lanes = self.panels.lanes
        inputs, outputs = -(-self.channels // lanes), self.count * self.panels.vectors
        beyond_l2 = self.blocks > 1 or self.packed > self.target.l2_bytes // L2_PER_BLOCK
        fetching = self.packed * beyond_l2 / L3_BYTES_PER_CYCLE
        products = FREQUENCIES * -(-self.block // self.panels.rows) * self.panels.rows * self.channels * outputs / 2
        return self.blocks * max(products, fetching) + self.tiles * (inputs + outputs) * TRANSFORM


def winograd_plan_of(x: Contraction, machine: Target) -> WinogradPlan | Refusal:
    """How to compute a product with windows of 3 x 3, one step apart; a refusal where that takes as long as without."""
    windows = windows_of(x.left, x.rows, x.depth)
    if windows is None or not _are_square(windows) or not is_of_vectors(x):
        return Refusal("windows are not 3 x 3, or the epilogue has loops")
    lanes = machine.vector_bytes // element_bytes(register(x.sum.dtype))
    filters, channels, tiles = count(x.columns), count(windows.channels), tiles_of(windows)
    if min(filters, channels) < lanes:
        return Refusal("channels or filters fill no vector")
    width = panels_of(machine, lanes, MIN_BLOCK_TILES, filters, channels).width
    held = FREQUENCIES * (round_up(channels, lanes) + width) * machine.vector_bytes // lanes
    blocks = -(-tiles // max(machine.l2_bytes // L2_PER_BLOCK // held, MIN_BLOCK_TILES))
    block = -(-tiles // blocks)
    plan = WinogradPlan(machine, x, windows, block, panels_of(machine, lanes, block, filters, channels))
    direct = TAPS**2 * count(x.rows) * channels * -(-filters // lanes) / 2
    is_small = plan.packed <= MAX_GROWTH * TAPS**2 * channels * filters * plan.size
    return _to_share(plan, machine) if is_small and plan.cycles < direct else \
        Refusal("tiles of 2 x 2 windows save no time")


def _to_share(plan: WinogradPlan, machine: Target) -> WinogradPlan:
    """The plan with blocks enough for threads to be done at the same time, where weights are near for all of them."""
    blocks = min(-(-PANELS_TO_SHARE // plan.count), plan.tiles // MIN_BLOCK_TILES)
    if blocks <= plan.blocks or plan.packed * L2_PER_BLOCK > machine.l2_bytes:
        return plan
    block = -(-plan.tiles // blocks)
    return replace(plan, block=block, panels=panels_of(machine, plan.panels.lanes, block, plan.filters, plan.channels))


def panels_of(machine: Target, lanes: int, tiles: int, filters: int, channels: int) -> Panels:
    """The register tile that takes least time, whose panel of a frequency the first cache should hold."""
    def cycles(rows: int, vectors: int) -> float:
        step = max(rows * vectors / FMA_UNITS, FMA_LATENCY, (rows + vectors) / FMA_UNITS / FREE_LOADS)
        far = channels * vectors * machine.vector_bytes * L2_PER_BLOCK > machine.l1_bytes
        each = channels * (step + far * L2_WEIGHT_CYCLES * vectors) + TILE_START + STORE_CYCLES * rows * vectors
        return -(-tiles // rows) * -(-filters // (vectors * lanes)) * each

    fitting = [(rows, vectors) for vectors in range(1, 5)
               for rows in range(1, (machine.registers - vectors - 1) // vectors + 1)]
    return Panels(*min(fitting, key=lambda tile: cycles(*tile)), lanes)


def tiles_of(windows: Windows) -> int:
    """Tiles of 2 x 2 places of all images."""
    down, across = (-(-slide.places // STEP) for slide in windows.slides)
    return count(windows.outside) * down * across


def _are_square(windows: Windows) -> bool:
    """Whether windows are 3 x 3, of neighbours, one step apart, and channels are neighbours in memory."""
    apart, terms = 1, affine(windows.base).terms
    for index in reversed(windows.channels):
        if terms.get(index, 0) != apart:
            return False
        apart *= count((index,))
    return len(windows.slides) == 2 and all(
        s.taps == TAPS and s.step == s.reach == s.spread == 1 and s.high > s.low for s in windows.slides)

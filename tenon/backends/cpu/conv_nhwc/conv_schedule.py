"""A product of windows and constant weights -> how it is computed: which places a tile has, what a block is.

    sum over k of image[y, x, k] * weight[k, filter]        filters are the lanes of a vector

Weights are packed before, so a step reads a few vectors of them and an element of the image for every place of the
tile, from where the image lies.  Nothing is put together as columns.  Windows that reach over the edge read a copy of
what a block of them covers, with zeros around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import prod

from tenon.backends.cpu.contraction.gemm_spec import CONFLICT_STRIDE_BYTES
from tenon.backends.cpu.contraction.ir_helpers import element_bytes
from tenon.backends.cpu.contraction.machine_model import FMA_LATENCY, FMA_UNITS, FREE_LOADS, shares
from tenon.backends.cpu.conv_nhwc.halo_copy import Border, border_of
from tenon.backends.cpu.conv_nhwc.vector_epilogue import is_of_vectors
from tenon.backends.cpu.epilogue_patterns import joined
from tenon.backends.cpu.scalar_codegen import register
from tenon.loops.affine import affine
from tenon.loops.expressions import Index, Load
from tenon.loops.loop_ir import Contraction
from tenon.loops.refusal import Refusal
from tenon.loops.window_access import count
from tenon.records import dataclass
from tenon.target import LINE_BYTES, Target

TILE_START = 24         # cycles until a tile's first sums are on their way, and until its last ones are stored
STORE_CYCLES = 1.5      # and to store a vector of sums
L2_WEIGHT_CYCLES = 0.04  # of a cycle a vector of weights, which comes from the second cache, holds up the others
MAX_TILE_PLACES = 28    # places of a tile
MIN_FILTERS = 4         # that are worth a vector
MIN_ROWS = 16           # of a plain product
LONG_ROW, WAY = 2048, 1024      # elements of such rows; those after which lines compete
LARGE_RESULTS = 4       # times which is more than the second cache
L2_PER_BLOCK_DATA = 8   # L2 holds the data of so many blocks
COPIED, LARGE = 4, 2    # the same where lines are copied for two blocks; where weights do not fit beside
COPY_WEIGHT_RATIO = 4   # weights take so many times the data where all threads copy what windows at the edge cover
MIN_TASKS = 16          # that threads share out, where a convolution has as many places
MIN_TASK_MULTIPLY_ADDS = 200_000    # multiply-adds of a task that is worth its copy


@dataclass(frozen=True)
class IndexRun:
    """Neighbouring indices that are one axis of memory: `stride` elements from one place to the next."""

    indices: tuple[Index, ...]
    extent: int
    stride: int


@dataclass(frozen=True)
class ConvTile:
    """rows x places sums for each of `vectors` vectors of filters are held in registers."""

    rows: int
    places: int
    vectors: int


@dataclass(frozen=True)
class ConvSchedule:
    """What is read, along which axes, and by which tiles.

    `axes` are those that tiles go through, the last two with the tile's rows and places; `outside` come around them.
    A block has `block` tiles, all of one place of `outside`.
    """

    target: Target
    statement: Contraction
    load: Load
    border: Border | None
    outside: tuple[IndexRun, ...]
    axes: tuple[IndexRun, ...]
    depth: tuple[IndexRun, ...]
    tile: ConvTile
    block: int
    lanes: int

    @property
    def filters(self) -> int:
        """How many columns there are."""
        return count(self.statement.columns)

    @property
    def steps(self) -> int:
        """Products that a sum is made of."""
        return prod(run.extent for run in self.depth)

    @property
    def vectors(self) -> int:
        """Vectors of filters, the last of which may be filled up."""
        return -(-self.filters // self.lanes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The most places of a tile along each axis."""
        return (*[1] * (len(self.axes) - 2), *(self.tile.rows, self.tile.places)[2 - min(len(self.axes), 2):])

    @property
    def parts(self) -> tuple[list[tuple[int, int]], ...]:
        """How each axis is shared out among tiles."""
        return tuple(shares(run.extent, size) for run, size in zip(self.axes, self.sizes, strict=True))

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each axis."""
        return tuple(sum(parts for _, parts in found) for found in self.parts)

    @property
    def blocks(self) -> int:
        """Of one place of `outside`."""
        return -(-prod(self.counts) // self.block)

    @property
    def all_blocks(self) -> int:
        """Of all places of `outside`."""
        return self.blocks * prod(run.extent for run in self.outside)

    @property
    def all_tiles(self) -> int:
        """The same of tiles, for one panel."""
        return prod(self.counts) * prod(run.extent for run in self.outside)

    @property
    def shares_panels(self) -> bool:
        """Whether threads share out panels rather than blocks: each reads a part of the weights, and all data."""
        data = prod(run.extent for run in (*self.outside, *self.axes)) * self.depth[-1].extent * self.size
        return self.packed > data * (COPY_WEIGHT_RATIO if self.border else 1)

    @property
    def tiles_beside(self) -> int:
        """Tiles at one place of the first axis."""
        return prod(self.counts[1:])

    @property
    def panel_parts(self) -> list[tuple[int, int]]:
        """How vectors of filters are shared out among panels."""
        return shares(self.vectors, self.tile.vectors)

    @property
    def panels(self) -> int:
        """Groups of filters that tiles have."""
        return sum(parts for _, parts in self.panel_parts)

    @property
    def panel_bytes(self) -> int:
        """Of the largest panel."""
        return self.steps * self.tile.vectors * self.lanes * self.size

    @property
    def chunk(self) -> int:
        """Steps along the last axis of depth that read one cache line where channels are neighbours."""
        return LINE_BYTES // self.size

    @property
    def chunks(self) -> int:
        """How many of them all steps are."""
        return prod(run.extent for run in self.depth[:-1]) * -(-self.depth[-1].extent // self.chunk)

    @property
    def fetched(self) -> int:
        """Cache lines that a chunk of a tile fetches, so that a block's tiles fetch the next panel."""
        return -(-self.panel_bytes // (LINE_BYTES * self.block * self.chunks))

    @property
    def packed(self) -> int:
        """Bytes of all weights, packed."""
        return self.vectors * self.lanes * self.steps * self.size

    @property
    def following(self) -> int:
        """Elements from a tile's places to those of the same tile in the next block, where they are one run; or 0."""
        is_run = self.border is None and len(self.axes) == len(self.depth) == self.depth[-1].stride == 1
        return self.block * self.tile.places * self.axes[-1].stride if is_run and self.blocks > 1 else 0

    @property
    def has_large_results(self) -> bool:
        """Whether results go through the second cache, so that memory has to be fetched to write to."""
        results = count(self.statement.rows) * self.filters * self.size
        return results * LARGE_RESULTS > self.target.l2_bytes

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return element_bytes(register(self.statement.sum.dtype))


def direct_plan_of(statement: Contraction, machine: Target) -> ConvSchedule | Refusal:
    """How to compute a product with its right factor packed before; a refusal where another does as well."""
    x = statement
    load = x.left
    extents = [i.extent for i in (*x.batch, *x.rows, *x.columns, *x.depth)]
    if x.batch or len(x.columns) != 1 or not x.rows or not x.depth or not all(isinstance(n, int) for n in extents):
        return Refusal("sizes are not known, or there is a batch")
    if not isinstance(load, Load) or load.dtype is not x.sum.dtype or load.dtype.kind != "f" or load.dtype.bits < 32:
        return Refusal("left is computed, or no array of floats")
    if count(x.columns) < MIN_FILTERS or min(count(x.rows), count(x.depth)) < 1:
        return Refusal("filters are few")
    border = border_of(load, x.rows, x.depth) if load.mask is not None else None
    steps = border.strides if border else _strides(load, (*x.rows, *x.depth))
    if steps is None or (load.mask is not None and border is None):
        return Refusal("the image is not read in steps of known length")
    return _planned(x, load, border, steps, machine)


def _planned(x: Contraction, load: Load, border: Border | None, steps: dict[Index, int],
             machine: Target) -> ConvSchedule | Refusal:
    lanes = machine.vector_bytes // element_bytes(register(load.dtype))
    sliding = border.places if border else ()
    outside = tuple(_run(i, steps) for i in x.rows if border and i not in sliding)
    axes = tuple(_run(i, steps) for i in x.rows if not border or i in sliding)
    if not border:
        axes = merged(axes, len(axes) - joined(x.epilogue, x.rows))
        outside, axes = axes[:-2], axes[-2:]
    depth = merged(sorted((_run(i, steps) for i in x.depth), key=lambda run: -run.stride))
    if any(run.stride < 0 for run in (*axes, *depth)) or not axes:
        return Refusal("the image is read backwards")
    is_plain = not border and len(axes) == len(depth) == depth[-1].stride == 1      # a product of matrices
    tile = best_tile(machine, lanes, axes, count(x.columns), count(x.depth))
    lines = tile.rows * tile.places + tile.vectors
    if is_plain and (axes[0].extent < MIN_ROWS or not is_of_vectors(x) or _are_crowded(axes[0], lines, machine)):
        return Refusal("a product of few rows, of rows to be copied, or with loops in its epilogue")
    plan = ConvSchedule(machine, x, load, border, outside, axes, depth, tile, 1, lanes)
    return ConvSchedule(machine, x, load, border, outside, axes, depth, tile, _block(plan, machine), lanes)


def _are_crowded(rows: IndexRun, lines: int, machine: Target) -> bool:
    """Whether rows compete for the same places of the first cache, and are long, or more than these with what else a
    tile reads.

    >>> [_are_crowded(IndexRun((), 64, 1024), 11, Target(64, 32, l1_bytes=size << 10)) for size in (32, 48)]
    [True, False]
    >>> [_are_crowded(IndexRun((), 64, stride), size, Target(64, 32)) for stride, size in ((1000, 11), (4096, 8))]
    [False, True]
    """
    return rows.stride % WAY == 0 and (rows.stride > LONG_ROW or lines > machine.l1_bytes // CONFLICT_STRIDE_BYTES)


def _strides(load: Load, indices: Sequence[Index]) -> dict[Index, int] | None:
    """Elements from one place of each index to the next."""
    terms = affine(load.offset).terms
    if not all(isinstance(atom, Index) and isinstance(n, int) for atom, n in terms.items()):
        return None
    return {i: int(terms.get(i, 0)) for i in indices}


def _run(index: Index, steps: dict[Index, int]) -> IndexRun:
    return IndexRun((index,), count((index,)), steps[index])


def merged(runs: Sequence[IndexRun], first: int = 0) -> tuple[IndexRun, ...]:
    """The same axes, of which those from the first on that follow each other in memory are one.

    >>> [run.extent for run in merged([IndexRun((), 3, 100), IndexRun((), 3, 8), IndexRun((), 8, 1)])]
    [3, 24]
    """
    found = list(runs[:first + 1])
    for run in runs[first + 1:]:
        if found[-1].stride == run.stride * run.extent:
            found[-1] = IndexRun(found[-1].indices + run.indices, found[-1].extent * run.extent, run.stride)
        else:
            found.append(run)
    return tuple(found)


def best_tile(machine: Target, lanes: int, axes: Sequence[IndexRun], filters: int, depth: int) -> ConvTile:
    """The tile that takes least time: its multiply-adds, or its loads, or waiting for sums."""
    down = axes[-2].extent if len(axes) > 1 else 1
    along, across = axes[-1].extent, -(-filters // lanes)

    def cost(height: int, vectors: int) -> float:
        sums, loads = height * vectors, height + vectors
        step = max(sums / FMA_UNITS, FMA_LATENCY, loads / FMA_UNITS / FREE_LOADS) + L2_WEIGHT_CYCLES * vectors
        return depth * step + TILE_START + STORE_CYCLES * sums

    found = []
    for vectors, rows, places in combinations(range(1, min(4, across) + 1), range(1, min(down, MAX_TILE_PLACES) + 1),
                                              range(1, min(along, MAX_TILE_PLACES) + 1)):
        if rows * places * vectors + vectors + 1 > machine.registers or (rows > 1 and places < along):
            continue
        kinds = [shares(down, rows), shares(along, places), shares(across, vectors)]
        total = sum(prod(parts for _, parts in some) * cost(some[0][0] * some[1][0], some[2][0])
                    for some in combinations(*kinds))
        tile = ConvTile(*(kind[0][0] for kind in kinds))
        found.append((total * (1 + 0.002 * prod(map(len, kinds))), -rows * places * vectors, tile))
    return min(found, key=lambda x: x[:2])[2]


def _block(plan: ConvSchedule, machine: Target) -> int:
    """Tiles whose data stay in the second cache while all filters go through."""
    tiles = prod(plan.counts)
    each = prod(run.extent for run in plan.axes) * plan.size / tiles
    read = plan.border.spread if plan.border else prod(run.extent for run in plan.depth)
    each *= read + 2 * plan.filters
    part = LARGE if plan.packed * LARGE > machine.l2_bytes else COPIED if plan.border else L2_PER_BLOCK_DATA
    unit = plan.tiles_beside if plan.border else 1      # a copy is of whole rows
    most = max(int(machine.l2_bytes / part / each) // unit, 1)
    if plan.border and plan.border.most < plan.axes[0].extent:
        most = min(most, max(plan.border.most // plan.sizes[0], 1))
    blocks = max(-(-tiles // unit // most), min(_blocks_to_share(plan), tiles // unit))
    return -(-tiles // unit // blocks) * unit


def _blocks_to_share(plan: ConvSchedule) -> int:
    """How many blocks give threads enough tasks: panels of each block, at each place outside of it."""
    others = plan.panels * prod(run.extent for run in plan.outside)
    work = count(plan.statement.rows) * plan.filters * plan.steps
    return max(min(MIN_TASKS, work // MIN_TASK_MULTIPLY_ADDS) // others, 1)

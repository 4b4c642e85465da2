"""Matrix times vector as AXPY: lines of the matrix are read as streams, and added to sums that stay in L1.

    sums[i, j] = sum over k of near[i, k] * line k [j]

A line is a run of right's columns for one step of depth, or of left's rows.  So many lines as a processor follows
streams are multiplied at a time, by the factors of a few rows (columns), before the next ones are read: panels of them
would be read in short pieces of many pages of memory.  Where reading is all that takes time, the next ones are fetched
meanwhile, unless they are long and the processor does so by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args, GemmSpec, Index, Tile, element_of
from tenon.backends.cpu.contraction.gemv_dot import Bounds
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    ONE,
    POINTER,
    ZERO,
    address,
    between,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_load,
    minimum,
    multiply_add,
    prefetch,
    product,
    splat,
    store_vector,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.machine_model import shares
from tenon.backends.cpu.contraction.transpose_registers import widened
from tenon.llvm import shared_functions
from tenon.types import DType, bfloat16, float16

STRIP_VECTORS = 256     # of sums of the rows that are added up together, which stay in the first cache
LINES_AT_ONCE = 16      # lines that are added at once, where there are more than LINES_WHEN_READING rows
LINES_WHEN_READING = 4  # with so few rows, reading takes the time: then as many lines as the prefetcher follows
MIN_WIDE_VECTOR_BYTES = 32  # bytes, beyond which vectors come with 32 registers:
ROWS, SUMS = (4, 8), (8, 16)        # so many rows at a time, and so many vectors of sums in registers
STRIP_BYTES = 4096      # bytes of a strip, whose lines most processors fetch by themselves
FETCHED_VECTORS = 2     # vectors of a line that are fetched, and read, at a time
BLOCK_ROWS = 16         # rows whose sums are in memory at a time
NARROW_TYPES: dict[ir.Type, DType] = {ir.IntType(16): bfloat16, ir.HalfType(): float16}     # by their types in memory
Side = Literal["left", "right"]


def reads_lines(spec: GemmSpec, side: Side) -> bool:
    """Whether right's columns (left's rows) are one run of memory, so that a vector of them can be read where it is."""
    operand, components = (spec.right, spec.columns) if side == "right" else (spec.left, spec.rows)
    plain = (operand.pointer is not None and operand.inside is None and operand.step == 1) or operand.lined is not None
    return (plain and operand.contiguous == "outer" and (operand.flat or len(components) == 1)
            and (side == "left" or spec.store_run is None))


class AxpyLines:
    """Sums along the lines of one side or the other; what is said of rows is true of columns, where left's are read."""

    def __init__(self, b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, g: Index, side: Side) -> None:
        self.b, self.spec, self.args, self.g, self.side = b, spec, args, g, side
        self.element, self.lanes = spec.element, tile.lanes
        self.near, self.far = (spec.left, spec.right) if side == "right" else (spec.right, spec.left)
        self.memory = self.far.lined.memory if self.far.lined else spec.element
        self.vector = ir.VectorType(spec.element, tile.lanes)
        wide = tile.lanes * element_bytes(spec.element) > MIN_WIDE_VECTOR_BYTES
        count = spec.known[0 if side == "right" else 1]
        self.block = min(count or 1, BLOCK_ROWS)
        self.lines = min(LINES_AT_ONCE, spec.target.streams) if self.block <= LINES_WHEN_READING else LINES_AT_ONCE
        self.heights = list(dict.fromkeys((*(size for size, _ in shares(self.block, ROWS[wide])), 1)))
        self.registers = SUMS[wide]
        self.strip = STRIP_VECTORS // self.heights[0] * tile.lanes
        self.fetches = self.strip * element_bytes(self.memory) < STRIP_BYTES or not (
            spec.target.has_stream_prefetcher or self.is_near())
        self.pitch = self.strip + tile.lanes            # so that rows do not compete for places in the first cache
        self.depth_sizes, rows, columns = ([size(b, args) for size in axis]
                                           for axis in (spec.depth, spec.rows, spec.columns))
        self.near_sizes, self.far_sizes = (rows, columns) if side == "right" else (columns, rows)
        self.depth = product(b, self.depth_sizes) if self.depth_sizes else ONE
        with b.goto_entry_block():
            self.sums = b.alloca(self.vector, self.block * self.pitch // tile.lanes)
            self.starts = b.alloca(POINTER, 2 * self.lines)
            self.factors = b.alloca(spec.element, self.lines * self.heights[0])

    def emit(self, across: Bounds, along: Bounds) -> None:
        """All sums of these rows and columns: strip after strip."""
        b = self.b
        with loop(b, *across, const(self.block), short=True) as (i, _), \
                loop(b, *along, const(self.strip), short=True) as (j, _):
            count = minimum(b, const(self.block), b.sub(across[1], i))
            length = minimum(b, const(self.strip), b.sub(along[1], j))
            self.add_up(i, j, count, length)
            self.store(i, j, count, length)

    def add_up(self, first: ir.Value, start: ir.Value, count: ir.Value, length: ir.Value) -> None:
        """The sums of a strip."""
        b = self.b
        with loop(b, ZERO, count, short=True) as (i, _), loop(b, ZERO, length, const(self.lanes), short=True) as (j, _):
            store_vector(b, zero(self.vector), self.place(i, j))
        with loop(b, ZERO, self.depth, const(self.lines), short=True) as (k, _):
            self.find_lines(start, k)
            lines, before = minimum(b, const(self.lines), b.sub(self.depth, k)), ZERO
            for height in self.heights:
                end = b.sub(count, b.urem(b.sub(count, before), const(height)))
                with loop(b, before, end, const(height), short=True) as (i, _):
                    self.find_factors(b.add(first, i), k, lines, height)
                    fetched = self.lines if self.fetches else 0
                    constants = self.element, self.memory, height, self.vectors(height), self.lanes, self.pitch, fetched
                    given = self.starts, self.factors, self.place(i, ZERO), lines, length
                    shared_functions.call(b, add_lines, constants, given)
                before = end

    def vectors(self, height: int) -> int:
        """Of the sums of so many rows that are in registers."""
        most = FETCHED_VECTORS if self.fetches else self.registers
        return max(count for count in (1, 2, 4) if count * height <= self.registers and count <= most)

    def is_near(self) -> bool:
        """Whether all lines fit the second cache, and are expected to be there."""
        depth, size = self.spec.known[2], self.spec.known[1 if self.side == "right" else 0]
        return depth is not None and size is not None and \
            depth * size * element_bytes(self.memory) <= self.spec.target.l2_bytes

    def find_lines(self, start: ir.Value, k: ir.Value) -> None:
        """Write down where lines begin, from step k on, and those that come after them."""
        b, last, pointer = self.b, self.b.sub(self.depth, ONE), (self.far.lined or self.far).pointer
        assert pointer is not None
        outer = unravel(b, start, self.far_sizes)
        with loop(b, ZERO, const(2 * self.lines), short=True) as (line, _):
            step = self.step(minimum(b, b.add(k, line), last))
            b.store(pointer(b, self.args, self.g, outer, step), address(b, self.starts, line, POINTER))

    def find_factors(self, first: ir.Value, k: ir.Value, lines: ir.Value, height: int) -> None:
        """Write down the factors of so many rows, line by line."""
        b = self.b
        rows = [unravel(b, b.add(first, const(i)), self.near_sizes) for i in range(height)]
        with loop(b, ZERO, lines, short=True) as (line, _):
            for i, row in enumerate(rows):
                factor = element_of(b, self.spec, self.near, self.args, self.g, row, self.step(b.add(k, line)))
                place = b.add(b.mul(line, const(height)), const(i))
                b.store(factor, address(b, self.factors, place, self.element))

    def step(self, k: ir.Value) -> Index:
        """The composite index of a step of depth."""
        return unravel(self.b, k, self.depth_sizes) if self.depth_sizes else ()

    def place(self, i: ir.Value, j: ir.Value) -> ir.Value:
        """Where sum j of row i is kept."""
        return address(self.b, self.sums, self.b.add(self.b.mul(i, const(self.pitch)), j), self.element)

    def store(self, first: ir.Value, start: ir.Value, count: ir.Value, length: ir.Value) -> None:
        """Hand the sums over: all together, or vectors of columns, and the rest and rows one by one."""
        b, spec = self.b, self.spec
        if self.side == "right" and spec.finish is not None:
            spec.finish(b, self.args, self.g, first, start, count, length, self.sums, self.pitch)
            return
        whole = b.and_(length, const(-self.lanes)) if self.side == "right" else ZERO
        with loop(b, ZERO, count, short=True) as (i, _):
            with loop(b, ZERO, whole, const(self.lanes), short=True) as (j, _):
                total = load_vector(b, self.place(i, j), self.element, self.lanes)
                spec.store(b, self.args, self.g, b.add(first, i), b.add(start, j), total, self.lanes)
            with loop(b, whole, length, short=True) as (j, _):
                one, here = b.load(self.place(i, j), typ=self.element), (b.add(first, i), b.add(start, j))
                spec.store(b, self.args, self.g, *(here if self.side == "right" else here[::-1]), one, 1)


def add_lines(b: ir.IRBuilder, element: ir.Type, memory: ir.Type, rows: int, vectors: int, lanes: int, pitch: int,
              fetched: int, starts: ir.Value, factors: ir.Value, sums: ir.Value, count: ir.Value,
              length: ir.Value) -> None:
    """A piece: add `count` lines, one at least, to the sums of some rows.

    `starts` says where they begin, and behind `fetched` of them, if any, where the next ones do, which are fetched;
    `factors` are those of the rows for a line, side by side.
    """
    strip = _Strip(b, element, memory, rows, lanes, pitch, fetched, starts, factors, sums, count)
    width = const(vectors * lanes)
    whole = b.sub(length, b.urem(length, width))
    with loop(b, ZERO, whole, width, short=True) as (j, _):
        strip.add(j, [None] * vectors)
    with loop(b, whole, length, const(lanes), short=True) as (j, _):
        room = b.trunc(minimum(b, b.sub(length, j), const(lanes)), I32)
        strip.add(j, [between(b, I32(0), room, lanes)])


class _Strip:
    """The values that the two loops of the piece share."""

    def __init__(self, b: ir.IRBuilder, element: ir.Type, memory: ir.Type, rows: int, lanes: int, pitch: int,
                 fetched: int, starts: ir.Value, factors: ir.Value, sums: ir.Value, count: ir.Value) -> None:
        self.memory = memory
        self.b, self.element, self.rows, self.lanes, self.pitch, self.fetched = b, element, rows, lanes, pitch, fetched
        self.starts, self.factors, self.sums, self.count = starts, factors, sums, count

    def add(self, j: ir.Value, masks: Sequence[ir.Value | None]) -> None:
        """The products of a few vectors of every line, from place j on, of which these lanes are there."""
        b, lanes, vectors = self.b, self.lanes, len(masks)
        places = [address(b, self.sums, b.add(j, const(i * self.pitch + v * lanes)), self.element)
                  for i in range(self.rows) for v in range(vectors)]
        sums = [load_vector(b, place, self.element, lanes) for place in places]
        with loop(b, ZERO, self.count, carried=sums, short=True, sure=True) as (line, sums):
            others = self.read(line, j, masks)
            for i in range(self.rows):
                place = address(b, self.factors, b.add(b.mul(line, const(self.rows)), const(i)), self.element)
                factor = splat(b, b.load(place, typ=self.element), lanes)
                for v, other in enumerate(others):
                    sums[i * vectors + v] = multiply_add(b, factor, other, sums[i * vectors + v])
        for place, total in zip(places, sums, strict=True):
            store_vector(b, total, place)

    def read(self, line: ir.Value, j: ir.Value, masks: Sequence[ir.Value | None]) -> list[ir.Value]:
        """The vectors of a line; those of a later one are fetched."""
        b, lanes, found = self.b, self.lanes, []
        start, following = (b.load(address(b, self.starts, b.add(line, const(behind)), POINTER), typ=POINTER)
                            for behind in (0, self.fetched))
        dtype = NARROW_TYPES.get(self.memory)
        kind = ir.IntType(16) if dtype else self.memory
        none = zero(ir.VectorType(kind, lanes))
        for v, mask in enumerate(masks):
            place = address(b, start, b.add(j, const(v * lanes)), kind)
            if self.fetched:
                prefetch(b, address(b, following, b.add(j, const(v * lanes)), kind), 2)
            read = load_vector(b, place, kind, lanes) if mask is None else masked_load(b, place, mask, none)
            found.append(widened(b, read, dtype, lanes))
        return found

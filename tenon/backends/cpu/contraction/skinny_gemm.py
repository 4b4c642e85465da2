"""GEMM with few columns and contiguous rows: dot products along K, of several rows and columns at a time.

Lanes of columns would be filled by few of them only; here lanes are steps of depth.  Columns are copied once, each a
run as well, if they do not lie so.  What the lanes of many sums add up to is found for all of them together.
"""
from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import (
    GemmSpec,
    Index,
    Operand,
    Size,
    Tile,
    element_of,
    reads_in_place,
    region_function,
)
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    POINTER,
    ZERO,
    address,
    const,
    element_bytes,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    masked_store,
    minimum,
    multiply_add,
    prefetch,
    store_vector,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.machine_model import FMA_LATENCY, FMA_UNITS, shares
from tenon.backends.cpu.contraction.small_gemm import each_part
from tenon.loops.refusal import Refusal
from tenon.records import replace
from tenon.target import Target

MIN_ROWS, FEWEST, MOST = 4, 2, 8        # and columns; those of a tile, which are no more than lanes
ADDING_UP = 4           # vectors that are multiplied while the lanes of a sum are added up,
COPYING = 1             # and while an element of right is copied;
LOADING = 2             # to load a vector, which mostly lies in two lines of the cache;
VECTOR_TIMES = 1.2, 1.0, 0.9    # relative time of a vector of columns, where a tile has one, two or more of them


def thin_tile(spec: GemmSpec, machine: Target | None = None, worth: Sequence[float] = VECTOR_TIMES) -> Tile | Refusal:
    """The tile of a product that this schedule is for; its `columns` are those of a tile."""
    machine, (rows, columns, depth) = machine or spec.target, spec.known
    if rows is None or columns is None or not depth:
        return Refusal("sizes are not known")
    if spec.packed is not None or spec.store_run or spec.pairs or spec.chunks:
        return Refusal("right is packed, or sums are pairs, or stored in runs or chunks")
    plain = reads_in_place(spec.left, len(spec.depth)) and not isinstance(spec.element, ir.IntType)
    if rows < MIN_ROWS or columns < FEWEST or not plain or not (lies_in_runs(spec) or len(spec.depth) == 1):
        return Refusal("rows are few, or do not lie along depth")
    lanes = machine.vector_bytes // element_bytes(spec.element)
    copying = 0 if lies_in_runs(spec) else COPYING * columns * depth / rows
    vectors = -(-columns // lanes)
    if columns * (-(-depth // lanes) + ADDING_UP) + copying > worth[min(vectors, len(worth)) - 1] * vectors * depth:
        return Refusal("columns fill vectors")
    height, together = _best(rows, columns, min(MOST, lanes), machine.registers)
    return Tile(height, 1, lanes, depth, rows, together, "runs")


def beats_windows(spec: GemmSpec) -> bool:
    """Whether it takes less time than one that is computed window by window, whose vectors of columns wait for nothing.
    """
    return bool(thin_tile(replace(spec, chunks=0), worth=VECTOR_TIMES[-1:]))


def _best(rows: int, columns: int, most: int, registers: int) -> tuple[int, int]:
    """(rows, columns) of the tile that takes least time: for its products, or to load what they are made of.

    >>> _best(1000, 8, 8, 32), _best(1000, 2, 8, 32), _best(4, 20, 8, 32)
    ((6, 4), (10, 2), (4, 5))
    """
    def time(height: int, together: int) -> int:
        return sum(down * across * max(h * c, LOADING * (h + c), FMA_LATENCY * FMA_UNITS)
                   for h, down in shares(rows, height) for c, across in shares(columns, together))
    found = [(time(height, together), -height * together, (shares(rows, height)[0][0], together))
             for together in {shares(columns, count)[0][0] for count in range(1, most + 1)}
             for height in range(1, min((registers - 2) // (together + 1), rows) + 1)]
    return min(found)[2]


def lies_in_runs(spec: GemmSpec) -> bool:
    """Whether columns of right are runs of memory."""
    return reads_in_place(spec.right, len(spec.depth))


def run_length(tile: Tile) -> int:
    """Elements that the copy of a column takes: no even number of vectors, so that columns do not compete."""
    return (-(-tile.depth // tile.lanes) | 1) * tile.lanes


def sums_size(tile: Tile) -> int:
    """Elements that the sums of a tile take, with what is written behind them."""
    return (-(-tile.rows * tile.columns // tile.lanes) + 1) * tile.lanes


def thin_scratch(spec: GemmSpec, tile: Tile) -> int:
    """Bytes of a thread's scratch memory: columns, and a tile's sums."""
    copied = 0 if lies_in_runs(spec) else (spec.known[1] or 0) * run_length(tile)
    return (copied + sums_size(tile)) * element_bytes(spec.element)


def emit_thin(module: ir.Module, name: str, spec: GemmSpec, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to, scratch): all columns of these rows."""
    function = region_function(module, f"{name}.thin", spec, [POINTER])
    _Thin(spec, tile, function).emit()
    return function


class _Thin:
    """The values that the steps share."""

    def __init__(self, spec: GemmSpec, tile: Tile, function: ir.Function) -> None:
        self.spec, self.tile, self.lanes = spec, tile, tile.lanes
        self.args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
        flat, self.row_from, self.row_to, _, _, scratch = values
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        self.batch = unravel(b, flat, [size(b, self.args) for size in spec.batch])
        self.rows, self.columns, self.depth = (count or 0 for count in spec.known)
        self.sums = scratch
        self.copy = address(b, scratch, const(sums_size(tile)), spec.element)

    def emit(self) -> None:
        """The whole function."""
        if not lies_in_runs(self.spec):
            self.copy_columns()
        each_part(self.b, self.rows, self.tile.rows, (self.row_from, self.row_to), self.row_tile)
        self.b.ret_void()

    def copy_columns(self) -> None:
        """Columns of right, one after the other, zeros behind each."""
        b, spec, length = self.b, self.spec, run_length(self.tile)
        with loop(b, ZERO, const(self.depth)) as (k, _):
            for n in range(self.columns):
                column = unravel(b, const(n), [size(b, self.args) for size in spec.columns])
                value = element_of(b, spec, spec.right, self.args, self.batch, column, (k,))
                b.store(value, address(b, self.copy, b.add(const(n * length), k), spec.element))
        for n in range(self.columns):
            with loop(b, const(self.depth), const(length)) as (k, _):
                b.store(zero(spec.element), address(b, self.copy, b.add(const(n * length), k), spec.element))

    def row_tile(self, m: ir.Value, height: int) -> None:
        """All columns of some rows."""
        start = 0
        for count, parts in shares(self.columns, self.tile.columns):
            with loop(self.b, const(start), const(start + count * parts), const(count)) as (n, _):
                self.store(m, n, count, self.products(m, n, height, count))
            start += count * parts

    def products(self, m: ir.Value, n: ir.Value, height: int, count: int) -> list[list[ir.Value]]:
        """The sums of a tile, row by row; vectors of which each lane has its part of the sum."""
        b, spec, lanes, element = self.b, self.spec, self.lanes, self.spec.element
        rows = [self.run(spec.left, b.add(m, const(i)), spec.rows) for i in range(height)]
        last = const(self.rows - 1)
        later = [] if self.is_near() else [
            self.run(spec.left, minimum(b, b.add(m, const(height + i)), last), spec.rows) for i in range(height)]
        columns = [self.column(b.add(n, const(j))) for j in range(count)]

        def add(k: ir.Value, mask: ir.Value | None, sums: list[ir.Value]) -> None:
            left = [self.load(address(b, row, k, element), mask) for row in rows]
            for j, column in enumerate(columns):
                factor = self.load(address(b, column, k, element), mask if lies_in_runs(spec) else None)
                for i, value in enumerate(left):
                    sums[i * count + j] = multiply_add(b, value, factor, sums[i * count + j])

        sums, whole = [zero(ir.VectorType(element, lanes))] * (height * count), self.depth // lanes * lanes
        with loop(b, ZERO, const(whole), const(lanes), sums, short=True) as (k, sums):
            for row in later:
                prefetch(b, address(b, row, k, element), 2)
            add(k, None, sums)
        if whole < self.depth:
            add(const(whole), lanes_below(self.depth - whole, lanes), sums)
        return [sums[i * count:(i + 1) * count] for i in range(height)]

    def is_near(self) -> bool:
        """Whether left is so small that it need not be fetched."""
        return self.rows * self.depth * element_bytes(self.spec.element) <= self.spec.target.l2_bytes

    def run(self, operand: Operand, at: ir.Value, axis: Sequence[Size]) -> ir.Value:
        """Where a row or a column begins in memory."""
        b = self.b
        assert operand.pointer is not None
        index: Index = unravel(b, at, [size(b, self.args) for size in axis])
        return operand.pointer(b, self.args, self.batch, index, (ZERO,) * len(self.spec.depth))

    def column(self, n: ir.Value) -> ir.Value:
        """Where a column begins, in memory or in the copy."""
        if lies_in_runs(self.spec):
            return self.run(self.spec.right, n, self.spec.columns)
        return address(self.b, self.copy, self.b.mul(n, const(run_length(self.tile))), self.spec.element)

    def load(self, where: ir.Value, mask: ir.Value | None) -> ir.Value:
        """A vector of a run, or what the mask leaves of it."""
        if mask is None:
            return load_vector(self.b, where, self.spec.element, self.lanes)
        return masked_load(self.b, where, mask, zero(ir.VectorType(self.spec.element, self.lanes)))

    def store(self, m: ir.Value, n: ir.Value, count: int, sums: list[list[ir.Value]]) -> None:
        """What the sums of a tile add up to goes to the result, or to the epilogue."""
        b, spec, lanes, height = self.b, self.spec, self.lanes, len(sums)
        totals = added_up(b, [vector for row in sums for vector in row])
        for i in range(height):
            row = b.add(m, const(i))
            if spec.stored_at is None and spec.finish is None:
                for place in range(i * count, (i + 1) * count):
                    value = b.extract_element(totals[place // lanes], I32(place % lanes))
                    spec.store(b, self.args, self.batch, row, b.add(n, const(place - i * count)), value, 1)
                continue
            where = address(b, self.sums, const(i * count), spec.element) if spec.stored_at is None else \
                spec.stored_at(b, self.args, self.batch, row, n)
            if spec.stored_at is None and i + 1 < height:      # what is stored behind it comes later
                store_vector(b, slice_of(b, totals, i * count), where)
            else:
                masked_store(b, slice_of(b, totals, i * count), where, lanes_below(count, lanes))
        if spec.finish is not None and spec.stored_at is None:
            spec.finish(b, self.args, self.batch, m, n, const(height), const(count), self.sums, count)


def added_up(b: ir.IRBuilder, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Vectors whose lanes are what the lanes of each of these add up to: halves first, of two vectors at a time, so
    that every sum has the same order wherever it stands.

    Two shuffles and an addition for all lanes of two vectors halve what is left to do.
    """
    lanes = vectors[0].type.count
    width = lanes // 2
    while width:
        firsts = [i for i in range(2 * lanes) if i % (2 * width) < width]
        masks = [ir.Constant(ir.VectorType(I32, lanes), [i + shift for i in firsts]) for shift in (0, width)]
        pairs = [(vectors[i], vectors[min(i + 1, len(vectors) - 1)]) for i in range(0, len(vectors), 2)]
        vectors = [b.fadd(*(b.shuffle_vector(*pair, mask) for mask in masks)) for pair in pairs]
        width //= 2
    return list(vectors)


def slice_of(b: ir.IRBuilder, vectors: Sequence[ir.Value], start: int) -> ir.Value:
    """As many lanes of vectors one after the other as one has, from `start` on; anything behind the last."""
    lanes = vectors[0].type.count
    first, at = divmod(start, lanes)
    both = vectors[first], vectors[min(first + 1, len(vectors) - 1)]
    return both[0] if at == 0 else \
        b.shuffle_vector(*both, ir.Constant(ir.VectorType(I32, lanes), list(range(at, at + lanes))))

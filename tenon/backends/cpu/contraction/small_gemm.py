"""GEMM of small, known sizes: left is read in place, and right too where its columns are lines.

Nothing is cut along depth, and rows and vectors of columns are shared out evenly, so tiles are of two heights and two
widths; where the last vector is not whole it is masked.  The tiles are part of one function, so a tile costs little
beside its multiply-adds.  Right is packed, a panel at a time, where it lies along depth or would crowd in the first
cache for many rows; a larger one is left to blocks then, whose tiles pack and fetch in passing.

A vector times a matrix is one row of wide tiles.  There reading right is what takes the time: its lines are read as
vectors that begin where lines of the cache do, wherever memory begins; lanes before the first column are left out.
"""
import math
from collections.abc import Callable, Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.batch_prefetch import Following
from tenon.backends.cpu.contraction.gemm_spec import (
    GemmSpec,
    Operand,
    Tile,
    has_small_k,
    loops_rows_inside,
    region_function,
)
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    ONE,
    POINTER,
    ZERO,
    address,
    between,
    const,
    element_bytes,
    lanes_before,
    lanes_below,
    load_vector,
    loop,
    masked_load,
    masked_store,
    maximum,
    minimum,
    multiply_add,
    splat,
    store_vector,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.machine_model import exact_tile, shares
from tenon.backends.cpu.contraction.packing import emit_pack
from tenon.loops.refusal import Refusal
from tenon.target import WAY_BYTES, Target

SHARE, PANELS_SHARE = 4, 32     # of the second cache that right may take, read where it is and packed
MIN_EXTENT = 4          # columns, steps; rows too, unless lines of right are read where they are
# Steps of few sums, of which as many columns as there are will do, and of one sum.
MIN_STEPS_OF_FEW_SUMS, MAX_STEPS_OF_ONE_SUM = 32, 1 << 17
MIN_PACKED_ROWS = 64        # rows that a panel is worth packing for, times the share of its lines that have no place
EVEN_K_UNROLL = 2       # of an even depth are one iteration of a whole tile's loop: less beside its multiply-adds


def direct_tile(spec: GemmSpec, machine: Target | None = None) -> Tile | Refusal:
    """The tile of a product that this schedule is for."""
    machine = machine or spec.target
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None:
        return Refusal("sizes are not known")
    if spec.packed is not None or spec.store_run is not None or spec.pairs:
        return Refusal("right is packed, or sums are pairs, or stored in runs")
    size = element_bytes(spec.element)
    lanes = machine.vector_bytes // size
    once = meets_once(spec, machine, lanes)
    if (columns < MIN_EXTENT and not once) or depth < MIN_EXTENT or rows < (1 if reads_lines(spec) else MIN_EXTENT):
        return Refusal("rows, columns or depth are few")
    lines = once or (reads_lines(spec) and rows * without_place(spec, machine) <= MIN_PACKED_ROWS)
    if not once and columns * depth * size * (SHARE if lines else PANELS_SHARE) > machine.l2_bytes:
        return Refusal("right takes too much of the second cache")
    if not in_place(spec.left, len(spec.rows), len(spec.depth)):
        return Refusal("left cannot be read where it is")
    if has_small_k(spec) and not lines:
        return Refusal("depth is small: all panels are packed before they are met")
    touched = rows * columns * size * (1 + len(spec.near))
    if spec.near and not has_small_k(spec) and touched > machine.l2_bytes:
        return Refusal("panels would go through what the epilogue reads again and again")
    near = places(spec.left, spec, machine) if spec.left.contiguous == "depth" else None
    height, vectors = exact_tile(machine, lanes, rows, columns, depth, near)
    return Tile(height, vectors, lanes, depth, columns, rows, "lines" if lines else "panels")


def meets_once(spec: GemmSpec, machine: Target, lanes: int) -> bool:
    """Whether one tile has all sums, and right is one run of memory, in order, that is read once wherever it is."""
    rows, columns, depth = (size or 0 for size in spec.known)
    run = reads_lines(spec) and spec.left.contiguous == "outer" and spec.right.apart == columns
    return run and MIN_STEPS_OF_FEW_SUMS <= depth <= MAX_STEPS_OF_ONE_SUM and columns > 1 and \
        (rows, -(-columns // lanes)) == exact_tile(machine, lanes, rows, columns, depth)


def reads_lines(spec: GemmSpec) -> bool:
    """Whether lines of right can be read where they are."""
    return spec.right.contiguous == "outer" and in_place(spec.right, len(spec.columns), len(spec.depth))


def without_place(spec: GemmSpec, machine: Target) -> float:
    """The share of the lines of right that the others drive out of the first cache."""
    return max(1 - places(spec.right, spec, machine) / (spec.known[2] or 1), 0)


def places(x: Operand, spec: GemmSpec, machine: Target) -> int:
    """How many lines of memory, as far apart as an operand's, the first cache has places for."""
    apart = (x.apart or 0) * element_bytes(spec.element)
    return WAY_BYTES // math.gcd(apart, WAY_BYTES) * (machine.l1_bytes // WAY_BYTES)


def in_place(x: Operand, outer: int, depth: int) -> bool:
    """Whether the address of an element is linear in its places along outer and depth, with steps that are known."""
    if x.pointer is None or x.inside is not None or x.step != 1 or (x.apart is None and outer):
        return False
    return x.flat or (depth if x.contiguous == "depth" else outer) == 1


def direct_scratch(spec: GemmSpec, tile: Tile) -> int:
    """Bytes of a thread's scratch memory: a packed panel of right, and a tile's sums, where there are such."""
    sums = tile.rows * tile.width + tile.lanes if spec.finish else 0
    return (panel_size(tile) + sums) * element_bytes(spec.element)


def panel_size(tile: Tile) -> int:
    """Elements of a packed panel of right."""
    behind = tile.lanes * tile.width + tile.lanes           # packing in squares writes over the end
    return 0 if tile.schedule == "lines" else tile.depth * tile.width + behind


def tile_count(count: int, most: int) -> int:
    """How many tiles of at most `most` share out so many rows, or vectors of columns."""
    return sum(parts for _, parts in shares(count, most))


def tile_start(b: ir.IRBuilder, count: int, most: int, number: ir.Value) -> ir.Value:
    """Where the tile of this number begins."""
    (larger, parts), *rest = shares(count, most)
    smaller = rest[0][0] if rest else larger
    return b.add(b.mul(number, const(smaller)), b.mul(minimum(b, number, const(parts)), const(larger - smaller)))


def each_part(b: ir.IRBuilder, count: int, most: int, bounds: tuple[ir.Value, ir.Value],
              body: Callable[[ir.Value, int], None]) -> None:
    """Loops over the tiles that share out so many rows, of those within the bounds: where one begins, and its size."""
    start, (low, high) = 0, bounds
    for height, tiles in shares(count, most):
        end = start + height * tiles
        with loop(b, maximum(b, low, const(start)), minimum(b, high, const(end)), const(height)) as (m, _):
            body(m, height)
        start = end


def emit_direct(module: ir.Module, name: str, spec: GemmSpec, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to, scratch), from tile to tile."""
    function = region_function(module, f"{name}.direct", spec, [POINTER])
    _SmallGemm(module, name, spec, tile, function).emit()
    return function


class _SmallGemm:
    """The loops over panels of columns, and in a panel over tiles of rows."""

    def __init__(self, module: ir.Module, name: str, spec: GemmSpec, tile: Tile, function: ir.Function) -> None:
        self.spec, self.tile = spec, tile
        self.packs, self.copies = tile.schedule == "panels", reads_lines(spec)
        if self.packs and not self.copies:
            self.pack = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
        self.args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
        self.flat, self.row_from, self.row_to, self.column_from, self.column_to, self.scratch = values
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        self.batch = unravel(b, self.flat, [size(b, self.args) for size in spec.batch])
        self.edge = None if spec.stored_at is not None else b.alloca(ir.VectorType(spec.element, tile.lanes))
        self.rows, self.columns, self.depth = (count or 0 for count in spec.known)
        lined_up = not self.packs and (spec.right.apart or 0) % tile.lanes == 0
        self.aligns = lined_up and self.rows < MIN_EXTENT and (spec.stored_at is not None or spec.finish is not None)

    def emit(self) -> None:
        """The whole function."""
        if loops_rows_inside(self.spec, self.tile):
            self.each_height(lambda m, height: self.each_panel(lambda n, count: self.one(m, n, height, count)))
        else:
            self.each_panel(self.panel)
        self.b.ret_void()

    def panel(self, n: ir.Value, count: int) -> None:
        """All rows of `count` columns."""
        if self.packs and self.copies:
            self.copy_lines(n, count)
        elif self.packs:
            self.b.call(self.pack, [*self.args, self.flat, n, const(count), ZERO, const(self.depth), self.scratch])
        self.each_height(lambda m, height: self.one(m, n, height, count))

    def each_panel(self, body: Callable[[ir.Value, int], None]) -> None:
        """Loops over panels of columns: where one begins, and how many columns it has."""
        b, lanes = self.b, self.tile.lanes
        start, last = 0, self.columns % lanes
        for vectors, panels in shares(-(-self.columns // lanes), self.tile.vectors):
            width = vectors * lanes
            end = start + panels * width
            masked = end > self.columns
            whole = end - width if masked else end
            with loop(b, maximum(b, self.column_from, const(start)), minimum(b, self.column_to, const(whole)),
                      const(width)) as (n, _):
                body(n, width)
            if masked:
                with b.if_then(b.icmp_signed("==", self.column_to, const(self.columns))):
                    body(const(whole), width - lanes + last)
            start = end

    def each_height(self, body: Callable[[ir.Value, int], None]) -> None:
        """Loops over tiles of rows: where one begins, and how many rows it has."""
        each_part(self.b, self.rows, self.tile.rows, (self.row_from, self.row_to), body)

    def copy_lines(self, n: ir.Value, count: int) -> None:
        """Pack a panel whose lines lie in memory."""
        b, lanes, element = self.b, self.tile.lanes, self.spec.element
        start, apart = self.lines(n)
        with loop(b, ZERO, const(self.depth), short=True) as (k, _):
            line, panel = (address(b, base, b.mul(k, const(step)), element)
                           for base, step in ((start, apart), (self.scratch, self.tile.width)))
            for at in range(0, count, lanes):
                value = self.load(address(b, line, const(at), element), vector_mask(count - at, lanes))
                store_vector(b, value, address(b, panel, const(at), element))

    def one(self, m: ir.Value, n: ir.Value, height: int, count: int) -> None:
        """A tile of `height` rows and `count` columns, from the first product to the last store."""
        b, lanes = self.b, self.tile.lanes
        right = (self.scratch, self.tile.width) if self.packs else self.lines(n)
        masks = [vector_mask(count - at, lanes) for at in range(0, count, lanes)]
        if not self.aligns:
            self.rectangle(m, n, height, count, right, masks, ZERO)
            return
        before = lanes_before(b, right[0], self.spec.element, lanes)
        with b.if_else(b.icmp_signed("==", before, ZERO)) as (aligned, shifted):
            with aligned:
                self.rectangle(m, n, height, count, right, masks, ZERO)
            with shifted:
                bounds = b.trunc(before, I32), b.trunc(b.add(before, const(count)), I32)
                masks = [between(b, *bounds, lanes, at) for at in range(0, count + lanes, lanes)]
                start = address(b, right[0], b.neg(before), self.spec.element)
                self.rectangle(m, n, height, count, (start, right[1]), masks, before)

    def rectangle(self, m: ir.Value, n: ir.Value, height: int, count: int, right: tuple[ir.Value, int],
                  masks: Sequence[ir.Value | None], before: ir.Value) -> None:
        """The tile, of vectors the lanes of which that are in the masks are columns; `before` lanes are not."""
        b, spec, lanes, element = self.b, self.spec, self.tile.lanes, self.spec.element
        start_left, row_apart, left_apart = self.left(m)
        none = zero(ir.VectorType(element, lanes))
        usual = (height, len(masks)) == (self.tile.rows, self.tile.vectors) and not any(masks)
        steps = EVEN_K_UNROLL if usual and self.depth % EVEN_K_UNROLL == 0 else 1
        following = Following(b, spec, self.tile, self.args, self.flat, m, n, height, steps) if spec.batch else None
        with loop(b, ZERO, const(self.depth), const(steps), [none] * (height * len(masks)), short=True) as (k, sums):
            if following is not None:
                following.fetch(k)
            lines = address(b, right[0], b.mul(k, const(right[1])), element)
            columns = address(b, start_left, b.mul(k, const(left_apart)), element)
            for step in range(steps):
                others = [self.load(address(b, lines, const(step * right[1] + v * lanes), element),
                                    None if self.packs else mask) for v, mask in enumerate(masks)]
                for i in range(height):
                    place = const(step * left_apart + i * row_apart)
                    factor = splat(b, b.load(address(b, columns, place, element), typ=element), lanes)
                    for v, other in enumerate(others):
                        sums[i * len(masks) + v] = multiply_add(b, factor, other, sums[i * len(masks) + v])
        if self.spec.finish is not None:
            self.finish(m, n, height, count, sums, masks, before)
            return
        for i in range(height):
            for v, mask in enumerate(masks):
                self.store(b.add(m, const(i)), n, b.sub(const(v * lanes), before), sums[i * len(masks) + v], mask)

    def finish(self, m: ir.Value, n: ir.Value, height: int, count: int, sums: list[ir.Value],
               masks: Sequence[ir.Value | None], before: ir.Value) -> None:
        """Put the sums of a tile by, and hand all of them to the epilogue."""
        b, lanes, width, element = self.b, self.tile.lanes, self.tile.width, self.spec.element
        assert self.spec.finish is not None
        waiting = address(b, self.scratch, const(panel_size(self.tile)), element)
        for place, value in enumerate(sums):
            i, v = divmod(place, len(masks))
            put(b, value, address(b, waiting, const(i * width + v * lanes), element), masks[v])
        waiting = address(b, waiting, before, element)
        self.spec.finish(b, self.args, self.batch, m, n, const(height), const(count), waiting, width)

    def left(self, m: ir.Value) -> tuple[ir.Value, int, int]:
        """(where row m begins, elements between rows, between steps)."""
        b, spec = self.b, self.spec
        assert spec.left.pointer is not None
        start = spec.left.pointer(b, self.args, self.batch, unravel(b, m, [size(b, self.args) for size in spec.rows]),
                                  (ZERO,) * len(spec.depth))
        apart = spec.left.apart or 0            # of no rows there is one, and nothing between
        return (start, apart, 1) if spec.left.contiguous == "depth" else (start, 1, apart)

    def lines(self, n: ir.Value) -> tuple[ir.Value, int]:
        """(where column n of right begins in memory, elements between steps)."""
        b, spec = self.b, self.spec
        assert spec.right.pointer is not None and spec.right.apart is not None
        column = unravel(b, n, [size(b, self.args) for size in spec.columns])
        return spec.right.pointer(b, self.args, self.batch, column, (ZERO,) * len(spec.depth)), spec.right.apart

    def load(self, where: ir.Value, mask: ir.Value | None) -> ir.Value:
        """A vector of a line, or what the mask leaves of it."""
        if mask is None:
            return load_vector(self.b, where, self.spec.element, self.tile.lanes)
        return masked_load(self.b, where, mask, zero(ir.VectorType(self.spec.element, self.tile.lanes)))

    def store(self, m: ir.Value, n: ir.Value, offset: ir.Value, value: ir.Value, mask: ir.Value | None) -> None:
        """Hand over a vector of sums that begins `offset` columns after n, or what the mask leaves of it."""
        b, spec, lanes = self.b, self.spec, self.tile.lanes
        if mask is None:
            spec.store(b, self.args, self.batch, m, b.add(n, offset), value, lanes)
        elif spec.stored_at is not None:
            target = spec.stored_at(b, self.args, self.batch, m, n)
            masked_store(b, value, address(b, target, offset, spec.element), mask)
        else:
            store_vector(b, value, self.edge)
            with loop(b, ZERO, const(self.columns % lanes), ONE, short=True) as (i, _):
                one = b.load(address(b, self.edge, i, spec.element), typ=spec.element)
                spec.store(b, self.args, self.batch, m, b.add(n, b.add(offset, i)), one, 1)


def vector_mask(count: int, lanes: int) -> ir.Value | None:
    """Of a vector of which so many lanes are columns; None where all are."""
    return lanes_below(count, lanes) if count < lanes else None


def put(b: ir.IRBuilder, value: ir.Value, where: ir.Value, mask: ir.Value | None) -> None:
    """Store a vector, or what the mask leaves of it."""
    if mask is None:
        store_vector(b, value, where)
    else:
        masked_store(b, value, where, mask)

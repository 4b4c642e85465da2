"""The schedule for products of known, small sizes: left is read where it is, and right too where its columns are lines.

Nothing is cut along depth, and rows and vectors of columns are shared out evenly, so tiles are of two heights and two
widths; where the last vector is not whole it is masked.  The tiles are part of one function, so a tile costs little
beside its multiply-adds.  Right is packed, a panel at a time, where it lies along depth or would crowd in the first
cache.
"""
import math

from llvmlite import ir

from .emit import (
    ONE,
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
    maximum,
    minimum,
    multiply_add,
    splat,
    store_vector,
    unravel,
    zero,
)
from .machine import Machine, exact_tile, host, shares
from .packing import emit_pack
from .spec import Contraction, Operand, Tile, region_function

SHARE = 4                   # of the second cache that right may take
FEWEST = 4                  # rows, columns, steps
WAY = 4096                  # bytes after which lines of memory compete for the same place of the first cache
MANY = 96                   # rows that a panel is worth packing for, where its lines compete
CROWD = 2                   # times as many lines as have a place


def direct_tile(spec: Contraction, machine: Machine | None = None) -> Tile | None:
    """The tile of a product that this schedule is for."""
    machine = machine or host()
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None or spec.packed is not None or spec.store_run is not None:
        return None
    size = element_bytes(spec.element)
    if min(rows, columns, depth) < FEWEST or columns * depth * size * SHARE > machine.second_cache:
        return None
    if not in_place(spec.left, len(spec.rows), len(spec.depth)):
        return None
    if spec.near and rows * columns * size * (1 + len(spec.near)) * SHARE > machine.second_cache:
        return None             # which panels of columns would go through in steps of rows, again and again
    lanes = machine.vector_bytes // size
    height, vectors = exact_tile(machine, lanes, rows, columns, depth)
    lines = reads_lines(spec) and not (rows >= MANY and crowded(spec, machine))
    return Tile(height, vectors, lanes, depth, columns, rows, "lines" if lines else "panels")


def reads_lines(spec: Contraction) -> bool:
    """Whether lines of right can be read where they are."""
    return spec.right.contiguous == "outer" and in_place(spec.right, len(spec.columns), len(spec.depth))


def crowded(spec: Contraction, machine: Machine) -> bool:
    """Whether the lines of a panel of right compete for few places in the first cache."""
    apart, depth = (spec.right.apart or 0) * element_bytes(spec.element), spec.known[2] or 0
    places = WAY // math.gcd(apart, WAY) * (machine.first_cache // WAY)
    return depth > CROWD * places


def in_place(x: Operand, outer: int, depth: int) -> bool:
    """Whether the address of an element is linear in its places along outer and depth, with steps that are known."""
    if x.pointer is None or x.inside is not None or x.step != 1 or x.apart is None:
        return False
    return x.flat or (depth if x.contiguous == "depth" else outer) == 1


def direct_scratch(spec: Contraction, tile: Tile) -> int:
    """Bytes of a thread's scratch memory: a packed panel of right, and a tile's sums, where there are such."""
    return (panel_size(tile) + (tile.rows * tile.width if spec.finish else 0)) * element_bytes(spec.element)


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


def emit_direct(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void region(arguments..., g, row_from, row_to, column_from, column_to, scratch), from tile to tile."""
    function = region_function(module, f"{name}.direct", spec, [POINTER])
    _Direct(module, name, spec, tile, function).emit()
    return function


class _Direct:
    """The loops over panels of columns, and in a panel over tiles of rows."""

    def __init__(self, module: ir.Module, name: str, spec: Contraction, tile: Tile, function: ir.Function) -> None:
        self.spec, self.tile = spec, tile
        self.packs, self.copies = tile.schedule == "panels", reads_lines(spec)
        if self.packs and not self.copies:
            self.pack = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
        self.args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
        self.flat, self.row_from, self.row_to, self.column_from, self.column_to, self.scratch = values
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        self.batch = unravel(b, self.flat, [size(b, self.args) for size in spec.batch])
        self.edge = None if spec.target is not None else b.alloca(ir.VectorType(spec.element, tile.lanes))
        self.rows, self.columns, self.depth = (count or 0 for count in spec.known)

    def emit(self) -> None:
        """The whole function."""
        b, lanes = self.b, self.tile.lanes
        start, last = 0, self.columns % lanes
        for vectors, panels in shares(-(-self.columns // lanes), self.tile.vectors):
            width = vectors * lanes
            end = start + panels * width
            masked = end > self.columns
            whole = end - width if masked else end
            with loop(b, maximum(b, self.column_from, const(start)), minimum(b, self.column_to, const(whole)),
                      const(width)) as (n, _):
                self.panel(n, width)
            if masked:
                with b.if_then(b.icmp_signed("==", self.column_to, const(self.columns))):
                    self.panel(const(whole), width - lanes + last)
            start = end
        b.ret_void()

    def panel(self, n: ir.Value, count: int) -> None:
        """All rows of `count` columns."""
        b, start = self.b, 0
        if self.packs and self.copies:
            self.copy_lines(n, count)
        elif self.packs:
            b.call(self.pack, [*self.args, self.flat, n, const(count), ZERO, const(self.depth), self.scratch])
        for height, tiles in shares(self.rows, self.tile.rows):
            end = start + height * tiles
            with loop(b, maximum(b, self.row_from, const(start)), minimum(b, self.row_to, const(end)),
                      const(height)) as (m, _):
                self.one(m, n, height, count)
            start = end

    def copy_lines(self, n: ir.Value, count: int) -> None:
        """Pack a panel whose lines lie in memory."""
        b, lanes, element = self.b, self.tile.lanes, self.spec.element
        start, apart = self.lines(n)
        with loop(b, ZERO, const(self.depth), short=True) as (k, _):
            line, panel = (address(b, base, b.mul(k, const(step)), element)
                           for base, step in ((start, apart), (self.scratch, self.tile.width)))
            for at in range(0, count, lanes):
                value = self.load(address(b, line, const(at), element), min(lanes, count - at))
                store_vector(b, value, address(b, panel, const(at), element))

    def one(self, m: ir.Value, n: ir.Value, height: int, count: int) -> None:
        """A tile of `height` rows and `count` columns, from the first product to the last store."""
        b, lanes, element = self.b, self.tile.lanes, self.spec.element
        start_left, row_apart, left_apart = self.left(m)
        start_right, right_apart = (self.scratch, self.tile.width) if self.packs else self.lines(n)
        vectors = [min(lanes, count - at) for at in range(0, count, lanes)]
        none = zero(ir.VectorType(element, lanes))
        with loop(b, ZERO, const(self.depth), carried=[none] * (height * len(vectors)), short=True) as (k, sums):
            line = address(b, start_right, b.mul(k, const(right_apart)), element)
            others = [self.load(address(b, line, const(v * lanes), element), lanes if self.packs else size)
                      for v, size in enumerate(vectors)]
            column = address(b, start_left, b.mul(k, const(left_apart)), element)
            for i in range(height):
                one = b.load(address(b, column, const(i * row_apart), element), typ=element)
                factor = splat(b, one, lanes)
                for v, other in enumerate(others):
                    place = i * len(vectors) + v
                    sums[place] = multiply_add(b, factor, other, sums[place])
        if self.spec.finish is not None:
            self.finish(m, n, height, count, sums)
            return
        for i in range(height):
            for v, size in enumerate(vectors):
                self.store(b.add(m, const(i)), b.add(n, const(v * lanes)), sums[i * len(vectors) + v], size)

    def finish(self, m: ir.Value, n: ir.Value, height: int, count: int, sums: list[ir.Value]) -> None:
        """Put the sums of a tile by, and hand all of them to the epilogue."""
        b, lanes, width, element = self.b, self.tile.lanes, self.tile.width, self.spec.element
        assert self.spec.finish is not None
        waiting = address(b, self.scratch, const(panel_size(self.tile)), element)
        vectors = len(sums) // height
        for place, value in enumerate(sums):
            i, v = divmod(place, vectors)
            store_vector(b, value, address(b, waiting, const(i * width + v * lanes), element))
        self.spec.finish(b, self.args, self.batch, m, n, const(height), const(count), waiting, width)

    def left(self, m: ir.Value) -> tuple[ir.Value, int, int]:
        """(where row m begins, elements between rows, between steps)."""
        b, spec = self.b, self.spec
        assert spec.left.pointer is not None and spec.left.apart is not None
        start = spec.left.pointer(b, self.args, self.batch, unravel(b, m, [size(b, self.args) for size in spec.rows]),
                                  (ZERO,) * len(spec.depth))
        return (start, spec.left.apart, 1) if spec.left.contiguous == "depth" else (start, 1, spec.left.apart)

    def lines(self, n: ir.Value) -> tuple[ir.Value, int]:
        """(where column n of right begins in memory, elements between steps)."""
        b, spec = self.b, self.spec
        assert spec.right.pointer is not None and spec.right.apart is not None
        column = unravel(b, n, [size(b, self.args) for size in spec.columns])
        return spec.right.pointer(b, self.args, self.batch, column, (ZERO,) * len(spec.depth)), spec.right.apart

    def load(self, where: ir.Value, count: int) -> ir.Value:
        """A vector of a line, `count` lanes of which are columns."""
        b, lanes, element = self.b, self.tile.lanes, self.spec.element
        if count == lanes:
            return load_vector(b, where, element, lanes)
        return masked_load(b, where, lanes_below(count, lanes), zero(ir.VectorType(element, lanes)))

    def store(self, m: ir.Value, n: ir.Value, value: ir.Value, count: int) -> None:
        """Hand over one vector of sums, `count` lanes of which are results."""
        b, spec, lanes = self.b, self.spec, self.tile.lanes
        if count == lanes:
            spec.store(b, self.args, self.batch, m, n, value, lanes)
        elif spec.target is not None:
            masked_store(b, value, spec.target(b, self.args, self.batch, m, n), lanes_below(count, lanes))
        else:
            store_vector(b, value, self.edge)
            with loop(b, ZERO, const(count), ONE, short=True) as (i, _):
                one = b.load(address(b, self.edge, i, spec.element), typ=spec.element)
                spec.store(b, self.args, self.batch, m, b.add(n, i), one, 1)

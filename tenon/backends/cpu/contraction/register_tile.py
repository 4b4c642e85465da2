"""One register tile: rows x width sums over a block of depth, and what is done with them when depth is finished.

    arguments..., g, m, n, rows, columns, depth, left, right, sums, first, last, ahead..., lines...

is what it is given: as a function, or in the loop over tiles, where sums are only stored.  Neither is to do much, since
processors begin with the next tile while products of this one are waiting, and no earlier than that.

`right` is a packed panel, `left` one too or where it is in memory; `ahead` says what is fetched for later tiles, and
`lines` whether this tile packs the panel: it reads lines in memory, and writes them to the panel for the others.
Between blocks of depth sums wait where they will be stored at last, or, where an epilogue is to be applied, in `sums`.
"""
from collections.abc import Callable, Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.block_epilogue import apart
from tenon.backends.cpu.contraction.gemm_spec import (
    Args,
    GemmSpec,
    Index,
    ResultAddress,
    Tile,
    in_registers,
    left_layout,
    narrow_tile,
    packs_in_tiles,
    uses_block_epilogue,
    whole_tiles,
)
from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I32,
    I64,
    ONE,
    POINTER,
    ZERO,
    add,
    address,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_load,
    masked_store,
    minimum,
    splat,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.microkernel import add_products
from tenon.backends.cpu.contraction.microkernel_types import (
    Ahead,
    EpilogueAddress,
    LeftOperand,
    Lines,
    Shape,
    no_fetches,
    no_near,
    pace,
    put_lines,
)
from tenon.backends.cpu.contraction.panel_prefetch import ahead_types, by_lines, spread
from tenon.backends.cpu.contraction.store_bf16 import store_rounded
from tenon.llvm import shared_functions
from tenon.records import dataclass

Emit = Callable[[ir.IRBuilder, list[ir.Value], ir.Value], None]


def tile_emitter(module: ir.Module, name: str, spec: GemmSpec, tile: Tile, narrow: Tile | None = None) -> Emit:
    """What emits a tile, or the call of its function: given a builder, what it is given, bytes between rows.

    It is for the last columns alone, if it is for a `narrow` tile, whose panel is packed before.
    """
    if stores_plainly(spec):
        return lambda b, given, apart: _RegisterTile(module, name, spec, tile, narrow, b, given, apart).emit()
    return caller(emit_tile(module, name, spec, tile, narrow))


def caller(function: ir.Function) -> Emit:
    """What emits the call of a tile's function."""
    def call(b: ir.IRBuilder, given: list[ir.Value], _: ir.Value) -> None:
        b.call(function, given)
    return call


def stores_plainly(spec: GemmSpec) -> bool:
    """Whether sums are stored where `target` says, and no more is done with them."""
    return spec.stored_at is not None and spec.straight and spec.store_run is None and not in_registers(spec)


def row_apart(b: ir.IRBuilder, spec: GemmSpec, args: Args, g: ir.Value, m: ir.Value, n: ir.Value) -> ir.Value:
    """Bytes between rows of the result, if it is equally far apart for them."""
    assert spec.stored_at is not None
    batch = unravel(b, g, [size(b, args) for size in spec.batch])
    first, second = (spec.stored_at(b, args, batch, row, n) for row in (m, b.add(m, ONE)))
    return b.sub(b.ptrtoint(second, I64), b.ptrtoint(first, I64))


def emit_tile(module: ir.Module, name: str, spec: GemmSpec, tile: Tile, narrow: Tile | None = None) -> ir.Function:
    """The function."""
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 6, *[POINTER] * 3, I1, I1,
                                           *ahead_types(spec, tile), *([] if narrow else line_types(spec, tile))])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    _RegisterTile(module, name, spec, tile, narrow, b, function.args).emit()
    b.ret_void()
    return function


class _RegisterTile:
    """The values that the steps of a tile share."""

    def __init__(self, module: ir.Module, name: str, spec: GemmSpec, block: Tile, narrow: Tile | None,
                 b: ir.IRBuilder, given: Sequence[ir.Value], apart: ir.Value | None = None) -> None:
        self.b, self.apart = b, apart
        self.spec, self.block, self.tile = spec, block, narrow or block
        self.whole_rows, self.whole_columns = whole_tiles(spec, block)
        if narrow is not None:
            self.whole_columns = (spec.known[1] or 0) % narrow.lanes == 0
        elif narrow_tile(spec, block) is not None:
            self.whole_columns = True
        self.is_stored = spec.stored_at is not None and spec.straight and spec.store_run is None
        by_piece = self.is_stored or spec.finish is not None
        self.finish = None if by_piece else finish_function(module, f"{name.rpartition('.')[0]}.finish", spec, block)
        self.args, values = tuple(given[:len(spec.arguments)]), given[len(spec.arguments):]
        g, self.m, self.n, self.rows, self.columns, self.depth, self.left, self.right, self.sums, *rest = values
        self.first, self.last, *rest = rest
        ahead = len(ahead_types(spec, block))
        self.ahead, self.memory = rest[:ahead], rest[ahead:]
        self.passed = [*self.args, g, self.m, self.n, self.rows, self.columns, const(self.tile.width), self.sums,
                       self.first]
        self.batch = unravel(b, g, [size(b, self.args) for size in spec.batch])

    def emit(self) -> None:
        """The whole function."""
        b, spec = self.b, self.spec
        direct = self.is_whole() if spec.stored_at is not None and spec.straight else ir.Constant(I1, 0)
        adds = b.and_(direct, b.not_(self.first)) if spec.stored_at is not None else b.not_(self.first)
        self.add_products(self.lines(direct), adds)
        if spec.stored_at is not None:
            self.store_edge(direct)
        elif not uses_block_epilogue(spec):
            with b.if_then(self.last):
                self.hand_over()

    def store_edge(self, direct: ir.Value) -> None:
        """The sums of a tile that is not whole go to the result from memory of the thread's own."""
        b, spec, tile = self.b, self.spec, self.tile
        if self.is_stored and self.whole_rows and self.whole_columns:
            return
        with b.if_then(b.not_(direct), likely=False):
            if not self.is_stored:
                b.call(self.finish, self.passed)
                return
            assert spec.stored_at is not None
            first, apart = self.lines_at(spec.stored_at)
            shared_functions.call(b, store_part, (spec.element, tile),
                        [self.sums, first, apart, self.rows, self.columns, self.first])

    def hand_over(self) -> None:
        """The sums are finished: the epilogue takes all of them."""
        b, spec, tile = self.b, self.spec, self.tile
        if spec.finish is None:
            b.call(self.finish, self.passed)
            return
        rows = minimum(b, self.rows, const(tile.rows))
        if spec.rounds is not None:
            columns = minimum(b, self.columns, const(tile.width))
            store_rounded(b, spec, tile, self.args, self.batch, (self.m, self.n), (rows, columns), self.sums)
            return
        finish_tile(b, spec, tile, self.args, self.batch, (self.m, self.n), (rows, self.columns), self.sums,
                    self.whole_columns)

    def is_whole(self) -> ir.Value:
        """Whether all of the tile is in the result, and each of its rows in one run of it."""
        b, spec, tile = self.b, self.spec, self.tile
        if self.is_stored and self.whole_rows and self.whole_columns:
            return I1(1)
        whole = b.and_(b.icmp_signed(">=", self.rows, const(tile.rows)),
                       b.icmp_signed(">=", self.columns, const(tile.width)))
        if spec.store_run is not None:
            run = spec.store_run(b, self.args)
            whole = b.and_(whole, b.icmp_signed(">=", b.sub(run, b.urem(self.n, run)), const(tile.width)))
        return whole

    def lines(self, direct: ir.Value) -> Lines:
        """Where the sums go: to the result, or to memory of the thread's own."""
        b, spec = self.b, self.spec
        size = element_bytes(spec.element)
        own = Lines(self.sums, const((apart(self.tile) if uses_block_epilogue(spec) else self.tile.width) * size))
        if spec.stored_at is None or not spec.straight:
            return own
        return Lines(*(b.select(direct, *both) for both in zip(self.lines_at(spec.stored_at), own, strict=True)))

    def lines_at(self, where: ResultAddress) -> Lines:
        """What is somewhere for the rows, if it is equally far apart for them."""
        b = self.b
        first = where(b, self.args, self.batch, self.m, self.n)
        if self.apart is not None:
            return Lines(first, self.apart)
        second = where(b, self.args, self.batch, b.add(self.m, ONE), self.n)
        return Lines(first, b.sub(b.ptrtoint(second, I64), b.ptrtoint(first, I64)))

    def near(self) -> EpilogueAddress:
        """What the epilogue reads and writes, if sums are finished now."""
        b, near = self.b, (*self.spec.near, *self.spec.written)
        if not near or uses_block_epilogue(self.spec):
            return no_near(self.sums)
        table = b.alloca(POINTER, 2 * len(near))
        with b.if_then(self.last):
            for number, where in enumerate(near):
                put_lines(b, table, number, self.lines_at(where))
        return EpilogueAddress(table, b.select(self.last, const(len(near)), ZERO))

    def add_products(self, sums: Lines, adds: ir.Value) -> None:
        """The sums over this block of depth."""
        b, spec, tile = self.b, self.spec, self.tile
        _, row, chunk, step = left_layout(spec, self.block)
        shape = Shape(spec.element, tile.rows, tile.vectors, tile.lanes, step, self.block.width, spec.pairs)
        shape = shape._replace(plain=chunk == tile.lanes * step and self.fetches_little(shape))
        left = LeftOperand(self.left, const(row), const(chunk), const(row if step == 1 else tile.lanes))
        given = shape, self.depth, left, self.right, sums, adds, self.near(), self.fetched_ahead(shape)
        if not self.memory:
            add_products(b, *given)
            return
        with b.if_else(self.memory[0], likely=False) as (now, before):
            with now:
                add_products(b, shape._replace(plain=False), *given[1:], self.memory[1:])
            with before:
                add_products(b, *given)

    def fetches_little(self, shape: Shape) -> bool:
        """Whether no iteration of the innermost loop fetches more than a line ahead, one after the other, and one of
        where the sums go."""
        near = (*self.spec.near, *self.spec.written)
        if near and not uses_block_epilogue(self.spec):
            return False
        count, wide = spread(self.spec, self.block), by_lines(self.spec)
        one_run = wide or self.spec.packed is not None or count == 1
        return not self.ahead or (one_run and pace(shape, count, wide) > 0)

    def fetched_ahead(self, shape: Shape) -> Ahead:
        """The share of the next panel."""
        if not self.ahead:
            return no_fetches(self.right)
        (start, step, apart), count, wide = self.ahead, spread(self.spec, self.block), by_lines(self.spec)
        return Ahead(start, step, apart, const(count), ir.Constant(I1, wide), const(pace(shape, count, wide)))


def finish_tile(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, batch: Index,
                place: tuple[ir.Value, ir.Value], size: tuple[ir.Value, ir.Value], sums: ir.Value, whole: bool) -> None:
    """Hand the sums of a tile, or of the part of it that there is, to the epilogue: one that is `whole` as such."""
    (rows, columns), width = size, const(tile.width)
    assert spec.finish is not None
    if whole:
        spec.finish(b, args, batch, *place, rows, width, sums, tile.width)
        return
    with b.if_else(b.icmp_signed(">=", columns, width)) as (as_wide, in_part):
        with as_wide:
            spec.finish(b, args, batch, *place, rows, width, sums, tile.width)
        with in_part:
            spec.finish(b, args, batch, *place, rows, columns, sums, tile.width)


def store_part(b: ir.IRBuilder, element: ir.Type, tile: Tile, sums: ir.Value, target: ir.Value, apart: ir.Value,
               rows: ir.Value, columns: ir.Value, first: ir.Value) -> None:
    """Write a piece: put the first sums of some rows to lines so many bytes apart, added to what waits there unless
    they are the `first`."""
    rows, columns = minimum(b, rows, const(tile.rows)), minimum(b, columns, const(tile.width))
    with loop(b, ZERO, rows, short=True) as (i, _), loop(b, ZERO, columns, const(tile.lanes), short=True) as (j, _):
        value = load_vector(b, address(b, sums, b.add(b.mul(i, const(tile.width)), j), element), element, tile.lanes)
        line = b.gep(target, [b.mul(i, apart)], source_etype=ir.IntType(8))
        store_masked(b, value, address(b, line, j, element), b.sub(columns, j), first)


def store_masked(b: ir.IRBuilder, value: ir.Value, place: ir.Value, count: ir.Value, first: ir.Value) -> None:
    """Store the lanes below `count`, added to what waits there unless they are the `first`."""
    lanes = value.type.count
    counts = splat(b, b.trunc(count, I32), lanes)
    mask = b.icmp_signed("<", ir.Constant(counts.type, list(range(lanes))), counts)
    before = masked_load(b, place, b.and_(mask, splat(b, b.not_(first), lanes)), zero(value.type))
    masked_store(b, b.select(first, value, add(b, before, value)), place, mask)


def line_types(spec: GemmSpec, tile: Tile) -> list[ir.Type]:
    """Of the arguments of a tile that say whether its panel is packed now, from where, and how far lines are apart."""
    return [I1, POINTER, I64] if packs_in_tiles(spec, tile) else []


def finish_function(module: ir.Module, name: str, spec: GemmSpec, tile: Tile) -> ir.Function:
    """void finish(arguments..., g, m, n, rows, columns, width, sums, first): what a tile with an edge, which may be as
    narrow as `width`, does with its sums.  Written once.

    Where they are only stored they go behind a mask, or are added to what waits there; else vectors that are whole are
    handed to the epilogue as such, others one by one.
    """
    known = module.globals.get(name)
    if known is not None:
        return known
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 6, POINTER, I1])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    args = tuple(function.args[:len(spec.arguments)])
    g, m, n, rows, columns, width, sums, first = function.args[len(spec.arguments):]
    sums.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    batch, lanes = unravel(b, g, [size(b, args) for size in spec.batch]), const(tile.lanes)
    rows, columns = minimum(b, rows, const(tile.rows)), minimum(b, columns, width)
    with loop(b, ZERO, rows, short=True) as (i, _), loop(b, ZERO, columns, lanes, short=True) as (j, _):
        finish = _Finish(b, spec, args, batch, b.add(m, i), b.add(n, j), first)
        where = address(b, sums, b.add(b.mul(i, width), j), spec.element)
        finish.vector(where, minimum(b, b.sub(columns, j), lanes), tile.lanes)
    b.ret_void()
    return function


@dataclass(frozen=True)
class _Finish:
    """The end of the sums of one vector of columns."""
    b: ir.IRBuilder
    spec: GemmSpec
    args: Args
    batch: Index
    row: ir.Value
    column: ir.Value
    first: ir.Value

    def vector(self, where: ir.Value, count: ir.Value, lanes: int) -> None:
        """Of the vector in memory at `where`, `count` lanes are results."""
        b, spec = self.b, self.spec
        if spec.stored_at is not None and spec.store_run is None:
            self.masked(load_vector(b, where, spec.element, lanes), count)
            return
        whole = b.icmp_signed("==", count, const(lanes))
        if spec.store_run is not None:
            run = spec.store_run(b, self.args)
            whole = b.and_(whole, b.icmp_signed(">=", b.sub(run, b.urem(self.column, run)), const(lanes)))
        with b.if_else(whole) as (together, apart):
            with together:
                self.hand_over(load_vector(b, where, spec.element, lanes), self.column, lanes)
            with apart, loop(b, ZERO, count, ONE, short=True) as (step, _):
                value = b.load(address(b, where, step, spec.element), typ=spec.element)
                self.hand_over(value, b.add(self.column, step), 1)

    def masked(self, value: ir.Value, count: ir.Value) -> None:
        """Store the lanes below `count`, added to what waits there."""
        assert self.spec.stored_at is not None
        place = self.spec.stored_at(self.b, self.args, self.batch, self.row, self.column)
        store_masked(self.b, value, place, count, self.first)

    def hand_over(self, value: ir.Value, column: ir.Value, lanes: int) -> None:
        """Store one result or vector of them, by the epilogue."""
        b, before = self.b, self.b.block
        if self.spec.stored_at is not None:
            with b.if_then(b.not_(self.first)):
                place = self.spec.stored_at(b, self.args, self.batch, self.row, column)
                both = add(b, b.load(place, typ=value.type, align=element_bytes(self.spec.element)), value)
                added = b.block
            total = b.phi(value.type)
            total.add_incoming(value, before)
            total.add_incoming(both, added)
            value = total
        self.spec.store(b, self.args, self.batch, self.row, column, value, lanes)

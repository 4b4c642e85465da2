"""One register tile: rows x width sums over a block of depth, and what is done with them when depth is finished.

    void tile(arguments..., g, m, n, rows, columns, depth, left, right, sums, first, last, ahead..., lines...)

`right` is a packed panel, `left` one too or where it is in memory; `ahead` says what is fetched for later tiles, and
`lines` whether this tile packs the panel: it reads lines in memory, and writes them to the panel for the others.
Between blocks of depth sums wait where they will be stored at last, or, where an epilogue is to be applied, in `sums`.
"""
from dataclasses import dataclass

from llvmlite import ir

from .ahead import LINE, ahead_types, cache_lines, fetch
from .emit import (
    I1,
    I32,
    I64,
    ONE,
    POINTER,
    ZERO,
    add,
    address,
    ceil_div,
    const,
    element_bytes,
    load_vector,
    loop,
    masked_load,
    masked_store,
    maximum,
    minimum,
    multiply_add,
    prefetch,
    splat,
    store_vector,
    unravel,
    zero,
)
from .spec import Args, Contraction, Index, Tile, left_layout, packs_in_tiles

CHUNKS_BEFORE = 3       # of depth, before the end of a tile, all is fetched that it needs there
LINES_AHEAD = 4         # of memory are fetched while a panel is packed: more would compete for the first cache


def emit_tile(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 6, *[POINTER] * 3, I1, I1,
                                           *ahead_types(spec, tile), *line_types(spec)])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    _Tile(module, name, spec, tile, function).emit()
    return function


class _Tile:
    """The values that the steps of a tile share."""

    def __init__(self, module: ir.Module, name: str, spec: Contraction, tile: Tile, function: ir.Function) -> None:
        self.spec, self.tile = spec, tile
        self.finish = None if spec.finish else emit_finish(module, f"{name}.finish", spec, tile)
        self.args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
        g, self.m, self.n, self.rows, self.columns, self.depth, self.left, self.right, self.sums, *rest = values
        self.first, self.last, *rest = rest
        ahead = len(ahead_types(spec, tile))
        self.ahead, self.memory = rest[:ahead], rest[ahead:]
        self.right.add_attribute("noalias")
        self.passed = [*self.args, g, self.m, self.n, self.rows, self.columns, self.sums, self.first]
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        self.batch = unravel(b, g, [size(b, self.args) for size in spec.batch])
        self.places = [(i, v) for i in range(tile.rows) for v in range(tile.vectors)]

    def emit(self) -> None:
        """The whole function."""
        b = self.b
        whole = self.is_whole()
        if self.spec.target is not None:
            near = b.and_(whole, b.not_(self.first))
        else:
            near = b.not_(self.first)
        sums = self.add_products()
        lines = self.lines()
        sums = self.add_waiting(sums, near, lines)
        if self.spec.finish is not None:
            self.hand_over(sums)
            return
        direct = whole if self.spec.target is not None else b.and_(whole, self.last)
        with b.if_else(direct, likely=True) as (at_once, by_memory):
            with at_once:
                self.store(sums, lines)
            with by_memory:
                self.put_by(sums)
                needed = ir.Constant(I1, 1) if self.spec.target is not None else self.last
                with b.if_then(needed):
                    b.call(self.finish, self.passed)
        b.ret_void()

    def hand_over(self, sums: list[ir.Value]) -> None:
        """Put the sums by; when they are finished the epilogue takes all of them."""
        b, spec, tile = self.b, self.spec, self.tile
        assert spec.finish is not None
        self.put_by(sums)
        with b.if_then(self.last):
            rows, columns = minimum(b, self.rows, const(tile.rows)), minimum(b, self.columns, const(tile.width))
            spec.finish(b, self.args, self.batch, self.m, self.n, rows, columns, self.sums, tile.width)
        b.ret_void()

    def put_by(self, sums: list[ir.Value]) -> None:
        for (i, v), value in zip(self.places, sums, strict=True):
            store_vector(self.b, value, self.sum_at(i, v))

    def is_whole(self) -> ir.Value:
        """Whether all of the tile is in the result, and each of its rows in one run of it."""
        b, spec, tile = self.b, self.spec, self.tile
        whole = b.and_(b.icmp_signed(">=", self.rows, const(tile.rows)),
                       b.icmp_signed(">=", self.columns, const(tile.width)))
        if spec.store_run is not None:
            run = spec.store_run(b, self.args)
            whole = b.and_(whole, b.icmp_signed(">=", b.sub(run, b.urem(self.n, run)), const(tile.width)))
        return whole

    def sum_at(self, i: int, v: int) -> ir.Value:
        return address(self.b, self.sums, const(i * self.tile.width + v * self.tile.lanes), self.spec.element)

    def lines(self) -> list[ir.Value]:
        """Where the rows of a whole tile, one run of the result each, have their sums over earlier blocks of depth."""
        if self.spec.target is None:
            return [self.sum_at(i, 0) for i in range(self.tile.rows)]
        return [self.spec.target(self.b, self.args, self.batch, *self.at(i, 0)) for i in range(self.tile.rows)]

    def waiting(self, lines: list[ir.Value]) -> list[ir.Value]:
        """Where the vectors of these rows are."""
        return [address(self.b, lines[i], const(v * self.tile.lanes), self.spec.element) for i, v in self.places]

    def at(self, i: int, v: int) -> tuple[ir.Value, ir.Value]:
        """Row and column of one of the tile's vectors."""
        return self.b.add(self.m, const(i)), self.b.add(self.n, const(v * self.tile.lanes))

    def add_products(self) -> list[ir.Value]:
        """The sums over this block of depth."""
        if not self.memory:
            return self.add_chunks(packs=False)
        b = self.b
        with b.if_else(self.memory[0], likely=False) as (now, before):
            with now:
                packing, end = self.add_chunks(packs=True), b.block
            with before:
                packed, other_end = self.add_chunks(packs=False), b.block
        return merged(b, packing, end, packed, other_end)

    def add_chunks(self, packs: bool) -> list[ir.Value]:
        """The sums, a chunk of depth at a time, so that the inner loop has little else to do."""
        b, spec, tile = self.b, self.spec, self.tile
        _, row_apart, chunk_apart, step_apart = left_layout(spec, tile)
        chunk, none = const(tile.lanes), zero(ir.VectorType(spec.element, tile.lanes))
        near = self.rows_near()
        with loop(b, ZERO, self.depth, chunk, [none] * len(self.places)) as (k0, state):
            fetch(b, spec, tile, self.ahead, b.udiv(k0, chunk))
            self.fetch_near(b.udiv(k0, chunk), near)
            self.fetch_left(b.udiv(k0, chunk))
            apart = const(spec.line or tile.width)
            panel = address(b, self.right, b.mul(k0, apart), spec.element)
            left = address(b, self.left, b.mul(b.udiv(k0, chunk), const(chunk_apart)), spec.element)
            steps = 1 if packs else steps_at_once(spec)
            with loop(b, ZERO, minimum(b, b.sub(self.depth, k0), chunk), const(steps), state, short=True) as (k, sums):
                line = address(b, panel, b.mul(k, apart), spec.element)
                start = address(b, left, b.mul(k, const(step_apart)), spec.element)
                for step in range(steps):
                    here = address(b, line, b.mul(apart, const(step)), spec.element)
                    factors = self.packed_now(b.add(k0, k), here) if packs else self.vectors_of(here)
                    self.add_step(sums, factors, start, step * step_apart, row_apart)
            state[:] = sums
        return state

    def vectors_of(self, line: ir.Value) -> list[ir.Value]:
        """A line of the panel, or of memory."""
        b, tile, element = self.b, self.tile, self.spec.element
        places = [address(b, line, const(v * tile.lanes), element) for v in range(tile.vectors)]
        return [load_vector(b, place, element, tile.lanes) for place in places]

    def packed_now(self, k: ir.Value, line: ir.Value) -> list[ir.Value]:
        """Line k of right in memory, which is written to the panel; one of the next is fetched."""
        b, tile, element = self.b, self.tile, self.spec.element
        _, start, apart = self.memory
        source = address(b, start, b.mul(k, apart), element)
        following = address(b, source, b.mul(apart, const(LINES_AHEAD)), element)
        for place in cache_lines(self.spec, tile):
            prefetch(b, b.gep(following, [const(place)], source_etype=ir.IntType(8)))
        vectors = self.vectors_of(source)
        for v, value in enumerate(vectors):
            store_vector(b, value, address(b, line, const(v * tile.lanes), element))
        return vectors

    def add_step(self, sums: list[ir.Value], factors: list[ir.Value], start: ir.Value, offset: int,
                 row_apart: int) -> None:
        """Add the products of one line of right with an element of every row."""
        b, spec, tile = self.b, self.spec, self.tile
        for i in range(tile.rows):
            one = b.load(address(b, start, const(i * row_apart + offset), spec.element), typ=spec.element)
            factor = splat(b, one, tile.lanes)
            for v in range(tile.vectors):
                place = i * tile.vectors + v
                sums[place] = multiply_add(b, factor, factors[v], sums[place])

    def rows_near(self) -> tuple[ir.Value, ir.Value]:
        """(of how many rows a chunk fetches what is needed when the sums are finished, the first chunk that does so).

        All at once would keep the lines of the panel waiting, which come from the second cache; and what is fetched too
        early they drive out of the first cache.
        """
        b, rows = self.b, const(self.tile.rows)
        chunks = maximum(b, b.udiv(self.depth, const(self.tile.lanes)), ONE)
        each = ceil_div(b, rows, chunks)
        return each, maximum(b, b.sub(chunks, b.add(ceil_div(b, rows, each), const(CHUNKS_BEFORE))), ZERO)

    def fetch_near(self, chunk: ir.Value, near: tuple[ir.Value, ir.Value]) -> None:
        """Fetch, for some rows of the tile, where their sums will go, and in the last block what the epilogue reads."""
        b, spec, tile = self.b, self.spec, self.tile
        each, begin = near
        first = b.mul(b.sub(chunk, begin), each)
        end = minimum(b, b.add(first, each), minimum(b, self.rows, const(tile.rows)))
        first = maximum(b, first, ZERO)
        with loop(b, first, end, short=True) as (i, _):
            row = b.add(self.m, i)
            if spec.target is not None:
                self.fetch_line(spec.target(b, self.args, self.batch, row, self.n))
            else:
                self.fetch_line(address(b, self.sums, b.mul(i, const(tile.width)), spec.element))
            if spec.near:
                with b.if_then(self.last):
                    for where in spec.near:
                        self.fetch_line(where(b, self.args, self.batch, row, self.n))

    def fetch_line(self, start: ir.Value) -> None:
        """Fetch as many neighbours as the tile has columns."""
        for place in range(0, self.tile.width * element_bytes(self.spec.element), LINE):
            prefetch(self.b, self.b.gep(start, [const(place)], source_etype=ir.IntType(8)))

    def fetch_left(self, chunk: ir.Value) -> None:
        """Fetch the rows of left for the next chunk of depth, which come from the second cache."""
        b, tile, size = self.b, self.tile, element_bytes(self.spec.element)
        _, row_apart, chunk_apart, step_apart = left_layout(self.spec, tile)
        if step_apart == 1:
            places = [i * row_apart * size for i in range(tile.rows)]
        elif chunk_apart == tile.rows * tile.lanes:
            places = list(range(0, chunk_apart * size, LINE))
        else:
            return
        following = address(b, self.left, b.mul(b.add(chunk, ONE), const(chunk_apart)), self.spec.element)
        for place in places:                # wherever rows begin, the first part of this was fetched a chunk before
            prefetch(b, b.gep(following, [const(place + tile.lanes * size - 1)], source_etype=ir.IntType(8)))

    def add_waiting(self, sums: list[ir.Value], near: ir.Value, lines: list[ir.Value]) -> list[ir.Value]:
        """The sums, with those over earlier blocks of depth if there are any near."""
        b, before = self.b, self.b.block
        with b.if_then(near):
            joined = [add(b, value, load_vector(b, where, self.spec.element, self.tile.lanes))
                      for where, value in zip(self.waiting(lines), sums, strict=True)]
            together = b.block
        return merged(b, sums, before, joined, together)

    def store(self, sums: list[ir.Value], lines: list[ir.Value]) -> None:
        """Store the vectors of a whole tile, finished or not, or hand them to the epilogue."""
        if self.spec.target is not None:
            for where, value in zip(self.waiting(lines), sums, strict=True):
                store_vector(self.b, value, where)
            return
        for (i, v), value in zip(self.places, sums, strict=True):
            self.spec.store(self.b, self.args, self.batch, *self.at(i, v), value, self.tile.lanes)


def merged(b: ir.IRBuilder, values: list[ir.Value], end: ir.Block, others: list[ir.Value],
           other_end: ir.Block) -> list[ir.Value]:
    """Those of one or the other way that leads here."""
    found = []
    for value, other in zip(values, others, strict=True):
        found.append(b.phi(value.type))
        found[-1].add_incoming(value, end)
        found[-1].add_incoming(other, other_end)
    return found


def line_types(spec: Contraction) -> list[ir.Type]:
    """Of the arguments of a tile that say whether its panel is packed now, from where, and how far lines are apart."""
    return [I1, POINTER, I64] if packs_in_tiles(spec) else []


def steps_at_once(spec: Contraction) -> int:
    """Steps of depth that are one turn of the innermost loop: as many as every block of depth is a multiple of."""
    return next((steps for steps in (4, 2) if spec.known[2] is not None and spec.known[2] % steps == 0), 1)


def emit_finish(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void finish(arguments..., g, m, n, rows, columns, sums, first): what a tile with an edge does with its sums.

    Where they are only stored they go behind a mask, or are added to what waits there; else vectors that are whole are
    handed to the epilogue as such, others one by one.
    """
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 5, POINTER, I1])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    args = tuple(function.args[:len(spec.arguments)])
    g, m, n, rows, columns, sums, first = function.args[len(spec.arguments):]
    sums.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    batch, lanes = unravel(b, g, [size(b, args) for size in spec.batch]), const(tile.lanes)
    rows, columns = minimum(b, rows, const(tile.rows)), minimum(b, columns, const(tile.width))
    with loop(b, ZERO, rows, short=True) as (i, _), loop(b, ZERO, columns, lanes, short=True) as (j, _):
        finish = _Finish(b, spec, args, batch, b.add(m, i), b.add(n, j), first)
        where = address(b, sums, b.add(b.mul(i, const(tile.width)), j), spec.element)
        finish.vector(where, minimum(b, b.sub(columns, j), lanes), tile.lanes)
    b.ret_void()
    return function


@dataclass(frozen=True)
class _Finish:
    """The end of the sums of one vector of columns."""
    b: ir.IRBuilder
    spec: Contraction
    args: Args
    batch: Index
    row: ir.Value
    column: ir.Value
    first: ir.Value

    def vector(self, where: ir.Value, count: ir.Value, lanes: int) -> None:
        """Of the vector in memory at `where`, `count` lanes are results."""
        b, spec = self.b, self.spec
        if spec.target is not None and spec.store_run is None:
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
        b = self.b
        assert self.spec.target is not None
        place = self.spec.target(b, self.args, self.batch, self.row, self.column)
        lanes = value.type.count
        counts = splat(b, b.trunc(count, I32), lanes)
        mask = b.icmp_signed("<", ir.Constant(counts.type, list(range(lanes))), counts)
        before = masked_load(b, place, b.and_(mask, splat(b, b.not_(self.first), lanes)), zero(value.type))
        masked_store(b, b.select(self.first, value, add(b, before, value)), place, mask)

    def hand_over(self, value: ir.Value, column: ir.Value, lanes: int) -> None:
        """Store one result or vector of them, by the epilogue."""
        b, before = self.b, self.b.block
        if self.spec.target is not None:
            with b.if_then(b.not_(self.first)):
                place = self.spec.target(b, self.args, self.batch, self.row, column)
                both = add(b, b.load(place, typ=value.type, align=element_bytes(self.spec.element)), value)
                added = b.block
            total = b.phi(value.type)
            total.add_incoming(value, before)
            total.add_incoming(both, added)
            value = total
        self.spec.store(b, self.args, self.batch, self.row, column, value, lanes)

"""The sums of a register tile, a piece that all products of one machine share (`tenon.backends.pieces`).

    sums[i, j] = (sums[i, j] if adds) + sum over k < depth of left[i, k] * right[k, j]       i < rows, j < width

Where anything lies is told at run time, so that kernels need different ones only for other numbers of rows and vectors.
What becomes of the sums is the caller's: it says where they go, and what else is to be near by then.
"""
from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from tenon.backends import pieces

from .assembly import NEVER, TABLE, Fetches, Turn, add_pairs, add_turns, is_spoken
from .emit import (
    I1,
    I64,
    ONE,
    POINTER,
    ZERO,
    State,
    add,
    address,
    ceil_div,
    const,
    element_bytes,
    load_vector,
    loop,
    maximum,
    minimum,
    multiply_add,
    prefetch,
    splat,
    store_vector,
    zero,
)

LINE = 64               # bytes of a cache line
TURNS_MORE = 16         # before the end of a tile is fetched what its epilogue reads,
TURNS_BEFORE = 4        # the end of a tile the last of its rows is fetched
MOST_NEAR = 6           # streams whose lines are fetched one at a turn
CHUNKS_BEFORE = 3       # of depth, before the end of a tile, all is fetched that it needs there
LINES_AHEAD = 4         # of memory are fetched while a panel is packed: more would compete for the first cache,
LINES_FAR = 16          # so these are fetched to the second one, where panels that crowd there were not fetched before
BYTE = ir.IntType(8)
LINES_BYTES = 16        # of an entry of a table of Lines
STEPS = 4               # of depth are one turn of the innermost loop


class Shape(NamedTuple):
    """How many sums there are, what they are, and how far apart are steps of a row of left, and lines of right.

    Rows of left are neighbours where their steps are not.
    """
    element: ir.Type
    rows: int
    vectors: int
    lanes: int
    step: int
    line: int
    pairs: bool = False     # an element of a factor is two of bfloat16, whose products are added to one sum

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.element)


class Left(NamedTuple):
    """Where the rows are: elements between rows whose steps are neighbours, between chunks of `lanes` steps.

    The lines of memory that a chunk lies in are `fetched` apart, one for each row.
    """
    start: ir.Value
    row: ir.Value
    chunk: ir.Value
    fetched: ir.Value


class Ahead(NamedTuple):
    """What is fetched into the second cache: `count` lines of memory for every chunk, as long as those of a panel or
    short."""
    start: ir.Value
    step: ir.Value          # bytes from chunk to chunk
    apart: ir.Value         # and from line to line
    count: ir.Value
    wide: ir.Value          # whether they are long


class Lines(NamedTuple):
    """Of memory, one for each row: the first, and bytes from one to the next."""
    start: ir.Value
    apart: ir.Value


class Near(NamedTuple):
    """A table of `count` Lines that are to be near when the sums are finished."""
    table: ir.Value
    count: ir.Value


def add_products(b: ir.IRBuilder, shape: Shape, depth: ir.Value, left: Left, right: ir.Value, sums: Lines,
                 adds: ir.Value, near: Near, ahead: Ahead, memory: Sequence[ir.Value] = ()) -> None:
    """Call the piece.

    Where `memory` is given, (the first of the lines in memory, elements between them), they are read there and packed
    to `right`.
    """
    pieces.call(b, write, shape, [depth, *left, right, *sums, adds, *near, *ahead, *memory])


def no_near(where: ir.Value) -> Near:
    """Nothing but where the sums go."""
    return Near(where, ZERO)


def no_fetches(where: ir.Value) -> Ahead:
    """Nothing is fetched."""
    return Ahead(where, ZERO, ZERO, ZERO, ir.Constant(I1, 0))


def no_turns(where: ir.Value) -> Fetches:
    """No turn fetches anything."""
    return Fetches(where, const(NEVER), where, ZERO, ZERO)


def write(b: ir.IRBuilder, element: ir.Type, rows: int, vectors: int, lanes: int, step: int, line: int, pairs: bool,
          depth: ir.Value, *values: ir.Value) -> None:
    """The body of the piece."""
    shape = Shape(element, rows, vectors, lanes, step, line, pairs)
    _Sums(b, shape, depth, Left(*values[:4]), values[4], Lines(*values[5:7]), Near(*values[8:10]),
          Ahead(*values[10:15]), values[15:]).emit(adds=values[7])


def put_lines(b: ir.IRBuilder, table: ir.Value, number: int, lines: Lines) -> None:
    """Write an entry of a table."""
    for place, value in zip((0, LINES_BYTES // 2), lines, strict=True):
        b.store(value, b.gep(table, [const(number * LINES_BYTES + place)], source_etype=BYTE))


class _Sums:
    """The values that the steps share."""

    def __init__(self, b: ir.IRBuilder, shape: Shape, depth: ir.Value, left: Left, right: ir.Value, sums: Lines,
                 near: Near, ahead: Ahead, memory: Sequence[ir.Value]) -> None:
        self.b, self.shape, self.depth, self.left, self.right = b, shape, depth, left, right
        self.sums, self.near, self.ahead, self.memory = sums, near, ahead, memory
        self.rows = [b.mul(const(i), left.row if shape.step == 1 else ONE) for i in range(shape.rows)]

    def emit(self, adds: ir.Value) -> None:
        """All of it."""
        b = self.b
        sums = self.products()
        with b.if_else(adds) as (onto, fresh):
            with onto:
                self.store(sums, adds=True)
            with fresh:
                self.store(sums, adds=False)

    def store(self, sums: State, adds: bool) -> None:
        """Put the sums where they go, or add them to what is there."""
        b, shape = self.b, self.shape
        for place, value in enumerate(sums):
            i, v = divmod(place, shape.vectors)
            where = address(b, self.line_of(self.sums, const(i)), const(v * shape.lanes), shape.element)
            if adds:
                value = add(b, value, load_vector(b, where, shape.element, shape.lanes))
            store_vector(b, value, where)

    def line_of(self, lines: Lines, row: ir.Value) -> ir.Value:
        """Where the line of a row begins."""
        return self.b.gep(lines.start, [self.b.mul(lines.apart, row)], source_etype=BYTE)

    def products(self) -> State:
        """The sums, a stretch of depth at a time, so that the inner loop has little else to do."""
        b, shape = self.b, self.shape
        none, steps = zero(ir.VectorType(shape.element, shape.lanes)), 1 if self.memory else min(STEPS, shape.lanes)
        whole, count = b.and_(self.depth, const(-steps)), shape.rows * shape.vectors
        turn = Turn(shape.element, shape.rows, shape.vectors, shape.size, steps, shape.step * shape.size,
                    shape.line * shape.size, shape.pairs)
        if self.memory or not is_spoken(turn, shape.lanes):
            state = self.chunks(whole, steps, [none] * count)
        else:
            state = self.turns(turn, whole, [none] * count + self.first_lines(turn.lines))[:count]
        if steps > 1:
            with loop(b, whole, self.depth, const(shape.lanes), state, short=True) as (k0, state):
                self.add_steps(k0, b.sub(self.depth, k0), 1, state)
        return state

    def chunks(self, whole: ir.Value, steps: int, state: State) -> State:
        """A chunk of depth at a time, and before it what is to be fetched."""
        b, lanes, near = self.b, const(self.shape.lanes), self.rows_near()
        with loop(b, ZERO, whole, lanes, state) as (k0, state):
            self.fetch(b.udiv(k0, lanes), near)
            self.add_steps(k0, minimum(b, b.sub(whole, k0), lanes), steps, state)
        return state

    def turns(self, turn: Turn, whole: ir.Value, state: State) -> State:
        """In the machine's own words: long stretches, if rows go on as they begin; else a chunk at a time.

        `state` holds the lines from k0 on, too.
        """
        b, shape, steps, table = self.b, self.shape, const(turn.steps), self.b.alloca(I64, TABLE)
        lanes, near, all_turns = const(shape.lanes), self.rows_near(), b.udiv(whole, const(turn.steps))
        even, stretch = self.stretches(all_turns)
        near_lines = self.near_lines()
        stretch = b.select(even, b.mul(stretch, steps), lanes)
        last = self.line_at(b.sub(self.depth, const(turn.lines)))
        with loop(b, ZERO, whole, stretch, state) as (k0, state):
            some = minimum(b, b.sub(whole, k0), stretch)
            with b.if_else(even) as (at_end, at_chunk):
                with at_end, b.if_then(b.icmp_signed(">=", b.add(k0, stretch), whole)):
                    self.fetch_near(ZERO, (b.select(self.reads_at_once(all_turns), const(shape.rows), ZERO), ZERO))
                with at_chunk:
                    self.fetch(b.udiv(k0, lanes), near)
            fetches = self.fetched_meanwhile(near_lines, b.udiv(k0, stretch), b.udiv(k0, steps), b.udiv(some, steps), all_turns)
            fetches = Fetches(*(b.select(even, x, y) for x, y in zip(fetches, no_turns(self.right), strict=True)))
            start = address(b, self.left.start, self.step_of(k0), shape.element)
            state[:] = add_turns(b, turn, state, start, b.mul(self.left.row, const(shape.size)), self.line_at(k0),
                                 last, b.udiv(some, steps), fetches, table)
        return state

    def reads_more(self) -> ir.Value:
        """Whether the caller reads more than where the sums go."""
        return self.b.icmp_signed(">", self.near.count, ZERO)

    def reads_at_once(self, turns: ir.Value) -> ir.Value:
        """Whether it reads so much, or has so many lines, that they are fetched at once."""
        b = self.b
        many = b.icmp_signed(">", self.near.count, const(MOST_NEAR))
        return b.and_(self.reads_more(), b.or_(many, b.icmp_signed(">", self.lines_near(), turns)))

    def lines_near(self) -> ir.Value:
        """How many lines there are that are needed in the end."""
        return self.b.mul(maximum(self.b, self.near.count, ONE), const(self.shape.rows))

    def near_lines(self) -> ir.Value:
        """A list of where they are."""
        b, rows = self.b, self.shape.rows
        table = b.alloca(POINTER, rows * (MOST_NEAR + 1))
        more = self.reads_more()
        with b.if_else(more) as (several, own):
            with several, loop(b, ZERO, minimum(b, self.near.count, const(MOST_NEAR)), short=True) as (k, _):
                where = b.gep(self.near.table, [b.mul(k, const(LINES_BYTES))], source_etype=BYTE)
                start = b.load(where, typ=POINTER)
                apart = b.load(b.gep(where, [const(LINES_BYTES // 2)], source_etype=BYTE), typ=I64)
                self.list_lines(Lines(start, apart), b.gep(table, [b.mul(k, const(rows))], source_etype=POINTER))
            with own:
                self.list_lines(self.sums, table)
        return table

    def list_lines(self, lines: Lines, table: ir.Value) -> None:
        for i in range(self.shape.rows):
            self.b.store(self.line_of(lines, const(i)), self.b.gep(table, [const(i)], source_etype=POINTER))

    def by_columns(self) -> ir.Value:
        """Whether several runs of memory are fetched ahead, and not one, or lines that are equally far apart."""
        b, x = self.b, self.ahead
        return b.and_(b.icmp_signed(">", x.count, ONE), b.icmp_signed("!=", x.step, b.mul(x.apart, x.count)))

    def lines_ahead(self) -> ir.Value:
        """How many lines are fetched ahead in a stretch, as long as those of right."""
        b, shape, x = self.b, self.shape, self.ahead
        each = b.select(self.by_columns(), ONE, x.count)
        lines = b.mul(each, b.udiv(self.depth, const(shape.lanes)))
        return b.select(x.wide, lines, b.udiv(lines, const(shape.vectors)))

    def stretches(self, turns: ir.Value) -> tuple[ir.Value, ir.Value]:
        """(whether there may be long ones, how many turns one of them has).

        What is fetched ahead is to be at most a line at each turn: one run of memory at each stretch.  What else is to
        be near in the end is fetched before the last one.
        """
        b, shape = self.b, self.shape
        several = self.by_columns()
        parts = b.select(several, self.ahead.count, ONE)
        size = maximum(b, ceil_div(b, turns, parts), ONE)
        even = b.and_(b.icmp_signed("==", self.left.chunk, const(shape.lanes * shape.step)),
                      b.icmp_signed("<=", self.lines_ahead(), size))
        short = maximum(b, b.sub(turns, const(TURNS_MORE)), ONE)
        return even, b.select(b.and_(self.reads_at_once(turns), b.not_(several)), short, size)

    def fetched_meanwhile(self, near_lines, number: ir.Value, done: ir.Value, turns: ir.Value, all_turns: ir.Value) -> Fetches:
        """What is fetched in a stretch of so many turns."""
        b, shape, x, lines = self.b, self.shape, self.ahead, self.lines_ahead()
        wait = b.sub(maximum(b, b.sub(all_turns, b.add(self.lines_near(), const(TURNS_BEFORE))), ZERO), done)
        near = b.gep(near_lines, [maximum(b, b.neg(wait), ZERO)], source_etype=I64)
        wait = b.select(self.reads_at_once(all_turns), const(NEVER), maximum(b, wait, ZERO))
        several, one = self.by_columns(), b.icmp_signed("<=", x.count, ONE)
        ahead = b.gep(x.start, [b.mul(b.select(several, number, ZERO), x.apart)], source_etype=BYTE)
        apart = b.select(b.or_(several, one), x.step, x.apart)
        apart = b.select(x.wide, apart, b.mul(apart, const(shape.vectors)))
        every = b.select(b.icmp_signed(">", lines, ZERO), maximum(b, b.udiv(turns, maximum(b, lines, ONE)), ONE), ZERO)
        return Fetches(near, wait, ahead, apart, every)

    def fetch(self, chunk: ir.Value, near: tuple[ir.Value, ir.Value]) -> None:
        """Ask for all that this chunk asks for."""
        self.fetch_ahead(chunk)
        self.fetch_near(chunk, near)
        self.fetch_left(chunk)

    def first_lines(self, count: int) -> list[ir.Value]:
        """The vectors of so many lines of the panel; where there are less, some again."""
        b, last = self.b, maximum(self.b, self.b.sub(self.depth, ONE), ZERO)
        return [vector for k in range(count) for vector in self.vectors_of(self.line_at(minimum(b, const(k), last)))]

    def line_at(self, k: ir.Value) -> ir.Value:
        """Where line k of the panel begins."""
        return address(self.b, self.right, self.b.mul(k, const(self.shape.line)), self.shape.element)

    def step_of(self, k0: ir.Value) -> ir.Value:
        """How many elements step k0 of a row is behind its first."""
        b, shape = self.b, self.shape
        chunk, inside = b.udiv(k0, const(shape.lanes)), b.and_(k0, const(shape.lanes - 1))
        return b.add(b.mul(chunk, self.left.chunk), b.mul(inside, const(shape.step)))

    def add_steps(self, k0: ir.Value, count: ir.Value, at_once: int, state: State) -> None:
        """Some steps of one chunk, from k0 on; there is one at least."""
        b, shape = self.b, self.shape
        start = address(b, self.left.start, self.step_of(k0), shape.element)
        first = self.line_at(k0)
        with loop(b, ZERO, count, const(at_once), state, short=True, sure=True) as (k, sums):
            left = address(b, start, b.mul(k, const(shape.step)), shape.element)
            line = address(b, first, b.mul(k, const(shape.line)), shape.element)
            for step in range(at_once):
                here = address(b, line, const(step * shape.line), shape.element)
                vectors = self.packed_now(b.add(k0, k), here) if self.memory else self.vectors_of(here)
                self.add_step(sums, vectors, left, step * shape.step)
        state[:] = sums

    def add_step(self, sums: State, vectors: list[ir.Value], left: ir.Value, offset: int) -> None:
        """Add the products of one line of right with an element of every row."""
        b, shape = self.b, self.shape
        for i, row in enumerate(self.rows):
            place = address(b, address(b, left, row, shape.element), const(offset), shape.element)
            factor = splat(b, b.load(place, typ=shape.element), shape.lanes)
            for v, other in enumerate(vectors):
                at = i * shape.vectors + v
                sums[at] = (add_pairs if shape.pairs else multiply_add)(b, factor, other, sums[at])

    def vectors_of(self, line: ir.Value) -> list[ir.Value]:
        """A line of the panel, or of memory."""
        b, shape = self.b, self.shape
        places = [address(b, line, const(v * shape.lanes), shape.element) for v in range(shape.vectors)]
        return [load_vector(b, place, shape.element, shape.lanes) for place in places]

    def packed_now(self, k: ir.Value, line: ir.Value) -> list[ir.Value]:
        """Line k of right in memory, which is written to the panel; two of the next are fetched."""
        b, shape = self.b, self.shape
        start, apart = self.memory
        source = address(b, start, b.mul(k, apart), shape.element)
        for ahead, nearness in ((LINES_FAR, 2), (LINES_AHEAD, 3)):
            following = address(b, source, b.mul(apart, const(ahead)), shape.element)
            for place in self.cache_lines():
                prefetch(b, b.gep(following, [const(place)], source_etype=BYTE), nearness)
        vectors = self.vectors_of(source)
        for v, value in enumerate(vectors):
            store_vector(b, value, address(b, line, const(v * shape.lanes), shape.element))
        return vectors

    # ------------------------------------------------------------ what is fetched meanwhile

    def fetch_ahead(self, chunk: ir.Value) -> None:
        """Ask for what is needed after this tile."""
        b, x = self.b, self.ahead
        start = b.gep(x.start, [b.mul(chunk, x.step)], source_etype=BYTE)
        with loop(b, ZERO, x.count, short=True) as (i, _):
            line = b.gep(start, [b.mul(x.apart, i)], source_etype=BYTE)
            prefetch(b, line, 2)
            with b.if_then(x.wide):
                for place in self.cache_lines()[1:]:
                    prefetch(b, b.gep(line, [const(place)], source_etype=BYTE), 2)

    def cache_lines(self) -> list[int]:
        """Where, in a line of memory as long as one of the panel, lines of the cache are asked for."""
        size = self.shape.width * self.shape.size
        return [*range(0, size, LINE), size - 1]

    def rows_near(self) -> tuple[ir.Value, ir.Value]:
        """(for how many rows a chunk fetches what is needed when the sums are finished, the first chunk that does so).

        All at once would keep the lines of the panel waiting, which come from the second cache; and what is fetched too
        early they drive out of the first cache.
        """
        b, rows = self.b, const(self.shape.rows)
        chunks = maximum(b, b.udiv(self.depth, const(self.shape.lanes)), ONE)
        each = ceil_div(b, rows, chunks)
        return each, maximum(b, b.sub(chunks, b.add(ceil_div(b, rows, each), const(CHUNKS_BEFORE))), ZERO)

    def fetch_near(self, chunk: ir.Value, near: tuple[ir.Value, ir.Value]) -> None:
        """Fetch, for some rows, where their sums will go, and what the caller reads then."""
        b, (each, begin) = self.b, near
        with b.if_then(b.icmp_signed(">=", chunk, begin), likely=False):
            first = b.mul(b.sub(chunk, begin), each)
            with loop(b, first, minimum(b, b.add(first, each), const(self.shape.rows)), short=True) as (i, _):
                self.fetch_row(i)

    def fetch_row(self, i: ir.Value) -> None:
        """What one row needs when the sums are finished."""
        b = self.b
        self.fetch_line(self.line_of(self.sums, i))
        with loop(b, ZERO, self.near.count, short=True) as (k, _):
            where = b.gep(self.near.table, [b.mul(k, const(LINES_BYTES))], source_etype=BYTE)
            start = b.load(where, typ=POINTER)
            apart = b.load(b.gep(where, [const(LINES_BYTES // 2)], source_etype=BYTE), typ=I64)
            self.fetch_line(self.line_of(Lines(start, apart), i))

    def fetch_line(self, start: ir.Value) -> None:
        """Fetch as many neighbours as the tile has columns."""
        for place in range(0, self.shape.width * self.shape.size, LINE):
            prefetch(self.b, self.b.gep(start, [const(place)], source_etype=BYTE))

    def fetch_left(self, chunk: ir.Value) -> None:
        """Fetch the rows of left for the next chunk of depth, which come from the second cache."""
        b, shape = self.b, self.shape
        following = address(b, self.left.start, b.mul(b.add(chunk, ONE), self.left.chunk), shape.element)
        for i in range(shape.rows):     # wherever rows begin, the first part of this was fetched a chunk before
            place = address(b, following, b.mul(self.left.fetched, const(i)), shape.element)
            prefetch(b, b.gep(place, [const(shape.lanes * shape.size - 1)], source_etype=BYTE))

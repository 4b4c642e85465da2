"""The sums of a register tile, a piece that all products of one machine share (`tenon.backends.pieces`).

    sums[i, j] = (sums[i, j] if adds) + sum over k < depth of left[i, k] * right[k, j]       i < rows, j < width

Where anything lies is told at run time, so that kernels need different ones only for other numbers of rows and vectors.
What becomes of the sums is the caller's: it says where they go, and what else is to be near by then.
"""
from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from tenon.backends import pieces

from .assembly import Turn, add_turns, is_spoken
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


def write(b: ir.IRBuilder, element: ir.Type, rows: int, vectors: int, lanes: int, step: int, line: int,
          depth: ir.Value, *values: ir.Value) -> None:
    """The body of the piece."""
    shape = Shape(element, rows, vectors, lanes, step, line)
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
        """The sums, a chunk of depth at a time, so that the inner loop has little else to do."""
        b, shape = self.b, self.shape
        lanes, none = const(shape.lanes), zero(ir.VectorType(shape.element, shape.lanes))
        near, steps = self.rows_near(), 1 if self.memory else min(STEPS, shape.lanes)
        whole, count = b.and_(self.depth, const(-steps)), shape.rows * shape.vectors
        turn = Turn(shape.element, shape.rows, shape.vectors, shape.size, steps, *(n * shape.size for n in shape[4:]))
        spoken = not self.memory and is_spoken(turn, shape.lanes)
        state = [none] * count + (self.first_lines(turn.lines) if spoken else [])
        with loop(b, ZERO, whole, lanes, state) as (k0, state):
            chunk = b.udiv(k0, lanes)
            self.fetch_ahead(chunk)
            self.fetch_near(chunk, near)
            self.fetch_left(chunk)
            some = minimum(b, b.sub(whole, k0), lanes)
            if spoken:
                self.add_turns(turn, k0, b.udiv(some, const(steps)), state)
            else:
                self.add_steps(k0, some, steps, state)
        state = state[:count]
        if steps > 1:
            with loop(b, whole, self.depth, lanes, state, short=True) as (k0, state):
                self.add_steps(k0, b.sub(self.depth, k0), 1, state)
        return state

    def add_turns(self, turn: Turn, k0: ir.Value, count: ir.Value, state: State) -> None:
        """The same as `add_steps`, in the machine's own words; `state` holds the lines from k0 on, too."""
        b, shape = self.b, self.shape
        first, last = (self.line_at(k) for k in (k0, b.sub(self.depth, const(turn.lines))))
        state[:] = add_turns(b, turn, state, address(b, self.left.start, self.step_of(k0), shape.element),
                             b.mul(self.left.row, const(shape.size)), first, last, count)

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
                sums[at] = multiply_add(b, factor, other, sums[at])

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

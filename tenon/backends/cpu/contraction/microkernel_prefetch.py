"""Prefetches of the microkernel: for its own tile, for its epilogue, and for later tiles.

In the machine's own words that is a line of memory at an iteration of the innermost loop; elsewhere, and where there is
more than iterations are, some lines before each chunk of depth.
"""
from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    ceil_div,
    const,
    loop,
    maximum,
    minimum,
    prefetch,
)
from tenon.backends.cpu.contraction.microkernel_types import (
    BYTE,
    LINES_BYTES,
    MAX_NEAR,
    NO_PREFETCH_ITERATION,
    Ahead,
    EpilogueAddress,
    LeftOperand,
    Lines,
    Shape,
)
from tenon.backends.cpu.contraction.x86_inner_loop import Fetches
from tenon.target import LINE_BYTES

ITERATIONS_MORE = 16    # before the end of a tile is fetched what its epilogue reads, if there are fewer iterations
ITERATIONS_BEFORE = 4   # the end of a tile the last of its rows is fetched
CHUNKS_BEFORE = 3       # of depth, before the end of a tile, all is fetched that it needs there


def line_of(b: ir.IRBuilder, lines: Lines, row: ir.Value) -> ir.Value:
    """Where the line of a row begins."""
    return b.gep(lines.start, [b.mul(lines.apart, row)], source_etype=BYTE)


class PrefetchPlan:
    """The values that the ways of fetching share; `iterations` are those of the innermost loop, over all of the
    depth."""

    def __init__(self, b: ir.IRBuilder, shape: Shape, depth: ir.Value, left: LeftOperand, sums: Lines,
                 near: EpilogueAddress,
                 ahead: Ahead) -> None:
        self.b, self.shape, self.depth, self.left = b, shape, depth, left
        self.sums, self.near, self.ahead = sums, near, ahead

    # ------------------------------------------------------------ a line at an iteration

    def in_all_iterations(self, iterations: ir.Value) -> Fetches:
        """What is fetched where that is a line ahead, and one of where the sums go."""
        b, x = self.b, self.ahead
        wait = maximum(b, b.sub(iterations, const(self.shape.rows + ITERATIONS_BEFORE)), ZERO)
        return Fetches(self.sums.start, wait, x.start, self.apart(ir.Constant(I1, 0)), x.every, self.sums.apart)

    def stretches(self, iterations: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """(whether there may be long ones, how many iterations one of them has, whether each fetches a run of memory
        ahead).

        What is fetched ahead is to be at most a line at each iteration.  What else is to be near in the end is fetched
        before the last one, if it is more.  Products of little depth wait for all that is found out here: it divides
        only where it must.
        """
        b, shape = self.b, self.shape
        several, before = self.by_columns(), b.block
        with b.if_then(several):
            part, inside = ceil_div(b, iterations, self.ahead.count), b.block
        size = b.phi(I64)
        size.add_incoming(iterations, before)
        size.add_incoming(part, inside)
        even = b.and_(b.icmp_signed("==", self.left.chunk, const(shape.lanes * shape.step)),
                      b.icmp_signed(">", self.ahead.every, ZERO))
        few = b.and_(self.at_once(iterations), b.not_(several))
        short = b.select(few, b.sub(iterations, const(ITERATIONS_MORE)), size)
        return even, maximum(b, short, ONE), several

    def by_columns(self) -> ir.Value:
        """Whether several runs of memory are fetched ahead, and not one, or lines that are equally far apart."""
        b, x = self.b, self.ahead
        return b.and_(b.icmp_signed(">", x.count, ONE), b.icmp_signed("!=", x.step, b.mul(x.apart, x.count)))

    def at_once(self, iterations: ir.Value) -> ir.Value:
        """Whether what the caller reads beside the sums is more than there are iterations."""
        b, count = self.b, self.near.count
        many = b.or_(b.icmp_signed(">", count, const(MAX_NEAR)), b.icmp_signed(">", self.lines_near(), iterations))
        return b.and_(b.icmp_signed(">", count, ZERO), many)

    def lines_near(self) -> ir.Value:
        """How many lines are to be near in the end."""
        return self.b.mul(maximum(self.b, self.near.count, ONE), const(self.shape.rows))

    def listed(self) -> ir.Value:
        """A list of where they begin: what the caller reads, or where the sums go."""
        b, rows = self.b, self.shape.rows
        table = b.alloca(POINTER, rows * MAX_NEAR)
        with b.if_else(b.icmp_signed(">", self.near.count, ZERO)) as (more, own):
            with more, loop(b, ZERO, minimum(b, self.near.count, const(MAX_NEAR)), short=True) as (k, _):
                self.list_rows(self.read_lines(k), address(b, table, b.mul(k, const(rows)), POINTER))
            with own:
                self.list_rows(self.sums, table)
        return table

    def list_rows(self, lines: Lines, table: ir.Value) -> None:
        """Write the addresses of the rows' lines one after the other."""
        b = self.b
        for i in range(self.shape.rows):
            b.store(line_of(b, lines, const(i)), address(b, table, const(i), POINTER))

    def read_lines(self, k: ir.Value) -> Lines:
        """An entry of the table of what the caller reads."""
        b = self.b
        where = b.gep(self.near.table, [b.mul(k, const(LINES_BYTES))], source_etype=BYTE)
        return Lines(b.load(where, typ=POINTER),
                     b.load(b.gep(where, [const(LINES_BYTES // 2)], source_etype=BYTE), typ=I64))

    def in_stretch(self, listed: ir.Value, ahead: ir.Value, several: ir.Value, done: ir.Value,
                   every_iteration: ir.Value) -> Fetches:
        """What is fetched in a stretch before which so many iterations are done, `ahead` from there on."""
        b, x = self.b, self.ahead
        wait = b.sub(maximum(b, b.sub(every_iteration, b.add(self.lines_near(), const(ITERATIONS_BEFORE))), ZERO), done)
        near = address(b, listed, maximum(b, b.neg(wait), ZERO), POINTER)
        wait = b.select(self.at_once(every_iteration), const(NO_PREFETCH_ITERATION), maximum(b, wait, ZERO))
        return Fetches(near, wait, ahead, self.apart(several), x.every)

    def apart(self, several: ir.Value) -> ir.Value:
        """Bytes from what an iteration fetches ahead to what the next one does that fetches something."""
        b, x = self.b, self.ahead
        apart = b.select(b.or_(several, b.icmp_signed("<=", x.count, ONE)), x.step, x.apart)
        return b.select(x.wide, apart, b.mul(apart, const(self.shape.vectors)))

    def next_run(self, start: ir.Value) -> ir.Value:
        """Where the run of memory begins that comes after the one from there on."""
        return self.b.gep(start, [self.ahead.apart], source_etype=BYTE)

    # ------------------------------------------------------------ some lines before a chunk

    def shares(self) -> tuple[ir.Value, ir.Value]:
        """(the rows for which a chunk fetches, the first chunk that does so)."""
        b, rows = self.b, const(self.shape.rows)
        chunks = maximum(b, b.udiv(self.depth, const(self.shape.lanes)), ONE)
        each = ceil_div(b, rows, chunks)
        return each, maximum(b, b.sub(chunks, b.add(ceil_div(b, rows, each), const(CHUNKS_BEFORE))), ZERO)

    def at_chunk(self, chunk: ir.Value, shares: tuple[ir.Value, ir.Value]) -> None:
        """Ask for all that this chunk asks for.

        All at once would keep the lines of the panel waiting, which come from the second cache; and what is fetched too
        early they drive out of the first cache.
        """
        b, (each, begin) = self.b, shares
        self.fetch_ahead(chunk)
        with b.if_then(b.icmp_signed(">=", chunk, begin), likely=False):
            first = b.mul(b.sub(chunk, begin), each)
            self.fetch_rows(first, minimum(b, b.add(first, each), const(self.shape.rows)))
        self.fetch_left(chunk)

    def fetch_ahead(self, chunk: ir.Value) -> None:
        """Ask for what is needed after this tile."""
        b, x = self.b, self.ahead
        start = b.gep(x.start, [b.mul(chunk, x.step)], source_etype=BYTE)
        with loop(b, ZERO, x.count, short=True) as (i, _):
            line = b.gep(start, [b.mul(x.apart, i)], source_etype=BYTE)
            prefetch(b, line, 2)
            with b.if_then(x.wide):
                for place in self.shape.cache_lines[1:]:
                    prefetch(b, b.gep(line, [const(place)], source_etype=BYTE), 2)

    def fetch_rows(self, first: ir.Value, end: ir.Value) -> None:
        """Fetch, for some rows, where their sums will go, and what the caller reads then."""
        b = self.b
        with loop(b, first, end, short=True) as (i, _):
            self.fetch_line(line_of(b, self.sums, i))
            with loop(b, ZERO, self.near.count, short=True) as (k, _):
                self.fetch_line(line_of(b, self.read_lines(k), i))

    def fetch_line(self, start: ir.Value) -> None:
        """Fetch as many neighbours as the tile has columns."""
        for place in range(0, self.shape.width * self.shape.size, LINE_BYTES):
            prefetch(self.b, self.b.gep(start, [const(place)], source_etype=BYTE))

    def fetch_left(self, chunk: ir.Value) -> None:
        """Fetch the rows of left for the next chunk of depth, which come from the second cache."""
        b, shape = self.b, self.shape
        following = address(b, self.left.start, b.mul(b.add(chunk, ONE), self.left.chunk), shape.element)
        for i in range(shape.rows):     # wherever rows begin, the first part of this was fetched a chunk before
            place = address(b, following, b.mul(self.left.fetched, const(i)), shape.element)
            prefetch(b, b.gep(place, [const(shape.lanes * shape.size - 1)], source_etype=BYTE))

"""GEMM's microkernel (BLIS 2015): the sums of a register tile, a function that all products of one machine share.

    sums[i, j] = (sums[i, j] if adds) + sum over k < depth of left[i, k] * right[k, j]       i < rows, j < width

Where anything lies is told at run time, so that kernels need different ones only for other numbers of rows and vectors.
What becomes of the sums is the caller's: it says where they go, and what else is to be near by then.
"""
from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    I64,
    ONE,
    ZERO,
    State,
    add,
    address,
    const,
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
from tenon.backends.cpu.contraction.microkernel_prefetch import PrefetchPlan, line_of
from tenon.backends.cpu.contraction.microkernel_types import (
    BYTE,
    K_UNROLL,
    Ahead,
    EpilogueAddress,
    LeftOperand,
    Lines,
    Shape,
)
from tenon.backends.cpu.contraction.x86_inner_loop import (
    TABLE,
    Fetches,
    InnerIteration,
    add_iterations,
    add_pairs,
    has_x86_inner_loop,
    no_iterations,
)
from tenon.llvm import shared_functions
from tenon.llvm.target_module import target_of

LINES_AHEAD = 4         # of memory are fetched while a panel is packed: more would compete for the first cache,
LINES_FAR = 16          # so these are fetched to the second one, where panels that crowd there were not fetched before


def add_products(b: ir.IRBuilder, shape: Shape, depth: ir.Value, left: LeftOperand, right: ir.Value, sums: Lines,
                 adds: ir.Value, near: EpilogueAddress, ahead: Ahead, memory: Sequence[ir.Value] = ()) -> None:
    """Call the piece.

    Where `memory` is given, (the first of the lines in memory, elements between them), they are read there and packed
    to `right`.
    """
    shared_functions.call(b, write, shape, [depth, *left, right, *sums, adds, *near, *ahead, *memory])


def write(b: ir.IRBuilder, element: ir.Type, rows: int, vectors: int, lanes: int, step: int, line: int, pairs: bool,
          plain: bool, depth: ir.Value, *values: ir.Value) -> None:
    """The body of the piece."""
    shape = Shape(element, rows, vectors, lanes, step, line, pairs, plain)
    _Sums(b, shape, depth, LeftOperand(*values[:4]), values[4], Lines(*values[5:7]), EpilogueAddress(*values[8:10]),
          Ahead(*values[10:16]), values[16:]).emit(adds=values[7])


class _Sums:
    """The values that the steps share."""

    def __init__(self, b: ir.IRBuilder, shape: Shape, depth: ir.Value, left: LeftOperand, right: ir.Value, sums: Lines,
                 near: EpilogueAddress, ahead: Ahead, memory: Sequence[ir.Value]) -> None:
        self.b, self.shape, self.depth, self.left, self.right = b, shape, depth, left, right
        self.sums, self.memory, self.meanwhile = sums, memory, PrefetchPlan(b, shape, depth, left, sums, near, ahead)
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
            where = address(b, line_of(b, self.sums, const(i)), const(v * shape.lanes), shape.element)
            if adds:
                value = add(b, value, load_vector(b, where, shape.element, shape.lanes))
            store_vector(b, value, where)

    def products(self) -> State:
        """The sums, a stretch of depth at a time, so that the inner loop has little else to do."""
        b, shape = self.b, self.shape
        none, steps = zero(ir.VectorType(shape.element, shape.lanes)), 1 if self.memory else min(K_UNROLL, shape.lanes)
        whole, count = b.and_(self.depth, const(-steps)), shape.rows * shape.vectors
        inner = InnerIteration(shape.element, shape.rows, shape.vectors, shape.size, steps, shape.step * shape.size,
                    shape.line * shape.size, shape.pairs, not shape.plain)
        if self.memory or not has_x86_inner_loop(inner, shape.lanes, target_of(b)):
            state = self.chunks(whole, steps, [none] * count)
        else:
            iterations = self.every_iteration if shape.plain else self.iterations
            state = iterations(inner, whole, [none] * count + self.first_lines(inner.lines))[:count]
        if steps > 1:
            with loop(b, whole, self.depth, const(shape.lanes), state, short=True) as (k0, state):
                self.add_steps(k0, b.sub(self.depth, k0), 1, state)
        return state

    def chunks(self, whole: ir.Value, steps: int, state: State) -> State:
        """A chunk of depth at a time, and before it what is to be fetched."""
        b, lanes, shares = self.b, const(self.shape.lanes), self.meanwhile.shares()
        with loop(b, ZERO, whole, lanes, state) as (k0, state):
            self.meanwhile.at_chunk(b.udiv(k0, lanes), shares)
            self.add_steps(k0, minimum(b, b.sub(whole, k0), lanes), steps, state)
        return state

    def every_iteration(self, inner: InnerIteration, whole: ir.Value, state: State) -> State:
        """In the machine's own words, at once.

        What comes before is short: processors begin with it while products are waiting, which last a hundred cycles.
        """
        b, table, right = self.b, self.b.alloca(I64, TABLE), self.line_at(ZERO)
        count, last = b.udiv(whole, const(inner.steps)), self.line_at(b.sub(self.depth, const(inner.lines)))
        row, fetches = b.mul(self.left.row, const(self.shape.size)), self.meanwhile.in_all_iterations(count)
        with loop(b, ZERO, minimum(b, count, ONE), carried=state) as (_, state):
            state[:], _ = add_iterations(b, inner, state, self.left.start, row, right, last, count, fetches, table)
        return state

    def iterations(self, inner: InnerIteration, whole: ir.Value, state: State) -> State:
        """In the machine's own words: long stretches, if rows go on as they begin; else a chunk at a time.

        `state` holds the lines from k0 on, too.
        """
        b, shape, fetched, table = self.b, self.shape, self.meanwhile, self.b.alloca(I64, TABLE)
        lanes, steps, listed = const(shape.lanes), const(inner.steps), fetched.listed()
        every_iteration = b.udiv(whole, steps)
        even, stretch, several = fetched.stretches(every_iteration)
        at_once = b.and_(even, fetched.at_once(every_iteration))
        stretch = b.select(even, b.mul(stretch, steps), lanes)
        last = self.line_at(b.sub(self.depth, const(inner.lines)))
        with loop(b, ZERO, whole, stretch, [*state, fetched.ahead.start]) as (k0, state):
            some = minimum(b, b.sub(whole, k0), stretch)
            with b.if_then(b.and_(at_once, b.icmp_signed(">=", b.add(k0, stretch), whole))):
                fetched.fetch_rows(ZERO, const(shape.rows))
            with b.if_then(b.not_(even)):
                fetched.at_chunk(b.udiv(k0, lanes), fetched.shares())
            fetches = fetched.in_stretch(listed, state[-1], several, b.udiv(k0, steps), every_iteration)
            none = no_iterations(self.right)
            fetches = Fetches(*(b.select(even, x, y) for x, y in zip(fetches[:-1], none[:-1], strict=True)))
            start = address(b, self.left.start, self.step_of(k0), shape.element)
            sums, ahead = add_iterations(b, inner, state[:-1], start, b.mul(self.left.row, const(shape.size)),
                                    self.line_at(k0), last, b.udiv(some, steps), fetches, table)
            state[:] = [*sums, b.select(several, fetched.next_run(state[-1]), ahead)]
        return state

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
            for place in shape.cache_lines:
                prefetch(b, b.gep(following, [const(place)], source_etype=BYTE), nearness)
        vectors = self.vectors_of(source)
        for v, value in enumerate(vectors):
            store_vector(b, value, address(b, line, const(v * shape.lanes), shape.element))
        return vectors

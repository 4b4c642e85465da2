"""What the microkernel takes: its shape, and the addresses of all that it touches."""
from typing import NamedTuple

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import I1, ZERO, const, element_bytes
from tenon.target import LINE_BYTES

K_UNROLL = 4            # of depth are one iteration of the innermost loop
BYTE = ir.IntType(8)
LINES_BYTES = 16        # of an entry of a table of Lines
NO_PREFETCH_ITERATION = 1 << 62  # iterations
MAX_NEAR = 6            # of them are fetched a line at an iteration of the innermost loop


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
    plain: bool = False     # chunks are neighbours, no iteration fetches more than a line ahead, and one of the sums

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.element)

    @property
    def cache_lines(self) -> list[int]:
        """Where, in a line of memory as long as one of the panel, lines of the cache are asked for."""
        size = self.width * self.size
        return [*range(0, size, LINE_BYTES), size - 1]


class LeftOperand(NamedTuple):
    """Where the rows are: elements between rows whose steps are neighbours, between chunks of `lanes` steps.

    The lines of memory that a chunk lies in are `fetched` apart, one for each row.
    """
    start: ir.Value
    row: ir.Value
    chunk: ir.Value
    fetched: ir.Value


class Ahead(NamedTuple):
    """What is fetched into the second cache: `count` lines of memory for every chunk, as long as those of a panel or
    short; that is one at every so many iterations (`pace`)."""
    start: ir.Value
    step: ir.Value          # bytes from chunk to chunk
    apart: ir.Value         # and from line to line
    count: ir.Value
    wide: ir.Value          # whether they are long
    every: ir.Value         # iterations of the innermost loop, or 0 where there is more than a line an iteration


class Lines(NamedTuple):
    """Of memory, one for each row: the first, and bytes from one to the next."""
    start: ir.Value
    apart: ir.Value


class EpilogueAddress(NamedTuple):
    """A table of `count` Lines that are to be near when the sums are finished."""
    table: ir.Value
    count: ir.Value


def no_near(where: ir.Value) -> EpilogueAddress:
    """Nothing but where the sums go."""
    return EpilogueAddress(where, ZERO)


def no_fetches(where: ir.Value) -> Ahead:
    """Nothing is fetched."""
    return Ahead(where, ZERO, ZERO, ZERO, ir.Constant(I1, 0), const(NO_PREFETCH_ITERATION))


def pace(shape: Shape, count: int, wide: bool) -> int:
    """Turns from one line that is fetched ahead to the next one, so that they are `count` (of those of a panel, or
    short) for every chunk; 0 if a line an iteration is not enough.

    >>> pace(Shape(ir.FloatType(), 8, 3, 16, 1, 48), 4, True), pace(Shape(ir.FloatType(), 8, 3, 16, 1, 48), 5, True)
    (1, 0)
    >>> pace(Shape(ir.FloatType(), 8, 3, 16, 1, 48), 5, False)
    2
    """
    return (shape.lanes * (1 if wide else shape.vectors)) // (K_UNROLL * count)


def put_lines(b: ir.IRBuilder, table: ir.Value, number: int, lines: Lines) -> None:
    """Write an entry of a table."""
    for place, value in zip((0, LINES_BYTES // 2), lines, strict=True):
        b.store(value, b.gep(table, [const(number * LINES_BYTES + place)], source_etype=BYTE))

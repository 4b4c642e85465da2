"""Statements of the loop IR: when a scalar is computed, and where it goes.

    Stmt   = Loop(index, extent, body, kind) | Let(local, value) | Store(buffer, offset, value)
           | Accumulator(local, kind) | Update(local, kind, value) | Turn(buffer, lines, columns)
           | Fetch(buffer, offset)
           | Contraction(batch, rows, columns, depth, left, right, sum, epilogue, chunk)
           | Attention(...) | AttentionGradient(...)
    Nest   = statements between two barriers
    Kernel = name, buffers, sizes, nests
"""

from __future__ import annotations

from collections.abc import Iterable

from tenon.loops.expressions import Buffer, CheckedIndex, Expr, Index, Local, size
from tenon.loops.traversal import parts, walk
from tenon.records import dataclass, field
from tenon.types import DType


class Stmt:
    """A step of a kernel."""


Block = tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class Loop(Stmt):
    """`kind`: parallel (cut between the threads), serial, or vector (iterations in any order, contiguous)."""

    index: Index
    extent: Expr
    body: Block
    kind: str = "serial"
    grain: Expr = field(default_factory=lambda: size(1))    # iterations of a parallel loop that stay on one thread


@dataclass(frozen=True, eq=False)
class Let(Stmt):
    """A scalar, or an index, computed once and read by name."""

    local: Local | Index
    value: Expr


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    buffer: Buffer
    offset: Expr
    value: Expr


@dataclass(frozen=True, eq=False)
class Accumulator(Stmt):
    """Start `local` at the identity of the reduction."""

    local: Local
    kind: str


@dataclass(frozen=True, eq=False)
class Update(Stmt):
    """Combine `value` into the accumulator; the order of combination is free, and fixed once compiled."""

    local: Local
    kind: str
    value: Expr


@dataclass(frozen=True, eq=False)
class TransposeTile(Stmt):
    """The lines of a square, which lies in memory of the thread, become its columns.

    Only the first `lines` of it are, and of the columns only so many are wanted: the others may be anything after.
    """

    buffer: Buffer
    lines: int
    columns: int


@dataclass(frozen=True, eq=False)
class Prefetch(Stmt):
    """An element will be read soon, or written: a cache may ask for its line, wherever it is."""

    buffer: Buffer
    offset: Expr


@dataclass(frozen=True)
class Chunk:
    """Rows are cut into as many chunks as `number` has values, none of them empty, each of which one thread meets in
    order: an epilogue may add up along it.

    `number` is that of the chunk that a row is in, `first` whether the row is the first of it.
    """

    number: Index
    first: Local


@dataclass(frozen=True, eq=False)
class Contraction(Stmt):
    """For all batch, rows, columns: `sum` is left * right added up over depth, then the epilogue.

    `left` depends on batch, rows and depth, `right` on batch, columns and depth.  It is one statement, because the code
    for it is blocked, packed and kept in registers as a whole.
    """

    batch: tuple[Index, ...]
    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    depth: tuple[Index, ...]
    left: Expr
    right: Expr
    sum: Local
    epilogue: Block
    schedule: str = ""          # of the backend; none leaves it to the backend's model of the machine
    chunk: Chunk | None = None


@dataclass(frozen=True, eq=False)
class BlockedAttention(Stmt):
    """What attention and its gradient share: for all batch, a score for every pair of a query (row) and a key (column).

    `q` depends on batch, row and depth, `k` on batch, column and depth, `v` on batch, column and width, `mask` on
    batch, row and column; `masked` is the score of pairs that it leaves out, if they have one.  One statement each,
    since the code for them goes through blocks of scores that nobody stores.  `results` name what `stores` put into
    memory; numbers are computed in `dtype`.
    """

    batch: tuple[Index, ...]
    row: Index
    column: Index
    depth: Index
    width: Index
    q: Expr
    k: Expr
    v: Expr
    mask: Expr | None
    is_causal: bool
    scale: float
    masked: float | None
    dtype: DType
    results: tuple[Local, ...]
    stores: Block


@dataclass(frozen=True, eq=False)
class Attention(BlockedAttention):
    """The weighted sums of values, by row and width; by row, the logarithms of the weights' divisors, and what rounding
    took from these."""


@dataclass(frozen=True, eq=False)
class AttentionGradient(BlockedAttention):
    """The gradients of q, k and v, from those of the sums; `along` and `total` depend on batch and row."""

    g: Expr
    along: Expr
    total: Expr


@dataclass(frozen=True, eq=False)
class Nest:
    """Statements that every thread runs; the next nest starts when all threads are done with this one."""

    body: Block
    locals: tuple[Buffer, ...] = ()     # memory private to a thread


@dataclass(frozen=True, eq=False)
class Kernel:
    """`buffers`: inputs, then outputs, then temporaries; `sizes`: the symbols that it is given, in order."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    nests: tuple[Nest, ...]
    checks: tuple[CheckedIndex, ...] = ()   # status code k + 1 means that check k failed

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return self.inputs + self.outputs + self.temporaries


def statements(body: Block) -> list[Stmt]:
    """Every statement, those inside loops too."""
    found: list[Stmt] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, Loop):
            found += statements(statement.body)
        if isinstance(statement, Contraction):
            found += statements(statement.epilogue)
        if isinstance(statement, BlockedAttention):
            found += statements(statement.stores)
    return found


def checks_of(nests: Iterable[Nest]) -> tuple[CheckedIndex, ...]:
    """Every index among the data that is checked."""
    return tuple(dict.fromkeys(x for nest in nests for statement in statements(nest.body)
                               for root in roots(statement) for x in parts(root, CheckedIndex)))


def roots(statement: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself computes."""
    match statement:
        case Loop(extent=extent, grain=grain):
            return extent, grain
        case Let(value=value) | Update(value=value):
            return (value,)
        case Store(offset=offset, value=value):
            return offset, value
        case Prefetch(offset=offset):
            return (offset,)
        case Contraction(left=left, right=right):
            return left, right
        case AttentionGradient(g=g, along=along, total=total):
            return *_factors(statement), g, along, total
        case BlockedAttention():
            return _factors(statement)
    return ()


def expressions_in(body: Iterable[Stmt]) -> list[Expr]:
    """Every distinct sub-expression of these statements, parts before the whole."""
    return walk(*(x for statement in body for x in roots(statement)))


def _factors(x: BlockedAttention) -> tuple[Expr, ...]:
    return (x.q, x.k, x.v) if x.mask is None else (x.q, x.k, x.v, x.mask)

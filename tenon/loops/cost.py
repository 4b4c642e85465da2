"""Kernel -> what running it costs, in bytes moved to or from memory: the measure by which fusion is decided.

    cost(kernel) = for every nest, the memory that it touches    (a store counts twice: the line is read and written)
                 + what it computes                              (in bytes that could be moved in the time)

Memory that a nest touches several times counts once, as if it stayed in a cache. It is a roofline (Williams 2009) whose
two times are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import affine
from tenon.loops.expressions import Binary, Buffer, Call, Const, Expr, Index, Load, Local, SizeOf
from tenon.loops.loop_ir import Block, Contraction, Kernel, Let, Loop, Nest, Stmt, Store, roots
from tenon.loops.traversal import walk
from tenon.types import int64

UNKNOWN_SIZE = 64       # what a symbolic size counts
STORE = 2               # times as long as loading, since the line is read and written
OPERATION = 0.1         # the time of an arithmetic operation, in that of moving an element
MULTIPLY_ADD = 0.1      # of a product of matrices
DIVISION = 0.4
FUNCTION = 1.0
ONE_BY_ONE = 16         # times as long as in vectors
MAX_UNROLL = 8          # iterations of a loop that is no loop in the machine's code
SIMPLE_CALLS = ("neg", "not", "abs", "isnan", "product")


def cost(kernel: Kernel) -> float:
    """About how long the kernel takes, in bytes."""
    return sum(map(_cost_of_nest, kernel.nests))


def _cost_of_nest(nest: Nest) -> float:
    read: Counter[Buffer] = Counter()
    written: Counter[Buffer] = Counter()
    computed, named = 0.0, dict[Expr, frozenset[Index]]()
    for statement, iterations, inner in _iterations(nest.body, 1, None):
        if isinstance(statement, Let) and statement.local.dtype is int64:
            named[statement.local] = _jumps_along(statement.value, named)
        if isinstance(statement, Contraction):
            iterations *= count(*statement.batch, *statement.rows, *statement.columns)
            computed += iterations * count(*statement.depth) * MULTIPLY_ADD * statement.sum.dtype.itemsize
        each = iterations * (ONE_BY_ONE if inner is not None and _jumps(statement, inner, named) else 1)
        for x in walk(*roots(statement)):
            computed += each * operations(x) * x.dtype.itemsize
            if isinstance(x, Load) and x.buffer.role != "local":
                read[x.buffer] += _touched(x.offset, iterations)
        if isinstance(statement, Store) and statement.buffer.role != "local":
            written[statement.buffer] += _touched(statement.offset, iterations)
    return computed + _bytes(read) + STORE * _bytes(written)


def _iterations(body: Block, outer: int, inner: Index | None) -> Iterator[tuple[Stmt, int, Index | None]]:
    """Every statement, how often it runs, and the innermost loop around it that is long enough for vectors."""
    for statement in body:
        yield statement, outer, inner
        if isinstance(statement, Loop):
            index = statement.index
            yield from _iterations(statement.body, outer * count(index), index if count(index) > MAX_UNROLL else inner)
        if isinstance(statement, Contraction):
            yield from _iterations(statement.epilogue, outer * count(*statement.rows, *statement.columns), None)


def _jumps(statement: Stmt, index: Index, named: Mapping[Expr, frozenset[Index]]) -> bool:
    """Whether neighbours in `index` lie at places that no step leads to, as x[i // 2], or x[at[i]]: no vector holds
    them."""
    return any(index in _jumps_along(x.offset, named) for x in walk(*roots(statement)) if isinstance(x, Load))


def _jumps_along(place: Expr, named: Mapping[Expr, frozenset[Index]]) -> frozenset[Index]:
    """The indices in which no step leads from a place to the next; `named` says so of the names of places."""
    atoms = [atom for atom in affine(place).terms if not isinstance(atom, Index)]
    return frozenset[Index]().union(*(part.free | named.get(part, frozenset()) for part in walk(*atoms)))


def _touched(offset: Expr, iterations: int) -> int:
    """How many elements such an offset reaches."""
    return iterations if any(isinstance(x, Local) for x in walk(offset)) else count(*offset.free)


def _bytes(touched: Counter[Buffer]) -> int:
    return sum(min(n, known(b.elements)) * b.type.dtype.itemsize for b, n in touched.items())


def count(*indices: Index) -> int:
    """How many iterations loops over the indices take together."""
    total = 1
    for index in indices:
        total *= known(index.extent)
    return total


def known(n: Dim) -> int:
    """A size, as far as it is known."""
    return n if isinstance(n, int) else UNKNOWN_SIZE


def operations(x: Expr) -> float:
    """What computing x of its parts costs, in moves of an element; arithmetic on positions is free."""
    match x:
        case Const() | SizeOf() | Index():
            return 0.0
        case Call(name=name):
            return OPERATION if name in SIMPLE_CALLS else FUNCTION
        case Binary(op="/" | "//" | "%") if x.dtype is not int64:
            return DIVISION
        case _ if x.dtype is int64 or not x.children():
            return 0.0
    return OPERATION

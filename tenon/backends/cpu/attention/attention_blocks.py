"""What attention and its gradient are made of: copies of operands, products of tiles, masks, rows of weights.

Blocks of queries, keys and values are copied to a thread's own memory, in 32 bits at least, so that the tiles of the
contraction template read them wherever they come from, and may read a little over their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args
from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I32,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    const,
    element_bytes,
    load_vector,
    loop,
    minimum,
    splat,
    store_vector,
    transpose,
    unravel,
)
from tenon.backends.cpu.contraction.machine_model import best_tile
from tenon.backends.cpu.contraction.memset import fill
from tenon.backends.cpu.contraction.microkernel import add_products
from tenon.backends.cpu.contraction.microkernel_types import LeftOperand, Lines, Shape, no_fetches, no_near
from tenon.backends.cpu.expression_codegen import Values, argument_values
from tenon.backends.cpu.mathematics.exp_sigmoid import exp_of_negative
from tenon.backends.cpu.mathematics.notation import Number
from tenon.backends.cpu.scalar_codegen import register
from tenon.dims.symbolic_dim import Dim, product
from tenon.llvm.target_module import TargetModule
from tenon.llvm.work_partition import SHARE, WorkShare
from tenon.loops.expressions import Buffer, Expr, Index
from tenon.loops.loop_ir import BlockedAttention, Store
from tenon.loops.traversal import walk
from tenon.records import dataclass
from tenon.types import bool_

MAX_TILED_EXTENT = 256  # rows and columns, at most, for which a tile is chosen


@dataclass(frozen=True)
class AttentionOperands:
    """How a tile finds the factors of a product: elements between rows and steps of left, between lines of right."""

    row: int
    step: int
    line: int


class Blocks:
    """The functions that a schedule calls, and the places in scratch memory; subclasses write the loops."""

    most_queries: ClassVar[int]
    most_keys: ClassVar[int]

    def __init__(self, module: TargetModule, name: str, statement: BlockedAttention, arguments: Mapping[Buffer, int],
                 pointers: int,
                 symbols: Sequence[str]) -> None:
        self.module, self.name, self.x, self.target = module, name, statement, module.target
        self.arguments, self.pointers, self.symbols = arguments, pointers, symbols
        self.element = register(statement.dtype)
        self.lanes = self.target.vector_bytes // element_bytes(self.element)
        self.vector = ir.VectorType(self.element, self.lanes)
        rows, columns = (self.least(index.extent, MAX_TILED_EXTENT) for index in (statement.row, statement.column))
        self.rows, self.vectors = best_tile(self.target, self.lanes, rows, columns)
        # elements between rows of queries and keys, and of values: whole tiles
        self.depth, self.width = (self.whole(int(index.extent), self.lanes * self.vectors_for(int(index.extent)))
                                  for index in (statement.depth, statement.width))
        self.functions: dict[object, ir.Function] = {}
        self.places: dict[str, tuple[int, Dim]] = {}

    @staticmethod
    def least(n: Dim, most: int) -> int:
        return min(n, most) if isinstance(n, int) else most

    @property
    def across(self) -> int:
        """Columns of a tile of scores."""
        return self.vectors * self.lanes

    @property
    def queries(self) -> int:
        """In a block: whole tiles."""
        return self.whole(self.least(self.x.row.extent, self.most_queries), self.rows)

    @property
    def keys(self) -> int:
        return self.whole(self.least(self.x.column.extent, self.most_keys), self.across)

    def vectors_for(self, columns: int) -> int:
        """How many vectors wide the tiles of a product of so many columns are."""
        count = -(-columns // self.lanes)
        return min(range(1, self.vectors + 1), key=lambda n: (-(-count // n) * (n + 1), -n))

    def apart(self, axis: str) -> int:
        """Elements between rows of an operand, in a thread's own memory."""
        return {"depth": self.depth, "width": self.width}[axis]

    def whole(self, count: int, of: int = 0) -> int:
        """So many elements, made up to whole vectors (or multiples of something else)."""
        of = of or self.lanes
        return -(-count // of) * of

    # ------------------------------------------------------------ memory of a thread's own

    def memory(self) -> dict[str, Dim]:
        """Elements of scratch memory, by name."""
        raise NotImplementedError

    def scratch(self) -> Dim:
        """Bytes of it all."""
        total: Dim = sum(map(self.whole_dim, self.memory().values())) * element_bytes(self.element)
        return total + 2 * self.target.vector_bytes

    def place_memory(self, b: ir.IRBuilder, args: Args, scratch: ir.Value) -> dict[str, ir.Value]:
        """Where each part of it is, aligned.  All is cleared, as tiles read over the ends of blocks: into numbers so
        small that processors are slow with them, if what was there before were left."""
        values, size = self.values(b, args), self.target.vector_bytes
        place = b.gep(scratch, [b.and_(b.neg(b.ptrtoint(scratch, I64)), const(size - 1))], source_etype=ir.IntType(8))
        found = {}
        for name, elements in self.memory().items():
            found[name] = place
            place = address(b, place, values.dim(self.whole_dim(elements)), self.element)
        first = next(iter(found.values()))
        self.clear(b, first, values.dim(sum(map(self.whole_dim, self.memory().values()))))
        return found

    def whole_dim(self, elements: Dim) -> Dim:
        """So many elements and a few more, which are whole vectors where that is known."""
        return self.whole(elements) if isinstance(elements, int) else elements + self.lanes

    # ------------------------------------------------------------ functions

    def function(self, key: object, kinds: Sequence[ir.Type], write: Callable[..., None],
                 inline: bool = False) -> ir.Function:
        """The internal function `write(b, *arguments)`, which is written once for every key."""
        if key not in self.functions:
            made = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [*self.kinds, *kinds]),
                               f"{self.name}_{len(self.functions)}")
            made.linkage = "internal"
            made.attributes.add("alwaysinline" if inline else "noinline")
            made.attributes.add("nounwind")
            for argument in made.args:
                if argument.type == POINTER:
                    argument.add_attribute("noalias")
            self.functions[key] = made
            b = ir.IRBuilder(made.append_basic_block("entry"))
            write(b, tuple(made.args[:len(self.kinds)]), *made.args[len(self.kinds):])
            b.ret_void()
        return self.functions[key]

    @property
    def kinds(self) -> tuple[ir.Type, ...]:
        """The types of pointers and sizes."""
        return (POINTER,) * self.pointers + (I64,) * len(self.symbols)

    def values(self, b: ir.IRBuilder, args: Args) -> Values:
        """What computes expressions from the function's arguments."""
        return argument_values(b, args, self.arguments, self.pointers, self.symbols)

    def at(self, b: ir.IRBuilder, args: Args, g: ir.Value, **places: ir.Value) -> Values:
        """The same at an element: row=, column=, depth= and width= are its places, g the flat one of the batch."""
        values = self.values(b, args)
        batch = self.x.batch
        values.known.update(zip(batch, unravel(b, g, [values.dim(index.extent) for index in batch]), strict=False))
        values.known.update({getattr(self.x, name): place for name, place in places.items()})
        return values

    def extent(self, b: ir.IRBuilder, args: Args, *indices: Index) -> ir.Value:
        return self.values(b, args).dim(product(index.extent for index in indices))

    # ------------------------------------------------------------ copies

    def copy(self, b: ir.IRBuilder, args: Args, x: Expr, axes: str, g: ir.Value, first: ir.Value, count: ir.Value,
             target: ir.Value, factor: float = 1.0) -> None:
        """Rows first .. first + count of an operand, side by side; `axes` says which, as "row depth"."""
        outer, inner = axes.split()
        extent = int(getattr(self.x, inner).extent)

        def write(b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, count: ir.Value, target: ir.Value) -> None:
            with loop(b, ZERO, count) as (i, _), loop(b, ZERO, const(extent)) as (j, _):
                value = self.at(b, args, g, **{outer: b.add(first, i), inner: j}).value(x)
                if factor != 1.0:
                    value = b.fmul(value, ir.Constant(self.element, factor))
                b.store(value, address(b, target, b.add(b.mul(i, const(self.apart(inner))), j), self.element))
        b.call(self.function(("copy", x, axes), [I64, I64, I64, POINTER], write), [*args, g, first, count, target])

    def transpose_panels(self, b: ir.IRBuilder, args: Args, width: int, source: ir.Value, count: ir.Value,
                         panels: ir.Value) -> None:
        """Rows of `width` elements -> panels in which `vectors * lanes` rows stand side by side."""
        lanes, element, across = self.lanes, self.element, self.vectors * self.lanes

        def write(b: ir.IRBuilder, args: Args, source: ir.Value, count: ir.Value, panels: ir.Value) -> None:
            with loop(b, ZERO, count, const(lanes), short=True) as (i, _), \
                    loop(b, ZERO, const(width), const(lanes), short=True) as (k, _):
                start = address(b, source, b.add(b.mul(i, const(width)), k), element)
                square = [load_vector(b, address(b, start, const(r * width), element), element, lanes)
                          for r in range(lanes)]
                panel = b.mul(b.udiv(i, const(across)), const(across * width))
                corner = b.add(b.add(panel, b.mul(k, const(across))), b.urem(i, const(across)))
                for step, column in enumerate(transpose(b, square)):
                    where = b.add(corner, const(step * across))
                    store_vector(b, column, address(b, panels, where, element))
        b.call(self.function(("turn", width), [POINTER, I64, POINTER], write), [*args, source, count, panels])

    # ------------------------------------------------------------ products

    def multiply(self, b: ir.IRBuilder, factors: AttentionOperands, depth: ir.Value, left: ir.Value, right: ir.Value,
                 result: ir.Value, apart: int, vectors: int, adds: ir.Value | None = None) -> None:
        """A tile: result[i, j] = (that, if `adds`, and) the sum over depth of left[i, k] * right[k, j]."""
        shape = Shape(self.element, self.rows, vectors, self.lanes, factors.step, factors.line, plain=True)
        rows = LeftOperand(left, const(factors.row), const(self.lanes * factors.step), const(factors.row))
        sums = Lines(result, const(apart * element_bytes(self.element)))
        adds = ir.Constant(I1, 0) if adds is None else adds
        add_products(b, shape, depth, rows, right, sums, adds, no_near(result), no_fetches(right))

    # ------------------------------------------------------------ rows of scores

    def columns_of(self, b: ir.IRBuilder, row: ir.Value, first: ir.Value, count: ir.Value) -> ir.Value:
        """How many of the columns first .. first + count a row attends to, masks apart; may be negative."""
        if not self.x.is_causal:
            return count
        return minimum(b, count, b.sub(b.add(row, ONE), first))

    def mask_rows(self, b: ir.IRBuilder, args: Args, g: ir.Value, row: ir.Value, rows: ir.Value, first: ir.Value,
                  count: ir.Value, scores: ir.Value, apart: int, masked: float) -> None:
        """Add the mask to rows of scores, or let it choose between them and a number for masked pairs."""
        mask = self.x.mask
        if mask is None:
            return

        def write(b: ir.IRBuilder, args: Args, g: ir.Value, row: ir.Value, rows: ir.Value, first: ir.Value,
                  count: ir.Value, scores: ir.Value) -> None:
            with loop(b, ZERO, rows) as (i, _), loop(b, ZERO, count) as (j, _):
                value = self.at(b, args, g, row=b.add(row, i), column=b.add(first, j)).value(mask)
                where = address(b, scores, b.add(b.mul(i, const(apart)), j), self.element)
                score = b.load(where, typ=self.element)
                if mask.dtype is bool_:
                    score = b.select(value, score, ir.Constant(self.element, masked))
                else:
                    score = b.fadd(score, value)
                b.store(score, where)
        function = self.function(("mask", masked), [I64] * 5 + [POINTER], write)
        b.call(function, [*args, g, row, rows, first, count, scores])

    @property
    def masked(self) -> float:
        """The score of a pair that takes no part."""
        return float("-inf") if self.x.masked is None else self.x.masked

    @contextmanager
    def vectors_of(self, b: ir.IRBuilder, start: ir.Value, stop: ir.Value,
                   carried: Sequence[ir.Value] = ()) -> Iterator[tuple[ir.Value, list[ir.Value]]]:
        """The columns start .. stop of a row, a vector at a time."""
        with loop(b, start, stop, const(self.lanes), carried, short=True) as (j, state):
            yield j, state

    def in_parts(self, b: ir.IRBuilder, count: ir.Value, stop: ir.Value, carried: Sequence[ir.Value],
                 step: Callable[[ir.Value, ir.Value | None, list[ir.Value]], None]) -> list[ir.Value]:
        """`step(j, lanes, state)` for the vectors of a row: whole ones, up to `stop` such with lanes below count."""
        whole = b.and_(count, const(-self.lanes))
        with self.vectors_of(b, ZERO, whole, carried) as (j, state):
            step(j, None, state)
        with self.vectors_of(b, whole, stop, state) as (j, state):
            step(j, self.below(b, j, count), state)
        return state

    def load(self, b: ir.IRBuilder, where: ir.Value, at: ir.Value = ZERO) -> ir.Value:
        return load_vector(b, address(b, where, at, self.element), self.element, self.lanes)

    def store(self, b: ir.IRBuilder, value: ir.Value, where: ir.Value, at: ir.Value = ZERO) -> None:
        store_vector(b, value, address(b, where, at, self.element))

    def splat(self, b: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return splat(b, value, self.lanes)

    def below(self, b: ir.IRBuilder, j: ir.Value, count: ir.Value) -> ir.Value:
        """Which lanes, from column j on, are below count."""
        left = splat(b, b.trunc(b.sub(count, j), I32), self.lanes)
        return b.icmp_signed("<", ir.Constant(left.type, list(range(self.lanes))), left)

    def exp(self, b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        """exp(x) for x that is hardly larger than 0."""
        return exp_of_negative(Number(b, x)).value

    def clear(self, b: ir.IRBuilder, where: ir.Value, count: ir.Value) -> None:
        """Zeros, in whole vectors."""
        fill(b, self.element, self.lanes, where, count)

    def reduce(self, b: ir.IRBuilder, name: str, value: ir.Value) -> ir.Value:
        """The sum ("fadd") or maximum ("fmax") of a vector's lanes."""
        half = self.lanes // 2
        while half:
            mask = ir.Constant(ir.VectorType(I32, self.lanes), [(i + half) % self.lanes for i in range(self.lanes)])
            other = b.shuffle_vector(value, value, mask)
            value = b.fadd(value, other) if name == "fadd" else self.larger(b, value, other)
            half //= 2
        return b.extract_element(value, ir.Constant(I32, 0))

    def larger(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        return b.select(b.fcmp_ordered(">", y, x), y, x)

    # ------------------------------------------------------------ results

    def stored(self, b: ir.IRBuilder, args: Args, result: int, g: ir.Value, value: ir.Value,
               **places: ir.Value) -> None:
        """Put an element of a result where it is wanted, if it is."""
        local = self.x.results[result]
        values = self.at(b, args, g, **places)
        values.known[local] = value
        values.block(tuple(s for s in self.x.stores if isinstance(s, Store) and local in walk(s.value)))

    def store_rows(self, b: ir.IRBuilder, args: Args, result: int, axes: str, g: ir.Value, first: ir.Value,
                   count: ir.Value, source: ir.Value, factor: float = 1.0) -> None:
        """Rows of a result, from memory in which they stand side by side."""
        outer, inner = axes.split()
        extent = int(getattr(self.x, inner).extent)

        def write(b: ir.IRBuilder, args: Args, g: ir.Value, first: ir.Value, count: ir.Value, source: ir.Value) -> None:
            with loop(b, ZERO, count) as (i, _), loop(b, ZERO, const(extent)) as (j, _):
                where = address(b, source, b.add(b.mul(i, const(self.apart(inner))), j), self.element)
                value = b.load(where, typ=self.element)
                if factor != 1.0:
                    value = b.fmul(value, ir.Constant(self.element, factor))
                self.stored(b, args, result, g, value, **{outer: b.add(first, i), inner: j})
        b.call(self.function(("store", result), [I64, I64, I64, POINTER], write), [*args, g, first, count, source])

    # ------------------------------------------------------------ the whole

    def emit(self) -> ir.Function:
        """void name(pointers..., sizes..., first, until, threads, scratch)."""
        kinds = [*self.kinds, *SHARE, POINTER]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), self.name)
        function.linkage = "internal"
        b = ir.IRBuilder(function.append_basic_block("entry"))
        args, (*share, scratch) = tuple(function.args[:-4]), function.args[-4:]
        parts = self.place_memory(b, args, scratch)
        self.body(b, args, WorkShare(b, *share), parts)
        b.ret_void()
        return function

    def body(self, b: ir.IRBuilder, args: Args, share: WorkShare, parts: Mapping[str, ir.Value]) -> None:
        """All that a call does."""
        raise NotImplementedError

"""A contraction statement of the loop IR -> the contraction template, with callbacks that store (`factors`: read)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from llvmlite import ir

from tenon.backends.cpu.contraction import GemmSpec as Template
from tenon.backends.cpu.contraction import (
    Tile,
    chunk_of,
    chunk_start,
    tile_of,
    tiles_of,
)
from tenon.backends.cpu.contraction.gemm_spec import Args, Size
from tenon.backends.cpu.contraction.gemm_spec import Index as Places
from tenon.backends.cpu.contraction.gemm_spec import ResultAddress as Near
from tenon.backends.cpu.contraction.ir_helpers import loop, maximum, minimum, runs
from tenon.backends.cpu.epilogue_patterns import are_straight, joined, only_stored
from tenon.backends.cpu.expression_codegen import ONE, ZERO, Values
from tenon.backends.cpu.operand_access import Axis, OperandAccess
from tenon.backends.cpu.scalar_codegen import I64, POINTER
from tenon.dims.symbolic_dim import product
from tenon.llvm.target_module import TargetModule
from tenon.locks import cached_property
from tenon.loops.affine import affine, is_same
from tenon.loops.cost import count
from tenon.loops.expressions import Buffer, Expr, Load
from tenon.loops.loop_ir import Contraction, Store, roots
from tenon.loops.traversal import walk
from tenon.records import dataclass
from tenon.target import Target


def template_of(statement: Contraction, arguments: Mapping[Buffer, int], pointers: int, target: Target,
                packed: int | None = None) -> Template:
    """The statement, of known sizes, in the template's words."""
    return ProductTemplate(TargetModule(target), "", statement, arguments, pointers, (), packed).template()


def tile_named(statement: Contraction, template: Template) -> Tile | None:
    """The tile that the statement asks for; None leaves it to the model."""
    return next((tile for tile in tiles_of(template) if tile.name == statement.schedule), None) \
        if statement.schedule else None


@dataclass(frozen=True)
class ProductTemplate:
    """A statement in a module, and what the template calls back for."""

    module: TargetModule
    name: str
    statement: Contraction
    arguments: Mapping[Buffer, int]
    pointers: int
    symbols: Sequence[str]
    packed: int | None = None

    @property
    def factors(self) -> OperandAccess:
        """How both factors are read."""
        return OperandAccess(self.module.target, self.statement, self.arguments, self.pointers, self.symbols)

    @property
    def element(self) -> ir.Type:
        return self.factors.element

    def values(self, b: ir.IRBuilder, args: Args) -> Values:
        """What computes expressions from the function's arguments."""
        return self.factors.values(b, args)

    def template(self) -> Template:
        """The statement in the template's words."""
        x = self.statement
        kinds = (POINTER,) * self.pointers + (I64,) * len(self.symbols)
        batch, rows, columns, depth = (self.factors.sizes(axis) for axis in (x.batch, x.rows, x.columns, x.depth))
        together = joined(x.epilogue, x.columns)
        run = None if together == len(columns) else self.extent(x.columns[len(columns) - together:])
        known, pairs, odd = self.factors.known(), self.factors.pairs(), False
        left, right = self.factors.operand(x.left, x.rows), self.factors.operand(x.right, x.columns)
        if pairs is not None:
            (left, right), half, odd = pairs, -(-x.depth[-1].extent // 2), x.depth[-1].extent % 2 == 1
            depth, known = (*depth[:-1], lambda b, args: ir.Constant(I64, half)), (*known[:2], -(-(known[2] or 0) // 2))
        plain, rounds = self.is_plain() and pairs is None, self.is_plain(16) and run is None and pairs is not None
        return Template(self.module.target, kinds, self.element, batch, rows, columns, depth, left, right,
                        self.store, run, self.target if plain else None, known, None if plain else self.finish,
                        () if plain else tuple(self.near()), () if plain else tuple(self.written()), pairs is not None,
                        self.packed, are_straight(x.epilogue, x.rows), self.target if rounds else None, odd,
                        0 if x.chunk is None else count(x.chunk.number))

    # ------------------------------------------------------------ results

    def store(self, b: ir.IRBuilder, args: Args, g: Places, m: ir.Value, n: ir.Value, value: ir.Value,
              lanes: int) -> None:
        """The epilogue for `lanes` results side by side; they are in one function, which is short where it is used."""
        vector = isinstance(value.type, ir.VectorType)
        name = f"{self.name}_epilogue_{lanes if vector else 'one'}"
        function = self.module.globals.get(name)
        if function is None:
            kinds = [*(a.type for a in args), *(I64 for _ in g), I64, I64, value.type]
            function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
            function.linkage = "internal"
            function.attributes.add("nounwind")
            if self.is_plain():
                function.attributes.add("alwaysinline")
            for argument in function.args[:self.pointers]:
                argument.add_attribute("noalias")
            self.epilogue(function, len(args), len(g), lanes if vector else 0)
        b.call(function, [*args, *g, m, n, value])

    def finish(self, b: ir.IRBuilder, args: Args, g: Places, m: ir.Value, n: ir.Value, rows: ir.Value,
               columns: ir.Value, sums: ir.Value, width: int) -> None:
        """The epilogue for a rectangle of results, as loops that LLVM turns into vectors, in a function of its own."""
        whole = isinstance(columns, ir.Constant) and columns.constant == width
        name = f"{self.name}_epilogue_of_{'whole_' if whole else ''}{width}"
        function = self.module.globals.get(name)
        if function is None:
            kinds = [*(a.type for a in args), *(I64 for _ in g), *[I64] * 4, POINTER]
            function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
            function.linkage = "internal"
            for attribute in ("nounwind", "noinline"):
                function.attributes.add(attribute)
            for argument in (*function.args[:self.pointers], function.args[-1]):
                argument.add_attribute("noalias")
            self.rectangle(function, len(args), len(g), width, whole)
        b.call(function, [*args, *g, m, n, rows, columns, sums])

    def rectangle(self, function: ir.Function, arguments: int, batches: int, width: int, whole: bool) -> None:
        """The body: rows, runs of columns that are named by the last component alone, and the elements of a run, as
        many as the width if they are `whole`."""
        x = self.statement
        args, g = function.args[:arguments], function.args[arguments:arguments + batches]
        m, n, rows, columns, sums = function.args[arguments + batches:]
        b = ir.IRBuilder(function.append_basic_block("entry"))
        values = self.values(b, tuple(args))
        values.known.update(zip(x.batch, g, strict=False))
        apart = x.columns[:len(x.columns) - joined(x.epilogue, x.columns)]

        def run(line: ir.Value, first: ir.Value, count: ir.Value) -> None:
            values.known.update(dict.fromkeys(x.columns[len(apart):-1], ZERO))
            with loop(b, ZERO, count) as (lane, _):
                values.known.update(dict.fromkeys(x.columns[-1:], b.add(first, lane, flags=("nsw", "nuw"))))
                values.known[x.sum] = b.load(b.gep(line, [lane], source_etype=self.element), typ=self.element)
                values.block(x.epilogue)

        with self.each_row(values, m, rows) as i:
            self.unravel(values, x.rows, b.add(m, i))
            line = b.gep(sums, [b.mul(i, ir.Constant(I64, width))], source_etype=self.element)
            if apart:
                together = values.dim(product(index.extent for index in x.columns[len(apart):]))
                with runs(b, n, columns, [*(values.dim(index.extent) for index in apart), together]) as found:
                    position, (*start, first), length = found
                    values.known.update(zip(apart, start, strict=True))
                    run(b.gep(line, [position], source_etype=self.element), first, length)
            else:
                run(line, n, ir.Constant(I64, width) if whole else columns)
        b.ret_void()

    # ------------------------------------------------------------ sums along chunks of rows

    @contextmanager
    def each_row(self, values: Values, m: ir.Value, rows: ir.Value) -> Iterator[ir.Value]:
        """So many rows from m on, counted from there, those of a chunk at a time."""
        b, chunk = values.b, self.statement.chunk
        if chunk is None:
            with loop(b, ZERO, rows) as (i, _):
                yield i
            return
        stop = b.add(m, rows)
        with loop(b, self.chunk_of(b, m), b.add(self.chunk_of(b, b.sub(stop, ONE)), ONE)) as (number, _):
            start, end = self.chunk_start(b, number), self.chunk_start(b, b.add(number, ONE))
            with loop(b, maximum(b, b.sub(start, m), ZERO), minimum(b, b.sub(end, m), rows)) as (i, _):
                values.known[chunk.number] = number
                values.known[chunk.first] = b.icmp_unsigned("==", b.add(m, i), start)
                yield i

    def name_chunk(self, values: Values, m: ir.Value) -> None:
        """The chunk that a row is in, and whether it is its first row."""
        b, chunk = values.b, self.statement.chunk
        if chunk is not None:
            number = values.known[chunk.number] = self.chunk_of(b, m)
            values.known[chunk.first] = b.icmp_unsigned("==", m, self.chunk_start(b, number))

    def chunk_of(self, b: ir.IRBuilder, row: ir.Value) -> ir.Value:
        template, tile = self.cut
        return chunk_of(b, template, tile, row)

    def chunk_start(self, b: ir.IRBuilder, number: ir.Value) -> ir.Value:
        template, tile = self.cut
        return chunk_start(b, template, tile, number)

    @cached_property
    def cut(self) -> tuple[Template, Tile]:
        """What says where chunks of rows begin: the product, and its tile."""
        template = self.template()
        return template, tile_named(self.statement, template) or tile_of(template)

    # ------------------------------------------------------------ what is near

    def near(self) -> Iterator[Near]:
        """What the epilogue reads of memory, side by side for the elements of a row and another for every row."""
        return (self.address_of(x) for x in self.loads() if self.is_line(x.offset))

    def written(self) -> Iterator[Near]:
        """What it writes in such a way where it does not read."""
        read = {(self.arguments.get(x.buffer), x.offset) for x in self.loads()}
        stores = [x for x in self.statement.epilogue if isinstance(x, Store)]
        return (self.address_of(x) for x in stores
                if self.is_line(x.offset) and (self.arguments.get(x.buffer), x.offset) not in read)

    def loads(self) -> list[Load]:
        """What the epilogue reads, unless that is behind a mask."""
        found = (y for s in self.statement.epilogue for root in roots(s) for y in walk(root))
        return [y for y in dict.fromkeys(found) if isinstance(y, Load) and y.mask is None]

    def is_line(self, offset: Expr) -> bool:
        """Whether a place is the neighbour of the last one along columns, and another one in each row."""
        x = self.statement
        along = bool(x.columns) and is_same(affine(offset).terms.get(x.columns[-1], 0), 1)
        return along and not offset.free.isdisjoint(x.rows)

    def address_of(self, x: Load | Store) -> Near:
        """Where the epilogue reads or writes for an element."""
        def address(b: ir.IRBuilder, args: Args, g: Places, m: ir.Value, n: ir.Value) -> ir.Value:
            values = self.values(b, args)
            values.known.update(zip(self.statement.batch, g, strict=False))
            self.unravel(values, self.statement.rows, m)
            self.unravel(values, self.statement.columns, n)
            return values.address(x.buffer, x.offset)
        return address

    def target(self, b: ir.IRBuilder, args: Args, g: Places, m: ir.Value, n: ir.Value) -> ir.Value:
        """Where a plain epilogue stores a sum."""
        x = self.statement
        (only,) = x.epilogue
        assert isinstance(only, Store)
        values = self.values(b, args)
        values.known.update(zip(x.batch, g, strict=False))
        self.unravel(values, x.rows, m)
        self.unravel(values, x.columns, n)
        return values.address(only.buffer, only.offset)

    def extent(self, axis: Axis) -> Size:
        """The number of places of an axis."""
        return lambda b, args: self.values(b, args).dim(product(index.extent for index in axis))

    def is_plain(self, bits: int = 32) -> bool:
        """Whether neighbouring sums, of so many bits or more, are just written side by side."""
        x = self.statement
        return only_stored(x.epilogue, x.sum, x.columns[-1] if x.columns else None, bits) is not None

    def epilogue(self, function: ir.Function, arguments: int, batches: int, lanes: int) -> None:
        """The body of the function for `lanes` columns; 0 for one that is no vector."""
        x = self.statement
        args, g = function.args[:arguments], function.args[arguments:arguments + batches]
        m, n, sums = function.args[arguments + batches:]
        b = ir.IRBuilder(function.append_basic_block("entry"))
        values = self.values(b, tuple(args))
        values.known.update(zip(x.batch, g, strict=False))
        self.name_chunk(values, m)
        self.unravel(values, x.rows, m)
        self.unravel(values, x.columns, n)
        if not lanes or self.is_plain():
            values.known[x.sum] = sums
            if lanes:
                (only,) = x.epilogue
                assert isinstance(only, Store)
                b.store(sums, values.address(only.buffer, only.offset), align=only.buffer.type.dtype.itemsize)
            else:
                values.block(x.epilogue)
            b.ret_void()
            return
        slot = b.alloca(sums.type)
        b.store(sums, slot)
        first, before = values.known[x.columns[-1]], b.block
        body, done = b.append_basic_block("lane"), b.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        lane = b.phi(I64)
        lane.add_incoming(ZERO, before)
        values.known[x.columns[-1]] = b.add(first, lane, flags=("nsw", "nuw"))
        values.known[x.sum] = b.load(b.gep(slot, [lane], source_etype=self.element), typ=self.element)
        values.block(x.epilogue)
        following = b.add(lane, ONE, flags=("nsw", "nuw"))
        lane.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, ir.Constant(I64, lanes)), body, done)
        b.position_at_end(done)
        b.ret_void()

    def unravel(self, values: Values, axis: Axis, flat: ir.Value) -> None:
        """The components of a flat position."""
        for index in axis[:0:-1]:
            extent = values.dim(index.extent)
            values.known[index] = values.b.urem(flat, extent)
            flat = values.b.udiv(flat, extent)
        if axis:
            values.known[axis[0]] = flat

"""A contraction statement of the loop IR -> the contraction template, with callbacks that read and store.

A factor that is one load, of the type of the sums, with contiguous neighbours, is handed over as an address, and its
mask as the range of indices that lies in memory; any other factor is computed an element at a time while packing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from llvmlite import ir

from tenon.backends.cpu.arithmetic import I64, POINTER, in_memory, register, widened
from tenon.backends.cpu.contraction import Contraction as Template
from tenon.backends.cpu.contraction import (
    Operand,
    Tile,
    emit_contraction,
    emit_packing,
    packed_size,
    scratch_size,
    tiles_of,
)
from tenon.backends.cpu.contraction.emit import loop, runs
from tenon.backends.cpu.contraction.machine import host
from tenon.backends.cpu.contraction.spec import PAIR_LANES, Args, Narrow, Size
from tenon.backends.cpu.contraction.spec import Index as Places
from tenon.backends.cpu.contraction.spec import Target as Near
from tenon.backends.cpu.epilogue import joined, only_stored
from tenon.backends.cpu.sliding import emit_sliding, slides, sliding_scratch
from tenon.backends.cpu.values import ONE, ZERO, Values
from tenon.dims import product
from tenon.loops.affine import affine, from_affine, is_same
from tenon.loops.expressions import Binary, Buffer, Cast, Expr, Index, Load, Select, size, walk
from tenon.loops.ir import Contraction, Store, roots
from tenon.loops.simplify import simplify
from tenon.loops.windows import Sliding
from tenon.types import bfloat16, bool_, float32

Axis = tuple[Index, ...]
WINDOWS = "windows"     # the schedule of what is computed window by window
FEWEST = 8              # rows and columns that matrix registers are worth while for
SEVERAL = 16            # neighbours that a vector may hold
# along which axis, step, elements between neighbours across, all of the axis, range in memory
Layout = tuple[str, int, int | None, bool, tuple[Expr, Expr] | None]


def emit_product(module: ir.Module, name: str, statement: Contraction, arguments: Mapping[Buffer, int], pointers: int,
                 symbols: Sequence[str], packed: int | None = None) -> ir.Function:
    """void name(pointers..., sizes..., thread, threads, scratch); pointer `packed` is right, packed already."""
    found = _slides(statement)
    if found is not None and packed is None:
        function = emit_sliding(module, name, statement, found, arguments, pointers, symbols)
    else:
        template = _Product(module, name, statement, arguments, pointers, symbols, packed).template()
        function = emit_contraction(module, name, template, _tile(statement, template))
    function.linkage = "internal"
    return function


def emit_packing_of(module: ir.Module, name: str, statement: Contraction, arguments: Mapping[Buffer, int],
                    pointers: int, packed: int) -> ir.Function:
    """void name(pointers..., thread, threads): pack the right factor, of known sizes, to pointer `packed`."""
    template = _Product(module, name, statement, arguments, pointers, (), packed).template()
    function = emit_packing(module, name, template)
    function.linkage = "internal"
    return function


def packed_right(statement: Contraction) -> int | None:
    """Bytes of the right factor once it is packed; None where it cannot be packed by itself."""
    if slides(statement) is not None:
        return None
    return packed_size(_Product(ir.Module(), "", statement, {}, 0, ()).template())


def contraction_scratch(statement: Contraction, packed: bool = False) -> int:
    """Bytes of scratch memory that each thread needs; `packed`: its right factor is packed already."""
    found = _slides(statement)
    if found is not None:
        return sliding_scratch(statement, found)
    template = _Product(ir.Module(), "", statement, {}, 0, (), 0 if packed else None).template()
    return scratch_size(template, _tile(statement, template))


def schedules_of(statement: Contraction) -> list[str]:
    """What may stand in `statement.schedule`: all schedules that claim the product, the model's choice first."""
    tiles = tiles_of(_Product(ir.Module(), "", statement, {}, 0, ()).template())
    windows = [WINDOWS] if slides(statement) is not None else []
    return [*windows, *dict.fromkeys(tile.name for tile in tiles)]


def _slides(statement: Contraction) -> Sliding | None:
    """How windows slide, where the statement is computed window by window."""
    return slides(statement) if statement.schedule in ("", WINDOWS) else None


def _tile(statement: Contraction, template: Template) -> Tile | None:
    """The tile that the statement asks for; None leaves it to the model."""
    return next((tile for tile in tiles_of(template) if tile.name == statement.schedule), None) \
        if statement.schedule else None


@dataclass(frozen=True)
class _Product:
    module: ir.Module
    name: str
    statement: Contraction
    arguments: Mapping[Buffer, int]
    pointers: int
    symbols: Sequence[str]
    packed: int | None = None

    @property
    def element(self) -> ir.Type:
        return register(self.statement.sum.dtype)

    def template(self) -> Template:
        """The statement in the template's words."""
        x = self.statement
        kinds = (POINTER,) * self.pointers + (I64,) * len(self.symbols)
        batch, rows, columns, depth = (self.sizes(axis) for axis in (x.batch, x.rows, x.columns, x.depth))
        together = joined(x.epilogue, x.columns)
        run = None if together == len(columns) else self.extent(x.columns[len(columns) - together:])
        left, right, known = self.operand(x.left, x.rows), self.operand(x.right, x.columns), self.known()
        pairs = self.pairs()
        if pairs is not None:
            (left, right), half = pairs, x.depth[-1].extent // 2
            depth, known = (*depth[:-1], lambda b, args: ir.Constant(I64, half)), (*known[:2], (known[2] or 0) // 2)
        plain = self.is_plain() and pairs is None
        return Template(kinds, self.element, batch, rows, columns, depth, left, right, self.store, run,
                        self.target if plain else None, known, None if plain else self.finish,
                        () if plain else tuple(self.near()), pairs is not None, self.packed)

    def known(self) -> tuple[int | None, int | None, int | None]:
        """Rows, columns and depth, where they are numbers."""
        x = self.statement
        found = [product(index.extent for index in axis) for axis in (x.rows, x.columns, x.depth)]
        rows, columns, depth = (n if isinstance(n, int) else None for n in found)
        return rows, columns, depth

    # ------------------------------------------------------------ factors of pairs of bfloat16

    def pairs(self) -> tuple[Operand, Operand] | None:
        """Both factors as pairs of neighbours along depth, where matrix registers can multiply them."""
        x, (rows, columns, depth) = self.statement, self.known()
        if x.sum.dtype is not bfloat16 or not host().pairs or depth is None or depth % (2 * PAIR_LANES) or not depth:
            return None
        if x.depth[-1].extent % 2 or min(rows or FEWEST, columns or FEWEST) < FEWEST:
            return None
        left, right = self.paired(x.left, x.rows), self.paired(x.right, x.columns)
        return None if left is None or right is None else (left, right)

    def paired(self, x: Expr, outer: Axis) -> Operand | None:
        """A factor as pairs: along depth as they lie, along outer as lines that are joined; None for any other."""
        rounded = isinstance(x, Cast) and x.dtype is bfloat16 and x.x.dtype is float32
        x = x.x if rounded and isinstance(x, Cast) else x
        if not isinstance(x, Load) or x.mask is not None or not outer:
            return None
        if x.dtype is not (float32 if rounded else bfloat16):
            return None
        terms, depth = affine(x.offset).terms, self.statement.depth
        steps = {index: n for index in (*outer, *depth) if isinstance(n := terms.get(index, 0), int)}
        if not all(isinstance(atom, Index) for atom in terms) or len(steps) < len(outer) + len(depth):
            return None

        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            values = self.values(b, args)
            places = (*k[:-1], b.mul(k[-1], ir.Constant(I64, 2)))
            for axis, found in ((self.statement.batch, g), (outer, m), (depth, places)):
                values.known.update(zip(axis, found, strict=False))
            return values.address(x.buffer, x.offset)

        def is_run(axis: Axis) -> bool:
            return all(is_same(steps[a], steps[c] * c.extent) for a, c in pairwise(axis))
        if steps[depth[-1]] == 1:
            known = len(outer) == 1 and steps[outer[0]] % 2 == 0 and not rounded
            return Operand(pointer=pointer, contiguous="depth", apart=steps[outer[0]] // 2 if known else None,
                           flat=is_run(depth), rounded=rounded) if is_run(depth) or not rounded else None
        if steps[outer[-1]] == 1 and is_run(outer):
            return Operand(pointer=pointer, contiguous="outer", flat=True, zipped=steps[depth[-1]], rounded=rounded)
        return None

    def values(self, b: ir.IRBuilder, args: Args) -> Values:
        """What computes expressions from the function's arguments."""
        sizes = dict(zip(self.symbols, args[self.pointers:], strict=False))
        return Values(b, {buffer: args[k] for buffer, k in self.arguments.items()}, sizes)

    def sizes(self, axis: Axis) -> tuple[Size, ...]:
        def extent(index: Index) -> Size:
            return lambda b, args: self.values(b, args).dim(index.extent)
        return tuple(extent(index) for index in axis)

    # ------------------------------------------------------------ factors

    def operand(self, x: Expr, outer: Axis) -> Operand:
        """How the template reads a factor."""
        def at(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> Values:
            values = self.values(b, args)
            for axis, places in ((self.statement.batch, g), (outer, m), (self.statement.depth, k)):
                values.known.update(zip(axis, places, strict=False))    # no axis has one place, 0
            return values

        def load(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            return at(b, args, g, m, k).value(x)

        layout = self.layout(x, outer)
        if layout is None or not isinstance(x, Load):
            return Operand(load=load, narrow=self.narrow(x, outer, at))
        along, step, apart, flat, span = layout

        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            return at(b, args, g, m, k).address(x.buffer, x.offset)

        def inside(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> tuple[ir.Value, ir.Value]:
            values = at(b, args, g, m, k)
            assert span is not None
            return values.value(span[0]), values.value(span[1])

        first = self.statement.depth[0]
        tapped = span is None or not any(first in limit.free for limit in span)
        return Operand(pointer=pointer, contiguous="outer" if along == "outer" else "depth", step=step, apart=apart,
                       flat=flat, tapped=tapped, inside=None if span is None else inside)

    def narrow(self, x: Expr, outer: Axis, at: Callable[..., Values]) -> Narrow | None:
        """How a factor of 8 or 16 bits lies in memory, if its neighbours along depth are neighbours there."""
        read = x.x if isinstance(x, Cast) and x.dtype.bits >= 32 else x
        if not isinstance(read, Load) or read.dtype is bool_ or read.dtype.bits > 16:
            return None
        found = None if read.mask is not None else self.neighbours(read, outer)
        if found is None or found[:2] != ("depth", 1) or not (found[3] or len(self.statement.depth) == 1):
            return None

        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            return at(b, args, g, m, k).address(read.buffer, read.offset)
        return Narrow(pointer, in_memory(read.dtype), partial(widened, source=read.dtype, element=self.element))

    def layout(self, x: Expr, outer: Axis) -> Layout | None:
        """How neighbours lie in memory, if they do, and are what is multiplied."""
        if not isinstance(x, Load) or x.dtype is not self.statement.sum.dtype or x.dtype.bits < 32:
            return None
        return self.neighbours(x, outer)

    def neighbours(self, x: Load, outer: Axis) -> Layout | None:
        """How neighbours lie in memory, if they do."""
        terms = affine(x.offset).terms
        if not all(isinstance(atom, Index) for atom in terms):
            return None
        axes = {"outer": outer, "depth": self.statement.depth}
        steps = {name: terms.get(axis[-1], 0) for name, axis in axes.items() if axis}
        found = [(min(_longest(axes[name][-1]), SEVERAL) / step, _longest(axes[name][-1]), name)
                 for name, step in steps.items() if isinstance(step, int) and step > 0]
        if not found:
            return None
        along = max(found)[2]               # the most neighbours in one vector, in the longest runs
        step = steps[along]
        assert isinstance(step, int)
        span = None if x.mask is None else span_of(x.mask, axes[along][-1])
        if x.mask is not None and span is None:
            return None
        flat = x.mask is None and all(is_same(terms.get(a, 0), terms.get(c, 0) * c.extent)
                                      for a, c in zip(axes[along], axes[along][1:], strict=False))
        across = axes["depth" if along == "outer" else "outer"]
        apart = terms.get(across[0], 0) if len(across) == 1 else None
        return along, step, apart if isinstance(apart, int) else None, flat, span

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
        name = f"{self.name}_epilogue"
        function = self.module.globals.get(name)
        if function is None:
            kinds = [*(a.type for a in args), *(I64 for _ in g), *[I64] * 4, POINTER]
            function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
            function.linkage = "internal"
            for attribute in ("nounwind", "noinline"):
                function.attributes.add(attribute)
            for argument in (*function.args[:self.pointers], function.args[-1]):
                argument.add_attribute("noalias")
            self.rectangle(function, len(args), len(g), width)
        b.call(function, [*args, *g, m, n, rows, columns, sums])

    def rectangle(self, function: ir.Function, arguments: int, batches: int, width: int) -> None:
        """The body: rows, runs of columns that are named by the last component alone, and the elements of a run."""
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

        with loop(b, ZERO, rows) as (i, _):
            self.unravel(values, x.rows, b.add(m, i))
            line = b.gep(sums, [b.mul(i, ir.Constant(I64, width))], source_etype=self.element)
            if apart:
                together = values.dim(product(index.extent for index in x.columns[len(apart):]))
                with runs(b, n, columns, [*(values.dim(index.extent) for index in apart), together]) as found:
                    position, (*start, first), length = found
                    values.known.update(zip(apart, start, strict=True))
                    run(b.gep(line, [position], source_etype=self.element), first, length)
            else:
                with b.if_else(b.icmp_signed("==", columns, ir.Constant(I64, width))) as (whole, in_part):
                    with whole:
                        run(line, n, ir.Constant(I64, width))
                    with in_part:
                        run(line, n, columns)
        b.ret_void()

    def near(self) -> Iterator[Near]:
        """What the epilogue reads of memory, side by side for the elements of a row and another for every row."""
        x = self.statement
        loads = dict.fromkeys(y for s in x.epilogue for root in roots(s) for y in walk(root) if isinstance(y, Load))
        for y in loads:
            along = x.columns and is_same(affine(y.offset).terms.get(x.columns[-1], 0), 1)
            if along and y.mask is None and not y.offset.free.isdisjoint(x.rows):
                yield self.address_of(y)

    def address_of(self, x: Load) -> Near:
        """Where a load of the epilogue reads for an element."""
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

    def is_plain(self) -> bool:
        """Whether neighbouring sums are just written side by side."""
        x = self.statement
        return only_stored(x.epilogue, x.sum, x.columns[-1] if x.columns else None) is not None

    def epilogue(self, function: ir.Function, arguments: int, batches: int, lanes: int) -> None:
        """The body of the function for `lanes` columns; 0 for one that is no vector."""
        x = self.statement
        args, g = function.args[:arguments], function.args[arguments:arguments + batches]
        m, n, sums = function.args[arguments + batches:]
        b = ir.IRBuilder(function.append_basic_block("entry"))
        values = self.values(b, tuple(args))
        values.known.update(zip(x.batch, g, strict=False))
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


def _longest(index: Index) -> int:
    return index.extent if isinstance(index.extent, int) else 1 << 30


def span_of(mask: Expr, index: Index) -> tuple[Expr, Expr] | None:
    """(low, high) such that the mask holds for low <= index < high; None where it is no such range."""
    low: Expr = size(0)
    high: Expr = size(index.extent)
    never: list[Expr] = []
    for condition in conjuncts(mask):
        if index not in condition.free:
            never.append(condition)
            continue
        if not isinstance(condition, Binary) or condition.op not in _AT_LEAST:
            return None
        left, right, least = _AT_LEAST[condition.op](condition.left, condition.right)
        difference = affine(left - right)
        by = difference.terms.get(index, 0)
        if not isinstance(by, int) or by == 0 or any(index in a.free for a in difference.terms if a is not index):
            return None
        rest = from_affine(difference + affine(index).scaled(-by))
        if by > 0:          # index >= (least - rest) / by, rounded up
            low = Binary("max", low, simplify((least + by - 1 - rest) // by))
        else:               # index <= (rest - least) / -by, rounded down
            high = Binary("min", high, simplify((rest - least) // -by + 1))
    for condition in never:
        high = Select(condition, high, low)
    return low, high


def conjuncts(mask: Expr) -> list[Expr]:
    """The conditions that all hold where the mask does."""
    if isinstance(mask, Binary) and mask.op == "&":
        return conjuncts(mask.left) + conjuncts(mask.right)
    return [mask]


# a comparison of integers as left - right >= least
_AT_LEAST: dict[str, Callable[[Expr, Expr], tuple[Expr, Expr, int]]] = {
    "<": lambda a, b: (b, a, 1), "<=": lambda a, b: (b, a, 0),
    ">": lambda a, b: (a, b, 1), ">=": lambda a, b: (a, b, 0),
}

"""The factors of a contraction statement -> operands of the contraction template, with callbacks that read.

A factor that is one load, of the type of the sums, with contiguous neighbours, is handed over as an address, and its
mask as the range of indices that lies in memory; any other factor is computed an element at a time while packing, along
the lines of what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

from llvmlite import ir

from tenon.backends.cpu.contraction import Operand
from tenon.backends.cpu.contraction.gemm_spec import PAIR_LANES, Access, Args, Narrow, Size
from tenon.backends.cpu.contraction.gemm_spec import Index as Places
from tenon.backends.cpu.contraction.pack_masked_runs import runs_among
from tenon.backends.cpu.expression_codegen import Values, argument_values
from tenon.backends.cpu.scalar_codegen import I64, in_memory, register, rounded, widened
from tenon.dims.symbolic_dim import product
from tenon.loops.affine import affine, from_affine, is_same
from tenon.loops.cost import count
from tenon.loops.expressions import Binary, Buffer, Expr, Index, Load, Select, size
from tenon.loops.loop_ir import Contraction
from tenon.loops.match_contraction import is_small, narrow_load, rounded_load, widened_load
from tenon.loops.simplify_expressions import simplify
from tenon.loops.traversal import parts
from tenon.records import dataclass
from tenon.target import Target
from tenon.types import bfloat16, float16, float32

Axis = tuple[Index, ...]
MIN_PAIR_EXTENT = 3     # rows, columns and steps along depth that pairs are worth while for,
FEW_BY_LINES = 4        # rows that are read faster line by line, for which vectors widen numbers,
MIN_NARROW = 8          # and rows where numbers of 8 bits are packed as pairs
MAX_NEIGHBOURS = 16     # neighbours that a vector may hold
# along which axis, step, elements between neighbours across, all of the axis, range in memory
Direction = Literal["outer", "depth"]
Layout = tuple[Direction, int, int | None, bool, tuple[Expr, Expr] | None]


@dataclass(frozen=True)
class OperandAccess:
    """Both factors of a statement, in a function of so many pointers and then the sizes that symbols stand for."""

    target: Target
    statement: Contraction
    arguments: Mapping[Buffer, int]
    pointers: int
    symbols: Sequence[str]

    @property
    def element(self) -> ir.Type:
        """The type of the sums."""
        return register(self.statement.sum.dtype)

    def known(self) -> tuple[int | None, int | None, int | None]:
        """Rows, columns and depth, where they are numbers."""
        x = self.statement
        found = [product(index.extent for index in axis) for axis in (x.rows, x.columns, x.depth)]
        rows, columns, depth = (n if isinstance(n, int) else None for n in found)
        return rows, columns, depth

    # ------------------------------------------------------------ factors of pairs of bfloat16

    def pairs(self) -> tuple[Operand, Operand] | None:
        """Both factors as pairs of neighbours along depth, where the processor can multiply them."""
        x, (rows, columns, depth) = self.statement, self.known()
        if x.sum.dtype is not bfloat16 or not self.target.pairs or depth is None:
            return None
        if min(MIN_PAIR_EXTENT if n is None else n for n in (rows, columns, depth)) < MIN_PAIR_EXTENT:
            return None
        left, right = self.paired(x.left, x.rows), self.paired(x.right, x.columns, pieces=True)
        if left is None or right is None or (right.narrow is not None and rows is not None and rows < MIN_NARROW):
            return None
        if right.zipped is not None and self.target.pairs == "vectors" and rows is not None and rows <= FEW_BY_LINES:
            return None
        whole = PAIR_LANES if self.target.pairs == "registers" or right.contiguous == "depth" else 1
        if len(x.depth) > 1 and (depth % (2 * whole) or x.depth[-1].extent % 2):
            return None
        return left, right

    def paired(self, x: Expr, outer: Axis, pieces: bool = False) -> Operand | None:
        """A factor as pairs: along depth as they lie, along outer as lines that are joined, perhaps in pieces; None for
        any other."""
        if self.target.pairs == "vectors" and (read := widened_load(x)) is not None and is_small(read.dtype):
            return self.narrow_pairs(read, outer)
        wide = rounded_load(x)
        x = x if wide is None else wide
        if not isinstance(x, Load) or x.mask is not None or not outer or (wide is None and x.dtype is not bfloat16):
            return None
        terms, depth = affine(x.offset).terms, self.statement.depth
        steps = {index: n for index in (*outer, *depth) if isinstance(n := terms.get(index, 0), int)}
        if not all(isinstance(atom, Index) for atom in terms) or len(steps) < len(outer) + len(depth):
            return None

        pointer = self.pair_pointer(x, outer)

        def is_run(axis: Axis) -> bool:
            return all(is_same(steps[a], steps[c] * c.extent) for a, c in pairwise(axis))
        run = outer[-1].extent
        in_pieces = pieces and isinstance(run, int) and run > 0 and runs_among(PAIR_LANES, run) is not None
        windows = in_pieces and steps[depth[-1]] == 1 and self.target.pairs == "vectors"
        if windows and steps[outer[-1]] == 2 and wide is None:
            return Operand(pointer=pointer, contiguous="outer", tapped=True)
        if steps[depth[-1]] == 1 and not (windows and steps[outer[-1]] == 1):
            known = len(outer) == 1 and steps[outer[0]] % 2 == 0 and wide is None
            return Operand(pointer=pointer, contiguous="depth", apart=steps[outer[0]] // 2 if known else None,
                           flat=is_run(depth), rounded=wide is not None) if is_run(depth) or wide is None else None
        if steps[outer[-1]] == 1 and (is_run(outer) or in_pieces):
            return Operand(pointer=pointer, contiguous="outer", flat=is_run(outer), zipped=steps[depth[-1]],
                           rounded=wide is not None)
        return None

    def narrow_pairs(self, x: Load, outer: Axis) -> Operand | None:
        """Numbers of 8 bits along depth, which become pairs as they are packed."""
        found = self.neighbours(x, outer) if x.mask is None and outer and len(self.statement.depth) == 1 else None
        if found is None or found[:2] != ("depth", 1):
            return None
        pointer = self.pair_pointer(x, outer)
        widen = partial(widened, source=x.dtype, element=self.element)
        return Operand(pointer=pointer, contiguous="depth", flat=True, rounded=True,
                       narrow=Narrow(pointer, in_memory(x.dtype), widen))

    def pair_pointer(self, x: Load, outer: Axis) -> Access:
        """Where the first number of a pair is."""
        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            values = self.values(b, args)
            places = (*k[:-1], b.mul(k[-1], ir.Constant(I64, 2)))
            for axis, found in ((self.statement.batch, g), (outer, m), (self.statement.depth, places)):
                values.known.update(zip(axis, found, strict=False))
            return values.address(x.buffer, x.offset)
        return pointer

    def values(self, b: ir.IRBuilder, args: Args) -> Values:
        """What computes expressions from the function's arguments."""
        return argument_values(b, args, self.arguments, self.pointers, self.symbols)

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
            lined = self.lined(x, outer, at)
            return Operand(load=load, narrow=self.narrow(x, outer, at), lined=lined, flat=lined is not None,
                           contiguous="outer" if lined else self.direction(x, outer))
        along, step, apart, flat, span = layout

        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            return at(b, args, g, m, k).address(x.buffer, x.offset)

        def inside(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> tuple[ir.Value, ir.Value]:
            values = at(b, args, g, m, k)
            assert span is not None
            return values.value(span[0]), values.value(span[1])

        first = self.statement.depth[0]
        tapped = span is None or not any(first in limit.free for limit in span)
        return Operand(pointer=pointer, contiguous=along, step=step, apart=apart, flat=flat, tapped=tapped,
                       inside=None if span is None else inside)

    def narrow(self, x: Expr, outer: Axis, at: Callable[..., Values]) -> Narrow | None:
        """How a factor of 8 or 16 bits, or rounded to 16, lies in memory, if its neighbours along depth are neighbours
        there."""
        read = narrow_load(x)
        found = None if read is None or read.mask is not None else self.neighbours(read, outer)
        if read is None or found is None or found[:2] != ("depth", 1):
            return None
        if not (found[3] or len(self.statement.depth) == 1):
            return None

        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            return at(b, args, g, m, k).address(read.buffer, read.offset)
        widen = rounded if read.dtype is float32 else partial(widened, source=read.dtype, element=self.element)
        return Narrow(pointer, in_memory(read.dtype), widen)

    def lined(self, x: Expr, outer: Axis, at: Callable[..., Values]) -> Narrow | None:
        """How a factor of floats of 16 bits lies in memory, if its neighbours along all of outer are neighbours there.
        """
        if not isinstance(x, Load) or x.dtype not in (bfloat16, float16) or x.dtype is not self.statement.sum.dtype:
            return None
        found = self.neighbours(x, outer)
        if x.mask is not None or found is None or found[:2] != ("outer", 1) or not found[3]:
            return None

        def pointer(b: ir.IRBuilder, args: Args, g: Places, m: Places, k: Places) -> ir.Value:
            return at(b, args, g, m, k).address(x.buffer, x.offset)
        return Narrow(pointer, in_memory(x.dtype), partial(widened, source=x.dtype, element=self.element))

    def direction(self, x: Expr, outer: Axis) -> Direction | None:
        """Along which axis neighbours lie in most of what a factor reads, if they do."""
        largest = max(parts(x, Load), key=lambda load: count(*load.offset.free), default=None)
        found = None if largest is None else self.neighbours(largest, outer)
        return None if found is None else found[0]

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
        axes: dict[Direction, Axis] = {"outer": outer, "depth": self.statement.depth}
        steps = {name: terms.get(axis[-1], 0) for name, axis in axes.items() if axis}
        found = [(min(_longest(axes[name][-1]), MAX_NEIGHBOURS) / step, _longest(axes[name][-1]), name)
                 for name, step in steps.items() if isinstance(step, int) and step > 0]
        if not found:
            return None
        along = max(found)[2]               # the most neighbours in one vector, in the longest runs
        if steps.get("outer") == 1 != steps.get("depth") and self.are_short_lines(outer):
            along = "outer"
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

    def are_short_lines(self, outer: Axis) -> bool:
        """Whether lines of both factors are so short that they stand side by side along the depth, which is long."""
        rows, columns, depth = self.known()
        alone = len(outer) == len(self.statement.depth) == 1
        known = alone and None not in (rows, columns, depth)
        return known and max(rows or 0, columns or 0) <= MAX_NEIGHBOURS < (depth or 0)


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

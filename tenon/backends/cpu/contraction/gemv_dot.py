"""Matrix times vector as dot products along K, of several rows at a time.

A few vectors meet these rows together, so that memory is read once; more of them find the rows in the second cache.

The next rows are fetched meanwhile, since a row is often too short for a processor to foresee what follows it; not
those of a matrix that is a small part of the second cache, where fetching takes as long as reading.  Narrow elements
are widened as they are read.
"""
from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args, GemmSpec, Index, Operand, Tile, lies_along_depth
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    ONE,
    ZERO,
    address,
    between,
    const,
    element_bytes,
    lanes_before,
    load_vector,
    loop,
    masked_load,
    maximum,
    minimum,
    multiply_add,
    prefetch,
    product,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.machine_model import shares

ROWS_AT_ONCE = 8        # rows at a time, fewer where a few vectors meet them:
TOGETHER, SUMS = 4, 2   # so many at most, whose sums are one of so many parts of all registers
L2_PER_CACHED_MATRIX = 4    # a matrix that L2 holds so many of is expected to be there
Bounds = tuple[ir.Value, ir.Value]


def are_dots(spec: GemmSpec) -> bool:
    """Whether both factors are runs of memory along depth, of floating numbers."""
    runs = all(lies_along_depth(x, len(spec.depth)) for x in (spec.left, spec.right))
    return runs and not isinstance(spec.element, ir.IntType)


def emit_dots(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, g: Index, rows: Bounds, columns: Bounds,
              by_rows: bool) -> None:
    """All sums of these rows and columns; several rows (`by_rows`) or columns at a time."""
    many, few = (rows, columns) if by_rows else (columns, rows)
    heights = list(dict.fromkeys((*(size for size, _ in shares(spec.known[1 if by_rows else 0] or 1, TOGETHER)), 1)))
    several = min(ROWS_AT_ONCE, spec.target.registers // SUMS // heights[0])
    whole = b.sub(many[1], b.urem(b.sub(many[1], many[0]), const(several)))
    for count, bounds in ((several, (many[0], whole)), (1, (whole, many[1]))):
        with loop(b, *bounds, const(count)) as (first, _):
            before = few[0]
            for height in heights:
                end = b.sub(few[1], b.urem(b.sub(few[1], before), const(height)))
                with loop(b, before, end, const(height)) as (other, _):
                    _Dots(b, spec, tile, args, g, by_rows).emit(first, count, other, height, many[1])
                before = end


class _Dots:
    """Sums of a few rows of one factor with fewer of the other."""

    def __init__(self, b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, g: Index, by_rows: bool) -> None:
        self.b, self.spec, self.lanes, self.args, self.g, self.by_rows = b, spec, tile.lanes, args, g, by_rows
        self.depth = [size(b, args) for size in spec.depth]

    def operand(self, of_left: bool) -> Operand:
        return self.spec.left if of_left else self.spec.right

    def start(self, of_left: bool, at: ir.Value) -> ir.Value:
        """Where a row of left, or a column of right, begins."""
        operand, sizes = self.operand(of_left), self.spec.rows if of_left else self.spec.columns
        pointer = operand.pointer if operand.narrow is None else operand.narrow.pointer
        assert pointer is not None
        index = unravel(self.b, at, [size(self.b, self.args) for size in sizes])
        return pointer(self.b, self.args, self.g, index, tuple(ZERO for _ in self.depth))

    def kind(self, of_left: bool) -> ir.Type:
        """What a row of left, or a column of right, is made of in memory."""
        narrow = self.operand(of_left).narrow
        return self.spec.element if narrow is None else narrow.memory

    def read(self, of_left: bool, start: ir.Value, k: ir.Value, mask: ir.Value | None) -> ir.Value:
        """A vector from step k on, zeros where the mask has none."""
        b, kind, narrow = self.b, self.kind(of_left), self.operand(of_left).narrow
        where, none = address(b, start, k, kind), zero(ir.VectorType(kind, self.lanes))
        value = load_vector(b, where, kind, self.lanes) if mask is None else masked_load(b, where, mask, none)
        return value if narrow is None else narrow.widen(b, value)

    def emit(self, first: ir.Value, count: int, other: ir.Value, height: int, end: ir.Value) -> None:
        """The sums of `count` rows from `first` on with `height` rows of the other factor from `other` on."""
        b, element = self.b, self.spec.element
        last = b.sub(end, ONE)
        starts = [self.start(self.by_rows, b.add(first, const(i))) for i in range(count)]
        ahead = [self.start(self.by_rows, minimum(b, b.add(first, const(count + i)), last)) for i in range(count)]
        others = [self.start(not self.by_rows, b.add(other, const(n))) for n in range(height)]
        depth = product(b, self.depth) if self.depth else ONE
        none = zero(ir.VectorType(element, self.lanes))

        def add(k: ir.Value, mask: ir.Value | None, sums: list[ir.Value]) -> None:
            factors = [self.read(not self.by_rows, start, k, mask) for start in others]
            for i, start in enumerate(starts):
                value = self.read(self.by_rows, start, k, mask)
                for n, factor in enumerate(factors):
                    sums[i * height + n] = multiply_add(b, value, factor, sums[i * height + n])
        before = lanes_before(b, starts[0], element, self.lanes) if self.lines_up() else ZERO
        first_whole = b.select(b.icmp_signed("==", before, ZERO), ZERO, b.sub(const(self.lanes), before))
        whole = b.add(first_whole, maximum(b, b.and_(b.sub(depth, first_whole), const(-self.lanes)), ZERO))
        sums = [none] * (count * height)
        if before is not ZERO:
            with loop(b, b.neg(before), ZERO, const(self.lanes), sums, short=True) as (k, sums):
                add(k, between(b, b.trunc(before, I32), b.trunc(b.add(before, depth), I32), self.lanes), sums)
        with loop(b, first_whole, whole, const(self.lanes), sums, short=True) as (k, sums):
            for start in () if self.is_near() else ahead:
                prefetch(b, address(b, start, k, self.kind(self.by_rows)), 2)
            add(k, None, sums)
        with loop(b, whole, depth, const(self.lanes), sums, short=True) as (k, sums):
            add(k, between(b, I32(0), b.trunc(b.sub(depth, k), I32), self.lanes), sums)
        for place, total in enumerate(sums):
            one, two = (b.add(at, const(n)) for at, n in zip((first, other), divmod(place, height), strict=True))
            row, column = (one, two) if self.by_rows else (two, one)
            self.spec.store(b, self.args, self.g, row, column, self.sum_of(total), 1)

    def lines_up(self) -> bool:
        """Whether all rows begin at the same place of a line of the cache, so that vectors can begin where it does.

        Each lane adds up what it would, in the same order: the sum has the same bits wherever memory begins.
        """
        many = self.spec.left if self.by_rows else self.spec.right
        return many.apart is not None and many.apart % self.lanes == 0

    def is_near(self) -> bool:
        """Whether the matrix is so small that it need not be fetched."""
        rows, columns, depth = self.spec.known
        size = rows if self.by_rows else columns
        return size is not None and depth is not None and \
            size * depth * element_bytes(self.kind(self.by_rows)) * L2_PER_CACHED_MATRIX <= self.spec.target.l2_bytes

    def sum_of(self, total: ir.Value) -> ir.Value:
        """The sum of a vector's lanes, halves first."""
        b, half = self.b, self.lanes // 2
        while half:
            mask = ir.Constant(ir.VectorType(I32, self.lanes), [(i + half) % self.lanes for i in range(self.lanes)])
            total = b.fadd(total, b.shuffle_vector(total, total, mask))
            half //= 2
        return b.extract_element(total, I32(0))

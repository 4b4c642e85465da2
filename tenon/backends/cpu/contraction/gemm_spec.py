"""What a contraction is: sizes, where its operands are found, what is done with its results; and the machine's tile.

    C[g, m, n] = epilogue(sum over k of left[g, m, k] * right[g, k, n])

Each of the four axes is a tuple of components, outermost first: a convolution has depth (channel, dy, dx).  Operands
get composite indices as tuples, so that nobody divides for an element; `store` gets flat m and n.
"""
import math
from collections.abc import Callable
from typing import Literal

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import I64, ONE, element_bytes, product, zero
from tenon.backends.cpu.contraction.machine_model import tiles_by_time
from tenon.backends.cpu.contraction.microkernel_types import K_UNROLL, MAX_NEAR
from tenon.backends.cpu.contraction.x86_inner_loop import InnerIteration, has_x86_inner_loop
from tenon.records import dataclass, replace
from tenon.target import Target

Args = tuple[ir.Value, ...]
Index = tuple[ir.Value, ...]
Size = Callable[[ir.IRBuilder, Args], ir.Value]
Access = Callable[[ir.IRBuilder, Args, Index, Index, Index], ir.Value]
Range = Callable[[ir.IRBuilder, Args, Index, Index, Index], tuple[ir.Value, ir.Value]]
Store = Callable[[ir.IRBuilder, Args, Index, ir.Value, ir.Value, ir.Value, int], None]
ResultAddress = Callable[[ir.IRBuilder, Args, Index, ir.Value, ir.Value], ir.Value]
# (b, args, g, m, n, rows, columns, sums, width)
Finish = Callable[[ir.IRBuilder, Args, Index, ir.Value, ir.Value, ir.Value, ir.Value, ir.Value, int], None]


@dataclass(frozen=True)
class Narrow:
    """Where elements of 8 or 16 bits, or rounded to 16, lie, neighbours along all of an axis, depth if nothing else is
    said, and what makes them elements of the sums."""
    pointer: Access
    memory: ir.Type
    widen: Callable[[ir.IRBuilder, ir.Value], ir.Value]      # of a scalar or a vector


@dataclass(frozen=True)
class Operand:
    """How left[g, m, k] or right[g, k, n] is read; callbacks are called (b, args, g, outer, k), outer being m or n.

    Give `load`, which makes an element of the type of the sums, from whatever: slow, though LLVM may vectorise it along
    `contiguous`.  Or `pointer`, the address of an element of that type, with the axis along whose innermost component
    neighbours are adjacent: then packing copies vectors, and a plain left matrix is read in place.
    """
    load: Access | None = None
    pointer: Access | None = None
    contiguous: Literal["outer", "depth"] | None = None
    step: int = 1                       # neighbours are so many elements apart (a convolution's stride)
    apart: int | None = None            # elements between neighbours across, where they are always as many
    flat: bool = False                  # adjacent along the whole contiguous axis, not only its innermost component
    tapped: bool = False                # every component of depth but the first moves what is inside, and only those
    narrow: Narrow | None = None        # beside `load`, or of pairs: how to pack faster than element by element
    lined: Narrow | None = None         # beside `load`: the same of elements of 16 bits that are neighbours along outer
    zipped: int | None = None           # of pairs along outer: elements from the first line of a pair to the second
    rounded: bool = False               # of pairs: they are in memory as float32, or as what `narrow` says
    inside: Range | None = None         # low <= innermost contiguous index < high is in memory, elsewhere are zeros

    def __post_init__(self) -> None:
        assert (self.load is None) != (self.pointer is None), "an operand has either load or pointer"
        assert self.pointer is None or self.contiguous is not None, "a pointer is contiguous along outer or depth"
        assert not (self.flat and self.inside), "inside speaks of the innermost component, flat of all"


@dataclass(frozen=True)
class GemmSpec:
    """C[g, m, n] = epilogue(sum over k of left[g, m, k] * right[g, k, n]).

    `store(b, args, g, m, n, value, lanes)` is called once for every element, with the finished sums of `lanes`
    consecutive columns (a scalar if lanes is 1); they never cross a multiple of `store_run` columns.  Where there is
    `finish` it is called instead, with the sums of a tile in memory: `rows` lines of `columns`, `width` apart.
    """
    target: Target
    arguments: tuple[ir.Type, ...]
    element: ir.Type                    # of the sums: f32, f64, i32 or i64
    batch: tuple[Size, ...]
    rows: tuple[Size, ...]
    columns: tuple[Size, ...]
    depth: tuple[Size, ...]
    left: Operand
    right: Operand
    store: Store
    store_run: Size | None = None
    # where `store` puts the sums, if it only does that: partial sums wait there
    stored_at: ResultAddress | None = None
    known: tuple[int | None, int | None, int | None] = (None, None, None)   # rows, columns and depth, if they are
    finish: Finish | None = None        # the epilogue of all sums of a tile together, in vectors as LLVM makes them
    near: tuple[ResultAddress, ...] = ()       # what `finish` reads for an element, side by side for those of a row
    written: tuple[ResultAddress, ...] = ()    # and where it writes, if it does not read there
    pairs: bool = False                 # an element of a factor is two of bfloat16, neighbours along depth
    packed: int | None = None           # the argument that points to all of right, packed already by `emit_packing`
    straight: bool = True               # whether rows are equally far apart where `stored_at` puts them
    rounds: ResultAddress | None = None        # of pairs: where the sums, rounded to bfloat16, are all that is written
    odd: bool = False                   # of pairs: the last one has no second number, which counts as zero
    chunks: int = 0                     # of rows, each of which one thread meets in order, to add up along it


@dataclass(frozen=True)
class Tile:
    """Sizes of the blocks of one machine and element type, and of one product where its sizes are known."""
    rows: int           # rows x vectors * lanes sums are held in registers
    vectors: int
    lanes: int
    depth: int          # most lines that are summed before sums go to memory
    block_rows: int     # most rows of a block of left, which stays in the second cache
    columns: int        # most columns of a block, where its sums wait for an epilogue between blocks of depth
    # `small_gemm` has two of the others, `skinny_gemm` one
    schedule: Literal["blocks", "lines", "panels", "runs"] = "blocks"

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def name(self) -> str:
        """What tells it from the others that claim a product."""
        return f"{self.schedule} {self.rows}x{self.vectors}"


PAIR_LANES = 16         # rows and columns, and pairs along depth, that a matrix register has
CONFLICT_STRIDE_BYTES = 4096        # rows a multiple of this apart compete for the same lines of L1
MAX_CONFLICTING_PANELS = 2          # of right: more of them read a row of left often enough for a copy to pay
MAX_SEPARATE_PANELS = 8             # the same, where the rows of a tile have places of their own in L1
MAX_LEFT_STRIDE_ELEMENTS = 4096     # rows of left that are farther apart are copied
L2_PER_LEFT_BLOCK = 2               # L2 holds so many blocks of left
L2_PER_RIGHT_PANEL = 14             # L2 holds so many panels of right, which come and go
L2_PER_FULL_K_PANEL = 4             # the same of panels with all of K: sums go to memory once
FULL_K_BLOCK_ASPECT = 8             # columns a row of a block of left, at most, that has all of K
PART_K_BLOCK_ASPECT = 4             # the same with a part of K: right is read again for every block
MAX_DEFERRED_SUMS_L2 = 2            # sums that wait for an epilogue take so many times L2: left is packed once for them
L1_PER_SMALL_K_PANEL = 2            # L1 holds so many panels of a product with small K
L2_PER_ROW_LOOP_BLOCK = 4           # L2 holds so many blocks of right, where rows are the inner loop
MIN_DEFERRED_STREAMS = 2            # an epilogue that reads so many streams of memory is deferred
MIN_SMALL_K_STREAMS = 3             # the same for a product with small K
LARGE_RESULT_L2_RATIO = 2           # or where the result is larger than so many times L2
BLOCK_SLACK_DIVISOR = 8             # a block may grow by its size divided by this, if there is one block less then


def choose_tile(element: ir.Type, machine: Target,
                known: tuple[int | None, int | None, int | None] = (None, None, None)) -> Tile:
    """The tile for (rows, columns, depth) of a product, as far as they are known."""
    return choose_tiles(element, 1, machine, known)[0]


def choose_tiles(element: ir.Type, most: int, machine: Target,
                 known: tuple[int | None, int | None, int | None] = (None, None, None)) -> list[Tile]:
    """The tiles that such a product takes least time with, by the model of the machine."""
    size = element_bytes(element)
    lanes = machine.vector_bytes // size
    return [_blocks(rows, vectors, lanes, machine.l2_bytes // size, known[0], known[2])
            for rows, vectors in tiles_by_time(machine, lanes, *known[:2], narrowed=True)[:most]]


def _blocks(rows: int, vectors: int, lanes: int, cache: int, known_rows: int | None, known_depth: int | None) -> Tile:
    """Blocks for a tile, and for a second cache of so many elements; few rows leave room for more depth."""
    width, left = vectors * lanes, cache // L2_PER_LEFT_BLOCK
    square, deepest = math.isqrt(left), cache // L2_PER_RIGHT_PANEL // width
    depth = min(left // min(max(known_rows or square, rows), square), deepest)
    if known_depth:
        whole, part = (max(deepest, min(cache // L2_PER_FULL_K_PANEL // width, math.isqrt(flat * left)))
                       for flat in (FULL_K_BLOCK_ASPECT, PART_K_BLOCK_ASPECT))
        depth = _even(known_depth, whole if known_depth <= whole else part)
    depth = max(-(-depth // lanes) if known_depth else depth // lanes, 1) * lanes
    block_rows = max(left // depth, rows)
    if known_rows is not None:
        block_rows = _even(known_rows, block_rows + block_rows // BLOCK_SLACK_DIVISOR)
    block_rows = max(-(-block_rows // rows) if known_rows else block_rows // rows, 1) * rows
    columns = cache * MAX_DEFERRED_SUMS_L2 // block_rows
    return Tile(rows, vectors, lanes, depth, block_rows, max(columns // width * width, width))


def _even(size: int, most: int) -> int:
    """The largest of the fewest parts of at most `most`, as equal as can be."""
    return -(-size // max(-(-size // most), 1))


def blocks_tile(spec: GemmSpec) -> Tile:
    """The tile of a product in blocks: that of the vector unit, or 32 x 32 sums in matrix registers."""
    if not in_registers(spec):
        return choose_tile(spec.element, spec.target, spec.known)
    given = 2 * PAIR_LANES, 2, PAIR_LANES, spec.target.l2_bytes // 4, spec.known[0]
    tile, depth = _blocks(*given, None), spec.known[2]
    return tile if depth is None or depth > tile.depth else _blocks(*given, max(depth, 1))     # room for more rows


def uses_block_epilogue(spec: GemmSpec) -> bool:
    """Whether the sums of a block wait for the epilogue."""
    return can_defer_epilogue(spec) and not has_small_k(spec)


def can_defer_epilogue(spec: GemmSpec) -> bool:
    """Whether the epilogue reads several streams, and more than a tile fetches in passing."""
    if spec.finish is None or in_registers(spec) or len(spec.near) < MIN_DEFERRED_STREAMS:
        return False
    tile, lines = blocks_tile(spec), len(spec.near) + len(spec.written)
    return lines > MAX_NEAR or lines * tile.rows > iterations_of(spec, tile)


def iterations_of(spec: GemmSpec, tile: Tile) -> int:
    """How many iterations of the innermost loop there are in the machine's own words, each of which may fetch a line,
    before sums are finished; 0 where nobody knows."""
    size, depth = element_bytes(spec.element), spec.known[2]
    inner = InnerIteration(spec.element, tile.rows, tile.vectors, size, K_UNROLL, size, tile.width * size, spec.pairs)
    return _even(depth, tile.depth) // K_UNROLL if depth and has_x86_inner_loop(inner, tile.lanes, spec.target) else 0


def has_small_k(spec: GemmSpec) -> bool:
    """Whether the second cache does not hold the result, and depth is too small for the work on a tile to hide that
    each of its rows is written to a page of its own, and that it finds its panel in the second cache.

    Sums wait for an epilogue of many streams instead (1024 x 32 x 1024 with two of them: 0.8 of the time).
    """
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None or depth <= 0 or len(spec.near) >= MIN_SMALL_K_STREAMS:
        return False
    size = element_bytes(spec.element)
    caches = rows * columns * size / spec.target.l2_bytes
    if caches <= 1 or (caches > LARGE_RESULT_L2_RATIO and can_defer_epilogue(spec)):
        return False
    return depth * blocks_tile(spec).width * size <= spec.target.l1_bytes // L1_PER_SMALL_K_PANEL


def loops_rows_inside(spec: GemmSpec, tile: Tile) -> bool:
    """Whether a tile of rows meets all columns of a block before the next tile does, and not a panel all rows: the
    result is written along its lines (2000x7x1500: 0.1 to 0.5 of the time)."""
    return has_small_k(spec) and (spec.known[2] or 0) <= tile.depth


def columns_along(spec: GemmSpec, tile: Tile) -> int:
    """Of a product that goes along rows: columns of a block, all panels of which are packed before they are met."""
    columns, depth = (size or 1 for size in spec.known[1:])
    most = spec.target.l2_bytes // (L2_PER_ROW_LOOP_BLOCK * depth * element_bytes(spec.element))
    return min(columns, most // tile.width * tile.width) if most >= tile.width else tile.width


def whole_tiles(spec: GemmSpec, tile: Tile) -> tuple[bool, bool]:
    """Whether rows, and whether columns, are known to be whole tiles: blocks and the parts of threads are, too."""
    rows, columns, _ = spec.known
    return rows is not None and rows % tile.rows == 0, columns is not None and columns % tile.width == 0


def narrow_tile(spec: GemmSpec, tile: Tile) -> Tile | None:
    """The tile of the last columns, where they are known to fill less vectors than those of the others."""
    rest = 0 if spec.known[1] is None or in_registers(spec) else spec.known[1] % tile.width
    vectors = -(-rest // tile.lanes)
    return replace(tile, vectors=vectors) if 0 < vectors < tile.vectors else None


def packs_in_tiles(spec: GemmSpec, tile: Tile) -> bool:
    """Whether lines of right are lines of memory, so that the first tile of a panel can read and pack them."""
    x = spec.right
    plain = x.pointer is not None and x.inside is None and x.step == 1 and x.contiguous == "outer"
    free = spec.packed is None and not spec.pairs and not loops_rows_inside(spec, tile)
    return free and plain and len(spec.depth) == 1 and (x.flat or len(spec.columns) == 1)


def reads_in_place(operand: Operand, depth_components: int) -> bool:
    """Whether a row of the operand is one run of memory, so that a tile can read it where it is."""
    plain = operand.pointer is not None and operand.inside is None and operand.step == 1
    return plain and operand.contiguous == "depth" and (operand.flat or depth_components == 1)


def lies_along_depth(operand: Operand, depth_components: int) -> bool:
    """Whether a row of the operand is one run of memory, of elements of the sums' type or narrower ones."""
    return operand.narrow is not None or reads_in_place(operand, depth_components)


def in_registers(spec: GemmSpec) -> bool:
    """Whether pairs are multiplied in matrix registers, and not as a vector of them."""
    return spec.pairs and spec.target.pairs == "registers"


def is_ragged(spec: GemmSpec) -> bool:
    """Whether depth ends within the last pair, or chunk of pairs in a register, the rest of which is packed as zeros.
    """
    return spec.pairs and (spec.odd or (in_registers(spec) and (spec.known[2] or 0) % PAIR_LANES != 0))


def copies_rows(spec: GemmSpec) -> bool:
    """Whether rows of left are packed as they lie in memory, since neighbours along depth are neighbours there."""
    return spec.left.pointer is not None and spec.left.contiguous == "depth" and spec.left.step <= 2


def left_layout(spec: GemmSpec, tile: Tile) -> tuple[bool, int, int, int]:
    """How a tile finds left[row, k]: (in place, elements between rows, between chunks of `lanes` steps, between steps).

    Rows that are runs of memory are read where they are, or copied, less far apart, if their lines compete (pairs in
    chunks) for places of the second cache: the first one alone is worth no copy (128x3072x768: 0.97 of the time).
    Of several runs a row is put together; others are packed line by line.
    """
    x = spec.left
    if in_registers(spec) and (x.zipped is not None or x.rounded):
        return False, tile.lanes, tile.rows * tile.lanes, 1
    if x.rounded and x.zipped is None:
        return False, tile.depth + tile.lanes, tile.lanes, 1
    if not copies_rows(spec):
        return False, 1, tile.rows * tile.lanes, tile.rows
    if not reads_in_place(x, len(spec.depth)):
        return False, tile.depth + tile.lanes, tile.lanes, 1
    aligned = x.apart is None or x.apart * element_bytes(spec.element) % CONFLICT_STRIDE_BYTES == 0
    crowded = aligned and (x.apart is None or not spec.target.hashes_l2_sets)
    beside = tile.rows + tile.vectors <= spec.target.l1_bytes // CONFLICT_STRIDE_BYTES
    panels = MAX_SEPARATE_PANELS if beside else MAX_CONFLICTING_PANELS
    few = spec.known[1] is not None and spec.known[1] <= panels * tile.width
    reads = x.apart is not None and tile.lanes <= x.apart <= MAX_LEFT_STRIDE_ELEMENTS and not is_ragged(spec)
    if x.apart is not None and reads and (few or not crowded):
        return True, x.apart, tile.lanes, 1
    if not in_registers(spec):
        return False, tile.depth + tile.lanes, tile.lanes, 1
    return False, tile.lanes, tile.rows * tile.lanes, 1


def element_of(b: ir.IRBuilder, spec: GemmSpec, operand: Operand, args: Args, g: Index, outer: Index,
               k: Index) -> ir.Value:
    """One element of an operand, zero where it is outside of memory."""
    if operand.load is not None:
        return operand.load(b, args, g, outer, k)
    assert operand.pointer is not None
    if operand.inside is None:
        return b.load(operand.pointer(b, args, g, outer, k), typ=spec.element)
    low, high = operand.inside(b, args, g, outer, k)
    index = (outer if operand.contiguous == "outer" else k)[-1]
    before = b.block
    with b.if_then(b.and_(b.icmp_signed(">=", index, low), b.icmp_signed("<", index, high))):
        value = b.load(operand.pointer(b, args, g, outer, k), typ=spec.element)
        found = b.block
    result = b.phi(spec.element)
    result.add_incoming(zero(spec.element), before)
    result.add_incoming(value, found)
    return result


def extent(b: ir.IRBuilder, args: Args, axis: tuple[Size, ...]) -> ir.Value:
    return product(b, [size(b, args) for size in axis]) if axis else ONE


def region_function(module: ir.Module, name: str, spec: GemmSpec, more: list[ir.Type]) -> ir.Function:
    """void name(arguments..., g, row_from, row_to, column_from, column_to, more...), for use inside of its module."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 5, *more]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    for pointer in function.args[len(spec.arguments) + 5:]:
        pointer.add_attribute("noalias")
    return function

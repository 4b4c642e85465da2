"""A convolution of bfloat16, with zeros around its images -> LLVM IR that leaves out what taps meet beyond the edges.

    for each panel of filters, block of places:
        for taps: transpose the channels of a tap, of all filters of the panel, to pairs in lines of filters
            for places whose windows have the tap in the image, tiles of rows: sums += pairs of a row * panel
        hand the sums to the epilogue

Images lie as [*sizes, images, channels]: places that are neighbours, of all images, are rows equally far apart, which a
tile reads where they are.  Of 3 x 3 taps at 4 x 4 places 0.31 meet zeros, at 7 x 7 places 0.18.  Sums wait in memory
from tap to tap.  Threads share panels and blocks; each sum has one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import prod

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import PAIR_LANES
from tenon.backends.cpu.contraction.ir_helpers import ZERO, address, const, loop, maximum, minimum
from tenon.backends.cpu.contraction.machine_model import best_tile, shares
from tenon.backends.cpu.contraction.memset import fill
from tenon.backends.cpu.contraction.microkernel import add_products
from tenon.backends.cpu.contraction.microkernel_types import LeftOperand, Lines, Shape, no_fetches, no_near
from tenon.backends.cpu.contraction.transpose_registers import addresses, from_lines
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import POINTER
from tenon.llvm import shared_functions
from tenon.loops.affine import affine
from tenon.loops.expressions import Index, Load
from tenon.loops.loop_ir import Contraction
from tenon.loops.select_conv_schedule import MAX_TAPS, Sliding
from tenon.loops.window_access import Axis, Windows, count, windows_of
from tenon.records import dataclass
from tenon.target import Target, round_up
from tenon.types import bfloat16

ELEMENT = ir.FloatType()    # of the sums, and as large as a pair
PAIR = 2
MAX_ROWS = 2048         # of a block: its sums, and the rows, stay in the second cache


def taps_of(statement: Contraction, machine: Target) -> Sliding | None:
    """How windows slide along images that lie so, where vectors multiply pairs, and some taps meet zeros; else None."""
    x, other = statement.left, statement.right
    if machine.pairs != "vectors" or statement.batch or len(statement.columns) != 1 or x.dtype is not bfloat16:
        return None
    windows = windows_of(x, statement.rows, statement.depth)
    if windows is None or not isinstance(other, Load) or other.mask is not None or other.dtype is not bfloat16:
        return None
    fits = _lies_well(windows) and _has_pairs(windows, other) and not all(s.is_dense for s in windows.slides)
    return Sliding(windows, other, statement.columns, "bf16_tap_by_tap") if fits else None


def _lies_well(windows: Windows) -> bool:
    """Whether pairs of channels are neighbours, and images and places of the last slide rows of them."""
    slides, outside, channels, terms = windows.slides, windows.outside, windows.channels, affine(windows.base).terms
    if len(slides) < 2 or len(outside) > 1 or len(channels) != 1 or any(s.spread != 1 for s in slides):
        return False
    if prod(s.taps for s in slides) > MAX_TAPS or not all(isinstance(n, int) for n in terms.values()):
        return False
    depth = count(channels)
    dense = all(terms.get(index, 0) == depth for index in outside) and slides[-1].stride == depth * count(outside)
    even = all(n % PAIR == 0 for n in (depth, *(s.stride for s in slides)))
    return dense and even and terms.get(channels[0], 0) == 1


def _has_pairs(windows: Windows, other: Load) -> bool:
    """Whether the other factor's channels are neighbours too."""
    terms = affine(other.offset).terms
    return all(isinstance(atom, Index) and isinstance(n, int) for atom, n in terms.items()) and \
        terms.get(windows.channels[0], 0) == 1


@dataclass(frozen=True)
class TapPlan:
    """How a statement is computed: tiles of `rows` x `vectors` of filters, a block of places of the first slide."""

    statement: Contraction
    windows: Windows
    other: Load
    filters: Axis
    rows: int
    vectors: int
    block: int

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.vectors * PAIR_LANES

    @property
    def panels(self) -> int:
        return -(-count(self.filters) // self.width)

    @property
    def blocks(self) -> int:
        return -(-self.windows.slides[0].places // self.block)

    @property
    def line(self) -> int:
        """Rows of a place of the first slide."""
        return rows_of_a_line(self.windows)

    @property
    def pairs(self) -> int:
        """Of channels."""
        return count(self.windows.channels) // PAIR

    @property
    def parts(self) -> tuple[int, int]:
        """Bytes of a panel, whose last square is whole, and of the sums."""
        panel, sums = round_up(self.pairs, PAIR_LANES) * self.width, self.block * self.line * self.width
        return 4 * panel, 4 * sums

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory that each thread needs."""
        return sum(self.parts) + 64

    def emit(self, task: Task) -> None:
        """The statement, for one thread's share of it."""
        _Taps(self, task).emit()


def tap_plan_of(statement: Contraction, found: Sliding, machine: Target) -> TapPlan:
    """How to compute the statement whose windows slide like this."""
    windows, places = found.windows, found.windows.slides[0].places
    rows, vectors = best_tile(machine, PAIR_LANES, _run(windows, windows.slides[-1].places), count(found.filters))
    blocks = -(-places // max(MAX_ROWS // rows_of_a_line(windows), 1))
    return TapPlan(statement, windows, found.other, found.filters, rows, vectors, -(-places // blocks))


def rows_of_a_line(windows: Windows) -> int:
    """How many rows there are at a place of the first slide."""
    return count(windows.outside) * prod(s.places for s in windows.slides[1:])


def _run(windows: Windows, places: int) -> int:
    """How many rows, of so many neighbouring places of the last slide, are equally far apart."""
    images = count(windows.outside)
    return places * images if windows.slides[-1].step == 1 or images == 1 else images


class _Taps:
    """Writes the loops of a plan."""

    def __init__(self, plan: TapPlan, task: Task) -> None:
        self.plan, self.task, self.values, self.b = plan, task, task.values, task.b
        self.slides, self.outside, self.channels = plan.windows.slides, plan.windows.outside, plan.windows.channels
        self.panel, self.sums = task.parts(plan.parts)
        self.slots = addresses(task.b, PAIR_LANES)

    def emit(self) -> None:
        """All panels and blocks of this thread."""
        b, plan, places = self.b, self.plan, const(self.slides[0].places)
        with loop(b, *self.task.share(plan.panels * plan.blocks), short=True) as (number, _):
            self.filter = b.mul(b.udiv(number, const(plan.blocks)), const(plan.width))
            self.first = b.mul(b.urem(number, const(plan.blocks)), const(plan.block))
            self.end = minimum(b, b.add(self.first, const(plan.block)), places)
            rows = b.mul(b.sub(self.end, self.first), const(plan.line))
            fill(b, ELEMENT, PAIR_LANES, self.sums, b.mul(rows, const(plan.width)))
            for taps in combinations(*(range(s.taps) for s in self.slides)):
                self.tap(taps)
            self.task.apart("epilogue", (), [self.sums, self.filter, self.first, self.end], self.hand_over)

    def tap(self, taps: Sequence[int]) -> None:
        """Add to the sums of a block what this tap meets in the images."""
        b, places = self.b, [slide.meets(tap) for slide, tap in zip(self.slides, taps, strict=True)]
        if not all(places):
            return
        for slide, tap in zip(self.slides, taps, strict=True):
            if slide.tap is not None:
                self.values.known[slide.tap] = const(tap)
        self.pack()
        limits = [(const(found.start), const(found.stop)) for found in places[:-1]]
        limits[0] = maximum(b, self.first, limits[0][0]), minimum(b, self.end, limits[0][1])

        def over(line: list[ir.Value]) -> None:
            """All lines of places along the last slide."""
            if len(line) == len(limits):
                self.line(line, places[-1])
                return
            with loop(b, *limits[len(line)], short=True) as (place, _):
                over([*line, place])
        over([])

    # ------------------------------------------------------------ the other factor

    def pack(self) -> None:
        """The channels of a tap as pairs, in lines of the panel's filters; behind the last one that there is, again."""
        b, plan, load = self.b, self.plan, self.plan.other
        bind_indices(self.values, self.channels, ZERO)
        with loop(b, ZERO, const(plan.width), const(PAIR_LANES), short=True) as (v, _):
            with loop(b, ZERO, const(PAIR_LANES), short=True) as (k, _):
                number = minimum(b, b.add(b.add(self.filter, v), k), const(count(plan.filters) - 1))
                bind_indices(self.values, plan.filters, number)
                b.store(self.values.address(load.buffer, load.offset), address(b, self.slots, k, POINTER))
            shared_functions.call(b, from_lines, (ELEMENT, PAIR_LANES), [
                self.slots, address(b, self.panel, v, ELEMENT), const(plan.pairs), const(plan.width)])

    # ------------------------------------------------------------ products

    def line(self, line: Sequence[ir.Value], places: range) -> None:
        """Add to the sums of these places along the last slide, of all images."""
        b, images = self.b, count(self.outside)
        run = _run(self.plan.windows, len(places))
        for slide, place in zip(self.slides, line, strict=False):
            self.values.known[slide.place] = place
        with loop(b, const(places.start), const(places.stop), const(run // images), short=True) as (place, _):
            self.values.known[self.slides[-1].place] = place
            self.rows(run, self.sum_at([*line, place]))

    def rows(self, run: int, sums: ir.Value) -> None:
        """Add to the sums of so many rows, from a known place on: tiles of two heights."""
        b, plan, load, row = self.b, self.plan, self.plan.windows.load, const(self.apart)
        bind_indices(self.values, self.outside, ZERO)
        bind_indices(self.values, self.channels, ZERO)
        first, start = self.values.address(load.buffer, load.offset), 0
        for height, tiles in shares(run, plan.rows):
            shape = Shape(ELEMENT, height, plan.vectors, PAIR_LANES, 1, plan.width, pairs=True, plain=True)
            with loop(b, const(start), const(start + height * tiles), const(height), short=True) as (i, _):
                left = LeftOperand(address(b, first, b.mul(i, row), ELEMENT), row, const(PAIR_LANES), row)
                target = address(b, sums, b.mul(i, const(plan.width)), ELEMENT)
                add_products(b, shape, const(plan.pairs), left, self.panel, Lines(target, const(4 * plan.width)),
                             ir.Constant(ir.IntType(1), 1), no_near(target), no_fetches(self.panel))
            start += height * tiles

    @property
    def apart(self) -> int:
        """Pairs from row to row."""
        return self.plan.pairs * (1 if self.outside else self.slides[-1].step)

    def sum_at(self, places: Sequence[ir.Value]) -> ir.Value:
        """Where the sums of the first image wait for a place."""
        b = self.b
        number = b.sub(places[0], self.first)
        for slide, place in zip(self.slides[1:], places[1:], strict=True):
            number = b.add(b.mul(number, const(slide.places)), place)
        return address(b, self.sums, b.mul(number, const(count(self.outside) * self.plan.width)), ELEMENT)

    # ------------------------------------------------------------ results

    def hand_over(self, values: Values, given: Sequence[ir.Value]) -> None:
        """The epilogue for the sums of a block, given where they wait, the first filter, and places."""
        (sums, filter_, first, end), b, plan = given, values.b, self.plan
        some = minimum(b, const(plan.width), b.sub(const(count(plan.filters)), filter_))
        (index,), extents = plan.filters, [1, *(s.places for s in self.slides[1:]), count(self.outside)]
        limits = [(first, end), *((ZERO, const(n)) for n in extents[1:])]

        def over(places: list[ir.Value], number: ir.Value) -> None:
            """All places, then images."""
            if len(places) < len(limits):
                start, stop = limits[len(places)]
                with loop(b, start, stop, short=True) as (place, _):
                    before = b.mul(number, const(extents[len(places)]))
                    over([*places, place], b.add(before, b.sub(place, start)))
                return
            values.known.update({slide.place: place for slide, place in zip(self.slides, places, strict=False)})
            bind_indices(values, self.outside, places[-1])
            line = address(b, sums, b.mul(number, const(plan.width)), ELEMENT)
            with loop(b, ZERO, some) as (lane, _):
                values.known[index] = b.add(filter_, lane, flags=("nsw", "nuw"))
                values.known[plan.statement.sum] = b.load(address(b, line, lane, ELEMENT), typ=ELEMENT)
                values.block(plan.statement.epilogue)
        over([], ZERO)

"""Every schedule of a product, in the order in which they are preferred: the first that claims a statement computes it.

    conv_nhwc       right packed before: winograd_nhwc, conv_microkernel
    conv_direct     a factor is read in windows: seven ways, by what a vector holds
    contraction     all products: skinny_gemm, small_gemm, unpacked_gemm, blocked_gemm

A family of schedules says of a statement and a machine what its plan is, or why it has none; of each of its schedules
how many cycles that takes, or why it is refused; and writes the code of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

from llvmlite import ir

from tenon.backends.cpu.contraction import (
    Tile,
    beats_windows,
    emit_contraction,
    emit_packing,
    packed_size,
    scratch_size,
    tiles_of,
)
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, blocks_tile
from tenon.backends.cpu.contraction.ir_helpers import const, element_bytes
from tenon.backends.cpu.contraction.machine_model import FMA_UNITS, product_cycles
from tenon.backends.cpu.contraction.skinny_gemm import thin_tile
from tenon.backends.cpu.contraction.small_gemm import direct_tile
from tenon.backends.cpu.contraction.unpacked_gemm import stays_unpacked
from tenon.backends.cpu.contraction_codegen import ProductTemplate, template_of, tile_named
from tenon.backends.cpu.conv_direct import emit_sliding, slides, sliding_scratch, ways_of
from tenon.backends.cpu.conv_nhwc import emit_convolution, emit_panels, plan_of, scratch_of
from tenon.backends.cpu.conv_nhwc.conv_schedule import direct_plan_of
from tenon.backends.cpu.conv_nhwc.winograd_plan import winograd_plan_of
from tenon.backends.cpu.scalar_codegen import register
from tenon.dims.symbolic_dim import product
from tenon.llvm.target_module import TargetModule
from tenon.loops.expressions import Buffer, Load
from tenon.loops.loop_ir import Contraction, Store
from tenon.loops.refusal import Refusal
from tenon.loops.select_conv_schedule import Sliding, frequencies
from tenon.records import dataclass, replace
from tenon.target import Target

WINDOWS = "windows"     # what stands in a statement that is to be computed window by window
NOT_PACKED = Refusal("right is not packed before")
NOT_ASKED = Refusal("another schedule is asked for")


@dataclass(frozen=True)
class Considered:
    """What became of one schedule: the cycles it takes by the model, where sizes are known, or why it is refused."""

    name: str
    found: float | Refusal | None

    def __str__(self) -> str:
        if isinstance(self.found, Refusal):
            return f"{self.name:<28} refused: {self.found}"
        return f"{self.name:<28} {'cycles unknown' if self.found is None else f'{self.found:,.0f} cycles'}"


class ScheduleFamily(Protocol):
    """Schedules that share what they are emitted by."""

    def claims(self, x: Contraction, target: Target, packed: bool) -> Any | Refusal:
        """The plan by which a product, its right factor perhaps `packed` before, is computed; or why there is none."""

    def considers(self, x: Contraction, target: Target, packed: bool) -> Iterator[Considered]:
        """Each of its schedules."""

    def emit(self, module: TargetModule, name: str, x: Contraction, plan: Any, arguments: Mapping[Buffer, int],
             pointers: int, symbols: Sequence[str], packed: int | None) -> ir.Function:
        """void name(pointers..., sizes..., first, until, threads, scratch); pointer `packed` is right, packed already.
        """

    def scratch(self, x: Contraction, plan: Any, target: Target, packed: bool) -> int:
        """Bytes of scratch memory that each thread needs."""

    def packs(self, x: Contraction, plan: Any, target: Target) -> int | None:
        """Bytes of the right factor once it is packed; None where it cannot be packed by itself, or need not be."""


class ConvNhwc:
    """Filters are lanes; right, packed before, is read in the order in which it lies."""

    def claims(self, x: Contraction, target: Target, packed: bool) -> Any | Refusal:
        if x.schedule:
            return NOT_ASKED
        return plan_of(x, target) if packed else NOT_PACKED

    def considers(self, x: Contraction, target: Target, packed: bool) -> Iterator[Considered]:
        direct = NOT_ASKED if x.schedule else direct_plan_of(x, target) if packed else NOT_PACKED
        tiles = direct if isinstance(direct, Refusal) else winograd_plan_of(x, target)
        yield Considered("winograd_nhwc", tiles if isinstance(tiles, Refusal) else tiles.cycles)
        yield Considered("conv_microkernel", direct if isinstance(direct, Refusal) else _at_best(x, target))

    def emit(self, module: TargetModule, name: str, x: Contraction, plan: Any, arguments: Mapping[Buffer, int],
             pointers: int, symbols: Sequence[str], packed: int | None) -> ir.Function:
        assert packed is not None
        return emit_convolution(module, name, plan, arguments, pointers, packed)

    def scratch(self, x: Contraction, plan: Any, target: Target, packed: bool) -> int:
        return scratch_of(plan)

    def packs(self, x: Contraction, plan: Any, target: Target) -> int | None:
        return None if beats_windows(template_of(x, {}, 0, target)) else int(plan.packed)


class ConvDirect:
    """A factor is read in windows where it lies."""

    def claims(self, x: Contraction, target: Target, packed: bool) -> Sliding | Refusal:
        if packed or x.schedule not in ("", WINDOWS):
            return NOT_ASKED
        return slides(x, target) or Refusal("no windows slide")

    def considers(self, x: Contraction, target: Target, packed: bool) -> Iterator[Considered]:
        if packed or x.schedule not in ("", WINDOWS):
            return
        for way, found in ways_of(x, target).items():
            saved = 1.0
            if isinstance(found, Sliding) and way.startswith("winograd"):
                saved = frequencies(found.windows) / (4 * prod(s.taps for s in found.windows.slides))
            yield Considered(way, found if isinstance(found, Refusal) else _at_best(x, target, saved))

    def emit(self, module: TargetModule, name: str, x: Contraction, plan: Any, arguments: Mapping[Buffer, int],
             pointers: int, symbols: Sequence[str], packed: int | None) -> ir.Function:
        return emit_sliding(module, name, x, plan, arguments, pointers, symbols)

    def scratch(self, x: Contraction, plan: Any, target: Target, packed: bool) -> int:
        return sliding_scratch(x, plan, target)

    def packs(self, x: Contraction, plan: Any, target: Target) -> int | None:
        return None


class Gemm:
    """Any product, by a register tile; which one is decided when its function is written, and memory is known."""

    def claims(self, x: Contraction, target: Target, packed: bool) -> str:
        return x.schedule or "by the model"

    def considers(self, x: Contraction, target: Target, packed: bool) -> Iterator[Considered]:
        spec = template_of(x, {}, 0, target, 0 if packed else None)
        named = tile_named(x, spec)
        for name, tile in ("skinny_gemm", thin_tile(spec)), ("small_gemm", direct_tile(spec)):
            found = tile if named is None or tile == named else NOT_ASKED
            yield _of_tile(name, x, spec, found)
        blocks = named if named and named.schedule in ("blocks", "panels") else blocks_tile(spec)
        yield Considered("unpacked_gemm", NOT_ASKED if x.schedule else _unpacked(x, spec))
        yield _of_tile("blocked_gemm" if blocks.schedule == "blocks" else "small_gemm", x, spec, blocks)

    def emit(self, module: TargetModule, name: str, x: Contraction, plan: Any, arguments: Mapping[Buffer, int],
             pointers: int, symbols: Sequence[str], packed: int | None) -> ir.Function:
        template = ProductTemplate(module, name, x, arguments, pointers, symbols, packed).template()
        return emit_contraction(module, name, template, tile_named(x, template))

    def scratch(self, x: Contraction, plan: Any, target: Target, packed: bool) -> int:
        """As much as is enough whether or not results have memory that the epilogue reads."""
        shared = ProductTemplate(TargetModule(target), "", x, {}, 0, (), 0 if packed else None)  # as if all were one
        touched = [y for y in (*shared.loads(), *x.epilogue) if isinstance(y, (Load, Store))]
        apart = replace(shared, arguments={y.buffer: place for place, y in enumerate(touched)})
        templates = [y.template() for y in (shared, apart)]
        return max(scratch_size(template, tile_named(x, template)) for template in templates)

    def packs(self, x: Contraction, plan: Any, target: Target) -> int | None:
        return packed_size(template_of(x, {}, 0, target))


SCHEDULES: tuple[ScheduleFamily, ...] = ConvNhwc(), ConvDirect(), Gemm()


def chosen(x: Contraction, target: Target, packed: bool) -> tuple[ScheduleFamily, Any]:
    """The first family that claims a product, and its plan."""
    return next((family, plan) for family in SCHEDULES if (plan := family.claims(x, target, packed)))


def considered(x: Contraction, target: Target, packed: bool = False) -> list[Considered]:
    """What became of every schedule, in the order in which they are preferred: the first that is not refused is taken.
    """
    return [row for family in SCHEDULES for row in family.considers(x, target, packed)]


def emit_product(module: TargetModule, name: str, statement: Contraction, arguments: Mapping[Buffer, int],
                 pointers: int, symbols: Sequence[str], packed: int | None = None) -> ir.Function:
    """void name(pointers..., sizes..., first, until, threads, scratch); pointer `packed` is right, packed already."""
    family, plan = chosen(statement, module.target, packed is not None)
    function = family.emit(module, name, statement, plan, arguments, pointers, symbols, packed)
    function.linkage = "internal"
    return function


def emit_packing_of(module: TargetModule, name: str, statement: Contraction, arguments: Mapping[Buffer, int],
                    pointers: int, packed: int) -> ir.Function:
    """void name(pointers..., first, until, threads): pack the right factor, of known sizes, to pointer `packed`."""
    if plan := SCHEDULES[0].claims(statement, module.target, True):
        function = emit_panels(module, name, plan, arguments, pointers, packed)
    else:
        template = ProductTemplate(module, name, statement, arguments, pointers, (), packed).template()
        function = emit_packing(module, name, template)
    function.linkage = "internal"
    return function


def packed_right(statement: Contraction, target: Target) -> int | None:
    """Bytes of the right factor once it is packed; None where it cannot be packed by itself, or need not be."""
    nhwc, direct, gemm = SCHEDULES
    if plan := nhwc.claims(statement, target, True):
        return nhwc.packs(statement, plan, target)
    family = direct if slides(statement, target) is not None else gemm
    return family.packs(statement, None, target)


def contraction_scratch(statement: Contraction, target: Target, packed: bool = False) -> int:
    """Bytes of scratch memory that each thread needs; `packed`: its right factor is packed already."""
    family, plan = chosen(statement, target, packed)
    return family.scratch(statement, plan, target, packed)


def schedules_of(statement: Contraction, target: Target) -> list[str]:
    """What may stand in `statement.schedule`: all schedules that claim the product, the model's choice first."""
    tiles = tiles_of(template_of(statement, {}, 0, target))
    windows = [WINDOWS] if slides(statement, target) is not None else []
    return [*windows, *dict.fromkeys(tile.name for tile in tiles)]


# ---------------------------------------------------------------- costs

def _unpacked(x: Contraction, spec: GemmSpec) -> float | Refusal | None:
    """Of what is read where it is."""
    if spec.packed is not None or spec.pairs:
        return Refusal("right is packed, or sums are pairs")
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None:
        return Refusal("sizes are not known: it is decided in each call")
    if stays_unpacked(ir.IRBuilder(), spec, *map(const, (rows, columns, depth))):
        return _at_best(x, spec.target)
    return Refusal("packing pays: rows and columns are many")


def _of_tile(name: str, x: Contraction, spec: GemmSpec, tile: Tile | Refusal) -> Considered:
    if isinstance(tile, Refusal):
        return Considered(name, tile)
    rows, columns, depth = spec.known
    label, batch = f"{name} {tile.name}", product(i.extent for i in x.batch)
    if rows is None or columns is None or depth is None or not isinstance(batch, int):
        return Considered(label, None)
    size = tile.rows, tile.vectors
    return Considered(label, batch * product_cycles(spec.target, size, tile.lanes, rows, columns, depth))


def _at_best(x: Contraction, target: Target, saved: float = 1.0) -> float | None:
    """Cycles where multiply-adds never wait, of which there are so many times as many as the sums say."""
    total = product(i.extent for axis in (x.batch, x.rows, x.columns, x.depth) for i in axis)
    lanes = target.vector_bytes // element_bytes(register(x.sum.dtype))
    return saved * total / (FMA_UNITS * lanes) if isinstance(total, int) else None

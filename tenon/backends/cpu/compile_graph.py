"""Optimised graph -> assembly for a processor: bodies to loops to LLVM IR, equal ones once.

Which results lie where an input was is known only when all steps are: a kernel that shares memory is other code.  So
all bodies become loops first, and then code, each kernel once, in the form in which it will be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from tenon.backends.cpu.kernel_compiler import start, threads
from tenon.backends.cpu.lowered_kernel import LoweredKernel, make_unit
from tenon.gc_control import collect_young
from tenon.graph.ir import AUTOTUNE, CONSTANTS, Graph, Node, Value
from tenon.graph.text import key_of
from tenon.llvm.compile_pool import Workers
from tenon.locks import unforked
from tenon.observe import emit, span
from tenon.ops.graph_calls import fused
from tenon.passes.fusion.kernel_bodies import body_of, has_loops
from tenon.passes.fusion.parametrize_slices import on_pieces
from tenon.program.execution_plan import Assembly, assemble
from tenon.program.kernel import CompiledKernel, is_product
from tenon.program.kernel_backend import LoopKernels, Prepacking
from tenon.program.kernel_cache import store_kernel
from tenon.program.predict_aliasing import PredictedAliasing
from tenon.records import dataclass
from tenon.target import Target

CalledFirst = Callable[[Assembly], Mapping[CompiledKernel, CompiledKernel]]
CANNOT = NotImplementedError, KeyError, AssertionError, RecursionError      # what says that a kernel cannot be made


def as_they_are(assembly: Assembly) -> Mapping[CompiledKernel, CompiledKernel]:
    """All kernels, none of which shares memory."""
    return {unit: unit for unit in assembly.units}


@dataclass(frozen=True)
class CpuKernels:
    """What assembling asks for; with it come all emitters, so it is loaded when it is asked for."""

    target: Target

    @property
    def packing(self) -> Prepacking:
        with unforked:
            from tenon.backends.cpu import prepack
        return prepack

    @property
    def loops(self) -> LoopKernels:
        with unforked:
            from tenon.backends.cpu import loop_kernel
        return loop_kernel.LoopCompiler(self.target)


def assemble_graph(graph: Graph, target: Target, called_first: CalledFirst = as_they_are,
                   tuned: Callable[[CompiledKernel], CompiledKernel] = lambda unit: unit,
                   runs: bool = True) -> Assembly:
    """Kernels and steps for a graph, `tuned` those; the kernels' code may still be in the making.

    Where nothing `runs`, as code for another machine does not, only its text is made.  `called_first` says which
    kernels the first run calls, and what each is a variant of.
    """
    units: dict[str, CompiledKernel | None] = {}
    pool = threads() if runs else None
    try:
        with span("assemble", graph=graph.name, nodes=len(graph.nodes)):
            while True:
                made = assemble(graph, partial(_shared_unit, units, target, tuned),
                                partial(_inner_unit, units, target, tuned), CpuKernels(target))
                refused = _start_all(called_first(made), pool)
                if refused is None:
                    return made
                units[key_of(refused.body)] = None
    finally:
        _begun.clear()


def begin(graph: Graph, target: Target) -> None:
    """Let other threads make the code of products before the last passes are done with a graph: those leave most alone.

    Products of which it is not known yet what memory they share wait; so do those whose schedules are measured, and
    those whose factors may be packed.  Those of which it is told again are in the making, or wait.
    """
    if graph.notes.get(AUTOTUNE) or CONSTANTS in graph.notes:
        return
    pool, foreseen = threads(), PredictedAliasing(graph)
    for node in graph.nodes:
        body, outside = _body_of(node)
        if body is None or not is_product(body) or (unit := _begun_unit(body, target)) is None:
            continue
        variant = foreseen.variant(unit, outside, node.outputs)
        if variant is not None:
            with suppress(*CANNOT):         # which `assemble_graph` deals with
                start(variant, pool)


def _body_of(node: Node) -> tuple[Graph | None, tuple[Value, ...]]:
    """(the body of the kernel that a node will be, what that reads), if it is one."""
    if node.op is fused and all(map(has_loops, node.attrs["body"].nodes)):
        return on_pieces(node.attrs["body"])[0], tuple(x for x in node.inputs if isinstance(x, Value))
    if not has_loops(node):
        return None, ()
    body, outside = body_of([node], node.outputs)
    return on_pieces(body)[0], outside


def _begun_unit(body: Graph, target: Target) -> CompiledKernel | None:
    """The kernel of a body, which `assemble_graph` takes too; None where that belongs to one place in the source."""
    key = key_of(body)
    unit = _begun.get((target, key)) or _try_unit(body, target, key)
    if unit is None or unit.facts.checks:
        return None
    _begun[target, key] = unit
    return unit


_begun: dict[tuple[Target, str], CompiledKernel] = {}


def _start_all(units: Mapping[CompiledKernel, CompiledKernel],
               pool: Workers | None) -> CompiledKernel | None:
    """Let the pool make the code of all kernels, products first, which take longest; one that code cannot express."""
    for variant, unit in sorted(units.items(), key=lambda x: (not is_product(x[1].body), x[0] is x[1])):
        try:
            if variant is not unit and "kernel" in vars(unit) and unit.key is not None:
                store_kernel(unit.key, unit.facts)          # without code, which it may never have
            if pool is None:
                _ = variant.ir
            else:
                start(variant, pool)
            collect_young()
        except CANNOT as error:
            if type(unit) is not LoweredKernel:
                raise
            emit("no_kernel", kernel=unit.name, error=repr(error))
            return unit
    return None


def _shared_unit(units: dict[str, CompiledKernel | None], target: Target,
                 tuned: Callable[[CompiledKernel], CompiledKernel], body: Graph) -> CompiledKernel | None:
    """The kernel of a body, or None; one that can fail is not shared, since it belongs to one place in the source."""
    key = key_of(body)
    if key in units:
        return units[key]
    found = _begun.get((target, key)) or _try_unit(body, target, key)
    unit = None if found is None else tuned(found)
    if unit is None or not unit.facts.checks:
        units[key] = unit
    return unit


def _inner_unit(units: dict[str, CompiledKernel | None], target: Target,
                tuned: Callable[[CompiledKernel], CompiledKernel], body: Graph) -> CompiledKernel | None:
    """The kernel of a body that may become a part of a larger kernel, which relies on it: its code is tried now."""
    unit = _shared_unit(units, target, tuned, body)
    if unit is None or "kernel" not in vars(unit):
        return unit
    try:
        unit.require_code()
        return unit
    except CANNOT as error:
        emit("no_kernel", kernel=body.name, error=repr(error))
        units[key_of(body)] = None
        return None


def _try_unit(body: Graph, target: Target, text: str) -> CompiledKernel | None:
    """The loops of a kernel that is not known yet; None where there are none."""
    try:
        unit = make_unit(body, target, text)
        collect_young()
        return unit
    except CANNOT as error:
        emit("no_kernel", kernel=body.name, error=repr(error))
        return None

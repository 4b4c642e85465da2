"""LLVM IR text -> a module after those of LLVM's passes that it needs -> object code, or assembly to be read.

The long calls go round llvmlite's process-wide lock, so that Python threads compile in parallel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tenon.errors import TenonError
from tenon.llvm.optimization_level import split_module

MAX_LIGHT_LOOPS = 4     # of a module, for which less of LLVM does as well
LOADED_BOOLEAN = "icmp ne i8"
ASSEMBLY, OBJECT = 0, 1


class CodeError(TenonError, RuntimeError):
    """LLVM refuses a module: a bug in the code that emitted it, or a function that is nowhere to be found."""


def optimised_module(ir_text: str, machine: Any, masks: bool) -> Any:
    """The module after LLVM's passes: all of them for loops over scalars, a few for the functions that have none."""
    context, parts = llvm.create_context(), split_module(ir_text)
    if parts is None:
        return _optimise(_parse(ir_text, machine, context), machine, *effort(ir_text, masks))
    module = _parse(parts.plain, machine, context)
    if parts.others:
        others = _optimise(_parse(parts.others, machine, context), machine, *effort(parts.others, masks))
        for name in parts.inlined:
            others.get_function(name).add_function_attribute("alwaysinline")
        module.link_in(others)
    for name in parts.hidden:
        module.get_function(name).linkage = llvm.Linkage.internal
    left = _run_few(module, parts.names, machine)
    for name in left.keys() & set(parts.drivers):   # emission in a third of the time
        for attribute in ("noinline", "optnone"):
            left[name].add_function_attribute(attribute)
    return module


def _parse(ir_text: str, machine: Any, context: Any) -> Any:
    try:
        module = llvm.parse_assembly(ir_text, context)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CodeError(f"LLVM refuses the module: {error}") from None
    return module


def effort(ir_text: str, masks: bool = True) -> tuple[int, bool]:
    """(how much LLVM optimises, whether it looks for vectors outside of loops).

    On a machine without registers for masks it makes vectors of loaded booleans that its code generator cannot hold
    from one block to the next, and ends the process.

    Of 99 modules of three networks, none of which unrolls loops, all are the same code without the latter, and those of
    few loops with -O1 too.
    """
    unrolls = "llvm.loop.unroll.full" in ir_text
    return 1 if not unrolls and ir_text.count(" = phi ") <= MAX_LIGHT_LOOPS else 2, unrolls and (
        masks or LOADED_BOOLEAN not in ir_text)


def _optimise(module: Any, machine: Any, level: int, looks_everywhere: bool) -> Any:
    """The passes of -O2, or -O1, and those that make loops vectors."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = looks_everywhere
    tuning.loop_unrolling = False   # but where the emitter says so: copies of long bodies take a third of the time
    builder = llvm.create_pass_builder(machine, tuning)
    _run_module(builder.getModulePassManager(), module, builder)
    return module


def _run_few(module: Any, names: Sequence[str], machine: Any) -> dict[str, Any]:
    """Inline what has to be, then clean up one by one, and return, those of the functions that somebody still calls.
    """
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    inline = llvm.create_new_module_pass_manager()
    inline.add_always_inliner_pass()
    inline.add_global_dead_code_eliminate_pass()
    _run_module(inline, module, builder)
    left = {function.name: function for function in module.functions if function.name in names}
    each = llvm.create_new_function_pass_manager()
    each.add_sroa_pass()
    each.add_instruction_combine_pass()
    each.add_simplify_cfg_pass()
    try:
        for function in left.values():
            _unlocked(ffi.lib.LLVMPY_RunNewFunctionPassManager)(each, function, builder)
    finally:
        ffi.lib.LLVMPY_DisposeNewFunctionPassManger(each)
        each.detach()
    return left


def _run_module(passes: Any, module: Any, builder: Any) -> None:
    try:
        _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(passes, module, builder)
    finally:
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)   # llvmlite forgets it: 70 kB for every compilation
        passes.detach()


def emitted(machine: Any, module: Any, form: int) -> bytes:
    """The code of a module, as an object or as text."""
    with ffi.OutputString() as error:
        buffer = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, form, error)
        if not buffer:
            raise CodeError(f"LLVM cannot emit the module: {error}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(function: Any) -> Callable[..., Any]:
    """llvmlite holds one lock around every call; LLVM needs none between contexts, so long calls go without it."""
    return getattr(function, "_cfn", function)  # type: ignore[no-any-return]

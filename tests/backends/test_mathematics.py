"""Every function of the CPU's mathematics: accuracy against mpmath, special values against NumPy and C, and that loops vectorise."""

import ctypes
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest
from llvmlite import ir

from tenon.backends.cpu.mathematics import FUNCTIONS, MAX_ULP

Array = np.ndarray[Any, Any]
DTYPES = (np.float32, np.float64)
BINARY = {"atan2", "copysign", "floor_divide", "fmod", "hypot", "logaddexp", "nextafter", "pow", "remainder"}
UNARY = sorted(set(FUNCTIONS) - BINARY)
LOOPING = {"floor_divide", "fmod", "remainder"}


class Compiled:
    """A loop over arrays that applies one function, with its assembly."""

    def __init__(self, name: str, dtype: type, lanes: int | None = None):
        self.dtype, self.lanes = dtype, lanes or 1
        self.arity = 2 if name in BINARY else 1
        module = loop_module(name, ir.FloatType() if dtype is np.float32 else ir.DoubleType(), self.arity, lanes)
        machine, compiled = optimised(module)
        self.assembly = machine.emit_assembly(compiled)
        self.engine = llvm.create_mcjit_compiler(compiled, machine)
        self.engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (self.arity + 1))
        self.function = prototype(self.engine.get_function_address("loop"))

    def __call__(self, *operands: Any) -> Array:
        arrays = [np.ascontiguousarray(a, self.dtype) for a in np.broadcast_arrays(*operands)]
        result = np.empty_like(arrays[0])
        if result.size:
            self.function(result.size // self.lanes, result.ctypes.data, *[a.ctypes.data for a in arrays])
        return result


def loop_module(name: str, element: ir.Type, arity: int, lanes: int | None) -> ir.Module:
    """for (i = 0; i < n; i++) result[i] = name(operands[i] ...)"""
    module, index = ir.Module(name), ir.IntType(64)
    module.triple = llvm.get_process_triple()
    value = ir.VectorType(element, lanes) if lanes else element
    kind = ir.FunctionType(ir.VoidType(), [index, *[value.as_pointer()] * (arity + 1)])
    function = ir.Function(module, kind, name="loop")
    for pointer in function.args[1:]:
        pointer.add_attribute("noalias")
    entry, body, after = (function.append_basic_block(block) for block in ("entry", "body", "after"))
    b = ir.IRBuilder(entry)
    b.branch(body)
    b.position_at_end(body)
    i = b.phi(index)
    i.add_incoming(index(0), entry)
    operands = [b.load(b.gep(pointer, [i], inbounds=True), align=4) for pointer in function.args[2:]]
    b.store(FUNCTIONS[name](b, *operands), b.gep(function.args[1], [i], inbounds=True), align=4)
    following = b.add(i, index(1))
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, function.args[0]), body, after)
    b.position_at_end(after)
    b.ret_void()
    return module


def optimised(module: ir.Module) -> tuple[Any, Any]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    compiled = llvm.parse_assembly(str(module))
    compiled.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(compiled, builder)
    return machine, compiled


@cache
def compiled(name: str, dtype: type) -> Compiled:
    return Compiled(name, dtype)



"""A contraction -> a Python function on NumPy arrays and integers; for tests and benchmarks.

    product = Native(matmul(F32)); product(out, a, b, 1, m, n, k)       # as one thread; thread=, threads= for a share
"""
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Tile
from tenon.backends.cpu.contraction.select_schedule import emit_contraction, scratch_size
from tenon.llvm import machine_code
from tenon.llvm.shared_functions import text_of
from tenon.llvm.target_module import TargetModule
from tenon.llvm.work_partition import PARTS_PER_THREAD

CTYPES = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "float": ctypes.c_float}


class Native:
    """A compiled contraction."""

    def __init__(self, spec: GemmSpec, tile: Tile | None = None) -> None:
        module = TargetModule(spec.target, "contraction")
        function = emit_contraction(module, "contraction", spec, tile)
        self.code = load(module, "contraction", None, [CTYPES[str(argument.type)] for argument in function.args])
        self.scratch_size = scratch_size(spec, tile)

    def bind(self, *values: Any, thread: int = 0, threads: int = 1) -> Callable[[], None]:
        """The call with these arguments, ready to be timed; it keeps its arrays and its scratch memory."""
        scratch = np.full(self.scratch_size, 255, np.uint8)
        kept = (*values, thread * PARTS_PER_THREAD, (thread + 1) * PARTS_PER_THREAD, threads, scratch)
        given = [value.ctypes.data if isinstance(value, np.ndarray) else value for value in kept]

        def call(code: Any = self.code, kept: Any = kept) -> None:
            code(*given)
        return call

    def __call__(self, *values: Any, thread: int = 0, threads: int = 1) -> None:
        self.bind(*values, thread=thread, threads=threads)()


def load(module: ir.Module, name: str, result: Any, arguments: list[Any]) -> Any:
    """A function of the module, to be called from Python; its code is kept for as long as the process lives."""
    library = machine_code.compile(text_of(module))
    _libraries.append(library)
    return ctypes.CFUNCTYPE(result, *arguments)(library.address(name))


_libraries: list[machine_code.Library] = []

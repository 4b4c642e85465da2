"""Helpers of the loop tests: run a kernel compiled, and three ways at once."""

from __future__ import annotations

import ctypes

import numpy as np

from tenon.backends.cpu.codegen import emit_kernel, scratch_size
from tenon.dims.symbolic_dim import evaluate
from tenon.errors import failed_check
from tenon.graph.interpret import bind_sizes
from tenon.graph.interpret import interpret as reference
from tenon.llvm import machine_code
from tenon.llvm.host_target import host
from tenon.llvm.shared_functions import text_of
from tenon.llvm.target_module import TargetModule
from tenon.llvm.work_partition import PARTS_PER_THREAD
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_printer import print_kernel, print_loops
from tenon.loops.lower import lower
from tenon.loops.parse_loops import parse_kernel, parse_loops
from tenon.loops.same_loops import is_same

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
                            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def llvm_text(kernel, target=None):
    module = TargetModule(target or host(), kernel.name)
    emit_kernel(module, kernel)
    return text_of(module)


def aligned(count, dtype):
    """Uninitialised memory on a 64-byte boundary, with room in front and behind that must stay untouched."""
    dtype = np.dtype(dtype)
    raw = np.full(count * dtype.itemsize + 192, 0x7B, np.uint8)
    start = 64 + (-raw.ctypes.data) % 64
    return raw[start:start + count * dtype.itemsize].view(dtype), raw, start


def run(kernel, arrays, sizes=None, threads=1, library=None, target=None):
    """The outputs of the compiled kernel; the threads are played one after another."""
    sizes = dict(sizes or {})
    library = library or machine_code.compile(llvm_text(kernel, target))
    arrays = [np.ascontiguousarray(a) for a in arrays]
    made = [aligned(evaluate(b.elements, sizes), b.type.dtype.numpy) for b in kernel.outputs + kernel.temporaries]
    pointers = np.array([a.ctypes.data for a in arrays] + [m[0].ctypes.data for m in made], np.uintp)
    numbers = np.array([sizes[s] for s in kernel.sizes] + [0], np.int64)
    status = np.zeros(3, np.int64)
    scratch, *_ = aligned(evaluate(scratch_size(kernel, target or host()), sizes) + 64, np.uint8)
    for k in range(len(kernel.nests)):
        function = FUNCTION(library.address(f"{kernel.name}_{k}"))
        for thread in range(threads):
            function(pointers.ctypes.data, numbers.ctypes.data, thread * PARTS_PER_THREAD, (thread + 1) * PARTS_PER_THREAD, threads,
                     scratch.ctypes.data, status.ctypes.data)
    for array, raw, start in made:
        assert (raw[:start] == 0x7B).all() and (raw[start + array.nbytes:] == 0x7B).all(), "wrote out of bounds"
    if status[0]:
        check = kernel.checks[status[0] - 1]
        raise failed_check(check.operator, int(status[1]), int(status[2]), check.where)
    shapes = [[evaluate(n, sizes) for n in b.type.shape] for b in kernel.outputs]
    return [m[0].reshape(shape) for m, shape in zip(made, shapes, strict=False)]


def close(found, expected, what, tolerance=None):
    assert found.shape == expected.shape and found.dtype == expected.dtype, f"{what}: {found.dtype}{found.shape}"
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    tolerance = tolerance or {2: 1e-2, 4: 2e-5, 8: 1e-12}[found.dtype.itemsize]
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance,
                               err_msg=what)


def check(graph, *arrays, interpreted=True, tolerance=None, target=None):
    """Compiled == loop interpreter == NumPy reference, on 1, 2 and 5 threads; returns the kernel."""
    kernel = lower(graph, "k", steps := [], target or host())
    assert is_same(parse_kernel(print_kernel(kernel)), kernel), print_kernel(kernel)
    for step in steps:
        if step.changed:
            parsed = parse_loops(step.text)
            assert print_loops(parsed.sections, parsed.context) == step.text
    sizes = bind_sizes(graph, [a.shape for a in arrays])
    expected = reference(graph, arrays)
    if interpreted:
        for found, want in zip(interpret(kernel, arrays, sizes), expected, strict=True):
            close(found, want, f"interpreted\n{print_kernel(kernel)}", tolerance)
    library = machine_code.compile(llvm_text(kernel, target))
    first = run(kernel, arrays, sizes, 1, library, target)
    for found, want in zip(first, expected, strict=True):
        close(found, want, f"compiled\n{print_kernel(kernel)}", tolerance)
    for threads in (2, 5):
        for found, one in zip(run(kernel, arrays, sizes, threads, library, target), first, strict=True):
            assert found.tobytes() == one.tobytes(), f"{threads} threads differ from one\n{print_kernel(kernel)}"
    return kernel

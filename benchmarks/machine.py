"""What this machine can do at best, measured by code that LLVM makes for it: the limits that kernels are held against.

    python -m benchmarks.machine [--threads 1 2] [--seconds 0.3]

FMA peak: independent chains of vector multiply-adds, nothing else.  Bandwidth: a vector sum of (read), or a copy
between (copy: bytes read + bytes written), arrays of one size, which says which memory is measured.
"""
import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_double, c_float, c_int64, c_void_p
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from benchmarks.example_specs import F32, F64
from benchmarks.run_spec import load
from tenon.backends.cpu.contraction import choose_tile
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    I64,
    POINTER,
    ZERO,
    address,
    const,
    intrinsic,
    load_vector,
    loop,
    splat,
    store_vector,
    zero,
)
from tenon.llvm.host_target import host
from tenon.llvm.target_module import TargetModule

Run = Callable[[], object]
ELEMENTS: dict[str, tuple[ir.Type, Any]] = {"f32": (F32, c_float), "f64": (F64, c_double)}
CHAINS = 12             # more than latency times FMA units of any machine, fewer than its registers
TURNS = 200_000
STREAMS = 8             # vectors of one turn of the bandwidth loops


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    options.add_argument("--seconds", type=float, default=0.3)
    given = options.parse_args(arguments)
    for threads in given.threads:
        for name in ELEMENTS:
            print(f"{threads} threads   FMA peak {name}   {fma_peak(name, threads, given.seconds) / 1e9:7.0f} GFLOP/s")
        for size in 1 << 20, 1 << 24, 1 << 28:
            read, copy = (bandwidth(kind, size, threads, given.seconds) / 1e9 for kind in ("read", "copy"))
            print(f"{threads} threads   {size >> 20:3} MiB a thread   read {read:6.1f} GB/s   copy {copy:6.1f} GB/s",
                  flush=True)


def fma_peak(name: str = "f32", threads: int = 1, seconds: float = 0.3) -> float:
    """Floating-point operations a second that `threads` threads do together."""
    run, operations = fma_run(name)
    return threads * operations / fastest(run, threads, seconds)


def bandwidth(kind: str, size: int, threads: int = 1, seconds: float = 0.3) -> float:
    """Bytes a second of kind "read" or "copy" on arrays of `size` bytes, one (two) a thread."""
    runs = [bandwidth_run(kind, size) for _ in range(threads)]
    moved = sum(moved for _, moved in runs)
    return moved / fastest_of([run for run, _ in runs], seconds)


def fma_run(name: str = "f32") -> tuple[Run, int]:
    """A call that does nothing but multiply-adds, and how many operations (two each) it does."""
    call = _peak(name)
    return lambda: call(TURNS, 1e-3), TURNS * CHAINS * 2 * choose_tile(ELEMENTS[name][0], host()).lanes


def bandwidth_run(kind: str, size: int) -> tuple[Run, int]:
    """A call that reads or copies an array of `size` bytes, and how many bytes it moves."""
    step = STREAMS * choose_tile(F32, host()).lanes
    count = size // 4 // step * step
    source, target = np.ones(count, np.float32), np.ones(count if kind == "copy" else 1, np.float32)
    call, kept = _stream(kind), (source, target)
    places = [array.ctypes.data for array in kept]
    return lambda kept=kept: call(count, *places), source.nbytes * (2 if kind == "copy" else 1)


def fastest(run: Run, threads: int, seconds: float) -> float:
    """Seconds of the fastest turn in which so many threads make the same call at once."""
    return fastest_of([run] * threads, seconds)


def fastest_of(runs: list[Run], seconds: float) -> float:
    """Seconds of the fastest turn in which all calls are made at once, a thread each.

    What one thread takes is its own computing time, which other programs on the machine disturb less.
    """
    clock = time.thread_time if len(runs) == 1 else time.perf_counter
    with ThreadPoolExecutor(len(runs)) as pool:
        def turn() -> float:
            start = clock()
            others = [pool.submit(run) for run in runs[1:]]
            runs[0]()
            for other in others:
                other.result()
            return clock() - start
        turn()
        times, end = [turn()], time.perf_counter() + seconds
        while time.perf_counter() < end:
            times.append(turn())
    return min(times)


@cache
def _peak(name: str) -> Any:
    """number peak(i64 turns, number factor): as many chains of vector FMAs as keep every unit busy."""
    element, number = ELEMENTS[name]
    module, lanes = TargetModule(host(), "peak"), choose_tile(element, host()).lanes
    function = ir.Function(module, ir.FunctionType(element, [I64, element]), "peak")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    factor = splat(b, function.args[1], lanes)
    with loop(b, ZERO, function.args[0], carried=[factor] * CHAINS) as (_, chains):
        chains[:] = [intrinsic(b, "llvm.fma", [factor, factor, chain]) for chain in chains]
    _return_sum(b, chains)
    return load(module, "peak", number, [c_int64, number])


@cache
def _stream(kind: str) -> Any:
    """float stream(i64 count, ptr source, ptr target): the sum of the source, or nothing and a copy."""
    module, lanes = TargetModule(host(), kind), choose_tile(F32, host()).lanes
    function = ir.Function(module, ir.FunctionType(F32, [I64, POINTER, POINTER]), kind)
    count, source, target = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    with loop(b, ZERO, count, const(STREAMS * lanes), [zero(ir.VectorType(F32, lanes))] * STREAMS) as (i, sums):
        places = [b.add(i, const(k * lanes)) for k in range(STREAMS)]
        values = [load_vector(b, address(b, source, place, F32), F32, lanes) for place in places]
        if kind == "copy":
            for place, value in zip(places, values, strict=True):
                store_vector(b, value, address(b, target, place, F32))
        else:
            sums[:] = [b.fadd(total, value) for total, value in zip(sums, values, strict=True)]
    _return_sum(b, sums)
    return load(module, kind, c_float, [c_int64, c_void_p, c_void_p])


def _return_sum(b: ir.IRBuilder, vectors: list[ir.Value]) -> None:
    """Return something that depends on all of them, so that LLVM drops none."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = b.fadd(total, vector)
    b.ret(b.extract_element(total, ir.Constant(I32, 0)))


if __name__ == "__main__":
    main()

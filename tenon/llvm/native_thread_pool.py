"""The native half of the thread pool: workers that wait, a parallel region, and a barrier inside one.

    i32 parallel(pool, function, argument)      1: it has run on every thread; 0: alone, the pool is taken
    void work(pool, i32 thread)                 serve regions until one has no function
    i32 work_once(pool, i32 thread, i32 last)   serve the region behind the last; 0 when there are no more
    void barrier(pool, i32 threads)             wait until all threads of the region are here

A kernel is `void f(ptr argument, i32 thread, i32 threads)`.  All of them work on one block of memory, laid out by the
offsets below, a cache line to each word that threads write.  Waiting is always the same: look at a word for a while,
then sleep on it, so that nobody burns a core that another thread needs.  The Python half is `runtime/thread_pool.py`.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from tenon.llvm import function_builder
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, WORD, Pointer, Word
from tenon.llvm.machine_code import Library
from tenon.locks import Lock
from tenon.records import dataclass

# A cell is a word to wait on and, behind it, how many threads sleep on it.
START = 0  # cell: number of the region, changed to start one
FUNCTION, ARGUMENT = 64, 72  # what to run; no function means that the worker ends
FINISH = 128  # cell: workers still running
PASSED = 192  # cell: how many barriers have been passed
ARRIVED = 256  # threads that have come to the barrier
BUSY = 320  # 1 while a caller owns the pool
THREADS, SPINS, BARRIER = 384, 388, 392  # set once: how many, how often to look before sleeping, the barrier's address
STATE_BYTES = 448
SLEEPERS = 4  # of a cell


def meet(f: NativeFunction, pool: Pointer, threads: Word) -> None:
    """Wait until all `threads` of the region are here.  With one thread `pool` may be null."""
    with f.where(threads > 1):
        f.through(pool.behind(BARRIER), NOTHING, pool, threads)


@dataclass(frozen=True)
class Entries:
    """The native functions, to be called from Python.  They release the GIL."""

    library: Library
    parallel: Callable[[int, int, int], int]
    work: Callable[[int, int], None]
    work_once: Callable[[int, int, int], int]
    barrier: int


_making = Lock()


def entries(sleep: str) -> Entries:
    """`sleep` says how a waiting thread leaves the core to others: a key of `SLEEP`."""
    with _making:
        return _made(sleep)


@cache
def _made(sleep: str) -> Entries:
    machine = platform.machine().lower()
    library = function_builder.library(f"threads {sleep} {machine}", module_of=lambda: _module(sleep, machine))

    def function(name: str, result: type | None, *arguments: type) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(library.address(name))

    i32, pointer = ctypes.c_int32, ctypes.c_void_p
    return Entries(
        library,
        function("parallel", i32, pointer, pointer, pointer),
        function("work", None, pointer, i32),
        function("work_once", i32, pointer, i32, i32),
        library.address("barrier"),
    )


def default_sleep() -> str:
    known = platform.machine().lower() in FUTEX_CALL
    return "futex" if sys.platform == "linux" and known else "switch" if sys.platform == "win32" else "yield"


# ---------------------------------------------------------------- the native functions


def _module(sleep: str, machine: str) -> NativeModule:
    module = NativeModule()
    SLEEP[sleep](module, machine)
    module.define("pause", lambda f: _pause(f, machine), NOTHING)
    module.define("wait_while", _wait_while, NOTHING, POINTER, POINTER, HALF)
    module.define("wake", _wake, NOTHING, POINTER)
    module.define("parallel", _parallel, HALF, POINTER, POINTER, POINTER, public=True)
    module.define("work_once", _work_once, HALF, POINTER, HALF, HALF, public=True)
    module.define("work", _work, NOTHING, POINTER, HALF, public=True)
    module.define("barrier", _barrier, NOTHING, POINTER, HALF, public=True)
    return module


def _parallel(f: NativeFunction, pool: Pointer, function: Pointer, argument: Pointer) -> None:
    threads, stop, busy = pool.narrow(THREADS), function.is_null(), pool.shared(BUSY)
    mine, given = f.variable(f.half(0)), f.words(1)
    given.put(function.word_of())
    with f.where(threads > 1):
        mine.set(busy.replace(0, 1))
    with f.where(mine() == 0):
        with f.unless(stop):
            f.through(given, NOTHING, argument, f.half(0), f.half(1))
        f.give(0)
    pool.behind(FUNCTION).put(function)
    pool.behind(ARGUMENT).put(argument)
    finish = pool.shared(FINISH)
    pool.behind(FINISH).put(threads - 1)
    pool.shared(START).add(1)
    f.call("wake", pool.behind(START))
    with f.unless(stop):
        f.through(given, NOTHING, argument, f.half(0), threads)
    left = f.variable(finish.now())
    with f.loop(lambda: left() != 0):
        f.call("wait_while", pool, pool.behind(FINISH), left())
        left.set(finish.now())
    with f.unless(stop):  # after the last region the pool stays busy: later callers run alone
        busy.set(0)
    f.give(1)


def _work(f: NativeFunction, pool: Pointer, thread: Word) -> None:
    region, more = f.variable(f.half(0)), f.variable(f.half(1))
    with f.loop(lambda: more() != 0):
        more.set(f.call("work_once", pool, thread, region()))
        region.set(region() + 1)  # no region starts before the last one has ended on every thread
    f.give()


def _work_once(f: NativeFunction, pool: Pointer, thread: Word, region: Word) -> None:
    f.call("wait_while", pool, pool.behind(START), region)
    more = f.variable(f.half(0))
    with f.unless(pool.field(FUNCTION).is_null()):
        f.through(pool.behind(FUNCTION), NOTHING, pool.field(ARGUMENT), thread, pool.narrow(THREADS))
        more.set(1)
    with f.where(pool.shared(FINISH).add(-1) == 1):
        f.call("wake", pool.behind(FINISH))
    f.give(more())


def _barrier(f: NativeFunction, pool: Pointer, threads: Word) -> None:
    passed, arrived = pool.shared(PASSED), pool.shared(ARRIVED)
    count = passed.now()
    with f.where(arrived.add(1, "acq_rel") + 1 == threads):
        pool.behind(ARRIVED).put(f.half(0))
        passed.add(1)
        f.call("wake", pool.behind(PASSED))
        f.give()
    f.call("wait_while", pool, pool.behind(PASSED), count)
    f.give()


def _wait_while(f: NativeFunction, pool: Pointer, cell: Pointer, value: Word) -> None:
    word, sleepers = cell.shared(), cell.shared(SLEEPERS)
    looks, most = f.variable(f.half(0)), pool.narrow(SPINS)
    with f.loop(lambda: looks() < most):
        f.require(word.now() == value)
        f.call("pause")
        looks.set(looks() + 1)
    sleepers.add(1)  # be counted, then look again: whoever changes the word looks for sleepers afterwards
    with f.loop(lambda: word.now("seq_cst") == value):
        f.call("sleep", cell, value)
    sleepers.add(-1)
    f.give()


def _wake(f: NativeFunction, cell: Pointer) -> None:
    with f.where(cell.shared(SLEEPERS).now("seq_cst") != 0):
        f.call("rouse", cell)
    f.give()


def _pause(f: NativeFunction, machine: str) -> None:
    """Leave the core's units to whoever shares them, for a moment."""
    if machine in PAUSE:
        name, *given = PAUSE[machine]
        f.module.declare(name, NOTHING, *[HALF for _ in given])
        f.call(name, *given)
    f.give()


X86, ARM = ("llvm.x86.sse2.pause",), ("llvm.aarch64.isb", 15)
PAUSE: dict[str, tuple[Any, ...]] = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}


# ---------------------------------------------------------------- sleeping on a cell


def _futex(module: NativeModule, machine: str) -> None:
    """Linux: until somebody wakes who sleeps on the word."""
    module.declare("syscall", WORD, WORD, more=True)
    wait, wake, everyone = 128, 129, 0x7FFFFFFF  # of this process only

    def call(f: NativeFunction, cell: Pointer, operation: int, value: Word) -> None:
        nothing = f.null()
        f.call("syscall", FUTEX_CALL[machine], cell, f.half(operation), value, nothing, nothing, f.half(0))
        f.give()
    module.define("sleep", lambda f, cell, value: call(f, cell, wait, value), NOTHING, POINTER, HALF)
    module.define("rouse", lambda f, cell: call(f, cell, wake, f.half(everyone)), NOTHING, POINTER)


def _giving_way(module: NativeModule, system_call: str) -> None:
    """Until the other threads that are ready have had their turn; there is nobody to wake."""
    module.declare(system_call, HALF)

    def sleep(f: NativeFunction, cell: Pointer, value: Word) -> None:
        f.call(system_call)
        f.give()
    module.define("sleep", sleep, NOTHING, POINTER, HALF)
    module.define("rouse", lambda f, cell: f.give(), NOTHING, POINTER)


SLEEP: dict[str, Callable[[NativeModule, str], None]] = {
    "futex": _futex,
    "yield": lambda module, machine: _giving_way(module, "sched_yield"),
    "switch": lambda module, machine: _giving_way(module, "SwitchToThread"),
}
FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

"""The native half of the thread pool: workers that wait, a parallel region, and a barrier inside one.

A kernel is `void f(ptr argument, i32 thread, i32 threads)`.  `parallel` runs it on every thread of a pool and returns
when all have ended; `emit_barrier` separates two stages of a kernel.  All of them work on one block of memory, laid
out by the offsets below, a cache line to each word that threads write.  Waiting is always the same: look at a word
for a while, then sleep on it, so that nobody burns a core that another thread needs.  The Python half is
`runtime/scheduler.py`.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir

from tenon.backends.llvm import Library, compile
from tenon.locks import Lock

# A cell is a word to wait on and, behind it, how many threads sleep on it.
START = 0  # cell: number of the region, changed to start one
FUNCTION, ARGUMENT = 64, 72  # what to run; no function means that the worker ends
FINISH = 128  # cell: workers still running
PASSED = 192  # cell: how many barriers have been passed
ARRIVED = 256  # threads that have come to the barrier
BUSY = 320  # 1 while a caller owns the pool
THREADS, SPINS, BARRIER = 384, 388, 392  # set once: how many, how often to look before sleeping, the barrier's address
STATE_BYTES = 448


def emit_barrier(b: ir.IRBuilder, pool: ir.Value, threads: ir.Value) -> None:
    """Emit: wait until all `threads` of the region are here.  With one thread `pool` may be null."""
    i32, pointer = ir.IntType(32), ir.PointerType()
    barrier = ir.FunctionType(ir.VoidType(), [pointer, i32])
    with b.if_then(b.icmp_unsigned(">", threads, ir.Constant(i32, 1))):
        where = b.gep(pool, [ir.Constant(ir.IntType(64), BARRIER)], source_etype=ir.IntType(8))
        b.call(b.load(where, typ=barrier.as_pointer()), [pool, threads])


@dataclass(frozen=True)
class Entries:
    """The native functions, to be called from Python.  They release the GIL."""

    library: Library
    parallel: Callable[[int, int, int], int]  # (pool, function, argument) -> 1: by all threads, 0: by the caller alone
    work: Callable[[int, int], None]  # (pool, thread): serve regions until one has no function
    work_once: Callable[[int, int, int], int]  # (pool, thread, last region) -> 0 when there are no more
    barrier: int


_making = Lock()


def entries(sleep: str) -> Entries:
    """`sleep` says how a waiting thread leaves the core to others: "futex", "yield" (POSIX) or "switch" (Windows)."""
    with _making:
        return _made(sleep)


@cache
def _made(sleep: str) -> Entries:
    library = compile(pool_ir(sleep, platform.machine()))

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
    known = platform.machine().lower() in _FUTEX_CALL
    return "futex" if sys.platform == "linux" and known else "switch" if sys.platform == "win32" else "yield"


def pool_ir(sleep: str, machine: str) -> str:
    number = _FUTEX_CALL.get(machine.lower(), 0)
    return _POOL + _SLEEP[sleep].replace("FUTEX", str(number)) + _PAUSE.get(machine.lower(), _PAUSE_UNKNOWN)


_POOL = f"""
define i32 @parallel(ptr %pool, ptr %function, ptr %argument) {{
entry:
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  %threads.at = getelementptr i8, ptr %pool, i64 {THREADS}
  %threads = load i32, ptr %threads.at, align 4
  %stop = icmp eq ptr %function, null
  %many = icmp ugt i32 %threads, 1
  br i1 %many, label %acquire, label %alone
acquire:
  %exchange = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue {{ i32, i1 }} %exchange, 1
  br i1 %mine, label %begin, label %alone

alone:
  br i1 %stop, label %nothing, label %run.alone
run.alone:
  call void %function(ptr %argument, i32 0, i32 1)
  ret i32 0
nothing:
  ret i32 0

begin:
  %start = getelementptr i8, ptr %pool, i64 {START}
  %finish = getelementptr i8, ptr %pool, i64 {FINISH}
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %argument.at = getelementptr i8, ptr %pool, i64 {ARGUMENT}
  store ptr %function, ptr %function.at, align 8
  store ptr %argument, ptr %argument.at, align 8
  %workers = sub i32 %threads, 1
  store atomic i32 %workers, ptr %finish monotonic, align 4
  %region = atomicrmw add ptr %start, i32 1 seq_cst, align 4
  call void @wake(ptr %start)
  br i1 %stop, label %join, label %run
run:
  call void %function(ptr %argument, i32 0, i32 %threads)
  br label %join
join:
  %left = load atomic i32, ptr %finish acquire, align 4
  %done = icmp eq i32 %left, 0
  br i1 %done, label %release, label %wait
wait:
  call void @wait_while(ptr %pool, ptr %finish, i32 %left)
  br label %join
release:                                      ; after the last region the pool stays busy: later callers run alone
  %owner = zext i1 %stop to i32
  store atomic i32 %owner, ptr %busy release, align 4
  ret i32 1
}}

define void @work(ptr %pool, i32 %thread) {{
entry:
  br label %next
next:
  %region = phi i32 [0, %entry], [%following, %next]
  %more = call i32 @work_once(ptr %pool, i32 %thread, i32 %region)
  %following = add i32 %region, 1             ; no region starts before the last one has ended on every thread
  %go = icmp ne i32 %more, 0
  br i1 %go, label %next, label %end
end:
  ret void
}}

define i32 @work_once(ptr %pool, i32 %thread, i32 %region) {{
entry:
  %start = getelementptr i8, ptr %pool, i64 {START}
  %finish = getelementptr i8, ptr %pool, i64 {FINISH}
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %argument.at = getelementptr i8, ptr %pool, i64 {ARGUMENT}
  %threads.at = getelementptr i8, ptr %pool, i64 {THREADS}
  call void @wait_while(ptr %pool, ptr %start, i32 %region)
  %function = load ptr, ptr %function.at, align 8
  %more = icmp ne ptr %function, null
  br i1 %more, label %run, label %end
run:
  %argument = load ptr, ptr %argument.at, align 8
  %threads = load i32, ptr %threads.at, align 4
  call void %function(ptr %argument, i32 %thread, i32 %threads)
  br label %end
end:
  %before = atomicrmw sub ptr %finish, i32 1 seq_cst, align 4
  %last = icmp eq i32 %before, 1
  br i1 %last, label %tell, label %out
tell:
  call void @wake(ptr %finish)
  br label %out
out:
  %result = zext i1 %more to i32
  ret i32 %result
}}

define void @barrier(ptr %pool, i32 %threads) {{
entry:
  %passed = getelementptr i8, ptr %pool, i64 {PASSED}
  %arrived = getelementptr i8, ptr %pool, i64 {ARRIVED}
  %count = load atomic i32, ptr %passed acquire, align 4
  %before = atomicrmw add ptr %arrived, i32 1 acq_rel, align 4
  %here = add i32 %before, 1
  %last = icmp eq i32 %here, %threads
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %arrived monotonic, align 4
  %old = atomicrmw add ptr %passed, i32 1 seq_cst, align 4
  call void @wake(ptr %passed)
  ret void
wait:
  call void @wait_while(ptr %pool, ptr %passed, i32 %count)
  ret void
}}

define internal void @wait_while(ptr %pool, ptr %cell, i32 %value) {{
entry:
  %spins.at = getelementptr i8, ptr %pool, i64 {SPINS}
  %spins = load i32, ptr %spins.at, align 4
  %sleepers = getelementptr i8, ptr %cell, i64 4
  br label %look
look:
  %n = phi i32 [0, %entry], [%n.next, %again]
  %now = load atomic i32, ptr %cell acquire, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %again, label %out
again:
  call void @pause()
  %n.next = add i32 %n, 1
  %more = icmp ult i32 %n.next, %spins
  br i1 %more, label %look, label %rest
rest:                         ; be counted, then look again: whoever changes the word looks for sleepers afterwards
  %in = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  br label %sleep
sleep:
  %later = load atomic i32, ptr %cell seq_cst, align 4
  %still = icmp eq i32 %later, %value
  br i1 %still, label %asleep, label %awake
asleep:
  call void @sleep(ptr %cell, i32 %value)
  br label %sleep
awake:
  %off = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %out
out:
  ret void
}}

define internal void @wake(ptr %cell) {{
entry:
  %sleepers = getelementptr i8, ptr %cell, i64 4
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %rouse, label %out
rouse:
  call void @rouse(ptr %cell)
  br label %out
out:
  ret void
}}
"""

_SLEEP = {
    "futex": """
declare i64 @syscall(i64, ...)
define internal void @sleep(ptr %cell, i32 %value) noinline {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %cell, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}
define internal void @rouse(ptr %cell) noinline {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %cell, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}
""",
    "yield": """
declare i32 @sched_yield()
define internal void @sleep(ptr %cell, i32 %value) {
  %r = call i32 @sched_yield()
  ret void
}
define internal void @rouse(ptr %cell) {
  ret void
}
""",
    "switch": """
declare i32 @SwitchToThread()
define internal void @sleep(ptr %cell, i32 %value) {
  %r = call i32 @SwitchToThread()
  ret void
}
define internal void @rouse(ptr %cell) {
  ret void
}
""",
}

_FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

_PAUSE_X86 = """
declare void @llvm.x86.sse2.pause()
define internal void @pause() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}
"""
_PAUSE_ARM = """
define internal void @pause() alwaysinline {
  call void asm sideeffect "isb", ""()
  ret void
}
"""
_PAUSE_UNKNOWN = """
define internal void @pause() alwaysinline {
  ret void
}
"""
_PAUSE = {"x86_64": _PAUSE_X86, "amd64": _PAUSE_X86, "aarch64": _PAUSE_ARM, "arm64": _PAUSE_ARM}

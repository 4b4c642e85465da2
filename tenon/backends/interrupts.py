"""Ctrl-C while machine code runs: a loop asks now and then whether a signal has come, and is left where it has.

    i32 tenon_interrupted(ptr last)     1 where the loop is to be left; `last` is a word, 0 at first, for its own use
    i32 tenon_stopping()                1 where a loop of this thread has been left; does not ask
    i32 tenon_raise_interrupt()         1 after raising what ended a loop of this thread, which has the GIL

Python only notes a signal, and handles it where Python runs next: not in a loop that does not end.  So Python is asked
to handle it, at most some twenty times a second.  What a handler raises is kept, loops are left, and `raise_interrupt`
raises it where the program has ended.  Signals are handled by the main thread, so other threads are never told to stop.

Programs that may ask run without the GIL, and hold what they use: a handler may do anything.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tenon.backends.llvm import Library, compile, provide
from tenon.locks import Lock

INTERRUPTED, STOPPING, RAISE = "tenon_interrupted", "tenon_stopping", "tenon_raise_interrupt"
OFTEN, SELDOM = 7, 4095    # turns less one, a power of two, after which a loop of steps, or in a kernel, asks
TICKS = 1 << (27 if platform.machine().lower() in ("x86_64", "amd64") else 24)      # of the processor's clock, between


@dataclass(frozen=True)
class Interrupts:
    """The code, and what raises the exception that a handler of signals left, if it is this thread's."""

    library: Library
    raise_interrupt: Callable[[], int]


def interrupts() -> Interrupts:
    """The functions, which other machine code may call from now on."""
    with _making:
        return _make()


@cache
def _make() -> Interrupts:
    library = compile(_TEXT)
    provide({name: library.address(name) for name in (INTERRUPTED, STOPPING, RAISE)})
    return Interrupts(library, ctypes.PYFUNCTYPE(ctypes.c_int32)(library.address(RAISE)))   # raises what it restored


_making = Lock()

_TEXT = f"""
@kept = internal global [4 x ptr] zeroinitializer, align 8          ; the thread's state, type, value, traceback

declare i64 @llvm.readcyclecounter()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyThreadState_Get()
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)

define i32 @{INTERRUPTED}(ptr %last.at) {{
entry:
  %owner = load ptr, ptr @kept, align 8
  %stopping = icmp ne ptr %owner, null
  %now = call i64 @llvm.readcyclecounter()
  %last = load i64, ptr %last.at, align 8
  %first = icmp eq i64 %last, 0
  br i1 %stopping, label %ask, label %calm
calm:
  br i1 %first, label %begin, label %running
begin:
  store i64 %now, ptr %last.at, align 8
  ret i32 0
running:
  %passed = sub i64 %now, %last
  %due = icmp ugt i64 %passed, {TICKS}
  br i1 %due, label %ask, label %on
on:
  ret i32 0
ask:
  %state = call i32 @PyGILState_Ensure()
  %me = call ptr @PyThreadState_Get()
  %found = load ptr, ptr @kept, align 8
  %mine = icmp eq ptr %found, %me
  br i1 %mine, label %done, label %handle
handle:
  %raised = call i32 @PyErr_CheckSignals()
  %bad = icmp ne i32 %raised, 0
  br i1 %bad, label %keep, label %done
keep:
  call void @PyErr_Fetch(ptr getelementptr (i8, ptr @kept, i64 8), ptr getelementptr (i8, ptr @kept, i64 16),
                         ptr getelementptr (i8, ptr @kept, i64 24))
  store ptr %me, ptr @kept, align 8
  br label %done
done:
  %answer = phi i32 [1, %ask], [0, %handle], [1, %keep]
  call void @PyGILState_Release(i32 %state)
  %after = call i64 @llvm.readcyclecounter()
  store i64 %after, ptr %last.at, align 8
  ret i32 %answer
}}

define i32 @{STOPPING}() {{
entry:
  %owner = load ptr, ptr @kept, align 8
  %none = icmp eq ptr %owner, null
  br i1 %none, label %no, label %some
some:
  %state = call i32 @PyGILState_Ensure()
  %me = call ptr @PyThreadState_Get()
  %mine = icmp eq ptr %owner, %me
  %answer = zext i1 %mine to i32
  call void @PyGILState_Release(i32 %state)
  ret i32 %answer
no:
  ret i32 0
}}

define i32 @{RAISE}() {{
entry:
  %owner = load ptr, ptr @kept, align 8
  %none = icmp eq ptr %owner, null
  br i1 %none, label %no, label %some
some:
  %me = call ptr @PyThreadState_Get()
  %mine = icmp eq ptr %owner, %me
  br i1 %mine, label %yes, label %no
yes:
  %type = load ptr, ptr getelementptr (i8, ptr @kept, i64 8), align 8
  %value = load ptr, ptr getelementptr (i8, ptr @kept, i64 16), align 8
  %traceback = load ptr, ptr getelementptr (i8, ptr @kept, i64 24), align 8
  store ptr null, ptr @kept, align 8
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %traceback)
  ret i32 1
no:
  ret i32 0
}}
"""

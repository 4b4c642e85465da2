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
from functools import cache

from tenon.llvm import function_builder
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, WORD, Pointer
from tenon.llvm.machine_code import Library, provide
from tenon.locks import Lock
from tenon.records import dataclass

INTERRUPTED, STOPPING, RAISE = "tenon_interrupted", "tenon_stopping", "tenon_raise_interrupt"
# iterations less one, a power of two, after which a loop of steps, or in a kernel, asks
STEP_LOOP_MASK, KERNEL_LOOP_MASK = 7, 4095
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
    library = function_builder.library("interrupts", TICKS, module_of=lambda _: _module())
    provide({name: library.address(name) for name in (INTERRUPTED, STOPPING, RAISE)})
    return Interrupts(library, ctypes.PYFUNCTYPE(ctypes.c_int32)(library.address(RAISE)))   # raises what it restored


_making = Lock()


def _module() -> NativeModule:
    module = NativeModule()
    module.memory(KEPT, 4)              # the state of the thread that is to raise, and type, value, traceback
    module.declare(CLOCK, WORD)
    module.declare("PyGILState_Ensure", HALF)
    module.declare("PyGILState_Release", NOTHING, HALF)
    module.declare("PyThreadState_Get", POINTER)
    module.declare("PyErr_CheckSignals", HALF)
    for name in ("PyErr_Fetch", "PyErr_Restore"):
        module.declare(name, NOTHING, POINTER, POINTER, POINTER)
    module.define(INTERRUPTED, _interrupted, HALF, POINTER, public=True)
    module.define(STOPPING, _stopping, HALF, public=True)
    module.define(RAISE, _raise, HALF, public=True)
    return module


KEPT, CLOCK = "kept", "llvm.readcyclecounter"


def _interrupted(f: NativeFunction, last: Pointer) -> None:
    kept = f.memory(KEPT)
    with f.where(kept.pointer().is_null()):
        now = f.call(CLOCK)
        with f.where(last.word() == 0):
            last.put(now)
        f.require(now - last.word() > TICKS)
    state, answer = f.call("PyGILState_Ensure"), f.variable(f.half(0))
    me = f.call("PyThreadState_Get")
    with f.unless(kept.pointer() == me), f.where(f.call("PyErr_CheckSignals") != 0):
        f.call("PyErr_Fetch", kept.at(1), kept.at(2), kept.at(3))
        kept.put(me)
    with f.where(kept.pointer() == me):
        answer.set(1)
    f.call("PyGILState_Release", state)
    last.put(f.call(CLOCK))
    f.give(answer())


def _stopping(f: NativeFunction) -> None:
    kept, answer = f.memory(KEPT), f.variable(f.half(0))
    f.require(~kept.pointer().is_null())
    state = f.call("PyGILState_Ensure")
    with f.where(kept.pointer() == f.call("PyThreadState_Get")):
        answer.set(1)
    f.call("PyGILState_Release", state)
    f.give(answer())


def _raise(f: NativeFunction) -> None:
    kept = f.memory(KEPT)
    f.require(~kept.pointer().is_null())
    f.require(kept.pointer() == f.call("PyThreadState_Get"))
    kept.put(f.null())
    f.call("PyErr_Restore", kept.pointer(1), kept.pointer(2), kept.pointer(3))
    f.give(1)

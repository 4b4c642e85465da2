"""A table of steps in memory -> the program run, on every thread, without Python between the steps.

One function for all programs, compiled once in a process, and not a module of calls for each graph: walking a table
costs some nanoseconds a step, compiling such a module milliseconds a graph (0.1 ms a kernel at -O1).

    drive(context, thread, threads)    walks the steps on this thread
    bind(context)                      writes the addresses of this run's arguments, results and arena
    run_alone(context)                 both, on the calling thread only

A step is six words: what it does, and up to five operands.

    END                        KERNEL_ALL  function operands status sizes           every thread
    BARRIER                    KERNEL_ONE  function operands status sizes thread    that thread for all
    HOST step - - - leave      COPY        operands bytes                    thread 0
    MOVE first count           SKIP        step                              thread 0 moves pointers; all others jump
    JUMP step                  JUMP_UNLESS step operands                     where the boolean is false
    CHOOSE operands count      JUMP_WHILE  step operands - - leave           while the pointer, a counter, is not 0
                               AGAIN       step - - - leave                  the next turn of a loop
    FOLLOW operands pointer    ALLOCATE    operands pointer step sizes leave thread 0

`operands` is the place in the context's table of pointers where those of the step begin; `status` the place of the
words that a kernel writes when it fails (an index out of range), 0 for all that cannot fail; `sizes` where its symbolic
sizes begin.  A move is three words, (to, from, offset): pointer `to` becomes pointer `from` and so many bytes.  CHOOSE
goes to one of the `count` steps that follow, by the integer (8 bytes) there, or to the nearest one there is.  ALLOCATE
takes so many bytes of the region of cells, after a call back to `step` if there is no room, and writes their address to
the operand and the pointer; FOLLOW reads it from there.  What jumps look at must not be written before all threads have
looked: the table has barriers for that.

JUMP_WHILE and AGAIN ask now and then whether a signal ends the program (`tenon.backends.interrupts`).  What ends it,
ends it for all threads, where they meet.  In what thread 0 runs alone, behind a SKIP, nobody meets it: there `leave` is
the step behind, where it goes instead, and what follows is not to be trusted until the next HOST step, which ends the
program.  That it has left is known to thread 0 alone until then: others may still be about to read the last decision.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tenon.backends.interrupts import INTERRUPTED, OFTEN, STOPPING, interrupts
from tenon.backends.llvm import Library, compile
from tenon.backends.threads import BARRIER as POOL_BARRIER
from tenon.locks import Lock

END, KERNEL_ALL, KERNEL_ONE, BARRIER, HOST, COPY, JUMP, JUMP_UNLESS, JUMP_WHILE, MOVE, SKIP, CHOOSE, \
    ALLOCATE, FOLLOW, AGAIN = range(15)
MOVE_WORDS = 3
STEP_WORDS = 6
CHECK = -1                   # the HOST step that only looks whether a kernel failed, or a signal ends the program

# Words of the context, 8 bytes each.
(STEPS, POINTERS, SIZES, SCRATCH, SCRATCH_STRIDE, POOL, CALLBACK, FRAME, STATUSES, STATUS_COUNT, STOP, OBJECTS,
 BINDINGS, BINDING_COUNT, DATA_OFFSET, ARENA, PLACES, PLACE_COUNT, MOVES, CELL_NEXT, CELL_END, ASKS) = range(22)
CONTEXT_WORDS = 22

Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)   # (frame, step) -> 0, or 1 to stop


@dataclass(frozen=True)
class Driver:
    """Addresses, and functions for Python.  `run` lets other Python threads go on meanwhile, `run_quickly` does not."""

    library: Library
    drive: int
    bind: Callable[[int], None]
    run: Callable[[int], None]
    run_quickly: Callable[[int], None]


_making = Lock()


def driver() -> Driver:
    """The native functions, compiled at first use or taken from the disk; who asks meanwhile waits for them."""
    with _making:
        return _made()


@cache
def _made() -> Driver:
    interrupts()
    library = compile(driver_ir())
    one = library.address("run_alone")
    return Driver(library, library.address("drive"),
                  ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(library.address("bind")),
                  ctypes.CFUNCTYPE(None, ctypes.c_void_p)(one), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(one))


def driver_ir() -> str:
    """The text of the module."""
    return _DRIVE + _BIND


def _word(name: str, index: int, type: str = "ptr") -> str:
    return (f"  %{name}.at = getelementptr i64, ptr %context, i64 {index}\n"
            f"  %{name} = load {type}, ptr %{name}.at, align 8\n")


_DRIVE = f"""
define void @drive(ptr %context, i32 %thread, i32 %threads) {{
entry:
{_word("steps", STEPS)}{_word("pointers", POINTERS)}{_word("sizes", SIZES)}{_word("scratch.all", SCRATCH)}\
{_word("stride", SCRATCH_STRIDE, "i64")}{_word("pool", POOL)}{_word("callback", CALLBACK)}\
{_word("frame", FRAME, "i64")}{_word("statuses", STATUSES)}{_word("status.count", STATUS_COUNT, "i64")}\
{_word("moves", MOVES)}
  %turns.all = alloca i64, align 8        ; which all threads count alike
  %turns.alone = alloca i64, align 8
  %asked.at = alloca i64, align 8
  %left = alloca i1, align 1              ; whether thread 0 has left what it ran alone
  store i1 0, ptr %left, align 1
  store i64 0, ptr %turns.all, align 8
  store i64 0, ptr %turns.alone, align 8
  store i64 0, ptr %asked.at, align 8
  %stop = getelementptr i64, ptr %context, i64 {STOP}
  %thread.wide = zext i32 %thread to i64
  %scratch.offset = mul i64 %thread.wide, %stride
  %scratch = getelementptr i8, ptr %scratch.all, i64 %scratch.offset
  %first = icmp eq i32 %thread, 0
  br label %next
next:
  %step = phi ptr [%steps, %entry], [%following, %advance], [%target, %jump], [%behind, %leave], [%chosen, %choose]
  %a.at = getelementptr i64, ptr %step, i64 1
  %b.at = getelementptr i64, ptr %step, i64 2
  %c.at = getelementptr i64, ptr %step, i64 3
  %d.at = getelementptr i64, ptr %step, i64 4
  %e.at = getelementptr i64, ptr %step, i64 5
  %following = getelementptr i64, ptr %step, i64 {STEP_WORDS}
  %code = load i64, ptr %step, align 8
  %a = load i64, ptr %a.at, align 8
  %b = load i64, ptr %b.at, align 8
  %c = load i64, ptr %c.at, align 8
  %d = load i64, ptr %d.at, align 8
  %e = load i32, ptr %e.at, align 8
  %status = getelementptr i64, ptr %statuses, i64 %c
  %kernel.sizes = getelementptr i64, ptr %sizes, i64 %d
  %together = icmp eq i32 %e, 0
  switch i64 %code, label %end [
    i64 {KERNEL_ALL}, label %all
    i64 {KERNEL_ONE}, label %one
    i64 {BARRIER}, label %barrier
    i64 {HOST}, label %host
    i64 {COPY}, label %copy
    i64 {JUMP}, label %jump
    i64 {JUMP_UNLESS}, label %unless
    i64 {JUMP_WHILE}, label %while
    i64 {MOVE}, label %move
    i64 {SKIP}, label %skip
    i64 {CHOOSE}, label %choose
    i64 {ALLOCATE}, label %allocate
    i64 {FOLLOW}, label %follow
    i64 {AGAIN}, label %again
  ]
all:
  %all.function = inttoptr i64 %a to ptr
  %all.operands = getelementptr ptr, ptr %pointers, i64 %b
  call void %all.function(ptr %all.operands, ptr %kernel.sizes, i32 %thread, i32 %threads, ptr %scratch, ptr %status)
  br label %advance
one:                                      ; with fewer threads than the table was made for, one stands for several
  %one.thread = urem i32 %e, %threads
  %one.here = icmp eq i32 %one.thread, %thread
  br i1 %one.here, label %one.mine, label %advance
one.mine:
  %one.function = inttoptr i64 %a to ptr
  %one.operands = getelementptr ptr, ptr %pointers, i64 %b
  call void %one.function(ptr %one.operands, ptr %kernel.sizes, i32 0, i32 1, ptr %scratch, ptr %status)
  br label %advance
barrier:
  call void @wait(ptr %pool, i32 %threads)
  br label %advance
copy:
  br i1 %first, label %copy.mine, label %advance
copy.mine:
  %copy.to.at = getelementptr ptr, ptr %pointers, i64 %a
  %copy.from.at = getelementptr ptr, ptr %copy.to.at, i64 1
  %copy.to = load ptr, ptr %copy.to.at, align 8
  %copy.from = load ptr, ptr %copy.from.at, align 8
  call void @llvm.memmove.p0.p0.i64(ptr %copy.to, ptr %copy.from, i64 %b, i1 false)
  br label %advance
move:
  %move.any = icmp ne i64 %b, 0
  %move.here = and i1 %first, %move.any
  br i1 %move.here, label %move.next, label %advance
move.next:
  %moved = phi i64 [0, %move], [%moved.next, %move.next]
  %move.number = add i64 %a, %moved
  %move.word = mul i64 %move.number, {MOVE_WORDS}
  %move.to.word = getelementptr i64, ptr %moves, i64 %move.word
  %move.from.word = getelementptr i64, ptr %move.to.word, i64 1
  %move.offset.word = getelementptr i64, ptr %move.to.word, i64 2
  %move.to = load i64, ptr %move.to.word, align 8
  %move.from = load i64, ptr %move.from.word, align 8
  %move.offset = load i64, ptr %move.offset.word, align 8
  %move.to.at = getelementptr i64, ptr %pointers, i64 %move.to
  %move.from.at = getelementptr i64, ptr %pointers, i64 %move.from
  %move.old = load i64, ptr %move.from.at, align 8
  %move.new = add i64 %move.old, %move.offset
  store i64 %move.new, ptr %move.to.at, align 8
  %moved.next = add i64 %moved, 1
  %move.more = icmp ult i64 %moved.next, %b
  br i1 %move.more, label %move.next, label %advance
follow:
  br i1 %first, label %follow.mine, label %advance
follow.mine:
  %follow.handle.at = getelementptr ptr, ptr %pointers, i64 %a
  %follow.handle = load ptr, ptr %follow.handle.at, align 8
  %follow.cell = load i64, ptr %follow.handle, align 8
  %follow.pointer = getelementptr i64, ptr %pointers, i64 %b
  store i64 %follow.cell, ptr %follow.pointer, align 8
  br label %advance
allocate:
  br i1 %together, label %allocate.meet, label %allocate.mine
allocate.meet:
  call void @wait(ptr %pool, i32 %threads)
  br i1 %first, label %allocate.mine, label %host.after
allocate.mine:
  %cell.next.at = getelementptr i64, ptr %context, i64 {CELL_NEXT}
  %cell.end.at = getelementptr i64, ptr %context, i64 {CELL_END}
  %cell = load i64, ptr %cell.next.at, align 8
  %cell.end = load i64, ptr %cell.end.at, align 8
  %cell.bytes = load i64, ptr %kernel.sizes, align 8
  %cell.after = add i64 %cell, %cell.bytes
  %cell.fits = icmp ule i64 %cell.after, %cell.end
  br i1 %cell.fits, label %allocate.take, label %allocate.grow
allocate.grow:
  %allocate.refused = call i32 %callback(i64 %frame, i64 %c)
  %allocate.no = icmp ne i32 %allocate.refused, 0
  br i1 %allocate.no, label %host.stop, label %allocate.mine
allocate.take:
  store i64 %cell.after, ptr %cell.next.at, align 8
  %cell.handle.at = getelementptr ptr, ptr %pointers, i64 %a
  %cell.handle = load ptr, ptr %cell.handle.at, align 8
  store i64 %cell, ptr %cell.handle, align 8
  %cell.pointer = getelementptr i64, ptr %pointers, i64 %b
  store i64 %cell, ptr %cell.pointer, align 8
  br i1 %together, label %host.after, label %advance
skip:
  br i1 %first, label %advance, label %jump
choose:
  %choice.at = getelementptr ptr, ptr %pointers, i64 %a
  %choice.place = load ptr, ptr %choice.at, align 8
  %choice = load i64, ptr %choice.place, align 8
  %choice.last = sub i64 %b, 1
  %choice.low = call i64 @llvm.smax.i64(i64 %choice, i64 0)
  %choice.in = call i64 @llvm.smin.i64(i64 %choice.low, i64 %choice.last)
  %choice.distance = mul i64 %choice.in, {STEP_WORDS}
  %chosen = getelementptr i64, ptr %following, i64 %choice.distance
  br label %next
while:
  %counter.at = getelementptr i64, ptr %pointers, i64 %b
  %counter = load i64, ptr %counter.at, align 8
  %counted = icmp eq i64 %counter, 0
  br i1 %counted, label %advance, label %again
again:
  %turns.at = select i1 %together, ptr %turns.all, ptr %turns.alone
  %turns = load i64, ptr %turns.at, align 8
  %turns.next = add i64 %turns, 1
  store i64 %turns.next, ptr %turns.at, align 8
  %turns.some = and i64 %turns.next, {OFTEN}
  %due = icmp eq i64 %turns.some, 0
  br i1 %due, label %ask, label %jump
ask:
{_word("asks", ASKS, "i64")}
  %ask.no = icmp eq i64 %asks, 0
  br i1 %ask.no, label %jump, label %ask.whom
ask.whom:
  br i1 %together, label %ask.meet, label %ask.here
ask.here:
  %here.asked = call i32 @{INTERRUPTED}(ptr %asked.at)
  %here.on = icmp eq i32 %here.asked, 0
  br i1 %here.on, label %jump, label %leave
ask.meet:
  call void @wait(ptr %pool, i32 %threads)
  br i1 %first, label %ask.mine, label %ask.after
ask.mine:
  %mine.asked = call i32 @{INTERRUPTED}(ptr %asked.at)
  %mine.on = icmp eq i32 %mine.asked, 0
  br i1 %mine.on, label %ask.after, label %ask.stop
ask.stop:
  store i32 1, ptr %stop, align 4
  br label %ask.after
ask.after:
  call void @wait(ptr %pool, i32 %threads)
  %ask.stopped = load i32, ptr %stop, align 4
  %ask.out = icmp ne i32 %ask.stopped, 0
  br i1 %ask.out, label %end, label %jump
unless:
  %flag.at = getelementptr ptr, ptr %pointers, i64 %b
  %flag.place = load ptr, ptr %flag.at, align 8
  %flag = load i8, ptr %flag.place, align 1
  %false = icmp eq i8 %flag, 0
  br i1 %false, label %jump, label %advance
jump:
  %distance = mul i64 %a, {STEP_WORDS}
  %target = getelementptr i64, ptr %steps, i64 %distance
  br label %next
leave:
  store i1 1, ptr %left, align 1
  %e.wide = zext i32 %e to i64
  %leave.distance = mul i64 %e.wide, {STEP_WORDS}
  %behind = getelementptr i64, ptr %steps, i64 %leave.distance
  br label %next
host:                                     ; thread 0 alone decides whether to stop; the others read what it decided
  br i1 %together, label %host.meet, label %host.mine
host.meet:
  call void @wait(ptr %pool, i32 %threads)
  %has.left = load i1, ptr %left, align 1
  br i1 %first, label %host.first, label %host.after
host.first:
  br i1 %has.left, label %host.stop, label %host.mine
host.mine:
  %k = phi i64 [0, %host], [0, %host.first], [%k.next, %host.look]
  %looked = icmp uge i64 %k, %status.count
  br i1 %looked, label %host.ask, label %host.look
host.look:
  %failed.at = getelementptr i64, ptr %statuses, i64 %k
  %failed = load i64, ptr %failed.at, align 8
  %k.next = add i64 %k, 1
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %host.stop, label %host.mine
host.ask:
  %check = icmp eq i64 %a, {CHECK}
  br i1 %check, label %host.signals, label %host.call
host.signals:
  %host.signalled = call i32 @{STOPPING}()
  %host.on = icmp eq i32 %host.signalled, 0
  br i1 %host.on, label %host.done, label %host.stop
host.call:
  %refused = call i32 %callback(i64 %frame, i64 %a)
  %no = icmp ne i32 %refused, 0
  br i1 %no, label %host.stop, label %host.done
host.done:
  br i1 %together, label %host.after, label %advance
host.stop:
  br i1 %together, label %host.end, label %leave
host.end:
  store i32 1, ptr %stop, align 4
  br label %host.after
host.after:
  call void @wait(ptr %pool, i32 %threads)
  %stopped = load i32, ptr %stop, align 4
  %out = icmp ne i32 %stopped, 0
  br i1 %out, label %end, label %advance
advance:
  br label %next
end:
  ret void
}}

define internal void @wait(ptr %pool, i32 %threads) alwaysinline {{
  %many = icmp ugt i32 %threads, 1
  br i1 %many, label %meet, label %out
meet:
  %at = getelementptr i8, ptr %pool, i64 {POOL_BARRIER}
  %barrier = load ptr, ptr %at, align 8
  call void %barrier(ptr %pool, i32 %threads)
  br label %out
out:
  ret void
}}

declare i32 @{INTERRUPTED}(ptr)
declare i32 @{STOPPING}()
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
"""

_BIND = f"""
define void @bind(ptr %context) {{
entry:
{_word("pointers", POINTERS)}{_word("objects", OBJECTS)}{_word("bindings", BINDINGS)}\
{_word("count", BINDING_COUNT, "i64")}{_word("offset", DATA_OFFSET, "i64")}{_word("arena", ARENA)}\
{_word("places", PLACES)}{_word("place.count", PLACE_COUNT, "i64")}
  %stop = getelementptr i64, ptr %context, i64 {STOP}
  store i64 0, ptr %stop, align 8
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %body]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %place.head
body:
  %pair = getelementptr {{ i64, i64 }}, ptr %bindings, i64 %k
  %which = load i64, ptr %pair, align 8
  %slot.at = getelementptr i64, ptr %pair, i64 1
  %slot = load i64, ptr %slot.at, align 8
  %object.at = getelementptr ptr, ptr %objects, i64 %which
  %object = load ptr, ptr %object.at, align 8
  %data.at = getelementptr i8, ptr %object, i64 %offset
  %data = load ptr, ptr %data.at, align 8
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %slot
  store ptr %data, ptr %pointer.at, align 8
  %k.next = add i64 %k, 1
  br label %head
place.head:
  %n = phi i64 [0, %head], [%n.next, %place.body]
  %place.more = icmp ult i64 %n, %place.count
  br i1 %place.more, label %place.body, label %out
place.body:
  %place = getelementptr {{ i64, i64 }}, ptr %places, i64 %n
  %place.offset = load i64, ptr %place, align 8
  %place.slot.at = getelementptr i64, ptr %place, i64 1
  %place.slot = load i64, ptr %place.slot.at, align 8
  %place.data = getelementptr i8, ptr %arena, i64 %place.offset
  %place.pointer = getelementptr ptr, ptr %pointers, i64 %place.slot
  store ptr %place.data, ptr %place.pointer, align 8
  %n.next = add i64 %n, 1
  br label %place.head
out:
  ret void
}}

define void @run_alone(ptr %context) {{
  call void @bind(ptr %context)
  call void @drive(ptr %context, i32 0, i32 1)
  ret void
}}
"""

"""A table of steps in memory -> the program run, on every thread, without Python between the steps.

One function for all programs, compiled once in a process, and not a module of calls for each graph: walking a table
costs some nanoseconds a step, compiling such a module milliseconds a graph (0.1 ms a kernel at -O1).

    drive(context, thread, threads)    walks the steps on this thread
    bind(context)                      writes the addresses of this run's arguments, results and arena
    run_alone(context)                 both, on the calling thread only

A step is six words: what it does, and up to five operands.

    END                        KERNEL_ALL  function operands status sizes least     every thread, its share of it
    BARRIER                    KERNEL_ONE  function operands status sizes thread    that thread for all
    HOST step - - - leave      COPY        operands bytes                    thread 0
    MOVE first count           SKIP        step                              thread 0 moves pointers; all others jump
    JUMP step                  JUMP_UNLESS step operands                     where the boolean is false
    CHOOSE operands count      JUMP_WHILE  step operands - - leave           while the pointer, a counter, is not 0
                               AGAIN       step - - - leave                  the next iteration of a loop
    FOLLOW operands pointer step kind leave                                    thread 0, unless the cell is another
    WRITE                                                                      arguments are written from now on
    ALLOCATE operands pointer step sizes leave                                 thread 0
    MARK operands              RELEASE operands                                thread 0

`operands` is the place in the context's table of pointers where those of the step begin; `status` the place of the
words that a kernel writes when it fails (an index out of range), 0 for all that cannot fail; `sizes` where its symbolic
sizes begin.  A move is three words, (to, from, offset): pointer `to` becomes pointer `from` and so many bytes.  CHOOSE
goes to one of the `count` steps that follow, by the integer (8 bytes) there, or to the nearest one there is.  ALLOCATE
takes so many bytes of the region of cells, after a call back to `step` if there is no room, writes their address to the
operand and the pointer, and the kind of the cell, which stands behind the size, into its second word.  FOLLOW reads the
address from there, and calls back where it is 0 or leads to a cell of another kind.  MARK writes to two operands where
the region goes on, and RELEASE lets it go on there again.  What jumps look at must not be written before all threads
have looked: the table has barriers for that.

JUMP_WHILE and AGAIN ask now and then whether a signal ends the program (`tenon.llvm.safepoints`).  What ends it,
ends it for all threads, where they meet.  In what thread 0 runs alone, behind a SKIP, nobody meets it: there `leave` is
the step behind, where it goes instead, and what follows is not to be trusted until the next HOST step, which ends the
program.  That it has left is known to thread 0 alone until then: others may still be about to read the last decision.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial

from tenon.llvm import function_builder
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import BOOLEAN, HALF, NOTHING, POINTER, WORD, Pointer, Word
from tenon.llvm.machine_code import Library
from tenon.llvm.native_thread_pool import meet
from tenon.llvm.safepoints import INTERRUPTED, STEP_LOOP_MASK, STOPPING, interrupts
from tenon.llvm.work_partition import PARTS_PER_THREAD
from tenon.locks import Lock
from tenon.program.backend_interface import WRITING
from tenon.records import dataclass

END, KERNEL_ALL, KERNEL_ONE, BARRIER, HOST, COPY, JUMP, JUMP_UNLESS, JUMP_WHILE, MOVE, SKIP, CHOOSE, \
    ALLOCATE, FOLLOW, AGAIN, WRITE, MARK, RELEASE = range(18)
MOVE_WORDS = 3
STEP_WORDS = 6
CELL_KIND = 1                # the word of a cell that says what was pushed
LEAVE = 5                    # the word of a step that says where thread 0 leaves what it runs alone; 0: all are here
CHECK = -1                   # the HOST step that only looks whether a kernel failed, or a signal ends the program

# Words of the context, 8 bytes each.
(STEPS, POINTERS, SIZES, SCRATCH, SCRATCH_STRIDE, POOL, CALLBACK, STATUSES, STATUS_COUNT, STOP, OBJECTS,
 BINDINGS, BINDING_COUNT, DATA_OFFSET, ARENA, PLACES, PLACE_COUNT, MOVES, CELL_NEXT, CELL_END, ASKS, CLAIMS,
 CLAIM_COUNT, PHASE, RUNNER) = range(25)
CONTEXT_WORDS = 25
MIN_PARTS_WORD = 5           # the word of a step that says how many parts of a kernel are worth a call of their own
CLAIM_BYTES = 64             # between the words in which threads note what of their parts is done, or being done

Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)     # step -> 1; 0 to stop, as where the callback raises


@dataclass(frozen=True)
class StepExecutor:
    """Addresses, and functions for Python.  `run` lets other Python threads go on meanwhile, `run_quickly` does not."""

    library: Library
    drive: int
    bind: Callable[[int], None]
    run: Callable[[int], None]
    run_quickly: Callable[[int], None]


_making = Lock()


def driver() -> StepExecutor:
    """The native functions, compiled at first use or taken from the disk; who asks meanwhile waits for them."""
    with _making:
        return _made()


@cache
def _made() -> StepExecutor:
    interrupts()
    library = function_builder.library("driver", module_of=_module)
    one = library.address("run_alone")
    return StepExecutor(library, library.address("drive"),
                  ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(library.address("bind")),
                  ctypes.CFUNCTYPE(None, ctypes.c_void_p)(one), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(one))


# ---------------------------------------------------------------- the native functions

def _module() -> NativeModule:
    module = NativeModule()
    module.declare(INTERRUPTED, HALF, POINTER)
    module.declare(STOPPING, HALF)
    module.declare(MOVE_BYTES, NOTHING, POINTER, POINTER, WORD, BOOLEAN)
    for name in (LARGER, SMALLER):
        module.declare(name, WORD, WORD, WORD)
    module.define("refuses", _refuses, BOOLEAN, POINTER, WORD)
    module.define("full", _full, BOOLEAN, POINTER, WORD, POINTER, POINTER, POINTER)
    module.define("lacks", _lacks, BOOLEAN, POINTER, WORD, WORD, POINTER, POINTER)
    module.define("drive", _drive, NOTHING, POINTER, HALF, HALF, public=True)
    module.define("bind", _bind, NOTHING, POINTER, public=True)
    module.define("run_alone", _run_alone, NOTHING, POINTER, public=True)
    return module


MOVE_BYTES, LARGER, SMALLER = "llvm.memmove.p0.p0.i64", "llvm.smax.i64", "llvm.smin.i64"


def _bind(f: NativeFunction, context: Pointer) -> None:
    pointers, bindings, places = context.pointer(POINTERS), context.pointer(BINDINGS), context.pointer(PLACES)
    objects, offset, arena = context.pointer(OBJECTS), context.word(DATA_OFFSET), context.pointer(ARENA)
    context.put(0, STOP)
    with f.each(context.word(BINDING_COUNT)) as k:
        which, slot, further = (bindings.word(k * 3 + word) for word in range(3))
        pointers.put(objects.pointer(which).behind(offset).pointer().behind(further), slot)
    with f.each(context.word(CLAIM_COUNT)) as k:
        context.pointer(CLAIMS).behind(k * CLAIM_BYTES).put(0)
    with f.each(context.word(PLACE_COUNT)) as k:
        place, slot = places.word(k * 2), places.word(k * 2 + 1)
        pointers.put(arena.behind(place), slot)
    f.give()


def _run_alone(f: NativeFunction, context: Pointer) -> None:
    f.call("bind", context)
    f.call("drive", context, 0, 1)
    f.give()


def _drive(f: NativeFunction, context: Pointer, thread: Word, threads: Word) -> None:
    walk = Walk(f, context, thread, threads)
    with f.loop(lambda: f.word(1) != 0):
        walk.begin_step()
        f.switch(walk.operand(0), {code: partial(write, f, walk) for code, write in _STEPS.items()})
    f.give()


class Walk:
    """What a thread knows on its way through the table."""

    def __init__(self, f: NativeFunction, context: Pointer, thread: Word, threads: Word) -> None:
        self.f, self.context, self.thread, self.threads = f, context, thread, threads
        self.steps, self.pointers, self.sizes = (context.pointer(k) for k in (STEPS, POINTERS, SIZES))
        self.scratch = context.pointer(SCRATCH).behind(thread.wide() * context.word(SCRATCH_STRIDE))
        self.pool, self.statuses, self.moves = (context.pointer(k) for k in (POOL, STATUSES, MOVES))
        self.is_first = thread == 0
        self.step, self.next = f.variable(self.steps), f.variable(self.steps)
        self.left = f.variable(0)               # whether thread 0 has left what it ran alone
        self.iterations, self.asked = f.words(2), f.words(1)
        self.claims, self.claimed = context.pointer(CLAIMS), f.variable(0)

    def begin_step(self) -> None:
        self.step.set(self.next())
        self.next.set(self.step().at(STEP_WORDS))

    def operand(self, k: int) -> Word:
        """A word of the step; the first says what it does."""
        return self.step().word(k)

    def place(self, k: int) -> Pointer:
        """The place among the pointers that is an operand."""
        return self.pointers.at(self.operand(k))

    def together(self) -> Word:
        """Whether all threads are at this step, which may stop all."""
        return self.operand(LEAVE) == 0

    def jump(self, step: Word) -> None:
        self.next.set(self.steps.at(step * STEP_WORDS))

    def meet(self) -> None:
        """Wait for all other threads."""
        meet(self.f, self.pool, self.threads)

    def run(self, first: Word, until: Word, threads: Word) -> None:
        """Some parts of the kernel of the step."""
        self.f.through(self.step().at(1), NOTHING, self.place(2), self.sizes.at(self.operand(4)), first.low(),
                       until.low(), threads, self.scratch, self.statuses.at(self.operand(3)))

    def run_alone(self) -> None:
        """All of the kernel of the step."""
        self.run(self.f.word(0), self.f.word(PARTS_PER_THREAD), self.f.half(1))

    def go_on_unless(self, refuses: Callable[[], Word]) -> None:
        """Thread 0 decides whether the program ends here; the others, where they are here too, read what it decided.

        What is to be ended while thread 0 is alone is left first, and ended where all meet.
        """
        f = self.f
        with f.where(self.together()):
            self.meet()
            with f.where(self.is_first):
                self._ask(refuses, lambda: self.context.put(1, STOP))
            self.meet()
            f.require(self.context.word(STOP) == 0)
        with f.unless(self.together()):
            self._ask(refuses, self._leave)

    def _ask(self, refuses: Callable[[], Word], end: Callable[[], None]) -> None:
        f = self.f
        with f.where(self.left() == 0), f.where(refuses()):
            self.left.set(1)
        with f.where(self.left() != 0):
            end()

    def _leave(self) -> None:
        self.jump(self.operand(LEAVE))


# ---------------------------------------------------------------- what each step does

def _end(f: NativeFunction, walk: Walk) -> None:
    f.give()


def _kernel_all(f: NativeFunction, walk: Walk) -> None:
    """This thread's parts; where parts are worth a call, half of what is left at a time, then what others have left.

    So a thread whose core is slower, or taken by another program, does less.
    """
    least, first = walk.operand(MIN_PARTS_WORD), walk.thread.wide() * PARTS_PER_THREAD
    alone = walk.threads == 1
    with f.where(alone):
        walk.run_alone()
    with f.unless(alone):
        at_once = least == PARTS_PER_THREAD
        with f.where(at_once):
            walk.run(first, first + PARTS_PER_THREAD, walk.threads)
        with f.unless(at_once):
            with f.each(walk.threads.wide()) as k:
                _claim_of(f, walk, (walk.thread.wide() + k) % walk.threads.wide(), least)
            walk.claimed.set(walk.claimed() + PARTS_PER_THREAD)


def _claim_of(f: NativeFunction, walk: Walk, owner: Word, least: Word) -> None:
    """Claim parts of a thread, and do them, until none are left.

    Its word counts what has been claimed in all such steps, so nobody has to set it back.  Who lags behind finds a
    larger number there, since nobody leaves a step before all of it is claimed.
    """
    word, before = walk.claims.behind(owner * CLAIM_BYTES).shared(kind=WORD), walk.claimed()
    seen = f.variable(word.now("monotonic"))
    with f.loop(lambda: seen() < before + PARTS_PER_THREAD):
        place: Word = f.call(LARGER, seen(), before) - before
        half = (f.word(PARTS_PER_THREAD + 1) - place) // 2
        until: Word = f.call(SMALLER, place + f.call(LARGER, half, least), PARTS_PER_THREAD)
        with f.where(word.replace(seen(), before + until) != 0):
            walk.run(owner * PARTS_PER_THREAD + place, owner * PARTS_PER_THREAD + until, walk.threads)
        seen.set(word.now("monotonic"))


def _kernel_one(f: NativeFunction, walk: Walk) -> None:
    """With fewer threads than the table was made for, one stands for several."""
    with f.where(walk.operand(5) % walk.threads.wide() == walk.thread.wide()):
        walk.run_alone()


def _barrier(f: NativeFunction, walk: Walk) -> None:
    walk.meet()


def _host(f: NativeFunction, walk: Walk) -> None:
    walk.go_on_unless(lambda: f.call("refuses", walk.context, walk.operand(1)))


def _refuses(f: NativeFunction, context: Pointer, step: Word) -> None:
    """Whether a kernel failed, or what the host does, or a signal ends the program."""
    with f.each(context.word(STATUS_COUNT)) as k, f.where(context.pointer(STATUSES).word(k) != 0):
        f.give(1)
    with f.where(step == CHECK):
        f.give(f.call(STOPPING) != 0)
    f.give(f.through(context.at(CALLBACK), HALF, step) == 0)


def _copy(f: NativeFunction, walk: Walk) -> None:
    with f.where(walk.is_first):
        f.call(MOVE_BYTES, walk.place(1).pointer(), walk.place(1).pointer(1), walk.operand(2), 0)


def _write(f: NativeFunction, walk: Walk) -> None:
    walk.context.at(PHASE).shared(kind=WORD).set(WRITING, "acq_rel")


def _move(f: NativeFunction, walk: Walk) -> None:
    with f.where(walk.is_first), f.each(walk.operand(2)) as k:
        move = walk.moves.at((walk.operand(1) + k) * MOVE_WORDS)
        walk.pointers.put(walk.pointers.word(move.word(1)) + move.word(2), move.word(0))


def _skip(f: NativeFunction, walk: Walk) -> None:
    with f.unless(walk.is_first):
        walk.jump(walk.operand(1))


def _jump(f: NativeFunction, walk: Walk) -> None:
    walk.jump(walk.operand(1))


def _jump_unless(f: NativeFunction, walk: Walk) -> None:
    with f.where(walk.place(2).pointer().byte() == 0):
        walk.jump(walk.operand(1))


def _choose(f: NativeFunction, walk: Walk) -> None:
    wanted = f.call(LARGER, walk.place(1).pointer().word(), 0)
    walk.next.set(walk.next().at(f.call(SMALLER, wanted, walk.operand(2) - 1) * STEP_WORDS))


def _jump_while(f: NativeFunction, walk: Walk) -> None:
    with f.where(walk.place(2).word() != 0):
        _again(f, walk)


def _again(f: NativeFunction, walk: Walk) -> None:
    """The next iteration of a loop; the iterations that all make are counted apart, since all count them alike."""
    walk.jump(walk.operand(1))
    iterations = walk.iterations.at(walk.together().wide())
    iterations.put(iterations.word() + 1)
    with f.where((iterations.word() & STEP_LOOP_MASK) == 0), f.where(walk.context.word(ASKS) != 0):
        walk.go_on_unless(lambda: f.call(INTERRUPTED, walk.asked) != 0)


def _allocate(f: NativeFunction, walk: Walk) -> None:
    walk.go_on_unless(lambda: f.call("full", walk.context, walk.operand(3), walk.sizes.at(walk.operand(4)),
                                     walk.place(1).pointer(), walk.place(2)))


def _full(f: NativeFunction, context: Pointer, step: Word, cell_is: Pointer, handle: Pointer, pointer: Pointer) -> None:
    """Whether there is no room for a cell of this (size, kind), even after a call back to `step`; else its address is
    written."""
    size = cell_is.word()
    with f.loop(lambda: context.word(CELL_NEXT) + size > context.word(CELL_END)):
        with f.where(f.through(context.at(CALLBACK), HALF, step) == 0):
            f.give(1)
    cell = context.word(CELL_NEXT)
    context.put(cell + size, CELL_NEXT)
    handle.put(cell)
    pointer.put(cell)
    handle.pointer().put(cell_is.word(1), CELL_KIND)
    f.give(0)


def _follow(f: NativeFunction, walk: Walk) -> None:
    walk.go_on_unless(lambda: f.call("lacks", walk.context, walk.operand(3), walk.operand(4), walk.place(1).pointer(),
                                     walk.place(2)))


def _lacks(f: NativeFunction, context: Pointer, step: Word, kind: Word, handle: Pointer, pointer: Pointer) -> None:
    """Whether there is no cell of this kind, of which `step` is told; else its address is written."""
    with f.where(handle.word() != 0), f.where(handle.pointer().word(CELL_KIND) == kind):
        pointer.put(handle.word())
        f.give(0)
    f.give(f.through(context.at(CALLBACK), HALF, step) == 0)


def _mark(f: NativeFunction, walk: Walk) -> None:
    with f.where(walk.is_first):
        for k, word in enumerate((CELL_NEXT, CELL_END)):
            walk.place(1).put(walk.context.word(word), k)


def _release(f: NativeFunction, walk: Walk) -> None:
    with f.where(walk.is_first):
        for k, word in enumerate((CELL_NEXT, CELL_END)):
            walk.context.put(walk.place(1).word(k), word)


_STEPS = {END: _end, KERNEL_ALL: _kernel_all, KERNEL_ONE: _kernel_one, BARRIER: _barrier, HOST: _host, COPY: _copy,
          JUMP: _jump, JUMP_UNLESS: _jump_unless, JUMP_WHILE: _jump_while, MOVE: _move, SKIP: _skip, CHOOSE: _choose,
          ALLOCATE: _allocate, FOLLOW: _follow, AGAIN: _again, WRITE: _write,
          MARK: _mark, RELEASE: _release}
